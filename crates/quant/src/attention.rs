//! Attention of the queries that share one key and value head.
//!
//! Positions are taken in spans: [`attend`] gives a [`Partial`] of one, and [`Partial::merge`] puts these together. So the room
//! that scores take does not grow with the number of positions, and spans may be shared out among threads.

mod partial;
mod stored;

use std::ops::Range;

use crate::isa::Isa;
use crate::lanes::{Lanes, for_16_lanes};
use crate::vector::weigh;

pub use partial::{Found, Partial};
pub use stored::{
    Coded, Ranges, Stored, code_bytes, encode_channels, encode_tokens, narrow, token_groups, widen,
};

/// Positions taken at once for all queries: their keys or values stay in the first-level cache meanwhile.
const CHUNK: usize = 32;
/// Lanes of the sums.
const LANES: usize = 16;
/// Scores between those of two queries: rows that are a power of two apart would have to share few places of the cache.
const PAD: usize = 16;

/// The parameters of [`attend`] besides its vectors.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Query heads that share the key and value head. Not 0.
    pub heads: usize,
    /// The factor of the scores, `1 / sqrt(d)` for most families.
    pub scale: f32,
    /// `c`, if the scores are `c * tanh(scale * q · k / c)`.
    pub soft_cap: Option<f32>,
}

/// Keys and values of some positions.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// How many positions.
    pub positions: usize,
    /// `[positions, d]`.
    pub keys: Stored<'a>,
    /// `[positions, e]`; without them, values are the first elements of the keys.
    pub values: Option<Stored<'a>>,
}

/// Room that [`attend`] needs.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// `[queries, positions]`, with rows [`PAD`] further apart.
    scores: Vec<f32>,
    /// The keys or values of a block.
    rows: Vec<f32>,
}

impl Room {
    /// Room for `queries` queries at a time over `positions` positions in blocks of at most `block`, whose keys and values have at
    /// most `widest` elements.
    pub fn new(queries: usize, positions: usize, block: usize, widest: usize) -> Room {
        Room { scores: vec![0.0; queries * (positions + PAD)], rows: vec![0.0; block * widest] }
    }
}

/// `out[t][h] = softmax(scale * q[t][h] · kᵀ) · v` for each row `t` of queries and each head `h`, over the positions
/// `visible[t]` of the keys `k` and values `v` of `blocks`, which follow each other.
///
/// `q` is `[rows, heads, d]` and `out` of `[rows, heads]` queries. Neither starts nor ends of `visible` may decrease; a row
/// may see nothing. Each position is read from memory once for all rows, and a row's result depends neither on the rows beside it
/// nor on positions that it does not see.
///
/// # Panics
/// If the lengths do not fit each other, any is 0, a row sees what is not there, or the room is too small.
pub fn attend<'a>(
    isa: Isa,
    how: Attention,
    q: &[f32],
    blocks: &[Block<'a>],
    visible: &[Range<usize>],
    room: &mut Room,
    out: &mut Partial<'_>,
) {
    let (heads, queries) = (how.heads, how.heads * visible.len());
    assert!(
        queries > 0 && q.len().is_multiple_of(queries) && !q.is_empty(),
        "{} rows of {heads} heads of {} values",
        visible.len(),
        q.len()
    );
    let (d, e) = (q.len() / queries, out.width());
    let n = blocks.iter().map(|block| block.positions).sum::<usize>();
    assert!(out.queries() == queries && e > 0, "results of {} queries, not of {queries}", out.queries());
    let in_order = visible.is_sorted_by(|a, b| a.start <= b.start && a.end <= b.end);
    assert!(in_order && visible.iter().all(|v| v.end <= n), "{visible:?} of {n} positions");
    let apart = n + PAD;
    let scores = &mut room.scores[..queries * apart];

    let values_of = |block: &Block<'a>| block.values.unwrap_or(block.keys);
    let mut first = 0;
    for (i, block) in blocks.iter().enumerate() {
        // Behind the last keys come the first values.
        let next = blocks.get(i + 1).map(|next| next.keys).or_else(|| blocks.first().map(values_of));
        let keys = widen(isa, &block.keys, block.positions, d, next.as_ref(), &mut room.rows);
        // SAFETY: the instructions are there, since an `Isa` is a witness of its own; there are `n` scores of each query, and those
        // of the block begin at `first`; `widen` has checked the number of keys.
        unsafe { score_of(isa)(d, apart, q, keys, &mut scores[first..]) }
        first += block.positions;
    }
    for (t, visible) in visible.iter().enumerate() {
        for query in t * heads..(t + 1) * heads {
            let scores = &mut scores[query * apart..][..n];
            let (most, sum) = weigh(isa, &mut scores[visible.clone()], how.scale, how.soft_cap);
            (out.most[query], out.sum[query]) = (most, sum);
        }
    }
    out.mixed.fill(0.0);
    let mut first = 0;
    for (i, block) in blocks.iter().enumerate() {
        let stride = if block.values.is_some() { e } else { d };
        assert!(e <= stride, "values of {e} elements in keys of {d}");
        let next = blocks.get(i + 1).map(values_of);
        let values = widen(isa, &values_of(block), block.positions, stride, next.as_ref(), &mut room.rows);
        let shape = Mixed { d: e, n: apart, stride };
        let seen = Seen { visible, first, positions: block.positions };
        // SAFETY: as above; `seen` keeps to the positions of the block.
        unsafe { mix_of(isa)(heads, shape, &scores[first..], values, seen, out.mixed) }
        first += block.positions;
    }
}

