//! A matrix after the pooling.
//!
//! Source: `Dense`, base/modules/dense.py of sentence-transformers 6.2.

use std::sync::Arc;

use checkpoint::OpenOptions;
use load::{Pool, Tensor};
use planner::{LayoutKind, PlanBuilder};
use storage::{Name, Storage};

use super::recipe::{DenseActivation, DenseSettings, Remark};
use crate::Error;

/// `act(W x + b)`, or that and `x`.
pub(super) struct Dense {
    /// `[out, in]`.
    weight: Vec<f32>,
    /// `[out]`.
    bias: Option<Vec<f32>>,
    activation: DenseActivation,
    residual: Option<Residual>,
    input: usize,
}

/// What is added to the results.
enum Residual {
    /// What went in.
    Input,
    /// That, multiplied with `[out, in]`.
    Matrix(Vec<f32>),
}

impl Dense {
    /// Reads the weights in the folder of `settings`, below `dir`.
    pub(super) fn load(
        storage: &Arc<dyn Storage>,
        dir: &Name,
        settings: &DenseSettings,
        pool: &mut Pool,
    ) -> Result<Dense, Error> {
        let DenseSettings { input, output, activation, .. } = *settings;
        let mut folder = dir.clone();
        for part in settings.folder.split('/').filter(|part| !part.is_empty()) {
            folder = folder.join(part).map_err(checkpoint::Error::from)?;
        }
        let checkpoint = checkpoint::open_from(Arc::clone(storage), &folder, &OpenOptions::default())?;
        let loaded = PlanBuilder::new(&checkpoint).layout(LayoutKind::Source).build()?.load(pool)?;
        let has_matrix = settings.has_residual && input != output;
        let wanted = [
            ("linear.weight", true, &[output as u64, input as u64][..]),
            ("linear.bias", settings.has_bias, &[output as u64]),
            ("residual.weight", has_matrix, &[output as u64, input as u64]),
        ];
        let mut problems = vec![];
        let mut problem = |what: String| {
            let file = settings.folder.clone();
            problems.push(Remark { file, key: String::new(), what });
        };
        let mut read = |(name, is_wanted, shape): (&str, bool, &[u64])| {
            let found: Option<&Tensor> = loaded.get(name);
            match (found, is_wanted) {
                (None, false) => None,
                (Some(_), false) => {
                    problem(format!("the tensor `{name}` is used by nothing"));
                    None
                }
                (None, true) => {
                    problem(format!("the tensor `{name}` is missing"));
                    None
                }
                (Some(tensor), true) if **tensor.shape() != *shape => {
                    problem(format!("`{name}` is {}, wanted {shape:?}", tensor.shape()));
                    None
                }
                (Some(tensor), true) => {
                    let mut values = vec![0f32; tensor.rows() * tensor.width()];
                    for (row, to) in values.chunks_exact_mut(tensor.width()).enumerate() {
                        tensor.decode_row(row, to);
                    }
                    Some(values)
                }
            }
        };
        let [weight, bias, residual] = wanted.map(&mut read);
        for entry in checkpoint.entries() {
            if wanted.iter().all(|(name, ..)| entry.name != *name) {
                problem(format!("the tensor `{}` is used by nothing", entry.name));
            }
        }
        let Some(weight) = weight.filter(|_| problems.is_empty()) else {
            return Err(Error::Recipe { path: storage.location(dir).to_string(), problems });
        };
        let residual = match residual {
            Some(matrix) => Some(Residual::Matrix(matrix)),
            None => settings.has_residual.then_some(Residual::Input),
        };
        Ok(Dense { weight, bias, activation, residual, input })
    }

    /// The vector of `x`, into `out`.
    pub(super) fn run(&self, x: &[f32], out: &mut Vec<f32>) {
        out.clear();
        let dot =
            |row: &[f32]| -> f64 { row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum() };
        for (i, row) in self.weight.chunks_exact(self.input).enumerate() {
            let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[i]));
            let mut y = activated(self.activation, dot(row) + bias);
            match &self.residual {
                None => {}
                Some(Residual::Input) => y += f64::from(x[i]),
                Some(Residual::Matrix(matrix)) => y += dot(&matrix[i * self.input..][..self.input]),
            }
            #[expect(clippy::cast_possible_truncation, reason = "summed in f64, kept in f32")]
            out.push(y as f32);
        }
    }
}

fn activated(activation: DenseActivation, x: f64) -> f64 {
    match activation {
        DenseActivation::Identity => x,
        DenseActivation::Tanh => x.tanh(),
        DenseActivation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        DenseActivation::Relu => x.max(0.0),
        DenseActivation::Silu => x / (1.0 + (-x).exp()),
        DenseActivation::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
    }
}
