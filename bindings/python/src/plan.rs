//! Plans.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyTuple};
use weighbridge::checkpoint::Outgoing;
use weighbridge::load::{self, Options};
use weighbridge::plan::PlannedParam;
use weighbridge::planner::{self, EncodeRule, Encoding, Preset};
use weighbridge::vllm::rank_files;
use weighbridge::{Mesh, PlanBuilder, Scheme, lora};

use crate::checkpoint::{Checkpoint, open, scheme};
use crate::error::{Failure, Result, misuse, unknown};
use crate::loading::{self, Loaded, Loading, Report};

/// Plans how `checkpoint` becomes what a runtime wants. No tensor is read.
///
/// Raises PlanError with every problem at once if it does not fit its model.
#[pyfunction]
#[pyo3(signature = (
    checkpoint, *, layout="canonical", tp=1, pp=1, ep=1, rank=0, encode=None, preset=None, rules=None, allow_missing=None,
    lora=None
))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn plan(
    py: Python<'_>,
    checkpoint: Source<'_>,
    layout: &str,
    tp: u64,
    pp: u64,
    ep: u64,
    rank: u64,
    encode: Option<Encode>,
    preset: Option<&str>,
    rules: Option<PathBuf>,
    allow_missing: Option<Vec<String>>,
    lora: Option<Lora>,
) -> PyResult<Plan> {
    let layout = weighbridge::layout(layout).map_err(Failure::from)?;
    let encoding = encoding(encode, preset)?;
    let checkpoint = match checkpoint {
        Source::Open(checkpoint) => checkpoint.get().checkpoint.clone(),
        Source::Path(path) => open(py, path, "auto")?.checkpoint,
    };
    let build = || -> Result<load::Plan> {
        let mesh = Mesh { tp, pp, ep, ..Mesh::default() };
        let mut builder =
            PlanBuilder::new(&checkpoint).layout(layout).mesh(mesh).rank(rank).encoding(encoding);
        if let Some(rules) = rules {
            builder = builder.mapping(planner::read_rules(rules)?);
        }
        for pattern in allow_missing.iter().flatten() {
            builder = builder.allow_missing(pattern);
        }
        Ok(builder.loras(adapters(lora)?).build()?)
    };
    Ok(Plan { plan: py.detach(build)? })
}

/// A checkpoint, or where it is.
#[derive(FromPyObject)]
pub(crate) enum Source<'py> {
    Open(Bound<'py, Checkpoint>),
    Path(PathBuf),
}

/// A scheme for all tensors, or one for each pattern of names.
#[derive(FromPyObject)]
pub(crate) enum Encode {
    All(String),
    Each(IndexMap),
}

/// Patterns and schemes, in order.
pub(crate) struct IndexMap(Vec<(String, String)>);

impl<'py> FromPyObject<'_, 'py> for IndexMap {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<IndexMap> {
        Ok(IndexMap(given.cast::<PyMapping>()?.items()?.extract()?))
    }
}

/// An adapter, or several, with the factors that they are multiplied by.
#[derive(FromPyObject)]
pub(crate) enum Lora {
    One(PathBuf),
    Several(Vec<Scaled>),
}

#[derive(FromPyObject)]
pub(crate) enum Scaled {
    Path(PathBuf),
    By(PathBuf, f32),
}

/// Reads adapters.
pub(crate) fn adapters(lora: Option<Lora>) -> Result<Vec<Arc<lora::Adapter>>> {
    let all = match lora {
        None => vec![],
        Some(Lora::One(path)) => vec![Scaled::Path(path)],
        Some(Lora::Several(all)) => all,
    };
    let open = |one| {
        let (path, scale) = match one {
            Scaled::Path(path) => (path, 1.0),
            Scaled::By(path, scale) => (path, scale),
        };
        Ok(Arc::new(lora::Adapter::open(path, scale)?))
    };
    all.into_iter().map(open).collect()
}

