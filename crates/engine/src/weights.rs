//! The parameters of layers.

use std::ops::Range;

use load::Tensor;
use model::Norm;

/// A norm, with its factor and, for a LayerNorm that has one, its bias: f32, `[width]` each.
#[derive(Debug)]
pub struct NormWeights {
    /// The kind of norm.
    pub kind: Norm,
    /// Multiplied.
    pub weight: Tensor,
    /// Added.
    pub bias: Option<Tensor>,
}

/// One matrix of a projection.
#[derive(Debug)]
pub struct Linear {
    /// `[rows, in]`; `rows` may exceed `out` by padding.
    pub weight: Tensor,
    /// Added to its results. A feature that none of them covers has no bias.
    pub biases: Vec<Bias>,
    /// Output features.
    pub out: usize,
}

/// Added to the results of some features of a matrix that follow each other.
#[derive(Clone, Debug)]
pub struct Bias {
    /// The first of these features.
    pub first: usize,
    /// f32, `[features]`.
    pub values: Tensor,
}

impl Bias {
    /// That of all features.
    pub fn whole(values: Tensor) -> Bias {
        Bias { first: 0, values }
    }
}

impl Linear {
    /// The biases of the features of `range`, each with the place in `range` that it begins at.
    pub fn biases_of(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &[f32])> {
        self.biases.iter().filter_map(move |Bias { first, values }| {
            let values = values.as_f32();
            let (start, end) = (range.start.max(*first), range.end.min(first + values.len()));
            (start < end).then(|| (start - range.start, &values[start - first..end - first]))
        })
    }
}

/// Matrices that share an input; their outputs lie side by side.
#[derive(Debug)]
pub struct Projection {
    /// Its module: `layers.0.attention.qkv`.
    pub path: String,
    /// The matrices.
    pub parts: Vec<Linear>,
    /// Input features.
    pub input: usize,
    /// Output features of all parts.
    pub out: usize,
    /// Of how many like it a token is multiplied with how many: `(1, 1)`, or the experts that a token is sent to, of all.
    pub share: (u64, u64),
}

impl Projection {
    /// Bytes of its matrices.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().flat_map(|part| part.weight.slots()).map(|slot| slot.bytes().len() as u64).sum()
    }

    /// True for the last matrix of a feed-forward layer.
    pub fn is_down(&self) -> bool {
        self.path.ends_with(".down")
    }

    /// Pairs of numbers that are multiplied and added with a token that is multiplied with it.
    pub fn macs(&self) -> u64 {
        self.input as u64 * self.out as u64
    }

    /// The share of `whole` that is of it, on average.
    pub fn share_of(&self, whole: u64) -> u64 {
        let (used, all) = self.share;
        whole.saturating_mul(used).div_ceil(all.max(1))
    }
}
