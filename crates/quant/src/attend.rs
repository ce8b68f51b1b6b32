//! Attention of the queries that share one key and value head.

use std::ops::Range;

use crate::isa::Isa;
use crate::lanes::{Lanes, for_16_lanes};
use crate::vector::softmax_in_place;

/// Positions taken at once for all queries: their keys or values stay in the first-level cache meanwhile.
const CHUNK: usize = 32;
/// Lanes of the sums.
const LANES: usize = 16;

/// The parameters of [`attend`] besides its vectors.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads that share the key and value head. Not 0.
    pub heads: usize,
    /// The factor of the scores, `1 / sqrt(d)` for most families.
    pub scale: f32,
    /// `c`, if the scores are `c * tanh(scale * q · k / c)`.
    pub soft_cap: Option<f32>,
    /// For each of these heads, a score beside those of the positions: what it takes of the weights goes nowhere.
    pub sinks: Option<&'a [f32]>,
}

/// `out[t][h] = softmax(scale * q[t][h] · kᵀ) · v` for each row `t` of queries and each head `h`, over the positions
/// `visible[t]` of the keys `k` and values `v`.
///
/// `q` is `[rows, heads, d]`, `k` `[n, d]` and `out` `[rows, heads, e]`. The values of a position are the first `e` elements of a
/// row of `v`, which has `n` rows of equal length: `v` may be `k` itself. `scores` is room for `[rows, heads, n]`, and holds the weights
/// afterwards where a row sees something. Neither starts nor ends of `visible` may decrease. Each position of `k` and `v` is
/// read from memory once for all rows, and a row's result does not depend on the rows beside it.
///
/// # Panics
/// If the lengths do not fit each other, any is 0, or a row sees nothing or what is not there.
#[allow(clippy::too_many_arguments, reason = "the formula has them")]
pub fn attend(
    isa: Isa,
    how: Attention<'_>,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    visible: &[Range<usize>],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let (heads, queries) = (how.heads, how.heads * visible.len());
    assert!(
        queries > 0 && q.len().is_multiple_of(queries) && !q.is_empty(),
        "{} rows of {heads} heads of {} values",
        visible.len(),
        q.len()
    );
    let d = q.len() / queries;
    let n = k.len() / d;
    assert!(
        n > 0 && k.len() == n * d && v.len().is_multiple_of(n),
        "keys {} of {d}, {} values",
        k.len(),
        v.len()
    );
    assert!(
        scores.len() == queries * n
            && out.len().is_multiple_of(queries)
            && !out.is_empty()
            && out.len() / queries <= v.len() / n,
        "scores {} for [{queries}, {n}], {} values of {} positions for {}",
        scores.len(),
        v.len(),
        n,
        out.len()
    );
    assert!(how.sinks.is_none_or(|sinks| sinks.len() == heads), "sinks of {heads} heads");
    let in_order = visible.is_sorted_by(|a, b| a.start <= b.start && a.end <= b.end);
    assert!(in_order && visible.iter().all(|v| !v.is_empty() && v.end <= n), "{visible:?} of {n} positions");

    // SAFETY: the instructions are there, since an `Isa` is a witness of its own, and the sizes are checked.
    unsafe { score_of(isa)(d, q, k, scores) }
    for (scores, visible) in scores.chunks_exact_mut(heads * n).zip(visible) {
        for (head, scores) in scores.chunks_exact_mut(n).enumerate() {
            let sink = how.sinks.map_or(f32::NEG_INFINITY, |sinks| sinks[head]);
            softmax_in_place(isa, &mut scores[visible.clone()], how.scale, how.soft_cap, sink);
        }
    }
    out.fill(0.0);
    // SAFETY: as above.
    unsafe { mix_of(isa)(heads, scores, v, visible, out) }
}

for_16_lanes! {
    /// `scores[h][i] = q[h] · k[i]`.
    ///
    /// # Safety
    /// `q` is `[queries, d]`, `k` `[n, d]`, `scores` `[queries, n]`.
    fn score_of<>(d: usize, q: &[f32], k: &[f32], scores: &mut [f32]) = score
}

for_16_lanes! {
    /// `out[t][h] += Σ weights[t][h][i] * v[i]`, over the positions that row `t` sees, in their order.
    ///
    /// # Safety
    /// `weights` is `[rows, heads, n]`, `v` `[n, at least d]`, `out` `[rows, heads, d]`; `visible` ranges are within `n`, and in
    /// order.
    fn mix_of<>(heads: usize, weights: &[f32], v: &[f32], visible: &[Range<usize>], out: &mut [f32]) = mix
}

