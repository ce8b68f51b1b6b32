//! Operations that layers need from the processor.
//!
//! Activations are row-major f32, one row per token. A runner owns the buffers, layers determine the order of the
//! operations, and a backend carries them out; so two backends run the same model, and differ by rounding.

mod activation;
mod attending;
mod ceiling;
mod cpu;
mod delta;
mod kernels;
mod product;
mod reference;
mod tune;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use model::Activation;
use tensor::{RopeOrder, ValueOrder};

use crate::state::{RecurrentShape, ShareParts, write_alone};
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvCache};
use load::Tensor;

pub(crate) use activation::activated;
pub use ceiling::Ceiling;
pub use cpu::Cpu;
pub use reference::Reference;
pub use tune::{Choice, Tried, Tuned, tune};

/// Where the heads of one token's q and k lie, and how they are normed and rotated.
pub struct Heads<'a> {
    /// Query heads, at the start of a row.
    pub heads: usize,
    /// Key heads, after them.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a row: what follows the heads is left alone.
    pub width: usize,
    /// Norm of each query head, or of all together, as wide as its weight is.
    pub q_norm: Option<&'a NormWeights>,
    /// Norm of each key head, or of all together.
    pub k_norm: Option<&'a NormWeights>,
    /// How they are rotated, if positions are rotary.
    pub rotation: Option<Rotated<'a>>,
}

/// How some elements of each head are rotated.
#[derive(Clone, Copy, Debug)]
pub struct Rotated<'a> {
    /// Of each pair: `[rows, pairs]`.
    pub cos: &'a [f32],
    /// The same.
    pub sin: &'a [f32],
    /// Pairs.
    pub pairs: usize,
    /// The first element of a head that is rotated.
    pub first: usize,
    /// Which elements are paired.
    pub order: RopeOrder,
}

impl Heads<'_> {
    /// True if they are neither normed nor rotated.
    fn stay(&self) -> bool {
        self.q_norm.is_none() && self.k_norm.is_none() && self.rotation.is_none()
    }
}

impl fmt::Debug for Heads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heads").finish_non_exhaustive()
    }
}

