//! The audio encoder of a model that transcribes: its convolutions and layers.

use std::sync::Arc;

use ::model::module::AudioEncoder;
use ::model::{Architecture, Computes};
use load::Tensor;

use crate::Error;
use crate::branches;
use crate::build::{Builder, size, unsaid};
use crate::layer::{Branch, Room};
use crate::weights::{Bias, Linear, NormWeights, Projection};

/// Frames that a convolution sees.
pub(crate) const KERNEL: usize = 3;
/// The second convolution takes every other frame.
pub(crate) const STRIDE: usize = 2;

/// The audio encoder of a model.
pub(crate) struct Ear {
    /// Mel bands.
    pub(crate) mels: usize,
    /// Vectors that it gives.
    pub(crate) context: usize,
    /// `[hidden, mels · 3]`.
    pub(crate) conv1: Arc<Projection>,
    /// `[hidden, hidden · 3]`.
    pub(crate) conv2: Arc<Projection>,
    /// `[context, hidden]`.
    pub(crate) positions: Tensor,
    branches: Vec<Branch>,
    pub(crate) norm: NormWeights,
}

impl Ear {
    /// The encoder that `arch` describes, if it has one.
    pub(crate) fn of(arch: &Architecture, build: &mut Builder<'_>) -> Result<Option<Ear>, Error> {
        arch.audio_encoder().map(|says| Ear::new(Architecture::AUDIO_ENCODER, *says, build)).transpose()
    }

    /// The encoder at `path`.
    fn new(path: &str, says: AudioEncoder, build: &mut Builder<'_>) -> Result<Ear, Error> {
        let at = |child: &str| format!("{path}.{child}");
        let mut branches = vec![];
        for n in 0..says.layers {
            branches.extend(branches::of(&at(&format!("layers.{n}")), build)?);
        }
        Ok(Ear {
            mels: size(says.mels)?,
            context: size(says.context)?,
            conv1: convolution(&at("conv1"), build)?,
            conv2: convolution(&at("conv2"), build)?,
            positions: build.embedding(&at("position_embedding"))?.0,
            branches,
            norm: build.norm(&at("output_norm"))?,
        })
    }

    /// Its layers.
    pub(crate) fn branches(&self) -> &[Branch] {
        &self.branches
    }

    /// Its matrices.
    pub(crate) fn projections(&self) -> impl Iterator<Item = &Arc<Projection>> {
        let layers = self.branches.iter().flat_map(|branch| branch.layer.projections());
        [&self.conv1, &self.conv2].into_iter().chain(layers)
    }

    /// The room that its layers and convolutions need in a pass, for each row.
    pub(crate) fn room(&self) -> Room {
        let convolutions = Room {
            wide: self.conv1.out.max(self.conv2.out),
            narrow: self.conv1.input.max(self.conv2.input),
            ..Room::default()
        };
        self.branches.iter().map(|branch| branch.layer.room()).fold(convolutions, Room::max)
    }
}

/// A convolution over three frames, as a matrix that is multiplied with these side by side.
fn convolution(path: &str, build: &Builder<'_>) -> Result<Arc<Projection>, Error> {
    let Some(Computes::Convolution) = build.get(path) else { return Err(unsaid(path)) };
    let weight = build.parameter(&format!("{path}.weight"))?.flattened();
    let biases = vec![Bias::whole(build.parameter(&format!("{path}.bias"))?)];
    let (input, out) = (weight.width(), weight.rows());
    let parts = vec![Linear { weight, biases, out }];
    Ok(Arc::new(Projection { path: path.to_owned(), parts, input, out, share: (1, 1) }))
}