/// # Safety
/// As [`Lanes`] and [`score_of`].
#[inline(always)]
unsafe fn score<V: Lanes>(d: usize, q: &[f32], k: &[f32], scores: &mut [f32]) {
    let (queries, n) = (q.len() / d, k.len() / d);
    for chunk in (0..n).step_by(CHUNK) {
        let end = n.min(chunk + CHUNK);
        let mut h = 0;
        while h < queries {
            let together = together::<V>(queries - h);
            let mut i = chunk;
            while i < end {
                let four = i + 4 <= end;
                // SAFETY: as many queries from `h` on as are taken together, positions up to `i + 4` if there are four.
                unsafe {
                    let (q, k) = (q.as_ptr().add(h * d), k.as_ptr().add(i * d));
                    let scores = scores.as_mut_ptr().add(h * n + i);
                    match (together, four) {
                        (4, true) => dots::<V, 4, 4>(d, n, q, k, scores),
                        (4, false) => dots::<V, 4, 1>(d, n, q, k, scores),
                        (2, true) => dots::<V, 2, 4>(d, n, q, k, scores),
                        (2, false) => dots::<V, 2, 1>(d, n, q, k, scores),
                        (_, true) => dots::<V, 1, 4>(d, n, q, k, scores),
                        (_, false) => dots::<V, 1, 1>(d, n, q, k, scores),
                    }
                }
                i += if four { 4 } else { 1 };
            }
            h += together;
        }
    }
}

/// Returns how many of `left` queries are taken at once: the most that registers hold beside four keys or columns.
#[inline(always)]
fn together<V: Lanes>(left: usize) -> usize {
    match left {
        4.. if V::REGISTERS >= 32 => 4,
        2.. if V::REGISTERS >= 32 => 2,
        _ => 1,
    }
}

/// The products of `H` heads with `R` keys.
///
/// # Safety
/// As [`Lanes`]; `q` points to `H` rows of `d`, `k` to `R`, and `scores` to `R` floats in each of `H` rows of `n`.
#[inline(always)]
unsafe fn dots<V: Lanes, const H: usize, const R: usize>(
    d: usize,
    n: usize,
    q: *const f32,
    k: *const f32,
    scores: *mut f32,
) {
    let whole = d / LANES * LANES;
    // SAFETY: as this function; the remainder of a row is read by `rest`.
    unsafe {
        let mut sums = [[V::splat_f(0.0); R]; H];
        let mut i = 0;
        while i < d {
            let mut keys = [V::splat_f(0.0); R];
            for r in 0..R {
                let key = k.add(r * d + i);
                keys[r] = if i < whole { V::load_f(key) } else { rest::<V>(key, d - whole) };
            }
            for h in 0..H {
                let query = q.add(h * d + i);
                let query = if i < whole { V::load_f(query) } else { rest::<V>(query, d - whole) };
                for r in 0..R {
                    sums[h][r] = V::fma(query, keys[r], sums[h][r]);
                }
            }
            i += LANES;
        }
        for h in 0..H {
            if let Ok(four) = <[V::F; 4]>::try_from(&sums[h][..]) {
                scores.add(h * n).cast::<[f32; 4]>().write(V::sum_of_4(four));
            } else {
                for r in 0..R {
                    *scores.add(h * n + r) = V::sum(sums[h][r]);
                }
            }
        }
    }
}

/// The `n` floats at `p`, fewer than there are lanes, and zeros.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn rest<V: Lanes>(p: *const f32, n: usize) -> V::F {
    let mut lanes = [0.0; LANES];
    // SAFETY: as this function; `lanes` has all that a load reads.
    unsafe {
        lanes[..n].copy_from_slice(std::slice::from_raw_parts(p, n));
        V::load_f(lanes.as_ptr())
    }
}

/// # Safety
/// As [`Lanes`] and [`mix_of`].
#[inline(always)]
unsafe fn mix<V: Lanes>(heads: usize, weights: &[f32], v: &[f32], visible: &[Range<usize>], out: &mut [f32]) {
    let queries = heads * visible.len();
    let (d, n) = (out.len() / queries, weights.len() / queries);
    let shape = Mixed { d, n, stride: v.len() / n };
    // Positions that all rows see; a row may see more on either side.
    let start = visible.last().map_or(0, |last| last.start);
    let end = visible.first().map_or(0, |first| first.end).max(start);
    // SAFETY: queries below `queries`, positions that their rows see.
    unsafe {
        for h in 0..queries {
            let seen = &visible[h / heads];
            span::<V>(shape, h, 1, seen.start..seen.end.min(start), weights, v, out);
        }
        for chunk in (start..end).step_by(CHUNK) {
            let mut h = 0;
            while h < queries {
                let together = together::<V>(queries - h);
                span::<V>(shape, h, together, chunk..end.min(chunk + CHUNK), weights, v, out);
                h += together;
            }
        }
        for h in 0..queries {
            let seen = &visible[h / heads];
            span::<V>(shape, h, 1, seen.start.max(end)..seen.end, weights, v, out);
        }
    }
}

