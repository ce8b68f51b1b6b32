//! Finds the parameters of modules among the loaded weights.

use std::sync::Arc;

use ::model::{Architecture, Computes, Norm, Rope, RopeScaling};
use load::{Loaded, Tensor};
use tensor::{RopeOrder, ValueOrder};

use crate::Error;
use crate::rotary::Rotary;
use crate::weights::{Bias, Linear, NormWeights, Projection};

/// The experts of a mixture.
pub(crate) struct Experts {
    /// How many there are.
    pub(crate) count: u64,
    /// How many of them a token is sent to.
    pub(crate) used: u64,
}

/// Finds the parameters of modules, by path.
pub(crate) struct Builder<'a> {
    loaded: &'a Loaded,
    arch: &'a Architecture,
    /// The order in which the rows of q and k lie.
    pub(crate) rope_order: RopeOrder,
    /// The order in which heads of values of linear attention lie.
    pub(crate) value_order: ValueOrder,
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
        let value_order = loaded.arrangement().map(|a| a.value_order).unwrap_or_default();
        Ok(Builder { loaded, arch, rope_order, value_order, ropes: vec![] })
    }

    /// The computation of the module at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&'a Computes> {
        self.arch.get(path)
    }

    /// Vectors that the audio encoder gives, if there is one.
    pub(crate) fn heard(&self) -> Option<u64> {
        self.arch.audio_encoder().map(|encoder| encoder.context)
    }

    /// The norm at `path`.
    pub(crate) fn norm(&self, path: &str) -> Result<NormWeights, Error> {
        let Some(Computes::Norm(kind)) = self.arch.get(path) else { return Err(unsaid(path)) };
        let weight = self.parameter(&format!("{path}.weight"))?;
        let bias = match kind {
            Norm::Layer { .. } => self.optional_parameter(&format!("{path}.bias")),
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
        let bias = |stem: &str| self.optional_parameter(&format!("{stem}.bias"));
        let linear = |stem: &str, out: usize| {
            let weight = self.parameter(&format!("{stem}.weight"))?;
            Ok(Linear { weight, biases: bias(stem).map(Bias::whole).into_iter().collect(), out })
        };
        let outs = matrix.parts.iter().map(|part| size(part.1)).collect::<Result<Vec<_>, Error>>()?;
        let out = outs.iter().try_fold(0usize, |sum, out| sum.checked_add(*out)).ok_or(Error::TooLarge)?;
        let parts = if self.optional_parameter(&format!("{path}.weight")).is_some() {
            let mut whole = linear(path, out)?;
            // Where a part has no bias, those of the others are not fused.
            let mut first = 0;
            for ((stem, _), out) in matrix.parts.iter().zip(&outs).filter(|((stem, _), _)| stem != path) {
                whole.biases.extend(bias(stem).map(|values| Bias { first, values }));
                first += out;
            }
            vec![whole]
        } else {
            let parts = matrix.parts.iter().zip(&outs);
            parts.map(|((stem, _), out)| linear(stem, *out)).collect::<Result<_, Error>>()?
        };
        Ok(Arc::new(Projection {
            path: path.to_owned(),
            parts,
            input: size(matrix.input)?,
            out,
            share: (1, 1),
        }))
    }

    /// The matrix of each of the experts whose stacks are at `path`: called `fused` if it was loaded so, else made of `parts`,
    /// which are names and output features.
    pub(crate) fn stack(
        &self,
        path: &str,
        fused: &str,
        parts: &[(&str, u64)],
        experts: &Experts,
        input: u64,
    ) -> Result<Vec<Arc<Projection>>, Error> {
        let out =
            parts.iter().try_fold(0u64, |sum, (_, out)| sum.checked_add(*out)).ok_or(Error::TooLarge)?;
        let is_fused = self.optional_parameter(&format!("{path}.{fused}.weight")).is_some();
        let fused_parts = [(fused, out)];
        let parts = if is_fused { &fused_parts[..] } else { parts };
        let stacks = parts.iter().map(|(name, out)| {
            let weight = self.parameter(&format!("{path}.{name}.weight"))?;
            Ok((weight, self.optional_parameter(&format!("{path}.{name}.bias")), size(*out)?))
        });
        let stacks = stacks.collect::<Result<Vec<_>, Error>>()?;
        let expert = |e: usize| {
            let linear = |(weight, bias, out): &(Tensor, Option<Tensor>, usize)| {
                let at = |stack: &Tensor| {
                    stack.at(e).ok_or_else(|| Error::OneBlock {
                        path: path.to_owned(),
                        scheme: stack.scheme().name.to_string(),
                    })
                };
                let bias = bias.as_ref().map(at).transpose()?;
                Ok(Linear {
                    weight: at(weight)?,
                    biases: bias.map(Bias::whole).into_iter().collect(),
                    out: *out,
                })
            };
            let parts = stacks.iter().map(linear).collect::<Result<_, Error>>()?;
            let (path, input, out) = (format!("{path}.{e}.{fused}"), size(input)?, size(out)?);
            Ok(Arc::new(Projection { path, parts, input, out, share: (experts.used, experts.count) }))
        };
        (0..size(experts.count)?).map(expert).collect()
    }

    /// Elements of the residual stream.
    pub(crate) fn hidden(&self) -> u64 {
        self.arch.hidden()
    }

    /// The number of `rope` among the distinct ones: most models have one, Gemma 3 two.
    pub(crate) fn rope(&mut self, rope: &Rope) -> usize {
        self.ropes.iter().position(|known| known == rope).unwrap_or_else(|| {
            self.ropes.push(rope.clone());
            self.ropes.len() - 1
        })
    }

    /// The rotary embeddings of the layers that were built, with the factors that files have as tensors.
    pub(crate) fn rotaries(&self) -> Vec<Rotary> {
        let factors = |name: &str| {
            let factors = self.optional_parameter(&format!("{name}.weight"));
            factors.map(|factors| factors.as_f32().to_vec()).unwrap_or_default()
        };
        let rotary = |rope: &Rope| match &rope.scaling {
            // Where the configuration has no factors, they are tensors: Phi 3 in GGUF.
            RopeScaling::LongRope { short, .. } if short.is_empty() => Rotary {
                rope: rope.clone(),
                short: factors("rope_factors_short"),
                long: factors("rope_factors_long"),
            },
            // Of all lengths: Llama 3 in GGUF.
            _ => {
                let factors = factors("rope_factors");
                Rotary { rope: rope.clone(), short: factors.clone(), long: factors }
            }
        };
        self.ropes.iter().map(rotary).collect()
    }

    /// The parameter called `name`.
    pub(crate) fn parameter(&self, name: &str) -> Result<Tensor, Error> {
        self.optional_parameter(name).ok_or_else(|| Error::NotLoaded { name: name.to_owned() })
    }

    /// The parameter called `name`, if it was loaded.
    pub(crate) fn optional_parameter(&self, name: &str) -> Option<Tensor> {
        self.loaded.get(name).cloned()
    }
}

/// A size of a model, as one of this machine.
pub(crate) fn size(n: u64) -> Result<usize, Error> {
    usize::try_from(n).map_err(|_| Error::TooLarge)
}

/// The module at `path` declares no computation, or another than its place asks for.
pub(crate) fn unsaid(path: &str) -> Error {
    Error::Unsaid { path: path.to_owned() }
}
