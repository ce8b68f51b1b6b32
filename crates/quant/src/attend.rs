//! Attention of the query heads that share one key and value head.

use crate::isa::Isa;
use crate::lanes::{Lanes, for_16_lanes};
use crate::vector::softmax_in_place;

/// Positions taken at once for all heads: their keys or values stay in the first-level cache meanwhile.
const CHUNK: usize = 16;
/// Lanes of the sums.
const LANES: usize = 16;

/// What [`attend`] needs to know beside its vectors.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Query heads that share the key and value head. Not 0.
    pub heads: usize,
    /// The factor of the scores, `1 / sqrt(d)` for most families.
    pub scale: f32,
    /// `c`, if the scores are `c * tanh(scale * q · k / c)`.
    pub soft_cap: Option<f32>,
}

/// `out[h] = softmax(scale * q[h] · kᵀ) · v` for each query head `h` that shares the keys `k` and values `v`.
///
/// `q` and `out` are `[heads, d]`, `k` and `v` `[n, d]`, `scores` is room for `[heads, n]` and holds the weights
/// afterwards. Each row of `k` and `v` is read from memory once for all heads.
///
/// # Panics
/// If the lengths do not fit each other, or any is 0.
pub fn attend(
    isa: Isa,
    how: Attention,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let heads = how.heads;
    assert!(
        heads > 0 && q.len().is_multiple_of(heads) && !q.is_empty(),
        "{heads} heads of {} values",
        q.len()
    );
    let d = q.len() / heads;
    let n = k.len() / d;
    assert!(n > 0 && k.len() == n * d && v.len() == n * d, "keys {} and values {} of {d}", k.len(), v.len());
    assert!(scores.len() == heads * n && out.len() == q.len(), "scores {} for [{heads}, {n}]", scores.len());

    // SAFETY: the instructions are there, since an `Isa` is a witness of its own, and the sizes are checked.
    unsafe { score_of(isa)(d, q, k, scores) }
    for scores in scores.chunks_exact_mut(n) {
        softmax_in_place(isa, scores, how.scale, how.soft_cap);
    }
    out.fill(0.0);
    // SAFETY: as above.
    unsafe { mix_of(isa)(d, scores, v, out) }
}

for_16_lanes! {
    /// `scores[h][i] = q[h] · k[i]`.
    ///
    /// # Safety
    /// `q` is `[heads, d]`, `k` `[n, d]`, `scores` `[heads, n]`.
    fn score_of<>(d: usize, q: &[f32], k: &[f32], scores: &mut [f32]) = score
}

for_16_lanes! {
    /// `out[h] += Σ weights[h][i] * v[i]`.
    ///
    /// # Safety
    /// `weights` is `[heads, n]`, `v` `[n, d]`, `out` `[heads, d]`.
    fn mix_of<>(d: usize, weights: &[f32], v: &[f32], out: &mut [f32]) = mix
}

/// # Safety
/// As [`Lanes`] and [`score_of`].
#[inline(always)]
unsafe fn score<V: Lanes>(d: usize, q: &[f32], k: &[f32], scores: &mut [f32]) {
    let (heads, n) = (q.len() / d, k.len() / d);
    let two = V::REGISTERS >= 32;
    for chunk in (0..n).step_by(CHUNK) {
        let end = n.min(chunk + CHUNK);
        let mut h = 0;
        while h < heads {
            let pair = two && h + 2 <= heads;
            let mut i = chunk;
            while i < end {
                let four = i + 4 <= end;
                // SAFETY: heads `h` and `h + 1` if there is a pair, positions up to `i + 4` if there are four.
                unsafe {
                    let (q, k) = (q.as_ptr().add(h * d), k.as_ptr().add(i * d));
                    let scores = scores.as_mut_ptr().add(h * n + i);
                    match (pair, four) {
                        (true, true) => dots::<V, 2, 4>(d, n, q, k, scores),
                        (true, false) => dots::<V, 2, 1>(d, n, q, k, scores),
                        (false, true) => dots::<V, 1, 4>(d, n, q, k, scores),
                        (false, false) => dots::<V, 1, 1>(d, n, q, k, scores),
                    }
                }
                i += if four { 4 } else { 1 };
            }
            h += if pair { 2 } else { 1 };
        }
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
    // SAFETY: as this function; what is left of a row is read by `rest`.
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
unsafe fn mix<V: Lanes>(d: usize, weights: &[f32], v: &[f32], out: &mut [f32]) {
    let (heads, n) = (out.len() / d, v.len() / d);
    let two = V::REGISTERS >= 32;
    for chunk in (0..n).step_by(CHUNK) {
        let rows = (n - chunk).min(CHUNK);
        let mut h = 0;
        while h < heads {
            let pair = two && h + 2 <= heads;
            let mut i = 0;
            while i < d {
                let left = d - i;
                // SAFETY: heads `h` and `h + 1` if there is a pair, and as many columns as are left.
                unsafe {
                    let weights = weights.as_ptr().add(h * n + chunk);
                    let (v, out) = (v.as_ptr().add(chunk * d + i), out.as_mut_ptr().add(h * d + i));
                    match (pair, left >= 4 * LANES) {
                        (true, true) => columns::<V, 2, 4>(d, n, rows, weights, v, out),
                        (false, true) => columns::<V, 1, 4>(d, n, rows, weights, v, out),
                        (true, false) if left >= LANES => columns::<V, 2, 1>(d, n, rows, weights, v, out),
                        (false, false) if left >= LANES => columns::<V, 1, 1>(d, n, rows, weights, v, out),
                        _ => last_columns(if pair { 2 } else { 1 }, left, d, n, rows, weights, v, out),
                    }
                }
                i += if left >= 4 * LANES { 4 * LANES } else { left.min(LANES) };
            }
            h += if pair { 2 } else { 1 };
        }
    }
}

/// `C` vectors of columns of the values, for `H` heads, over `rows` positions.
///
/// # Safety
/// As [`Lanes`]; `v` points into rows of `d`, `out` into `H` of them, `weights` into `H` rows of `n`.
#[inline(always)]
unsafe fn columns<V: Lanes, const H: usize, const C: usize>(
    d: usize,
    n: usize,
    rows: usize,
    weights: *const f32,
    v: *const f32,
    out: *mut f32,
) {
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
                values[c] = V::load_f(v.add(r * d + c * LANES));
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
    d: usize,
    n: usize,
    rows: usize,
    weights: *const f32,
    v: *const f32,
    out: *mut f32,
) {
    for (h, r) in (0..heads).flat_map(|h| (0..rows).map(move |r| (h, r))) {
        for i in 0..left {
            // SAFETY: as this function.
            unsafe { *out.add(h * d + i) += *weights.add(h * n + r) * *v.add(r * d + i) }
        }
    }
}
