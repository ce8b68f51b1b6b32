//! Loads that let Python's other threads run, tell how far they are, and end with Ctrl-C.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList};
use weighbridge::Pool;
use weighbridge::load::{self, LoadReport, Options, Progress};
use weighbridge::tensor::{Pattern, TensorEntry};

use crate::checkpoint::Entry;
use crate::error::{Failure, Result, unknown};
use crate::places::Places;
use crate::plan::Plan;
use crate::tensor::Tensor;
use crate::waiting::Watch;

/// How a load runs.
pub(crate) struct Loading {
    pub(crate) owned: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) memory: Option<u64>,
    pub(crate) progress: Option<Py<PyAny>>,
}

/// The number of threads, if none is asked for: all of the machine's.
pub(crate) fn threads(asked: Option<usize>) -> usize {
    asked.map_or_else(Pool::available, |n| n.clamp(1, 1024))
}

/// Loads without a word.
pub(crate) fn load_quietly(plan: &load::Plan, threads: usize) -> Result<Loaded> {
    Ok(Loaded::of(plan, plan.load(&mut Pool::new(threads))?))
}

impl Loading {
    pub(crate) fn load(&self, py: Python<'_>, plan: &load::Plan) -> Result<Loaded> {
        let loaded = self.run(py, |pool, options| Ok(plan.load_with(pool, options)?))?;
        Ok(Loaded::of(plan, loaded))
    }

    pub(crate) fn load_into(
        &self,
        py: Python<'_>,
        plan: &load::Plan,
        places: &HashMap<String, Bound<'_, PyAny>>,
    ) -> Result<Report> {
        let places = Places::of(plan, places)?;
        let mut sink = places.sink();
        let report = self.run(py, |pool, options| Ok(plan.load_into(&mut sink, pool, options)?))?;
        places.fill_tied();
        Ok(Report::of(&report))
    }

    /// Runs `work`, and tells how far it is.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Pool, Options<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let watch = Watch::default();
        let at = |progress: Progress| watch.at(progress.done, progress.total);
        let options =
            Options { owned: self.owned, memory: self.memory, watch: Some(&at), ..Options::default() };
        let threads = threads(self.threads);
        watch.run(py, self.progress.as_ref(), || work(&mut Pool::new(threads), options))
    }
}

/// Parameters in memory, by name.
#[pyclass(frozen, mapping, module = "weighbridge")]
pub(crate) struct Loaded {
    loaded: RwLock<load::Loaded>,
    /// In the order of the plan.
    names: Vec<String>,
}

impl Loaded {
    fn of(plan: &load::Plan, loaded: load::Loaded) -> Loaded {
        let names = plan.params().iter().map(|param| param.name.clone()).collect();
        Loaded { loaded: RwLock::new(loaded), names }
    }

    fn held(&self) -> RwLockReadGuard<'_, load::Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tensor called `name`.
    pub(crate) fn tensor(&self, name: &str) -> PyResult<Tensor> {
        match self.held().get(name) {
            Some(tensor) => Ok(Tensor::new(name, tensor.clone())),
            None => Err(unknown("there is no parameter", name, self.names.iter().map(String::as_str))),
        }
    }
}

#[pymethods]
impl Loaded {
    fn __getitem__(&self, name: &str) -> PyResult<Tensor> {
        self.tensor(name)
    }