/// The sizes of what is mixed.
#[derive(Clone, Copy)]
struct Mixed {
    /// Elements of a result.
    d: usize,
    /// Weights of a query.
    n: usize,
    /// Elements from one position's values to the next.
    stride: usize,
}

/// Adds the values of `positions` to `count` queries from `h` on: 4, 2 or 1.
///
/// # Safety
/// As [`mix`]; the queries and the positions are there.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "those of `mix`, and a place")]
unsafe fn span<V: Lanes>(
    shape: Mixed,
    h: usize,
    count: usize,
    positions: Range<usize>,
    weights: &[f32],
    v: &[f32],
    out: &mut [f32],
) {
    let rows = positions.len();
    if rows == 0 {
        return;
    }
    let Mixed { d, n, stride } = shape;
    let mut i = 0;
    while i < d {
        let left = d - i;
        // SAFETY: as this function, and as many columns as are left.
        unsafe {
            let weights = weights.as_ptr().add(h * n + positions.start);
            let (v, out) = (v.as_ptr().add(positions.start * stride + i), out.as_mut_ptr().add(h * d + i));
            match (count, left >= 4 * LANES) {
                (4, true) => columns::<V, 4, 4>(shape, rows, weights, v, out),
                (2, true) => columns::<V, 2, 4>(shape, rows, weights, v, out),
                (_, true) => columns::<V, 1, 4>(shape, rows, weights, v, out),
                (4, false) if left >= LANES => columns::<V, 4, 1>(shape, rows, weights, v, out),
                (2, false) if left >= LANES => columns::<V, 2, 1>(shape, rows, weights, v, out),
                (_, false) if left >= LANES => columns::<V, 1, 1>(shape, rows, weights, v, out),
                _ => last_columns(count, left, shape, rows, weights, v, out),
            }
        }
        i += if left >= 4 * LANES { 4 * LANES } else { left.min(LANES) };
    }
}

/// `C` vectors of columns of the values, for `H` heads, over `rows` positions.
///
/// # Safety
/// As [`Lanes`]; `v` points into rows of `stride`, `out` into `H` rows of `d`, `weights` into `H` rows of `n`.
#[inline(always)]
unsafe fn columns<V: Lanes, const H: usize, const C: usize>(
    shape: Mixed,
    rows: usize,
    weights: *const f32,
    v: *const f32,
    out: *mut f32,
) {
    let Mixed { d, n, stride } = shape;
    // SAFETY: as this function.
    unsafe {
        let mut sums = [[V::splat_f(0.0); C]; H];
        for h in 0..H {
            for c in 0..C {
                sums[h][c] = V::load_f(out.add(h * d + c * LANES));
            }
        }
        for r in 0..rows {
            let mut values = [V::splat_f(0.0); C];
            for c in 0..C {
                values[c] = V::load_f(v.add(r * stride + c * LANES));
            }
            for h in 0..H {
                let weight = V::splat_f(*weights.add(h * n + r));
                for c in 0..C {
                    sums[h][c] = V::fma(weight, values[c], sums[h][c]);
                }
            }
        }
        for h in 0..H {
            for c in 0..C {
                V::store_f(out.add(h * d + c * LANES), sums[h][c]);
            }
        }
    }
}

/// [`columns`] for `left` columns, fewer than there are lanes.
///
/// # Safety
/// As [`columns`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "those of `columns` and their number")]
unsafe fn last_columns(
    heads: usize,
    left: usize,
    shape: Mixed,
    rows: usize,
    weights: *const f32,
    v: *const f32,
    out: *mut f32,
) {
    let Mixed { d, n, stride } = shape;
    for (h, r) in (0..heads).flat_map(|h| (0..rows).map(move |r| (h, r))) {
        for i in 0..left {
            // SAFETY: as this function.
            unsafe { *out.add(h * d + i) += *weights.add(h * n + r) * *v.add(r * stride + i) }
        }
    }
}
