//! Builds the engine's layers from the computations that modules declare and the loaded weights.

use std::sync::Arc;

use ::model::{Architecture, Computes, Norm, Rope};
use load::{Loaded, Tensor};
use tensor::RopeOrder;

use crate::Error;
use crate::layer::{Attention, Branch, FeedForward, Layer};
use crate::weights::{Linear, NormWeights, Projection};

/// Finds the parameters of modules, by path.
pub(crate) struct Builder<'a> {
    loaded: &'a Loaded,
    arch: &'a Architecture,
    /// The order in which the rows of q and k lie.
    pub(crate) rope_order: RopeOrder,
    ropes: Vec<Rope>,
}

impl<'a> Builder<'a> {
    /// A builder of `arch` from `loaded`.
    ///
    /// # Errors
    /// If an update ended on the way, or the order of the rows of q and k is not known.
    pub(crate) fn new(loaded: &'a Loaded, arch: &'a Architecture) -> Result<Builder<'a>, Error> {
        if loaded.torn().len() > 0 {
            return Err(Error::Torn);
        }
        let rope_order = loaded.arrangement().and_then(|a| a.rope_order).ok_or(Error::NoRopeOrder)?;
        Ok(Builder { loaded, arch, rope_order, ropes: vec![] })
    }

    /// The branches of the module at `path`, in order.
    pub(crate) fn branches(&mut self, path: &str) -> Result<Vec<Branch>, Error> {
        let Some(Computes::Residual(branches)) = self.arch.get(path) else { return Err(unsaid(path)) };
        let build = |branch: &::model::module::Branch| {
            let at = |child: &str| format!("{path}.{child}");
            Ok(Branch {
                norm: branch.norm.map(|norm| self.norm(&at(norm))).transpose()?,
                layer: self.layer(&at(branch.layer))?,
                post_norm: branch.post_norm.map(|post| self.norm(&at(post))).transpose()?,
                scale: branch.scale,
                parallel: branch.parallel,
            })
        };
        branches.iter().map(build).collect()
    }

    /// The layer at `path`: one line for each kind.
    fn layer(&mut self, path: &str) -> Result<Box<dyn Layer>, Error> {
        Ok(match self.arch.get(path) {
            Some(Computes::Attention(attention)) => Box::new(Attention::new(path, attention, self)?),
            Some(Computes::FeedForward(ffn)) => Box::new(FeedForward::new(path, *ffn, self)?),
            _ => return Err(unsaid(path)),
        })
    }

    /// The norm at `path`.
    pub(crate) fn norm(&self, path: &str) -> Result<NormWeights, Error> {
        let Some(Computes::Norm(kind)) = self.arch.get(path) else { return Err(unsaid(path)) };
        let weight = self.parameter(&format!("{path}.weight"))?;
        let bias = match kind {
            Norm::Layer { .. } => Some(self.parameter(&format!("{path}.bias"))?),
            Norm::Rms { .. } => None,
        };
        Ok(NormWeights { kind: *kind, weight, bias })
    }

    /// The norm at `path`, if there is one.
    pub(crate) fn optional_norm(&self, path: &str) -> Result<Option<NormWeights>, Error> {
        self.arch.get(path).map(|_| self.norm(path)).transpose()
    }

    /// The table at `path`, and what its rows are multiplied by.
    pub(crate) fn embedding(&self, path: &str) -> Result<(Tensor, f32), Error> {
        let Some(Computes::Embedding { scale }) = self.arch.get(path) else { return Err(unsaid(path)) };
        Ok((self.parameter(&format!("{path}.weight"))?, *scale))
    }

    /// The same, if there is one.
    pub(crate) fn optional_embedding(&self, path: &str) -> Result<Option<(Tensor, f32)>, Error> {
        self.arch.get(path).map(|_| self.embedding(path)).transpose()
    }

    /// The matrix at `path`: fused if it was loaded so, else its parts.
    pub(crate) fn projection(&self, path: &str) -> Result<Arc<Projection>, Error> {
        let matrix = self.arch.matrix(path).ok_or_else(|| unsaid(path))?;
        let linear = |stem: &str, out: usize| {
            let weight = self.parameter(&format!("{stem}.weight"))?;
            Ok(Linear { weight, bias: self.optional_parameter(&format!("{stem}.bias")), out })
        };
        let outs = matrix.parts.iter().map(|part| size(part.1)).collect::<Result<Vec<_>, Error>>()?;
        let out = outs.iter().try_fold(0usize, |sum, out| sum.checked_add(*out)).ok_or(Error::TooLarge)?;
        let parts = if self.optional_parameter(&format!("{path}.weight")).is_some() {
            vec![linear(path, out)?]
        } else {
            let parts = matrix.parts.iter().zip(&outs);
            parts.map(|((stem, _), out)| linear(stem, *out)).collect::<Result<_, Error>>()?
        };
        Ok(Arc::new(Projection { path: path.to_owned(), parts, input: size(matrix.input)?, out }))
    }

    /// The number of `rope` among the distinct ones: most models have one, Gemma 3 two.
    pub(crate) fn rope(&mut self, rope: &Rope) -> usize {
        self.ropes.iter().position(|known| known == rope).unwrap_or_else(|| {
            self.ropes.push(rope.clone());
            self.ropes.len() - 1
        })
    }

    /// The frequencies of each rotary embedding, divided by the factors at `path` if there are any (Llama 3 in GGUF).
    pub(crate) fn frequencies(&self, path: &str) -> Vec<Vec<f64>> {
        let factors = self.optional_parameter(&format!("{path}.weight"));
        let of = |rope: &Rope| {
            let mut frequencies = rope.frequencies();
            if let Some(factors) = &factors {
                frequencies.iter_mut().zip(factors.as_f32()).for_each(|(f, by)| *f /= f64::from(*by));
            }
            frequencies
        };
        self.ropes.iter().map(of).collect()
    }

    fn parameter(&self, name: &str) -> Result<Tensor, Error> {
        self.optional_parameter(name).ok_or_else(|| Error::NotLoaded { name: name.to_owned() })
    }

    fn optional_parameter(&self, name: &str) -> Option<Tensor> {
        self.loaded.get(name).cloned()
    }
}

/// A size of a model, as one of this machine.
pub(crate) fn size(n: u64) -> Result<usize, Error> {
    usize::try_from(n).map_err(|_| Error::TooLarge)
}

fn unsaid(path: &str) -> Error {
    Error::Unsaid { path: path.to_owned() }
}
