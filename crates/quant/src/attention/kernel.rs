//! Scores of a page of keys, and sums of a page of values.

use std::ops::Range;

use super::stored::{Element, POSITIONS, ask};
use crate::lanes::{Lanes, for_16_lanes};

/// Lanes of a vector.
const LANES: usize = 16;
/// Vectors of a page's positions.
const VECTORS: usize = POSITIONS / LANES;

/// A page of keys, and the queries that look at it.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    /// Elements of a key.
    pub(super) d: usize,
    /// `[queries, d]`.
    pub(super) q: &'a [f32],
    /// `[queries]`: the start of each query's scores.
    pub(super) biases: &'a [f32],
    /// `[d, POSITIONS]`.
    pub(super) rows: *const u8,
    /// The address that is read next, or null.
    pub(super) next: *const u8,
    /// From the scores of one query to those of the next.
    pub(super) apart: usize,
}

for_16_lanes! {
    /// `scores[h][i] = biases[h] + Σ q[h][c] * keys[c][i]`, the channels `c` in their order, at all positions `i` of a page.
    ///
    /// # Safety
    /// The keys are there; `scores` has [`POSITIONS`] of each query.
    pub(super) fn score_of<E: Element>(page: Keys<'_>, scores: &mut [f32]) = score
}

/// # Safety
/// As [`Lanes`] and [`score_of`].
#[inline(always)]
unsafe fn score<V: Lanes, E: Element>(page: Keys<'_>, scores: &mut [f32]) {
    let queries = page.biases.len();
    let mut h = 0;
    while h < queries {
        let together = together::<V>(queries - h);
        // Asked for once.
        let next = if h == 0 { page.next } else { std::ptr::null() };
        let page = Keys { next, ..page };
        // SAFETY: as many queries from `h` on as are taken together.
        unsafe {
            match together {
                4 => dots::<V, E, 4>(page, h, scores),
                3 => dots::<V, E, 3>(page, h, scores),
                2 => dots::<V, E, 2>(page, h, scores),
                _ => dots::<V, E, 1>(page, h, scores),
            }
        }
        h += together;
    }
}

/// Returns how many of `left` queries are taken at once: the most that registers hold beside a row of a page.
#[inline(always)]
fn together<V: Lanes>(left: usize) -> usize {
    match left {
        _ if V::REGISTERS < 32 => 1,
        5 => 3,
        left => left.min(4),
    }
}

/// The scores of `H` queries from `h` on.
///
/// # Safety
/// As [`score`]; the queries are there.
#[inline(always)]
unsafe fn dots<V: Lanes, E: Element, const H: usize>(page: Keys<'_>, h: usize, scores: &mut [f32]) {
    let Keys { d, q, biases, rows, next, apart } = page;
    // SAFETY: as this function.
    unsafe {
        let (q, scores) = (q.as_ptr().add(h * d), scores.as_mut_ptr().add(h * apart));
        let mut sums = [[V::splat_f(0.0); VECTORS]; H];
        for (sums, bias) in sums.iter_mut().zip(&biases[h..]) {
            *sums = [V::splat_f(*bias); VECTORS];
        }
        for c in 0..d {
            ask::<E>(next, c, 2);
            let [a, b] = E::part::<V>(rows.add(2 * c * E::BYTES));
            let [e, f] = E::part::<V>(rows.add((2 * c + 1) * E::BYTES));
            let row = [a, b, e, f];
            for (i, sums) in sums.iter_mut().enumerate() {
                let query = V::splat_f(*q.add(i * d + c));
                for (sum, key) in sums.iter_mut().zip(row) {
                    *sum = V::fma(query, key, *sum);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                V::store_f(scores.add(i * apart + j * LANES), *sum);
            }
        }
    }
}

/// A group of elements of a page of values, and the queries that look at it.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    /// Queries of a row.
    pub(super) heads: usize,
    /// Weights of each query at all positions of the page.
    pub(super) weights: &'a [f32],
    /// From the weights of one query to those of the next.
    pub(super) apart: usize,
    /// `[POSITIONS, width]`.
    pub(super) rows: *const u8,
    /// 32 or 64.
    pub(super) width: usize,
    /// The address that is read next, or null.
    pub(super) next: *const u8,
    /// How many elements of a result there are, `width` at most.
    pub(super) count: usize,
    /// From the first of these to that of the next query.
    pub(super) stride: usize,
    /// For each row of queries, the positions that it sees.
    pub(super) seen: Seen<'a>,
}

/// The positions that rows see, and the first position of the page.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) visible: &'a [Range<usize>],
    pub(super) first: usize,
}

impl Seen<'_> {
    /// The positions of the page that row `t` sees.
    #[inline(always)]
    pub(super) fn of(&self, t: usize) -> Range<usize> {
        let within = |at: usize| at.saturating_sub(self.first).min(POSITIONS);
        within(self.visible[t].start)..within(self.visible[t].end)
    }
}