/// What rows see of a block that begins at position `first`.
#[derive(Clone, Copy)]
struct Seen<'a> {
    visible: &'a [Range<usize>],
    first: usize,
    positions: usize,
}

impl Seen<'_> {
    /// The positions of the block that row `t` sees.
    #[inline(always)]
    fn of(&self, t: usize) -> Range<usize> {
        let within = |at: usize| at.saturating_sub(self.first).min(self.positions);
        let Range { start, end } = self.visible[t];
        within(start)..within(end)
    }
}

for_16_lanes! {
    /// `scores[h][i] = q[h] · k[i]`.
    ///
    /// # Safety
    /// `q` is `[queries, d]`, `k` `[positions, d]`, and `scores` has as many scores of each query, whose rows are `n` apart.
    fn score_of<>(d: usize, n: usize, q: &[f32], k: &[f32], scores: &mut [f32]) = score
}

for_16_lanes! {
    /// `out[t][h] += Σ weights[t][h][i] * v[i]`, over the positions that row `t` sees, in their order.
    ///
    /// # Safety
    /// `weights` has rows that are `shape.n` apart, `v` rows of `shape.stride`, `out` is `[rows, heads, shape.d]`; there are as many
    /// weights of each query, and values, as `seen` has positions.
    fn mix_of<>(heads: usize, shape: Mixed, weights: &[f32], v: &[f32], seen: Seen<'_>, out: &mut [f32]) = mix
}

/// # Safety
/// As [`Lanes`] and [`score_of`].
#[inline(always)]
unsafe fn score<V: Lanes>(d: usize, n: usize, q: &[f32], k: &[f32], scores: &mut [f32]) {
    let (queries, positions) = (q.len() / d, k.len() / d);
    for chunk in (0..positions).step_by(CHUNK) {
        let end = positions.min(chunk + CHUNK);
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
unsafe fn mix<V: Lanes>(
    heads: usize,
    shape: Mixed,
    weights: &[f32],
    v: &[f32],
    seen: Seen<'_>,
    out: &mut [f32],
) {
    let rows = seen.visible.len();
    let queries = heads * rows;
    // Positions that all rows see; a row may see more on either side.
    let start = seen.of(rows - 1).start;
    let end = seen.of(0).end.max(start);
    // SAFETY: queries below `queries`, positions that their rows see.
    unsafe {
        for h in 0..queries {
            let seen = seen.of(h / heads);
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
            let seen = seen.of(h / heads);
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
