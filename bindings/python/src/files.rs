//! Work on whole checkpoints: converting, checking, comparing.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use weighbridge::check::{CheckOptions, Manifest};
use weighbridge::checkpoint::{Draft, Io, Refused};
use weighbridge::convert::{self, Conversion, ConvertOptions, Imatrix, Outcome, OutputFormat};
use weighbridge::planner::Adapter;
use weighbridge::quant::Difference;
use weighbridge::tensor::{Diagnostic, Pattern, counted};
use weighbridge::{Mesh, Pool, planner};

use crate::checkpoint::options;
use crate::error::{Failure, Result, misuse};
use crate::loading::threads;
use crate::plan::{Encode, Lora, Source, adapters, encoding};
use crate::waiting::Watch;

/// The checkpoint that was given, or the one that is there. It is read, not mapped: what is done with leaves memory at once.
pub(crate) fn opened(source: Source<'_>) -> impl FnOnce() -> Result<weighbridge::Checkpoint> {
    let open = match source {
        Source::Open(checkpoint) => Ok(checkpoint.get().checkpoint.clone()),
        Source::Path(path) => Err(path),
    };
    move || match open {
        Ok(checkpoint) => Ok(checkpoint),
        Err(path) => Ok(weighbridge::open_with(path, &options(Io::Pread))?),
    }
}

/// The format called `name`, or else that of the path's extension.
pub(crate) fn format(name: Option<&str>, path: Option<&Path>) -> PyResult<OutputFormat> {
    let found = match name {
        Some(name) => OutputFormat::ALL.iter().copied().find(|format| format.name() == name),
        None => path.and_then(OutputFormat::of_path),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = OutputFormat::ALL.iter().map(|format| format.name()).collect();
        let what = match (name, path) {
            (Some(name), _) => format!("there is no format `{name}`"),
            (None, Some(path)) => format!("the name of `{}` does not say its format", path.display()),
            (None, None) => "without a path, a format has to be given".to_owned(),
        };
        misuse(Diagnostic::new(what).with_hint(Some(format!("`to` is one of {}", names.join(", ")))))
    })
}

/// Checks that `path` can be written, as far as can be told before.
pub(crate) fn free(path: &Path, overwrite: bool) -> PyResult<()> {
    let shown = path.display();
    Err(misuse(match Draft::refused(path, overwrite) {
        None => return Ok(()),
        Some(Refused::NoDirectory(parent)) => {
            Diagnostic::new(format!("cannot write `{shown}`: there is no directory `{}`", parent.display()))
        }
        Some(Refused::Exists) => {
            Diagnostic::new(format!("`{shown}` exists")).with_hint("`overwrite=True` replaces it".to_owned())
        }
    }))
}

/// The way in which a source is read.
pub(crate) fn adapter(rules: Option<PathBuf>, allow_missing: Option<Vec<String>>) -> Result<Adapter> {
    let mapping = rules.map(planner::read_rules).transpose()?;
    let allow_missing = allow_missing.iter().flatten().map(Pattern::new).collect();
    Ok(Adapter { mapping, allow_missing, ..Adapter::default() })
}

