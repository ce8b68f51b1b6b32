//! Attention of the queries that share one key and value head.
//!
//! Positions are taken in spans: [`attend`] gives a [`Partial`] of one, and [`Partial::merge`] puts these together. So the room
//! that scores take does not grow with the number of positions, and spans may be shared out among threads.

mod kernel;
mod partial;
mod stored;

use std::ops::Range;

use crate::isa::{Isa, per_isa};
use crate::lanes::{Lanes, for_16_lanes};
use crate::vector::{dot, weigh};

use kernel::{Keys, Seen, Values, mix_of, score_of};
use stored::for_elements;

pub use partial::{Found, Partial};
pub use stored::{
    Coded, GROUP, POSITIONS, Stored, encode_keys, encode_values, keys, narrow, padded, value_place, values,
};

/// Scores between those of two queries: rows that are a power of two apart would have to share few places of the cache.
const PAD: usize = 16;

/// The parameters of [`attend`] besides its vectors.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads that share the key and value head. Not 0.
    pub heads: usize,
    /// The factor of the scores, `1 / sqrt(d)` for most families.
    pub scale: f32,
    /// `c`, if the scores are `c * tanh(scale * q · k / c)`.
    pub soft_cap: Option<f32>,
    /// What is added to `q · k` by distance, if anything is.
    pub relative: Option<Relative<'a>>,
    /// The page that is likely to be read after all of them, if that is known. Its keys are asked for.
    pub next: Option<Block<'a>>,
}

impl Attention<'_> {
    /// The page that is read after page `i`, where `i` counts the keys of `blocks`, then their values; null if it is not known.
    fn after(&self, blocks: &[Block<'_>], i: usize) -> *const u8 {
        let values = |i: usize| blocks.get(i).and_then(|block| block.values);
        let keys = blocks.get(i + 1).map(|block| block.keys);
        let after = keys.or_else(|| values(i + 1 - blocks.len())).or(self.next.map(|next| next.keys));
        after.map_or(std::ptr::null(), |stored| stored.start())
    }
}

/// Addends of `q · k`, by how far a key is from its query.
#[derive(Clone, Copy, Debug)]
pub struct Relative<'a> {
    /// `[heads, 2 reach + 1]`: of the key that is `reach` positions before the query, up to the one `reach` after it. Keys that are
    /// farther have the addend of the farthest.
    pub table: &'a [f32],
    /// Where the query of the first row is, counted from the first position of the blocks. It may be outside.
    pub first: isize,
}

impl Relative<'_> {
    /// Adds what row `row` has for head `head`, of `heads`, to the scores of the positions from `start` on.
    fn add(&self, (row, head, heads): (usize, usize, usize), start: usize, scores: &mut [f32]) {
        let width = self.table.len() / heads;
        let (table, reach) = (&self.table[head * width..][..width], width / 2);
        // The first of the table, as an index of the scores.
        let first = self.first + row.cast_signed() - (reach + start).cast_signed();
        let within = |at: isize| usize::try_from(at).unwrap_or(0).min(scores.len());
        let (near, after) = (within(first), within(first + width.cast_signed()));
        let skipped = usize::try_from(-first).unwrap_or(0);
        scores[..near].iter_mut().for_each(|x| *x += table[0]);
        let of_near = table.get(skipped..).unwrap_or_default();
        scores[near..after].iter_mut().zip(of_near).for_each(|(x, by)| *x += by);
        scores[after..].iter_mut().for_each(|x| *x += table[width - 1]);
    }
}

/// A page of [`POSITIONS`] positions. Those that no query sees hold any numbers.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// `[d, POSITIONS]`.
    pub keys: Stored<'a>,
    /// In the places that [`value_place`] says; without them, values are the first elements of the keys.
    pub values: Option<Stored<'a>>,
}

/// Room that [`attend`] needs.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// `[queries, positions]`, with rows [`PAD`] further apart.
    scores: Vec<f32>,
    /// A page of keys as floats, where values are parts of them, and these values.
    page: Vec<f32>,
    turned: Vec<f32>,
    /// Queries or weights times the scales of codes.
    folded: Vec<f32>,
    /// The sum that the least values of codes add to each query.
    biases: Vec<f32>,
}