/// How the rows of a pass attend.
pub struct Attend<'a> {
    /// Query heads, at the start of a row.
    pub heads: usize,
    /// Elements of a row of queries, of which those of the heads are used.
    pub width: usize,
    /// A row sees itself and the `window - 1` positions before it; as many after it, if it sees both ways.
    pub window: Option<usize>,
    /// The positions of its cache that it sees.
    pub sees: Sees,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`, for scores that were multiplied.
    pub soft_cap: Option<f32>,
    /// For each query head, a score that goes to no position.
    pub sinks: Option<&'a [f32]>,
    /// Added to the products of queries and keys before these are scaled: `[heads, 2 reach + 1]`, of the key that is `reach` positions
    /// before its query, up to the one `reach` after it. Keys that are farther have the addend of the farthest.
    pub relative: Option<&'a [f32]>,
}

/// The positions that a row sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// Its own and those before it.
    Before,
    /// Its whole sequence, also what comes after it.
    BothWays,
    /// All that the cache has, which is not of its sequence.
    Heard,
}

impl fmt::Debug for Attend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attend").finish_non_exhaustive()
    }
}

impl Attend<'_> {
    /// The positions that the row of `sequence` at `position` sees.
    pub fn visible(&self, sequence: &Sequence<'_>, position: usize) -> Range<usize> {
        let most = self.window.unwrap_or(usize::MAX);
        let first = (position + 1).saturating_sub(most);
        match self.sees {
            Sees::Before => first..position + 1,
            Sees::BothWays => first..position.saturating_add(most).min(sequence.position + sequence.rows),
            Sees::Heard => 0..sequence.cache.len(),
        }
    }

    /// What head `head` of a query at `position` adds to its product with the key at `key`.
    fn addend(&self, head: usize, position: usize, key: usize) -> f32 {
        let Some(table) = self.relative else { return 0.0 };
        let width = table.len() / self.heads;
        let place = (key + width / 2).saturating_sub(position).min(width - 1);
        table[head * width + place]
    }
}

/// A feed-forward network: `down(act(gate(x)) · up(x))`, or `down(act(up(x)))`.
#[derive(Clone, Copy, Debug)]
pub struct Mlp<'a> {
    /// Applied to the gate, or to up where there is no gate.
    pub activation: Activation,
    /// True with a gate.
    pub is_gated: bool,
    /// Gate (if any) and up.
    pub gate_up: &'a Arc<Projection>,
    /// Back to what it was given.
    pub down: &'a Arc<Projection>,
}

impl Mlp<'_> {
    /// The network in its steps, as [`Backend::feed_forward`] has it.
    fn run<B: Backend + ?Sized>(
        &self,
        backend: &mut B,
        x: &[f32],
        rows: usize,
        [wide, narrow]: [&mut [f32]; 2],
        out: &mut [f32],
    ) {
        backend.linear(self.gate_up, x, rows, wide);
        backend.activate(self.activation, self.is_gated, wide, rows, narrow);
        backend.linear(self.down, narrow, rows, out);
    }
}

/// Linear attention by the gated delta rule ([`model::module::GatedDelta`]).
pub struct DeltaRule<'a> {
    /// The sizes of its state.
    pub shape: RecurrentShape,
    /// The order in which heads of values lie, in rows, in the state and in results.
    pub order: ValueOrder,
    /// Of the convolution: `[heads, kernel, channels]`.
    pub weights: &'a [f32],
    /// Applied to the output of the convolution.
    pub activation: Activation,
    /// A rate for each head of values, below 0. It multiplies `softplus(a)`.
    pub decay: &'a [f32],
    /// Added to the squares of a query or a key before it is made of length 1.
    pub unit_eps: f32,
    /// Of a value.
    pub norm: &'a NormWeights,
    /// Elements of a row: queries, keys, values, their gates, and for each head of values `b` and `a`.
    pub width: usize,
}

impl fmt::Debug for DeltaRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaRule").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Where the parts of one head of values begin in a row.
pub(crate) struct DeltaRow {
    /// The query that it shares.
    pub(crate) q: usize,
    /// The key that it shares.
    pub(crate) k: usize,
    /// The value.
    pub(crate) v: usize,
    /// The gate.
    pub(crate) z: usize,
    /// How much is written.
    pub(crate) b: usize,
    /// How much is kept.
    pub(crate) a: usize,
}

impl DeltaRule<'_> {
    /// Where the parts of the head `head` begin in a row.
    pub(crate) fn row(&self, head: usize) -> DeltaRow {
        let RecurrentShape { heads, key_heads, key, value, .. } = self.shape;
        let (keys, values) = (key_heads * key, heads * value);
        let shared = self.shape.key_head(head, self.order);
        let gates = 2 * keys + 2 * values;
        DeltaRow {
            q: shared * key,
            k: keys + shared * key,
            v: 2 * keys + head * value,
            z: 2 * keys + values + head * value,
            b: gates + head,
            a: gates + heads + head,
        }
    }
}

/// `ln(1 + exp(x))`, which is `x` where that is large.
///
/// Source: `torch.nn.functional.softplus`, whose threshold is 20.
pub(crate) fn soft_plus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Some rows of a pass, which are of one session.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Keys and values, including those of these rows.
    pub cache: &'a KvCache,
    /// The page of the cache that has position 0 of the session.
    pub first_page: usize,
    /// The position of the first row, without those before it that the cache has left out.
    pub position: usize,
    /// How many rows.
    pub rows: usize,
}

/// New rows of a pass, and the cache that takes their keys and values.
#[derive(Debug)]
pub struct Growth<'a> {
    /// The cache that takes them.
    pub cache: &'a mut KvCache,
    /// Where it takes them: as many rows in all as `rows` has, in order.
    pub pieces: &'a [Piece],
    /// The rows, with the heads of each at its start.
    pub rows: &'a mut [f32],
}

/// Rows of a pass that are of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The place in its cache that the first position of the sequence has.
    pub first: usize,
    /// Positions of the sequence before these rows.
    pub position: usize,
    /// Which rows of the pass.
    pub rows: Range<usize>,
}

/// Rows of a sequence that one thread takes alone: more are shared out.
const ALONE: usize = 16;

impl Growth<'_> {
    /// The first of its rows in the pass.
    fn first_row(&self) -> usize {
        self.pieces.first().map_or(0, |piece| piece.rows.start)
    }

    /// Adds keys and values of the rows, of `width` elements each, to the cache; they are at `keys` and `values` in each row.
    fn take_rows(&mut self, width: usize, kv: &[Range<usize>; 2]) {
        self.take_rows_by(width, kv, &mut write_alone);
    }

    /// The same, where `share` gives parts of the cache to threads: those of more than [`ALONE`] rows.
    fn take_rows_by(&mut self, width: usize, [keys, values]: &[Range<usize>; 2], share: &mut ShareParts<'_>) {
        let mut left = &*self.rows;
        for piece in self.pieces {
            let (rows, others) = left.split_at(piece.rows.len() * width);
            left = others;
            let rows = rows.chunks_exact(width);
            let kv = rows.clone().map(|row| (&row[keys.clone()], &row[values.clone()]));
            self.cache.skip_to(piece.first);
            let position = piece.first + piece.position;
            if piece.rows.len() > ALONE {
                self.cache.extend_by(position, kv, share);
            } else {
                self.cache.extend(position, kv);
            }
            if let Some(observed) = self.cache.observed() {
                observed.add(piece.position, rows);
            }
        }
    }
}

/// The operations of layers.
pub trait Backend: Send {
    /// The name, with the instruction set where there is a choice.
    fn name(&self) -> String;

    /// Makes room for attention over `positions` positions: passes allocate nothing then.
    ///
    /// # Errors
    /// If memory runs out.
    fn reserve(&mut self, positions: usize) -> Result<(), Error> {
        let _ = positions;
        Ok(())
    }

    /// Row `ids[t]` of `table`, times `scale`, into row `t` of `out`.
    fn embed(&mut self, table: &Tensor, ids: &[u32], scale: f32, out: &mut [f32]) {
        let width = out.len() / ids.len();
        for (id, out) in ids.iter().zip(out.chunks_exact_mut(width)) {
            table.decode_row(*id as usize, out);
            for x in out {
                *x *= scale;
            }
        }
    }

    /// `out[t] = norm(x[t])`; `x` and `out` are `[rows, width]`.
    fn norm(&mut self, norm: &NormWeights, x: &[f32], out: &mut [f32]);

    /// `y[t] = W x[t] + b` for every part of the projection, side by side: `x` is `[rows, in]`, `y`
    /// `[rows, out]`.
    fn linear(&mut self, projection: &Arc<Projection>, x: &[f32], rows: usize, y: &mut [f32]);

    /// The product of each of `projections`, which have one input and one output width, with some rows of `x`: `rows[i]` of them,
    /// after those of the projections before. `x` is `[sum of rows, in]`, `y` `[sum of rows, out]`.
    fn linear_each(&mut self, projections: &[Arc<Projection>], rows: &[usize], x: &[f32], y: &mut [f32]) {
        let mut first = 0;
        for (projection, rows) in projections.iter().zip(rows.iter().copied()).filter(|(_, rows)| *rows > 0) {
            let x = &x[first * projection.input..][..rows * projection.input];
            self.linear(projection, x, rows, &mut y[first * projection.out..][..rows * projection.out]);
            first += rows;
        }
    }

    /// Norms and rotates the heads of q and k in place; `qk` is `[rows, heads.width]`, of the rows of a pass from `first` on.
    fn rotate(&mut self, heads: &Heads, qk: &mut [f32], first: usize);

    /// Norms and rotates the heads of new rows in place, of `heads.width` elements each, and adds their keys and values to their
    /// caches; a row has these at the places `kv`. None of `growths` is `None`.
    fn grow(&mut self, heads: &Heads, kv: [Range<usize>; 2], growths: &mut [Option<Growth<'_>>]) {
        for growth in growths.iter_mut().flatten() {
            self.rotate(heads, growth.rows, growth.first_row());
            growth.take_rows(heads.width, &kv);
        }
    }

    /// Softmax attention of each query head, each row over the positions of its sequence: `q` is `[rows, how.width]`, `out`
    /// `[rows, heads · elements of a value]`, with the rows of each of `sequences` in turn. Their caches have one shape.
    fn attend(&mut self, how: &Attend, sequences: &[Sequence], q: &[f32], out: &mut [f32]);

    /// For each key head, the sum of the weights that the queries of its heads give to each position before them: `to` is `[kv_heads, positions]`.
    /// `q` is `[rows, how.width]`, of the rows at the places of `cache` after those positions; each sees all places before its own.
    fn attention_sums(&mut self, how: &Attend, cache: &KvCache, q: &[f32], to: &mut [f32]);

    /// `out[t] = sigmoid(x[t][first..]) · out[t]`: `x` is `[rows, width]`; `out` `[rows, elements that are gated]`.
    fn gate(&mut self, x: &[f32], width: usize, first: usize, out: &mut [f32]);

    /// The gated delta rule over `rows` rows of one sequence, which `state` is before and then after: `x` is `[rows, rule.width]`, `out`
    /// `[rows, heads of values · elements of a value]`.
    fn delta(&mut self, rule: &DeltaRule<'_>, state: &mut [f32], x: &[f32], rows: usize, out: &mut [f32]);

    /// `out = act(gate) * up`, or `act(up)` without a gate. `x` is `[rows, gate | up]`, `out` `[rows, width]`.
    fn activate(&mut self, act: Activation, gated: bool, x: &[f32], rows: usize, out: &mut [f32]);

    /// A feed-forward network: `x` is `[rows, in]`, `out` `[rows, out]`. `room` is for the results of its first matrices, and for what is
    /// activated: of each the values of all rows.
    fn feed_forward(
        &mut self,
        mlp: &Mlp<'_>,
        x: &[f32],
        rows: usize,
        room: [&mut [f32]; 2],
        out: &mut [f32],
    ) {
        mlp.run(self, x, rows, room, out);
    }

    /// `x += scale · y`.
    fn add(&mut self, x: &mut [f32], y: &[f32], scale: f32);

    /// Measures the limits of this machine that bound the backend, reading `memory`; `None` if there are
    /// none but the backend itself. Takes a good part of a second.
    fn ceiling(&mut self, memory: &[&[u8]]) -> Option<Ceiling> {
        let _ = memory;
        None
    }
}
