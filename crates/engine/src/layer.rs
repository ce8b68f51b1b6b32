//! The layers of a model, as they run: one file for each kind.

mod attention;
mod cross_attention;
mod feed_forward;
mod gated_delta;
mod latent_attention;
mod mixture;

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{Attend, Backend, Growth, Heads, Piece, Sequence};
use crate::rotary::Rotation;
use crate::state::{PAGE, RecurrentShape, State};
use crate::weights::{NormWeights, Projection};
use crate::{BATCH, Error, KvCache, KvKind, KvShape};

pub(crate) use attention::Attention;
pub(crate) use cross_attention::CrossAttention;
pub(crate) use feed_forward::FeedForward;
pub(crate) use gated_delta::GatedDelta;
pub(crate) use latent_attention::LatentAttention;
pub(crate) use mixture::{Mixture, Routes};

/// One step of the residual stream: `x = sum_norm(x + scale · post_norm(layer(norm(x))))`.
pub(crate) struct Branch {
    /// Before the layer.
    pub(crate) norm: Option<NormWeights>,
    /// Its computation.
    pub(crate) layer: Box<dyn Layer>,
    /// After the layer.
    pub(crate) post_norm: Option<NormWeights>,
    /// The result is multiplied by this before it is added.
    pub(crate) scale: f32,
    /// Of the residual stream, after the result was added.
    pub(crate) sum_norm: Option<NormWeights>,
    /// It sees the residual stream as the branch before it does.
    pub(crate) parallel: bool,
}

/// The computation of a branch. Each kind is a file here and a line in `branches`.
pub(crate) trait Layer: Send + Sync {
    /// Its matrices, in the order in which they run.
    fn projections(&self) -> Vec<&Arc<Projection>>;

    /// The room that it needs in a pass, for each row.
    fn room(&self) -> Room {
        let projections = self.projections();
        let widest = |of: fn(&Projection) -> usize| projections.iter().map(|p| of(p)).max().unwrap_or(0);
        Room { wide: widest(|p| p.out), narrow: widest(|p| p.input), ..Room::default() }
    }

    /// The sizes of what it keeps of a position, if it attends.
    fn cached(&self) -> Option<KvShape> {
        None
    }

    /// The sizes of what it keeps of all positions together, if it is linear attention.
    fn recurrent(&self) -> Option<RecurrentShape> {
        None
    }

    /// Returns the state that a session keeps for it, with room for `positions` positions; keys and values as `kind` says.
    ///
    /// # Errors
    /// If memory runs out.
    fn state(&self, kind: KvKind, positions: usize) -> Result<State, Error> {
        let Some(shape) = self.cached() else { return Ok(State::None) };
        Ok(State::Kv(Box::new(KvCache::new(shape, kind, positions)?)))
    }

    /// Bytes of that state; `None` if they cannot be counted.
    fn state_bytes(&self, kind: KvKind, positions: usize) -> Option<u64> {
        self.cached().map_or(Some(0), |shape| shape.bytes(kind, positions))
    }

    /// Bytes of its state that a token at `position` reads.
    fn state_reads(&self, kind: KvKind, position: usize) -> u64 {
        self.cached().map_or(0, |shape| shape.reads(kind, position))
    }

    /// The heads that buffers are sized for, if the layer attends.
    fn attention(&self) -> Option<HeadSizes> {
        None
    }

    /// How rows of `width` attend, if the layer keeps their keys and values.
    fn attends(&self, width: usize) -> Option<Attend<'_>> {
        let _ = width;
        None
    }

    /// Elements of a row's queries, if the layer looks at all positions: a budget may leave some out.
    fn observed(&self) -> Option<usize> {
        self.cached().filter(|shape| shape.window.is_none())?;
        self.attention().map(|sizes| sizes.heads * sizes.key)
    }

    /// The layer, if it looks at what an audio encoder gives.
    fn cross(&self) -> Option<&CrossAttention> {
        None
    }

    /// Runs the rows `h` of a pass, `[rows, hidden]`, to `out`, of the same shape.
    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]);
}