    fn __len__(&self) -> usize {
        self.names.len()
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        key.extract::<&str>().is_ok_and(|name| self.held().get(name).is_some())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(py, &self.names)?.try_iter()?.into_any())
    }

    /// The tensor called `key`, or else `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match key.extract::<&str>() {
            Ok(name) if self.held().get(name).is_some() => {
                Ok(Some(Bound::new(py, self.tensor(name)?)?.into_any()))
            }
            _ => Ok(default),
        }
    }

    /// The names, in the order of the plan.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "KeysView")
    }

    /// The tensors, in the order of the plan.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ValuesView")
    }

    /// Names and tensors, in the order of the plan.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ItemsView")
    }

    /// The cost of the load.
    #[getter]
    fn report(&self) -> Report {
        Report::of(self.held().report())
    }

    /// Runs `plan`, of the same layout, into the memory that is there: the parameters that match one of `patterns`, or all.
    ///
    /// Everything that can be is checked before the first byte is written, and an error leaves the old values. With too little `memory` to
    /// read aside first, bytes go straight to their place, and LoadError says what was written if that fails.
    ///
    /// Raises LoadError with everything that is in the way: other names, shapes or schemes, parameters that are borrowed from a file, tensors
    /// of this load that are still in use.
    #[pyo3(signature = (plan, *patterns, threads=None, memory=None, progress=None))]
    fn update(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        patterns: Vec<String>,
        threads: Option<usize>,
        memory: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Report> {
        let loading = Loading { owned: true, threads, memory, progress };
        let only: Vec<Pattern> = patterns.iter().map(Pattern::new).collect();
        let plan = &plan.get().plan;
        let report = loading.run(py, |pool, options| {
            let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
            Ok(loaded.update(plan, &only, pool, options)?)
        })?;
        Ok(Report::of(&report))
    }

    fn __repr__(&self) -> String {
        format!("<weighbridge.Loaded {}>", weighbridge::tensor::counted(self.names.len(), "parameter"))
    }
}

/// Rebuilds the tensors of a checkpoint from the parameters that ranks hold, each a plan and what it loaded. Calls `each` for one tensor after
/// the other, in the checkpoint's order, with the tensor and a bytearray for each of its planes. What the plans dropped is left out.
///
/// Values that were moved, or encoded exactly, come back bit for bit. Those that were rounded come back as near as their encoding holds them:
/// the names of such parameters are returned.
///
/// Raises LoadError if the plans are not of one checkpoint, and with everything that the ranks do not hold, or hold in different values.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    ranks: Vec<(Bound<'_, Plan>, Bound<'_, Loaded>)>,
    each: &Bound<'_, PyAny>,
) -> PyResult<Vec<String>> {
    let held: Vec<_> = ranks.iter().map(|(plan, loaded)| (&plan.get().plan, loaded.get().held())).collect();
    let held: Vec<(&load::Plan, &load::Loaded)> =
        held.iter().map(|(plan, loaded)| (*plan, &**loaded)).collect();
    let told = |entry: &TensorEntry, planes: &[Vec<u8>]| -> Result<()> {
        py.check_signals().map_err(Failure::Python)?;
        let planes: Vec<_> = planes.iter().map(|plane| PyByteArray::new(py, plane)).collect();
        each.call1((Entry::of(entry), planes)).map_err(Failure::Python)?;
        Ok(())
    };
    Ok(load::export(&held, told)?)
}

/// A view of a mapping, of `collections.abc`.
fn view<'py>(mapping: &Bound<'py, Loaded>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    mapping.py().import("collections.abc")?.getattr(class)?.call1((mapping,))
}

/// The cost of a load.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Report {
    /// Wall time.
    seconds: f64,
    /// Threads.
    threads: usize,
    /// Bytes read from files, with those in gaps that are read along.
    read: u64,
    /// Bytes that stay in the map.
    borrowed: u64,
    /// Bytes moved as they are.
    copied: u64,
    /// Bytes written by a codec: decoded, encoded.
    encoded: u64,
    /// Bytes of buffers that are gone now.
    scratch: u64,
}

impl Report {
    fn of(report: &LoadReport) -> Report {
        Report {
            seconds: report.seconds,
            threads: report.threads,
            read: report.bytes_read,
            borrowed: report.bytes_borrowed,
            copied: report.bytes_copied,
            encoded: report.bytes_encoded,
            scratch: report.scratch_peak,
        }
    }
}

#[pymethods]
impl Report {
    /// The cost of two loads, one after the other.
    fn __add__(&self, other: &Report) -> Report {
        Report {
            seconds: self.seconds + other.seconds,
            threads: self.threads.max(other.threads),
            read: self.read + other.read,
            borrowed: self.borrowed + other.borrowed,
            copied: self.copied + other.copied,
            encoded: self.encoded + other.encoded,
            scratch: self.scratch.max(other.scratch),
        }
    }

    fn __repr__(&self) -> String {
        let Report { seconds, threads, read, borrowed, copied, encoded, scratch } = self;
        format!(
            "Report(seconds={seconds:.3}, threads={threads}, read={read}, borrowed={borrowed}, copied={copied}, encoded={encoded}, scratch={scratch})"
        )
    }
}
