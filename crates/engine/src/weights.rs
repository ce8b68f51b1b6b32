//! The parameters of layers, found by canonical name among the loaded ones.

use std::sync::Arc;

use load::{Loaded, Tensor};
use model::Norm;

use crate::Error;

/// A norm, with its factor and, for LayerNorm, its bias: f32, `[width]` each.
#[derive(Debug)]
pub struct NormWeights {
    /// What it computes.
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
    /// f32, `[out]`.
    pub bias: Option<Tensor>,
    /// Output features.
    pub out: usize,
}

/// Matrices that share an input; their outputs lie side by side.
#[derive(Debug)]
pub struct Projection {
    /// The matrices.
    pub parts: Vec<Linear>,
    /// Input features.
    pub input: usize,
    /// Output features of all parts.
    pub out: usize,
}

impl Projection {
    /// Bytes of its matrices: what a token reads.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().flat_map(|part| part.weight.slots()).map(|slot| slot.bytes().len() as u64).sum()
    }

    /// Products of a token.
    pub fn macs(&self) -> u64 {
        self.input as u64 * self.out as u64
    }
}

/// Finds parameters among what was loaded.
pub(crate) struct Finder<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) norm: Norm,
}

impl Finder<'_> {
    pub(crate) fn tensor(&self, name: &str) -> Option<Tensor> {
        self.loaded.get(name).cloned()
    }

    pub(crate) fn required(&self, name: &str) -> Result<Tensor, Error> {
        self.tensor(name).ok_or_else(|| Error::NotLoaded { name: name.to_owned() })
    }

    pub(crate) fn norm(&self, stem: &str) -> Result<NormWeights, Error> {
        let weight = self.required(&format!("{stem}.weight"))?;
        let bias = format!("{stem}.bias");
        let bias = match self.norm {
            Norm::Layer { .. } => Some(self.required(&bias)?),
            Norm::Rms { .. } => self.tensor(&bias),
        };
        Ok(NormWeights { kind: self.norm, weight, bias })
    }

    pub(crate) fn optional_norm(&self, stem: &str) -> Result<Option<NormWeights>, Error> {
        self.tensor(&format!("{stem}.weight")).map(|_| self.norm(stem)).transpose()
    }

    /// The fused matrix if it was loaded, else its parts.
    pub(crate) fn projection(
        &self,
        prefix: &str,
        fused: &str,
        parts: &[(&str, usize)],
        input: usize,
    ) -> Result<Arc<Projection>, Error> {
        let out: usize = parts.iter().map(|p| p.1).sum();
        let linear = |stem: &str, out: usize| {
            let weight = self.required(&format!("{prefix}{stem}.weight"))?;
            Ok(Linear { weight, bias: self.tensor(&format!("{prefix}{stem}.bias")), out })
        };
        let parts = if !fused.is_empty() && self.tensor(&format!("{prefix}{fused}.weight")).is_some() {
            vec![linear(fused, out)?]
        } else {
            parts.iter().map(|(stem, out)| linear(stem, *out)).collect::<Result<Vec<_>, Error>>()?
        };
        Ok(Arc::new(Projection { parts, input, out }))
    }
}