/// Writes `checkpoint` to `path` in another format or other encodings. Nothing is there before all of it is.
#[pyfunction]
#[pyo3(name = "convert", signature = (
    checkpoint, path, *, to=None, layout="source", encode=None, preset=None, imatrix=None, lora=None, rules=None, allow_missing=None,
    allow_loss=None, allow_overflow=false, allow_requantize=false, overwrite=false, max_shard=None, tp=1, pp=1, ep=1, threads=None, memory=None,
    progress=None
))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn convert_to(
    py: Python<'_>,
    checkpoint: Source<'_>,
    path: PathBuf,
    to: Option<&str>,
    layout: &str,
    encode: Option<Encode>,
    preset: Option<&str>,
    imatrix: Option<PathBuf>,
    lora: Option<Lora>,
    rules: Option<PathBuf>,
    allow_missing: Option<Vec<String>>,
    allow_loss: Option<Vec<String>>,
    allow_overflow: bool,
    allow_requantize: bool,
    overwrite: bool,
    max_shard: Option<u64>,
    tp: u64,
    pp: u64,
    ep: u64,
    threads: Option<usize>,
    memory: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<ConvertReport> {
    let format = format(to, Some(&path))?;
    let layout = weighbridge::layout(layout).map_err(Failure::from)?;
    let encoding = encoding(encode, preset)?;
    let (open, watch) = (opened(checkpoint), Watch::default());
    let work = || -> Result<convert::ConvertReport> {
        let checkpoint = open()?;
        let imatrix = imatrix.map(Imatrix::open).transpose()?;
        let adapter = adapter(rules, allow_missing)?;
        let options = ConvertOptions {
            adapter,
            rules: encoding.rules,
            preset: encoding.preset,
            imatrix: imatrix.as_ref(),
            allow_overflow,
            allow_requantize,
            allow_loss: allow_loss.unwrap_or_default(),
            overwrite,
            max_shard,
            mesh: Mesh { tp, pp, ep, ..Mesh::default() },
            memory,
            loras: adapters(lora)?,
            ..ConvertOptions::default()
        };
        let conversion = Conversion::new(&checkpoint, layout, format, &options)?;
        let mut pool = Pool::new(self::threads(threads));
        let report =
            conversion.run(path, &mut pool, &mut |now| watch.at(now.index as u64, now.total as u64))?;
        // The last one.
        let all = report.tensors.len() as u64;
        let _ = watch.at(all, all);
        Ok(report)
    };
    Ok(ConvertReport::of(watch.run(py, progress.as_ref(), work)?))
}

/// The results of a conversion.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct ConvertReport {
    /// Opens the result; of several files, the first.
    path: String,
    /// Each parameter, in the order of the file.
    params: Vec<Converted>,
    /// Parameters that are the same as another, and that one.
    tied: Vec<(String, String)>,
    /// Tensors of the source that are not needed, and why.
    dropped: Vec<(String, String)>,
    /// Metadata that the result does not have: file, key, and why.
    left: Vec<(String, String, String)>,
    /// Losses that were allowed: the key, and the effect of each.
    lost: Vec<(String, String)>,
    /// The most bytes that were held for parameters at one time, buffers included.
    peak_memory: u64,
    /// Wall time.
    seconds: f64,
}

impl ConvertReport {
    pub(crate) fn of(report: convert::ConvertReport) -> ConvertReport {
        ConvertReport {
            path: report.destination.to_string(),
            params: report.tensors.into_iter().map(Converted::of).collect(),
            tied: report.tied,
            dropped: report.dropped,
            left: report.left.into_iter().map(|left| (left.file, left.key, left.why)).collect(),
            lost: report.lost.into_iter().map(|loss| (loss.key, loss.what)).collect(),
            peak_memory: report.peak_memory,
            seconds: report.seconds,
        }
    }
}

#[pymethods]
impl ConvertReport {
    /// Bytes of all parameters, as the source has them.
    #[getter]
    fn nbytes_before(&self) -> u64 {
        self.params.iter().map(|param| param.nbytes_before).sum()
    }

    /// Bytes of all parameters.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.params.iter().map(|param| param.nbytes).sum()
    }

    fn __repr__(&self) -> String {
        let (before, after) = (self.nbytes_before(), self.nbytes());
        format!("<weighbridge.ConvertReport {:?}: {before} bytes became {after}>", self.path)
    }
}

/// A parameter that was converted.
#[pyclass(frozen, get_all, module = "weighbridge")]
#[derive(Clone)]
pub(crate) struct Converted {
    /// Its name.
    name: String,
    /// Its extents, slowest axis first.
    shape: Vec<u64>,
    /// The scheme that it had.
    before: String,
    /// The scheme that it has.
    scheme: String,
    /// Bytes that it had.
    nbytes_before: u64,
    /// Bytes that it has.
    nbytes: u64,
    /// The rule that decided.
    rule: String,
    /// The root of the mean square of what its values changed by; `None` if nothing was encoded.
    rmse: Option<f64>,
    /// The largest change of a value.
    max_error: Option<f32>,
    /// The cosine of old and new values.
    cosine: Option<f64>,
    /// Why values that were only added to are rounded; `None` if all are what they were.
    rounded: Option<String>,
}

impl Converted {
    fn of(of: convert::Converted) -> Converted {
        Converted {
            shape: of.shape.to_vec(),
            rmse: of.difference.map(|d| d.rmse()),
            max_error: of.difference.map(|d| d.max),
            cosine: of.difference.map(|d| d.cosine()),
            name: of.name,
            before: of.from,
            scheme: of.to,
            nbytes_before: of.bytes_before,
            nbytes: of.bytes,
            rule: of.rule,
            rounded: of.rounded,
        }
    }
}