/// Plans the whole state of vLLM's modules on one rank: `layout="vllm"` under the names of `state_dict`, with the constants that no
/// checkpoint has. What `state` has (the dtype of each tensor by its name) decides how plain parameters are held; it may be empty.
#[pyfunction]
#[pyo3(name = "_vllm_state", signature = (checkpoint, *, tp, pp, rank, state, encode=None, preset=None, rules=None, lora=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn vllm_state(
    py: Python<'_>,
    checkpoint: &Bound<'_, Checkpoint>,
    tp: u64,
    pp: u64,
    rank: u64,
    state: HashMap<String, String>,
    encode: Option<Encode>,
    preset: Option<&str>,
    rules: Option<PathBuf>,
    lora: Option<Lora>,
) -> PyResult<Plan> {
    let encoding = encoding(encode, preset)?;
    let wanted = state.iter().map(|(name, dtype)| Ok((name.as_str(), scheme(dtype)?)));
    let wanted = wanted.collect::<PyResult<HashMap<&str, Arc<Scheme>>>>()?;
    let checkpoint = &checkpoint.get().checkpoint;
    let build = || -> Result<load::Plan> {
        let model = weighbridge::describe(checkpoint)?;
        let mesh = Mesh { tp, pp, ..Mesh::default() };
        if let Some(what) = rank_files::refuses(&mesh, &model) {
            return Err(Failure::Python(misuse(what)));
        }
        let mut builder = PlanBuilder::new(checkpoint).model(&model).layout(weighbridge::vllm::LAYOUT);
        builder = builder.mesh(mesh).rank(rank).encoding(encoding).loras(adapters(lora)?);
        if let Some(rules) = rules {
            builder = builder.mapping(planner::read_rules(rules)?);
        }
        let held = |name: &str| wanted.get(name).map(Arc::clone);
        Ok(rank_files::state(builder.request()?, &model, checkpoint, held)?)
    };
    Ok(Plan { plan: py.detach(build)? })
}

/// The encoding that schemes and a preset ask for.
pub(crate) fn encoding(encode: Option<Encode>, preset: Option<&str>) -> PyResult<Encoding> {
    let pairs = match encode {
        None => vec![],
        Some(Encode::All(scheme)) => vec![("*".to_owned(), scheme)],
        Some(Encode::Each(IndexMap(pairs))) => pairs,
    };
    let rule = |(pattern, scheme)| format!("{pattern}={scheme}").parse::<EncodeRule>().map_err(Failure::from);
    let rules = pairs.into_iter().map(rule).collect::<Result<Vec<_>>>()?;
    let preset = preset.map(Preset::known).transpose().map_err(Failure::from)?;
    Ok(Encoding { rules, preset, is_guided: false })
}

/// How to fill every slot of a runtime, and the checkpoint to fill it from.
///
/// It keeps the checkpoint's files open. A file that is no longer what it was when it was opened is an error.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Plan {
    pub(crate) plan: load::Plan,
}

#[pymethods]
impl Plan {
    /// A summary for people: the bytes that the plan moves, changes and reads. With `name`, the way in which that parameter is made.
    #[pyo3(signature = (name=None))]
    fn explain(&self, name: Option<&str>) -> PyResult<String> {
        let Some(name) = name else { return Ok(self.plan.summary().to_string()) };
        self.plan.explain(name).map_err(|_| self.unknown(name))
    }

    /// The parameters, in the order of the layout.
    #[getter]
    fn params(&self) -> Vec<Param> {
        let of = |param: &PlannedParam| Param {
            name: param.name.clone(),
            shape: Python::attach(|py| PyTuple::new(py, param.shape.iter()).map(Bound::unbind)).ok(),
            scheme: param.scheme.to_string(),
            nbytes: param.slot_bytes(),
            tied_to: param.tied_to.map(|root| self.plan.params()[root].name.clone()),
            exact: matches!(param.fidelity, weighbridge::plan::Fidelity::Exact),
            tensors: plain_tensors(param),
        };
        self.plan.params().iter().map(of).collect()
    }

    /// Names of entries that no parameter is made from, with the reason why nothing is lost.
    #[getter]
    fn dropped(&self) -> Vec<(String, String)> {
        self.plan.pieces().dropped.clone()
    }

    /// Canonical parameters that the layout has no name for.
    #[getter]
    fn nameless(&self) -> Vec<String> {
        self.plan.nameless().to_vec()
    }

    /// A digest: the same for the same headers, layout, mesh and encodings, on every machine.
    #[getter]
    fn digest(&self) -> String {
        self.plan.digest().to_string()
    }

    /// Identifies a copy of the result, in hexadecimal digits: by the plan, the identities of the files that it reads (lengths, times, inodes,
    /// or a server's tag), and `what` beside them, such as the processor that the copy is for. `None` if a file cannot be told from what it
    /// was before: it is in memory, or was written to within the last two seconds.
    #[pyo3(signature = (what=""))]
    fn key(&self, what: &str) -> Option<String> {
        weighbridge::store::Key::of(&self.plan, what).map(|key| key.to_string())
    }

    /// The needs of a load. It reads nothing.
    #[pyo3(signature = (*, owned=false, threads=None))]
    fn needs(&self, owned: bool, threads: Option<usize>) -> PyResult<Needs> {
        let options = Options { owned, ..Options::default() };
        let needs = self.plan.needs(options, loading::threads(threads)).map_err(Failure::from)?;
        Ok(Needs {
            threads: needs.threads,
            borrowed: needs.borrowed,
            owned: needs.owned,
            read: needs.read,
            reads: needs.reads.count,
            scratch: needs.scratch,
        })
    }