/// The room that layers need in a pass, for each row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Values in [`Pass::wide`].
    pub(crate) wide: usize,
    /// Values in [`Pass::narrow`].
    pub(crate) narrow: usize,
    /// Experts that a row is sent to.
    pub(crate) used: usize,
    /// Experts of the layer, or heads that have a matrix each.
    pub(crate) experts: usize,
    /// Output features of each of these.
    pub(crate) each: usize,
}

impl Room {
    /// Room for either.
    pub(crate) fn max(self, other: Room) -> Room {
        Room {
            wide: self.wide.max(other.wide),
            narrow: self.narrow.max(other.narrow),
            used: self.used.max(other.used),
            experts: self.experts.max(other.experts),
            each: self.each.max(other.each),
        }
    }
}

/// Sizes of the heads of an attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadSizes {
    /// Query heads.
    pub(crate) heads: usize,
    /// Query heads that share a key head.
    pub(crate) group: usize,
    /// Elements of a key.
    pub(crate) key: usize,
    /// Elements of a value.
    pub(crate) value: usize,
    /// Elements that are normed together; 0: none are.
    pub(crate) normed: usize,
}

/// The sessions of the parts of a batch, as layers see them.
pub(crate) trait Sessions {
    /// The positions that the session of part `part` has filled, and its state for branch `branch`.
    fn state(&self, part: usize, branch: usize) -> (usize, &State);

    /// Gives `each` the states for branch `branch`, to be written, in the order of the parts: which parts have one, and the positions that
    /// their session has filled.
    fn states_mut<'s>(&'s mut self, branch: usize, each: &mut dyn FnMut(Range<usize>, usize, &'s mut State));

    /// The page of that state which has the first position of part `part`: parts may share a state for one pass.
    fn first_page(&self, _part: usize) -> usize {
        0
    }
}

/// Some tokens of one part, and their rows in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Which part.
    pub(crate) part: usize,
    /// Which of its tokens.
    pub(crate) tokens: Range<usize>,
    /// The first row.
    pub(crate) row: usize,
}

impl Segment {
    /// Its rows in the pass.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.row..self.row + self.tokens.len()
    }
}

/// The sequences whose rows are in a pass.
pub(crate) struct Sequences<'a> {
    pub(crate) sessions: &'a mut dyn Sessions,
    pub(crate) segments: &'a [Segment],
    /// Which branch runs now: its state in each session has this number.
    pub(crate) branch: usize,
}

/// Sequences of most passes, for which little room is cleared.
const FEW: usize = 8;