#[pymethods]
impl Converted {
    fn __repr__(&self) -> String {
        format!("Converted(name={:?}, before={:?}, scheme={:?})", self.name, self.before, self.scheme)
    }
}

/// Checks the tensors of `checkpoint`: with `deep` every value, with `verify` every byte against a manifest.
#[pyfunction]
#[pyo3(signature = (checkpoint, *, deep=true, verify=None, threads=None, progress=None))]
pub(crate) fn check(
    py: Python<'_>,
    checkpoint: Source<'_>,
    deep: bool,
    verify: Option<PathBuf>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<CheckReport> {
    let (open, watch) = (opened(checkpoint), Watch::default());
    let work = || -> Result<weighbridge::check::CheckReport> {
        let (checkpoint, manifest) = (open()?, verify.map(Manifest::read).transpose()?);
        let options = CheckOptions { deep, verify: manifest.as_ref(), ..CheckOptions::default() };
        let mut pool = Pool::new(self::threads(threads));
        Ok(weighbridge::check::check(&checkpoint, &options, &mut pool, &|done, total| watch.at(done, total))?)
    };
    let report = watch.run(py, progress.as_ref(), work)?;
    let findings = report.findings.iter().map(|f| (f.tensor.clone(), f.wrong.to_string())).collect();
    Ok(CheckReport {
        is_good: report.is_good(),
        findings,
        keys: report.keys.iter().map(ToString::to_string).collect(),
        unknown: report.unknown,
        tensors: report.tensors,
        values: report.values,
        nbytes: report.bytes,
        seconds: report.seconds,
    })
}

/// The results of a check.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct CheckReport {
    /// True if nothing is wrong.
    is_good: bool,
    /// Tensors, and what is wrong with each.
    findings: Vec<(String, String)>,
    /// Keys that differ from the manifest.
    keys: Vec<String>,
    /// Tensors whose values nothing here decodes, and their schemes.
    unknown: Vec<(String, String)>,
    /// Tensors.
    tensors: usize,
    /// Values that were looked at.
    values: u64,
    /// Bytes of all tensors.
    nbytes: u64,
    /// Wall time.
    seconds: f64,
}

#[pymethods]
impl CheckReport {
    fn __repr__(&self) -> String {
        let found = counted(self.findings.len() + self.keys.len(), "finding");
        format!("<weighbridge.CheckReport of {}: {found}>", counted(self.tensors, "tensor"))
    }
}

/// Compares checkpoint `a` with `b`: by canonical names where one family claims both, else by stored ones, or as `layout` says.
#[pyfunction]
#[pyo3(signature = (a, b, *, layout=None, threads=None, progress=None))]
pub(crate) fn diff(
    py: Python<'_>,
    a: Source<'_>,
    b: Source<'_>,
    layout: Option<&str>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<DiffReport> {
    let layout = layout.map(weighbridge::layout).transpose().map_err(Failure::from)?;
    let (open_a, open_b, watch) = (opened(a), opened(b), Watch::default());
    let work = || -> Result<convert::DiffReport> {
        let (a, b) = (open_a()?, open_b()?);
        let mut pool = Pool::new(self::threads(threads));
        let mut each = |done: usize, total: usize, _: &str| watch.at(done as u64, total as u64);
        Ok(convert::diff(&a, &b, layout, &mut pool, &mut each)?)
    };
    Ok(DiffReport::of(watch.run(py, progress.as_ref(), work)?))
}

/// The differences of two checkpoints, A and B.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct DiffReport {
    /// True if both hold the same parameters with the same values and the same metadata, whatever the encodings.
    is_same: bool,
    /// True if both hold the same parameters with the same values.
    has_same_params: bool,
    /// The family, if names are canonical ones.
    family: Option<&'static str>,
    /// Why stored names are compared, if nobody asked for it.
    why_stored: Option<String>,
    /// Parameters that both have, in the order of A.
    params: Vec<Compared>,
    /// Parameters that only A has.
    only_a: Vec<String>,
    /// Parameters that only B has.
    only_b: Vec<String>,
    /// Fields of the configuration that differ: field, A's value, B's.
    configuration: Vec<(String, String, String)>,
    /// Differences beside the tensors.
    keys: Vec<KeyDifference>,
    /// Parts that were not compared, with the reason.
    not_compared: Vec<String>,
    /// Wall time.
    seconds: f64,
}

