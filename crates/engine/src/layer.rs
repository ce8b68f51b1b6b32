//! The layers of a model, as they run: one file for each kind.

mod attention;
mod feed_forward;

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::backend::Backend;
use crate::state::State;
use crate::weights::{NormWeights, Projection};

pub(crate) use attention::Attention;
pub(crate) use feed_forward::FeedForward;

/// One step of the residual stream: `x += scale · post_norm(layer(norm(x)))`.
pub(crate) struct Branch {
    /// Before the layer.
    pub(crate) norm: Option<NormWeights>,
    /// Its computation.
    pub(crate) layer: Box<dyn Layer>,
    /// After the layer.
    pub(crate) post_norm: Option<NormWeights>,
    /// The result is multiplied by this before it is added.
    pub(crate) scale: f32,
    /// It sees the residual stream as the branch before it does.
    pub(crate) parallel: bool,
}

/// The computation of a branch. Each kind is a file here and a line in `Builder::layer`.
pub(crate) trait Layer: Send + Sync {
    /// Its matrices, in the order in which they run. The widest of them say how much room [`Pass::wide`] and
    /// [`Pass::narrow`] have.
    fn projections(&self) -> Vec<&Arc<Projection>>;

    /// Returns the state that a session keeps for it, with room for `positions` positions.
    ///
    /// # Errors
    /// If memory runs out.
    fn state(&self, _positions: usize) -> Result<State, Error> {
        Ok(State::None)
    }

    /// Bytes of that state; `None` if they cannot be counted.
    fn state_bytes(&self, _positions: u64) -> Option<u64> {
        Some(0)
    }

    /// Bytes of its state that a token at `position` reads.
    fn state_reads(&self, _position: u64) -> u64 {
        0
    }

    /// The attention that buffers are sized for, if the layer is one.
    fn attention(&self) -> Option<&Attention> {
        None
    }

    /// Runs the rows `h` of a pass, `[rows, hidden]`, to `out`, of the same shape.
    fn run(&self, pass: &mut Pass<'_>, h: &[f32], out: &mut [f32]);
}

/// The sessions of the parts of a batch, as layers see them.
pub(crate) trait Sessions {
    /// The positions that the session of part `part` has filled, and its state for branch `branch`.
    fn state(&mut self, part: usize, branch: usize) -> (usize, &mut State);
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

/// One way of all rows through the layers.
pub(crate) struct Pass<'a> {
    pub(crate) backend: &'a mut dyn Backend,
    pub(crate) sessions: &'a mut dyn Sessions,
    pub(crate) segments: &'a [Segment],
    /// Of all segments together.
    pub(crate) rows: usize,
    /// Which branch runs now: its state in each session has this number.
    pub(crate) branch: usize,
    /// For each rotary embedding of the model.
    pub(crate) rotations: &'a [Rotation],
    /// Room for the results of any projection: `[rows, widest output]`.
    pub(crate) wide: &'a mut [f32],
    /// Room for the input of any projection: `[rows, widest input]`.
    pub(crate) narrow: &'a mut [f32],
}

/// `cos` and `sin` of the rows of a pass: `[rows, head_dim / 2]` each.
#[derive(Default)]
pub(crate) struct Rotation {
    pub(crate) cos: Vec<f32>,
    pub(crate) sin: Vec<f32>,
}

impl Rotation {
    /// Of `rows` rows.
    pub(crate) fn new(rows: usize, pairs: usize) -> Option<Rotation> {
        let zeros = vec![0.0; rows.checked_mul(pairs)?];
        Some(Rotation { cos: zeros.clone(), sin: zeros })
    }

    /// The rows from `row` on are of `count` positions from `position` on. `frequencies` are radians a position.
    pub(crate) fn fill(&mut self, frequencies: &[f64], row: usize, position: usize, count: usize) {
        let half = frequencies.len();
        for t in 0..count {
            for (i, frequency) in frequencies.iter().enumerate() {
                let (sin, cos) = (frequency * (position + t) as f64).sin_cos();
                self.cos[(row + t) * half + i] = cos as f32;
                self.sin[(row + t) * half + i] = sin as f32;
            }
        }
    }
}
