//! The smallest loss at a given size.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weighbridge::compress::{self, CompressOptions, Progress, Text, Written};
use weighbridge::convert::compress::{Choice, Compression, Measuring, Policy, Target};
use weighbridge::convert::{ConvertOptions, Imatrix};
use weighbridge::engine::calibrate;
use weighbridge::engine::eval::{Agreement, Mean};
use weighbridge::planner::Preset;
use weighbridge::tensor::Diagnostic;

use crate::error::{Failure, Result, misuse};
use crate::files::{ConvertReport, adapter, format, free, opened};
use crate::plan::Source;
use crate::{loading, waiting};

/// A size, or bits for each weight.
#[derive(FromPyObject)]
pub(crate) enum Size {
    /// `4bit`, `300MB`.
    Named(String),
    /// Up to 32 bits, or bytes.
    Number(f64),
}

impl Size {
    fn target(&self) -> Result<Target> {
        let text = match self {
            Size::Named(text) => text.clone(),
            Size::Number(number) => number.to_string(),
        };
        text.parse().map_err(|Diagnostic { what, .. }| {
            Failure::Python(misuse(Diagnostic::new(format!("there is no target `{text}`")).with_hint(what)))
        })
    }
}

/// The work, and how much of it is done.
type Told = (&'static str, usize, usize);

fn told(progress: Progress<'_>) -> Told {
    let run = |step, now: calibrate::Progress<'_>| match now {
        calibrate::Progress::Chunk(done, total) | calibrate::Progress::Matrix(done, total, _) => {
            (step, done, total)
        }
    };
    let matrix = |step, now: &Measuring<'_>| (step, now.index, now.total);
    match progress {
        Progress::Calibrating(now @ calibrate::Progress::Chunk(..)) => run("calibrating", now),
        Progress::Calibrating(now) => run("disturbing", now),
        Progress::Measuring(now) => matrix("measuring", now),
        Progress::Scaling(now) => matrix("scaling", now),
        Progress::Compensating(now) => run("compensating", now),
        Progress::Writing(now) => ("writing", now.index, now.total),
        Progress::Verifying(now) => ("verifying", now.index, now.total),
        Progress::Comparing(done, total) => ("comparing", done, total),
    }
}

/// Chooses an encoding for each matrix, so that all fit into `target` and lose as little as they can, and writes that to `path`; to
/// nothing if it is `None`.
#[pyfunction]
#[pyo3(name = "compress", signature = (
    checkpoint, path, target, *, to=None, text=None, imatrix=None, policy=None, preset=None, gptq=false, awq=false, rules=None,
    allow_missing=None, allow_loss=None, allow_requantize=false, overwrite=false, max_shard=None, threads=None, memory=None, progress=None
))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
#[expect(clippy::fn_params_excessive_bools, reason = "Python names them")]
pub(crate) fn compress_to(
    py: Python<'_>,
    checkpoint: Source<'_>,
    path: Option<PathBuf>,
    target: Size,
    to: Option<&str>,
    text: Option<String>,
    imatrix: Option<PathBuf>,
    policy: Option<PathBuf>,
    preset: Option<&str>,
    gptq: bool,
    awq: bool,
    rules: Option<PathBuf>,
    allow_missing: Option<Vec<String>>,
    allow_loss: Option<Vec<String>>,
    allow_requantize: bool,
    overwrite: bool,
    max_shard: Option<u64>,
    threads: Option<usize>,
    memory: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Compressed> {
    let (target, format) = (target.target()?, format(to, path.as_deref())?);
    if let Some(path) = &path {
        free(path, overwrite)?;
    }
    let preset = preset.map(Preset::known).transpose().map_err(Failure::from)?;
    let (open, stop, now) = (opened(checkpoint), AtomicBool::new(false), Mutex::new(None));
    let work = || -> Result<(Compression, Option<Written>)> {
        let checkpoint = open()?;
        let imatrix = imatrix.map(Imatrix::open).transpose()?;
        let adapter = adapter(rules, allow_missing)?;
        let convert = ConvertOptions {
            adapter,
            preset,
            imatrix: imatrix.as_ref(),
            allow_requantize,
            allow_loss: allow_loss.unwrap_or_default(),
            overwrite,
            max_shard,
            memory,
            ..ConvertOptions::default()
        };
        let policy = policy.map(Policy::read).transpose()?.unwrap_or_default();
        let text = text.as_deref().map(|contents| Text { name: "text", contents });
        let threads = Some(loading::threads(threads));
        let options = CompressOptions { text, policy, gptq, awq, threads, convert };
        let each = |progress: Progress<'_>| {
            *now.lock().unwrap_or_else(PoisonError::into_inner) = Some(told(progress));
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let chosen = compress::choose(&checkpoint, format, target, &options, &each)?;
        let found = chosen.compression.clone();
        Ok((found, path.map(|path| chosen.write(&path, &each)).transpose()?))
    };
    let mut last = None;
    let look = || {
        let now = *now.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(progress), Some(now)) = (&progress, now.filter(|_| now != last)) {
            last = Some(now);
            progress.call1(py, now)?;
        }
        Ok(())
    };
    let (found, written) = waiting::run(py, &stop, look, work)?;
    Compressed::of(py, &found, written)
}