impl Room {
    /// Room for `queries` queries at a time over `blocks` blocks, whose keys have `key` elements and values `value`.
    pub fn new(queries: usize, blocks: usize, key: usize, value: usize) -> Room {
        Room {
            scores: vec![0.0; queries * (blocks * POSITIONS + PAD)],
            page: vec![0.0; POSITIONS * key],
            turned: vec![0.0; POSITIONS * padded(value)],
            folded: vec![0.0; queries * key.max(POSITIONS)],
            biases: vec![0.0; queries],
        }
    }
}

/// `out[t][h] = softmax(scale * (q[t][h] · kᵀ)) · v` for each row `t` of queries and each head `h`, over the positions
/// `visible[t]` of the keys `k` and values `v` of `blocks`, which follow each other.
///
/// `q` is `[rows, heads, d]` and `out` of `[rows, heads]` queries. Neither starts nor ends of `visible` may decrease; a row
/// may see nothing. Each position is read from memory once for all rows, and a row's result depends neither on the rows beside it
/// nor on positions that it does not see.
///
/// # Panics
/// If the lengths do not fit each other, any is 0, a row sees what is not there, or the room is too small.
pub fn attend(
    isa: Isa,
    how: Attention<'_>,
    q: &[f32],
    blocks: &[Block<'_>],
    visible: &[Range<usize>],
    room: &mut Room,
    out: &mut Partial<'_>,
) {
    let (heads, queries) = (how.heads, how.heads * visible.len());
    let e = out.width();
    assert!(out.queries() == queries && e > 0, "results of {} queries, not of {queries}", out.queries());
    weights(isa, how, q, blocks, visible, room, |query, of| {
        (out.most[query], out.sum[query]) = (of.most, of.sum);
    });
    let (d, apart) = (q.len() / queries, blocks.len() * POSITIONS + PAD);
    let Room { scores, page, turned, folded, .. } = room;
    out.mixed.fill(0.0);
    for (i, block) in blocks.iter().enumerate() {
        let seen = Seen { visible, first: i * POSITIONS };
        let values = match block.values {
            Some(values) => values,
            None => {
                assert!(e <= d, "values of {e} elements in keys of {d}");
                block.keys.channels(d).decoded(isa, d, POSITIONS, page);
                let turned = &mut turned[..POSITIONS * padded(e)];
                // SAFETY: as above; both have as many elements.
                unsafe { turn_of(isa)(e, page, turned) }
                Stored::F32(turned)
            }
        };
        // Values that are parts of keys are no page to read.
        let after = block.values.map(|values| (values.start(), how.after(blocks, blocks.len() + i)));
        for group in 0..e.div_ceil(GROUP) {
            let (first, count) = (group * GROUP, (e - group * GROUP).min(GROUP));
            let (width, rows) = (padded(count), values.group(e, group));
            let out = &mut out.mixed[first..];
            let weights = &scores[i * POSITIONS..];
            let (weights, apart) = match rows.ranges {
                Some((scales, leasts)) => {
                    for query in 0..queries {
                        let seen = seen.of(query / heads);
                        let weights = &weights[query * apart..][seen.clone()];
                        let to = &mut folded[query * POSITIONS..][seen.clone()];
                        product(isa, weights, &scales[seen.clone()], to);
                        let bias = dot(isa, weights, &leasts[seen]);
                        out[query * e..][..count].iter_mut().for_each(|x| *x += bias);
                    }
                    (&folded[..queries * POSITIONS], POSITIONS)
                }
                None => (weights, apart),
            };
            let (kind, rows) = (rows.kind, rows.start);
            let next = match after {
                Some((start, next)) if !next.is_null() => next.wrapping_add(rows.addr() - start.addr()),
                _ => std::ptr::null(),
            };
            let page = Values { heads, weights, apart, rows, width, next, count, stride: e, seen };
            // SAFETY: as above; `group` has seen the values, and `seen` keeps to the block.
            unsafe { for_elements!(kind, mix_of, isa)(page, out) }
        }
    }
}

/// The weights of the positions that a query sees, before they are divided by their sum.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// The largest score.
    pub most: f32,
    /// The sum of `each`.
    pub sum: f32,
    /// `exp(score - most)`.
    pub each: &'a [f32],
}

