//! Scores of texts, of the vectors of their tokens.

use std::sync::Arc;

use ::model::{Activation, module};

use crate::Error;
use crate::backend::Backend;
use crate::backend::activated;
use crate::build::Builder;
use crate::weights::{NormWeights, Projection};

/// The head of a model that scores texts: `output(norm(act(dense(x))))`, or `output(x)` of files that have no more.
pub(crate) struct Score {
    mean: bool,
    /// `None`: tanh.
    activation: Option<Activation>,
    dense: Option<Arc<Projection>>,
    norm: Option<NormWeights>,
    output: Arc<Projection>,
}

impl Score {
    /// The head at `path`, if the file has one: the plan knows what a model does without.
    pub(crate) fn new(path: &str, says: module::Score, build: &Builder<'_>) -> Result<Option<Score>, Error> {
        let at = |child: &str| format!("{path}.{child}");
        let found = |child: &str| {
            let is_there = build.optional_parameter(&at(&format!("{child}.weight"))).is_some();
            is_there.then(|| build.projection(&at(child))).transpose()
        };
        let Some(output) = found("output")? else { return Ok(None) };
        let dense = found("dense")?;
        let norm = if dense.is_some() { build.optional_norm(&at("norm"))? } else { None };
        Ok(Some(Score { mean: says.mean, activation: says.activation, dense, norm, output }))
    }

    pub(crate) fn projections(&self) -> impl Iterator<Item = &Arc<Projection>> {
        self.dense.iter().chain([&self.output])
    }

    /// Scores of a text.
    pub(crate) fn labels(&self) -> usize {
        self.output.out
    }

    /// Appends to `pooled` what a text is scored by, of the vectors of its tokens.
    pub(crate) fn pool(&self, vectors: &[f32], pooled: &mut Vec<f32>) {
        let hidden = self.output.input;
        let first = pooled.len();
        pooled.extend_from_slice(&vectors[..hidden]);
        if self.mean {
            let sum = &mut pooled[first..];
            for vector in vectors.chunks_exact(hidden).skip(1) {
                sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
            }
            let count = (vectors.len() / hidden) as f32;
            for x in sum {
                *x /= count;
            }
        }
    }

    /// The scores of texts, `[texts, labels]`, of what was pooled.
    pub(crate) fn run(&self, backend: &mut dyn Backend, pooled: &[f32], rows: usize) -> Vec<f32> {
        let hidden = self.output.input;
        let mut scores = vec![0.0; pooled.len() / hidden * self.labels()];
        let (mut x, mut normed) = (vec![0.0; rows * hidden], vec![]);
        let texts = pooled.chunks(rows * hidden);
        for (pooled, scores) in texts.zip(scores.chunks_mut(rows * self.labels())) {
            let rows = pooled.len() / hidden;
            let Some(dense) = &self.dense else {
                backend.linear(&self.output, pooled, rows, scores);
                continue;
            };
            let x = &mut x[..rows * hidden];
            backend.linear(dense, pooled, rows, x);
            for x in x.iter_mut() {
                *x = self.activation.map_or_else(|| x.tanh(), |activation| activated(activation, *x));
            }
            let mut input = &*x;
            if let Some(norm) = &self.norm {
                normed.resize(x.len(), 0.0);
                backend.norm(norm, x, &mut normed);
                input = &normed;
            }
            backend.linear(&self.output, input, rows, scores);
        }
        scores
    }
}