impl Sequences<'_> {
    /// Gives `each` the states for the branch that runs now, to be written: the segments of one, and the positions filled before them.
    pub(crate) fn states_mut<'s>(&'s mut self, mut each: impl FnMut(&'s [Segment], usize, &'s mut State)) {
        let mut left = self.segments;
        self.sessions.states_mut(self.branch, &mut |parts, position, state| {
            let (segments, others) = left.split_at(left.partition_point(|segment| segment.part < parts.end));
            left = others;
            if !segments.is_empty() {
                each(segments, position, state);
            }
        });
    }

    /// Norms and rotates the heads of all rows, adds their keys and values to the caches of their sessions, and attends to these. Rows
    /// of `q` begin with their queries; `keys` and `values` are where a row has these.
    pub(crate) fn attend(
        &mut self,
        backend: &mut dyn Backend,
        heads: &Heads<'_>,
        how: &Attend<'_>,
        [keys, values]: [Range<usize>; 2],
        q: &mut [f32],
        out: &mut [f32],
    ) {
        if self.segments.len() <= FEW {
            self.grow::<FEW>(backend, heads, how.width, [keys, values], q);
        } else {
            self.grow::<BATCH>(backend, heads, how.width, [keys, values], q);
        }
        let sequence = |segment: &Segment| {
            let (position, State::Kv(cache)) = self.sessions.state(segment.part, self.branch) else {
                unreachable!("`state` has made a cache for this layer")
            };
            let first_page = self.sessions.first_page(segment.part);
            Sequence { cache, first_page, position: cache.place(position), rows: segment.tokens.len() }
        };
        self.attend_to(backend, how, q, sequence, out);
    }

    /// Norms and rotates the heads of rows of `width` elements, and adds keys and values to the caches, of `N` segments at most.
    fn grow<const N: usize>(
        &mut self,
        backend: &mut dyn Backend,
        heads: &Heads<'_>,
        width: usize,
        kv: [Range<usize>; 2],
        q: &mut [f32],
    ) {
        let mut pieces = [const { Piece { first: 0, position: 0, rows: 0..0 } }; N];
        for (piece, segment) in pieces.iter_mut().zip(self.segments) {
            let first = self.sessions.first_page(segment.part) * PAGE;
            let (position, _) = self.sessions.state(segment.part, self.branch);
            *piece = Piece { first, position, rows: segment.rows() };
        }
        let mut growths = [const { None }; N];
        let (mut count, mut pieces, mut rows) = (0, &pieces[..self.segments.len()], &mut *q);
        self.states_mut(|segments, _, state| {
            let State::Kv(cache) = state else { unreachable!("`state` has made a cache for this layer") };
            let (mine, others) = pieces.split_at(segments.len());
            let of_mine = segments.iter().map(|segment| segment.tokens.len()).sum::<usize>();
            let (q, left) = std::mem::take(&mut rows).split_at_mut(of_mine * width);
            growths[count] = Some(Growth { cache, pieces: mine, rows: q });
            (count, pieces, rows) = (count + 1, others, left);
        });
        backend.grow(heads, kv, &mut growths[..count]);
    }

    /// Attends to what the sessions of all rows have heard. Rows `q` are their queries.
    pub(crate) fn attend_heard(
        &self,
        backend: &mut dyn Backend,
        how: &Attend<'_>,
        q: &[f32],
        out: &mut [f32],
    ) {
        let sequence = |segment: &Segment| {
            let (position, State::Heard(Some(cache))) = self.sessions.state(segment.part, self.branch) else {
                unreachable!("a runner looks whether its sessions have heard")
            };
            Sequence { cache, first_page: 0, position, rows: segment.tokens.len() }
        };
        self.attend_to(backend, how, q, sequence, out);
    }

    fn attend_to<'s>(
        &'s self,
        backend: &mut dyn Backend,
        how: &Attend<'_>,
        q: &[f32],
        sequence: impl Fn(&Segment) -> Sequence<'s>,
        out: &mut [f32],
    ) {
        let Some(first) = self.segments.first().map(&sequence) else { return };
        let (mut few, mut many);
        let sequences = if self.segments.len() <= FEW {
            few = [first; FEW];
            &mut few[..]
        } else {
            many = [first; BATCH];
            &mut many[..]
        };
        for (to, segment) in sequences.iter_mut().zip(self.segments) {
            *to = sequence(segment);
        }
        backend.attend(how, &sequences[..self.segments.len()], q, out);
    }
}

/// One way of all rows through the layers.
pub(crate) struct Pass<'a> {
    pub(crate) backend: &'a mut dyn Backend,
    pub(crate) sequences: Sequences<'a>,
    /// Of all sequences together.
    pub(crate) rows: usize,
    /// For each rotary embedding of the model.
    pub(crate) rotations: &'a [Rotation],
    /// Room for the results of any projection, as [`Layer::room`] asked for it.
    pub(crate) wide: &'a mut [f32],
    /// Room for the input of any projection.
    pub(crate) narrow: &'a mut [f32],
    /// Which experts the rows are sent to.
    pub(crate) routes: &'a mut Routes,
    /// Keeps what some heads look at.
    pub(crate) watch: Option<&'a mut Watch>,
}

/// Keeps what some heads of cross-attention look at, while one session runs.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Branches, and heads of them.
    pub(crate) heads: Vec<(usize, usize)>,
    /// For each, the products of its queries and keys: `[rows so far, vectors heard]`.
    pub(crate) products: Vec<Vec<f32>>,
}