impl DiffReport {
    fn of(report: convert::DiffReport) -> DiffReport {
        let key = |of: convert::KeyDifference| KeyDifference {
            file: of.file,
            key: of.key,
            a: of.a,
            b: of.b,
            bookkeeping: of.bookkeeping,
        };
        DiffReport {
            is_same: report.is_same(),
            has_same_params: report.has_same_parameters(),
            family: report.family,
            why_stored: report.why_stored,
            params: report.params.into_iter().map(Compared::of).collect(),
            only_a: report.only_a.into_iter().map(|(name, _)| name).collect(),
            only_b: report.only_b.into_iter().map(|(name, _)| name).collect(),
            configuration: report.configuration,
            keys: report.keys.into_iter().map(key).collect(),
            not_compared: report.not_compared,
            seconds: report.seconds,
        }
    }
}

#[pymethods]
impl DiffReport {
    fn __repr__(&self) -> String {
        let other = self.params.iter().filter(|param| !param.is_same).count();
        let only = self.only_a.len() + self.only_b.len();
        let of = counted(self.params.len(), "parameter");
        format!("<weighbridge.DiffReport of {of}: {other} differ, {only} are in one alone>")
    }
}

/// A key or value that differs.
#[pyclass(frozen, get_all, module = "weighbridge")]
#[derive(Clone)]
pub(crate) struct KeyDifference {
    /// The file that says it, `metadata` for GGUF, or `tokenizer` where each has it in a form of its own.
    file: String,
    /// The key; empty for a whole file.
    key: String,
    /// A's value, cut; `None`: it says nothing.
    a: Option<String>,
    /// B's value, cut.
    b: Option<String>,
    /// Why it makes no other model, if it does not.
    bookkeeping: Option<&'static str>,
}

#[pymethods]
impl KeyDifference {
    fn __repr__(&self) -> String {
        let KeyDifference { file, key, a, b, .. } = self;
        let shown =
            |value: &Option<String>| value.as_ref().map_or("None".to_owned(), |value| format!("{value:?}"));
        format!("KeyDifference(file={file:?}, key={key:?}, a={}, b={})", shown(a), shown(b))
    }
}

/// A parameter that both have.
#[pyclass(frozen, get_all, module = "weighbridge")]
#[derive(Clone)]
pub(crate) struct Compared {
    /// Its name.
    name: String,
    /// Its scheme in A.
    a: String,
    /// Its scheme in B.
    b: String,
    /// True if the values are the same.
    is_same: bool,
    /// How they compare: `identical`, `same values`, `other values`, `other bytes` (of which nothing here knows the values), `other shape`.
    outcome: &'static str,
    /// Values that are not equal.
    unequal: Option<u64>,
    /// The root of the mean square of B's values less A's.
    rmse: Option<f64>,
    /// The largest of them.
    max_error: Option<f32>,
    /// The cosine of both.
    cosine: Option<f64>,
}

impl Compared {
    fn of(of: convert::Compared) -> Compared {
        let (mut difference, mut unequal): (Option<Difference>, _) = (None, None);
        let outcome = match of.outcome {
            Outcome::Identical => "identical",
            Outcome::SameValues => "same values",
            Outcome::Values { difference: found, unequal: count, .. } => {
                (difference, unequal) = (Some(found), Some(count));
                "other values"
            }
            Outcome::Opaque => "other bytes",
            Outcome::Shape => "other shape",
        };
        Compared {
            name: of.name,
            a: of.a.scheme,
            b: of.b.scheme,
            is_same: of.outcome.is_same(),
            outcome,
            unequal,
            rmse: difference.map(|d| d.rmse()),
            max_error: difference.map(|d| d.max),
            cosine: difference.map(|d| d.cosine()),
        }
    }
}

#[pymethods]
impl Compared {
    fn __repr__(&self) -> String {
        let Compared { name, a, b, outcome, .. } = self;
        format!("Compared(name={name:?}, a={a:?}, b={b:?}, outcome={outcome:?})")
    }
}