for_16_lanes! {
    /// `out[t][h] += Σ weights[t][h][i] * values[i]`, over the positions `i` that row `t` sees, in their order.
    ///
    /// # Safety
    /// The values are there, the weights of each query, and `count` elements of each result.
    pub(super) fn mix_of<E: Element>(page: Values<'_>, out: &mut [f32]) = mix
}

/// # Safety
/// As [`Lanes`] and [`mix_of`].
#[inline(always)]
unsafe fn mix<V: Lanes, E: Element>(page: Values<'_>, out: &mut [f32]) {
    let Values { heads, seen, .. } = page;
    let rows = seen.visible.len();
    let queries = heads * rows;
    // Positions that all rows see; a row may see more on either side.
    let start = seen.of(rows - 1).start;
    let end = seen.of(0).end.max(start);
    let alone = Values { next: std::ptr::null(), ..page };
    // SAFETY: queries below `queries`, positions that their rows see.
    unsafe {
        for h in 0..queries {
            let seen = seen.of(h / heads);
            span::<V, E, 1>(alone, h, seen.start..seen.end.min(start), out);
        }
        let mut h = 0;
        while h < queries {
            let together = together::<V>(queries - h);
            let page = if h == 0 { page } else { alone };
            match together {
                4 => span::<V, E, 4>(page, h, start..end, out),
                3 => span::<V, E, 3>(page, h, start..end, out),
                2 => span::<V, E, 2>(page, h, start..end, out),
                _ => span::<V, E, 1>(page, h, start..end, out),
            }
            h += together;
        }
        for h in 0..queries {
            let seen = seen.of(h / heads);
            span::<V, E, 1>(alone, h, seen.start.max(end)..seen.end, out);
        }
    }
}

/// Adds the values of `positions` to `H` queries from `h` on.
///
/// # Safety
/// As [`mix`]; the queries and the positions are there.
#[inline(always)]
unsafe fn span<V: Lanes, E: Element, const H: usize>(
    page: Values<'_>,
    h: usize,
    positions: Range<usize>,
    out: &mut [f32],
) {
    if positions.is_empty() {
        return;
    }
    // SAFETY: as this function.
    unsafe {
        match page.width {
            64 => columns::<V, E, H, 4, 2>(page, h, positions, out),
            _ => columns::<V, E, H, 2, 1>(page, h, positions, out),
        }
    }
}

/// [`span`] for rows of `C` vectors, in `P` parts.
///
/// # Safety
/// As [`span`].
#[inline(always)]
unsafe fn columns<V: Lanes, E: Element, const H: usize, const C: usize, const P: usize>(
    page: Values<'_>,
    h: usize,
    positions: Range<usize>,
    out: &mut [f32],
) {
    let Values { weights, apart, rows, next, count, stride, .. } = page;
    // SAFETY: as this function; vectors that are not all there are read and written by what is.
    unsafe {
        let (weights, out) = (weights.as_ptr().add(h * apart), out.as_mut_ptr().add(h * stride));
        let mut sums = [[V::splat_f(0.0); C]; H];
        for (i, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = load_some::<V>(out.add(i * stride + c * LANES), count.saturating_sub(c * LANES));
            }
        }
        for r in positions {
            ask::<E>(next, r, P);
            let mut row = [V::splat_f(0.0); C];
            for p in 0..P {
                [row[2 * p], row[2 * p + 1]] = E::part::<V>(rows.add((r * P + p) * E::BYTES));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let weight = V::splat_f(*weights.add(i * apart + r));
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum = V::fma(weight, value, *sum);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                store_some::<V>(out.add(i * stride + c * LANES), *sum, count.saturating_sub(c * LANES));
            }
        }
    }
}

/// The first `n` floats at `p`, and zeros if these are fewer than the lanes.
///
/// # Safety
/// As [`Lanes`]; `n` floats are there, or as many as lanes.
#[inline(always)]
unsafe fn load_some<V: Lanes>(p: *const f32, n: usize) -> V::F {
    // SAFETY: as this function; `lanes` has all that a load reads.
    unsafe {
        if n >= LANES {
            return V::load_f(p);
        }
        let mut lanes = [0.0; LANES];
        lanes[..n].copy_from_slice(std::slice::from_raw_parts(p, n));
        V::load_f(lanes.as_ptr())
    }
}

/// Writes the first `n` lanes to `p`.
///
/// # Safety
/// As [`load_some`].
#[inline(always)]
unsafe fn store_some<V: Lanes>(p: *mut f32, v: V::F, n: usize) {
    // SAFETY: as this function; `lanes` has all that a store writes.
    unsafe {
        if n >= LANES {
            return V::store_f(p, v);
        }
        let mut lanes = [0.0; LANES];
        V::store_f(lanes.as_mut_ptr(), v);
        std::slice::from_raw_parts_mut(p, n).copy_from_slice(&lanes[..n]);
    }
}