/// Calls `each` with every query and its weights, as [`attend`] takes them, in the order `[rows, heads]`.
///
/// # Panics
/// As [`attend`].
pub fn weights(
    isa: Isa,
    how: Attention<'_>,
    q: &[f32],
    blocks: &[Block<'_>],
    visible: &[Range<usize>],
    room: &mut Room,
    mut each: impl FnMut(usize, Weights<'_>),
) {
    let (heads, queries) = (how.heads, how.heads * visible.len());
    assert!(
        queries > 0 && q.len().is_multiple_of(queries) && !q.is_empty(),
        "{} rows of {heads} heads of {} values",
        visible.len(),
        q.len()
    );
    let (d, n) = (q.len() / queries, blocks.len() * POSITIONS);
    let in_order = visible.is_sorted_by(|a, b| a.start <= b.start && a.end <= b.end);
    let width = how.relative.map_or(heads, |relative| relative.table.len());
    assert!(width > 0 && width.is_multiple_of(heads), "addends of {width} distances for {heads} heads");
    assert!(in_order && visible.iter().all(|v| v.end <= n), "{visible:?} of {n} positions");
    let apart = n + PAD;
    let Room { scores, folded, biases, .. } = room;
    let (scores, biases) = (&mut scores[..queries * apart], &mut biases[..queries]);

    for (i, block) in blocks.iter().enumerate() {
        let rows = block.keys.channels(d);
        let q = match rows.ranges {
            Some((scales, leasts)) => {
                let queries = q.chunks_exact(d).zip(folded.chunks_exact_mut(d));
                for ((q, folded), bias) in queries.zip(&mut *biases) {
                    product(isa, q, scales, folded);
                    *bias = dot(isa, q, leasts);
                }
                &folded[..q.len()]
            }
            None => {
                biases.fill(0.0);
                q
            }
        };
        let next = how.after(blocks, i);
        let page = Keys { d, q, biases, rows: rows.start, next, apart };
        // SAFETY: the instructions are there, since an `Isa` is a witness of its own; `channels` has seen the keys, and the scores of a
        // block begin at `i * POSITIONS` of each query.
        unsafe { for_elements!(rows.kind, score_of, isa)(page, &mut scores[i * POSITIONS..]) }
    }
    for (t, visible) in visible.iter().enumerate() {
        for query in t * heads..(t + 1) * heads {
            let scores = &mut scores[query * apart..][..n];
            if let Some(relative) = &how.relative {
                relative.add((t, query - t * heads, heads), visible.start, &mut scores[visible.clone()]);
            }
            let seen = &mut scores[visible.clone()];
            let (most, sum) = weigh(isa, seen, how.scale, how.soft_cap);
            each(query, Weights { most, sum, each: seen });
        }
    }
}

per_isa! {
    /// `out = x * y`.
    fn product(x: &[f32], y: &[f32], out: &mut [f32]) = product_body
}
#[inline(always)]
fn product_body<const FMA: bool>(x: &[f32], y: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len() && y.len() == out.len());
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = x * y;
    }
}

for_16_lanes! {
    /// Makes values of the first `e` channels of keys.
    ///
    /// # Safety
    /// `keys` is `[e, POSITIONS]` at least; there is room for [`POSITIONS`] rows of `padded(e)` elements.
    fn turn_of<>(e: usize, keys: &[f32], values: &mut [f32]) = turn
}

/// # Safety
/// As [`Lanes`] and [`turn_of`].
#[inline(always)]
unsafe fn turn<V: Lanes>(e: usize, keys: &[f32], values: &mut [f32]) {
    let whole = e / 4 * 4;
    for i in (0..whole).step_by(4) {
        // From one position to the next.
        let apart = value_place(e, 1, i) - value_place(e, 0, i);
        for position in (0..POSITIONS).step_by(V::N) {
            // SAFETY: as this function: four channels from `i` on, and as many positions as lanes.
            unsafe {
                let channel = |j: usize| V::load(keys.as_ptr().add((i + j) * POSITIONS + position).cast());
                let to = values.as_mut_ptr().add(value_place(e, position, i));
                V::scatter([channel(0), channel(1), channel(2), channel(3)], to.cast(), 4 * apart);
            }
        }
    }
    for i in whole..e {
        for position in 0..POSITIONS {
            values[value_place(e, position, i)] = keys[i * POSITIONS + position];
        }
    }
}