/// An encoding for each matrix, and what it costs.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Compressed {
    /// The matrices, in the order of the file.
    matrices: Vec<CompressedMatrix>,
    /// Bytes of all files, or a little more if nothing is written.
    nbytes: u64,
    /// The most bytes that the target allows.
    limit: u64,
    /// Bits for each weight of all tensors.
    bits: f64,
    /// The KL divergence from the source that is expected, in nats; `None` if it is not known how much predictions depend on each matrix.
    expected_kl: Option<f64>,
    /// The mean of the KL divergence from the source on the last quarter of the text, in nats, and its standard error.
    kl: Option<(f64, f64)>,
    /// The share of its tokens of which both have the same most likely one, and its standard error.
    top1: Option<(f64, f64)>,
    /// The perplexity divided by the source's, and its standard error.
    ratio: Option<(f64, f64)>,
    /// How it was written; `None` if it was not.
    report: Option<Py<ConvertReport>>,
}

impl Compressed {
    fn of(py: Python<'_>, found: &Compression, written: Option<Written>) -> PyResult<Compressed> {
        let pair = |mean: &Mean| (mean.mean(), mean.error());
        let nbytes = written.as_ref().map_or(found.bytes, |written| written.bytes);
        let agreement = written.as_ref().and_then(|written| written.agreement.as_ref());
        Ok(Compressed {
            matrices: found.choices.iter().map(CompressedMatrix::of).collect(),
            nbytes,
            limit: found.limit,
            bits: found.bits(nbytes),
            expected_kl: found.is_divergence.then_some(found.cost),
            kl: agreement.map(|agreement| pair(&agreement.kl)),
            top1: agreement.map(|agreement| pair(&agreement.top1)),
            ratio: agreement.map(Agreement::ratio),
            report: written.map(|written| Py::new(py, ConvertReport::of(written.report))).transpose()?,
        })
    }
}

#[pymethods]
impl Compressed {
    fn __repr__(&self) -> String {
        let (nbytes, bits) = (self.nbytes, self.bits);
        format!("<weighbridge.Compressed of {nbytes} bytes, {bits:.2} bits a weight>")
    }
}

/// A matrix, and the encoding that was chosen for it.
#[pyclass(frozen, get_all, module = "weighbridge")]
#[derive(Clone)]
pub(crate) struct CompressedMatrix {
    /// Its name in the result.
    name: String,
    /// Its extents, slowest axis first.
    shape: Vec<u64>,
    /// The scheme that it had.
    before: String,
    /// The scheme that was chosen.
    scheme: String,
    /// Its bytes with that.
    nbytes: u64,
    /// Its bits for each value.
    bits: f64,
    /// The root of the mean square error of its results, as a share of them.
    error: f64,
    /// Its part of what is made small: a divergence in nats, if `expected_kl` is known.
    cost: f64,
}

impl CompressedMatrix {
    fn of(choice: &Choice) -> CompressedMatrix {
        let becomes = choice.becomes();
        CompressedMatrix {
            name: choice.name.clone(),
            shape: choice.shape.to_vec(),
            before: choice.from.clone(),
            scheme: becomes.scheme.name.to_string(),
            nbytes: becomes.bytes,
            bits: choice.bits(),
            error: becomes.error,
            cost: becomes.cost,
        }
    }
}

#[pymethods]
impl CompressedMatrix {
    fn __repr__(&self) -> String {
        format!("<weighbridge.CompressedMatrix {:?}: {} becomes {}>", self.name, self.before, self.scheme)
    }
}
