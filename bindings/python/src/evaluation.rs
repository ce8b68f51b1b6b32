//! How well a model predicts a text.

use std::path::PathBuf;

use pyo3::prelude::*;
use weighbridge::Runtime;
use weighbridge::engine::eval::{self, EvalOptions};

use crate::error::Result;
use crate::loading;
use crate::plan::{Encode, Lora};
use crate::runtime::start_options;
use crate::waiting::Watch;

/// Scores each token of `text` by the model at `path`, in chunks of `length` tokens, of which the second half is scored; beside the model at
/// `against` if there is one.
#[pyfunction]
#[pyo3(signature = (
    path, text, *, against=None, length=512, chunks=None, threads=None, encode=None, preset=None, lora=None, memory=None, progress=None
))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn evaluate(
    py: Python<'_>,
    path: PathBuf,
    text: String,
    against: Option<PathBuf>,
    length: usize,
    chunks: Option<usize>,
    threads: Option<usize>,
    encode: Option<Encode>,
    preset: Option<&str>,
    lora: Option<Lora>,
    memory: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Evaluation> {
    let options = start_options(threads, Some(length), encode, preset, lora, memory)?;
    let plain = start_options(threads, Some(length), None, None, None, memory)?;
    let watch = Watch::default();
    let work = || -> Result<eval::Evaluation> {
        let mut model = Runtime::start(path, &options)?;
        let passage = model.passage(&text)?;
        let mut reference = against.as_ref().map(|path| Runtime::start(path, &plain)).transpose()?;
        if let Some(reference) = &reference {
            reference.check_passage(&text, &passage)?;
        }
        let threads = loading::threads(threads);
        Ok(eval::evaluate(
            &mut model.predictor(),
            reference.as_mut().map(Runtime::predictor).as_mut(),
            &passage.tokens,
            &EvalOptions { length, chunks, begin: passage.begin, threads },
            &mut |so_far, all| watch.at(so_far.chunks as u64, all as u64),
        )?)
    };
    Ok(Evaluation::of(&watch.run(py, progress.as_ref(), work)?))
}

/// How well a model predicts a text.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Evaluation {
    /// Tokens that are scored.
    tokens: u64,
    /// Chunks that they are in.
    chunks: usize,
    /// The perplexity, and its standard error.
    perplexity: (f64, f64),
    /// The reference's, if there is one.
    reference: Option<(f64, f64)>,
    /// The perplexity divided by the reference's, and its standard error.
    ratio: Option<(f64, f64)>,
    /// The mean of the Kullback-Leibler divergence from the reference, in nats, and its standard error.
    kl: Option<(f64, f64)>,
    /// The share of tokens of which both have the same most likely one, and its standard error.
    top1: Option<(f64, f64)>,
}

impl Evaluation {
    fn of(found: &eval::Evaluation) -> Evaluation {
        let pair = |mean: &eval::Mean| (mean.mean(), mean.error());
        let against = found.against.as_ref();
        Evaluation {
            tokens: found.nll.count(),
            chunks: found.chunks,
            perplexity: found.perplexity(),
            reference: against.map(eval::Agreement::perplexity),
            ratio: against.map(eval::Agreement::ratio),
            kl: against.map(|agreement| pair(&agreement.kl)),
            top1: against.map(|agreement| pair(&agreement.top1)),
        }
    }
}

#[pymethods]
impl Evaluation {
    fn __repr__(&self) -> String {
        let (value, error) = self.perplexity;
        format!("<weighbridge.Evaluation of {} tokens: perplexity {value:.4} ± {error:.4}>", self.tokens)
    }
}