    /// The plan of the parameters alone that match one of `patterns`, where `*` is any run of characters.
    #[pyo3(signature = (*patterns))]
    fn only(&self, patterns: Vec<String>) -> PyResult<Plan> {
        let hit =
            |pattern: &String| self.plan.params().iter().any(|p| planner::encoding::glob(pattern, &p.name));
        let mut missed = patterns.iter().filter(|pattern| !hit(pattern));
        if let Some(pattern) = missed.next() {
            return Err(self.unknown(pattern));
        }
        let keep = |param: &PlannedParam| patterns.iter().any(|p| planner::encoding::glob(p, &param.name));
        Ok(Plan { plan: self.plan.retain(keep) })
    }

    /// Runs it: every slot filled once.
    ///
    /// The load borrows from mapped files the parameters that are stored as they are wanted. With `owned`, all have memory of their own.
    /// `memory` limits the bytes of buffers. `progress` is called with the bytes that are there and those that are wanted.
    #[pyo3(signature = (*, owned=false, threads=None, memory=None, progress=None))]
    fn load(
        &self,
        py: Python<'_>,
        owned: bool,
        threads: Option<usize>,
        memory: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Loaded> {
        let loading = Loading { owned, threads, memory, progress };
        Ok(loading.load(py, &self.plan)?)
    }

    /// Runs it into memory of the caller's: `places` has for each parameter a writable, contiguous buffer of as many bytes, or a list with
    /// one for each plane. Files are read straight into them.
    ///
    /// Raises LoadError with everything that does not fit; nothing is written then.
    #[pyo3(signature = (places, *, threads=None, memory=None, progress=None))]
    fn load_into(
        &self,
        py: Python<'_>,
        places: &Bound<'_, PyMapping>,
        threads: Option<usize>,
        memory: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Report> {
        let loading = Loading { owned: true, threads, memory, progress };
        let places: Vec<(String, Bound<'_, PyAny>)> = places.items()?.extract()?;
        Ok(loading.load_into(py, &self.plan, &places.into_iter().collect())?)
    }

    fn __len__(&self) -> usize {
        self.plan.params().len()
    }

    fn __repr__(&self) -> String {
        let layout = &self.plan.arrangement().layout;
        format!(
            "<weighbridge.Plan {layout}, {}>",
            weighbridge::tensor::counted(self.plan.params().len(), "parameter")
        )
    }
}

impl Plan {
    fn unknown(&self, name: &str) -> PyErr {
        let names = self.plan.params().iter().map(|param| param.name.as_str());
        unknown("the plan has no parameter", name, names)
    }
}

/// The plain tensors by which safetensors files hold a parameter.
fn plain_tensors(param: &PlannedParam) -> Vec<(String, &'static str, Vec<u64>)> {
    let (name, shape, scheme) = (param.name.clone(), param.shape.clone(), Arc::clone(&param.scheme));
    let tensors = Outgoing { name, shape, scheme }.plain_tensors().unwrap_or_default();
    tensors.into_iter().map(|(name, dtype, shape)| (name, dtype.name(), shape.to_vec())).collect()
}

/// A parameter as it will be in memory.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Param {
    /// The runtime's name.
    name: String,
    /// The extents, slowest axis first.
    shape: Option<Py<PyTuple>>,
    /// How it is held: `bf16`, `q4_k`.
    scheme: String,
    /// Bytes of its slot.
    nbytes: u64,
    /// The parameter whose slot it shares; None if it has its own.
    tied_to: Option<String>,
    /// True if its values are those of the checkpoint.
    exact: bool,
    /// The plain tensors by which safetensors files hold it (name, dtype, shape), one for each plane; empty if they have no form for its
    /// encoding.
    tensors: Vec<(String, &'static str, Vec<u64>)>,
}

#[pymethods]
impl Param {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Param { name, shape, scheme, nbytes, .. } = self;
        let shape = match shape {
            Some(shape) => shape.bind(py).repr()?.to_string(),
            None => "()".to_owned(),
        };
        Ok(format!("Param(name={name:?}, shape={shape}, scheme={scheme:?}, nbytes={nbytes})"))
    }
}

/// The needs of a load.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Needs {
    /// Threads.
    threads: usize,
    /// Bytes that stay in the map.
    borrowed: u64,
    /// Bytes allocated for parameters.
    owned: u64,
    /// Bytes taken from files, with what lies in gaps that are read along.
    read: u64,
    /// The number of reads.
    reads: usize,
    /// Bytes of buffers at most, all threads together.
    scratch: u64,
}

#[pymethods]
impl Needs {
    fn __repr__(&self) -> String {
        let Needs { threads, borrowed, owned, read, reads, scratch } = self;
        format!(
            "Needs(threads={threads}, borrowed={borrowed}, owned={owned}, read={read}, reads={reads}, scratch={scratch})"
        )
    }
}
