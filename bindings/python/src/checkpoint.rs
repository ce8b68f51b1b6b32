//! Checkpoints: what is in them, and single tensors.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use weighbridge::checkpoint::Io;
use weighbridge::checkpoint::{GgufMetadata, Value};
use weighbridge::planner::{EncodeRule, Request};
use weighbridge::tensor::{Expr, Target, TensorEntry};
use weighbridge::{LayoutKind, OpenOptions, PlanBuilder, load};

use crate::error::{Result, unknown, value_error};
use crate::loading::{self, Loading};
use crate::plan::Plan;
use crate::tensor::Tensor;

/// Opens the checkpoint at `path`, a file or a directory of any format, or at a URL. Reads headers alone.
#[pyfunction]
#[pyo3(signature = (path, *, io="auto"))]
pub(crate) fn open(py: Python<'_>, path: PathBuf, io: &str) -> PyResult<Checkpoint> {
    let io = match io {
        // Who has a tensor may write to it.
        "auto" => Io::CopyOnWrite,
        "pread" => Io::Pread,
        "direct" => Io::Direct,
        _ => return Err(value_error(format!("io is \"auto\", \"pread\" or \"direct\", found \"{io}\""))),
    };
    let opened = py.detach(|| -> Result<_> { Ok(weighbridge::open_with(path, &options(io))?) })?;
    Ok(Checkpoint { checkpoint: opened, request: OnceLock::new() })
}

/// How files are reached, those on servers included.
pub(crate) fn options(io: Io) -> OpenOptions {
    OpenOptions::with_io(io).with_resolver(Arc::new(weighbridge::remote::Servers::from_env()))
}

/// A checkpoint whose headers have been read and found sound.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Checkpoint {
    pub(crate) checkpoint: weighbridge::Checkpoint,
    /// Its tensors as they are stored, without targets.
    request: OnceLock<Request>,
}

#[pymethods]
impl Checkpoint {
    /// Where it is.
    #[getter]
    fn path(&self) -> String {
        self.checkpoint.location().to_string()
    }

    /// The format of its files: `gguf`, `hf`, `safetensors`, `pytorch`, `npy`, …
    #[getter]
    fn format(&self) -> &'static str {
        self.checkpoint.format().name()
    }

    /// Its tensors, in the order of the files.
    #[getter]
    fn entries(&self) -> Vec<Entry> {
        self.checkpoint.entries().iter().map(Entry::of).collect()
    }

    /// The names of its tensors, in the order of the files.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.checkpoint.entries().iter().map(|entry| entry.name.as_str()))
    }

    /// Metadata beside the tensors: the keys of a GGUF file, or the pairs in a safetensors header.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        if let Some(gguf) = self.checkpoint.metadata().gguf() {
            put(&all, gguf)?;
        } else if let Some(hf) = self.checkpoint.metadata().hf() {
            for (key, value) in hf.safetensors() {
                all.set_item(key, value)?;
            }
        }
        Ok(all)
    }

    /// The content of `config.json`; None without one.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let config = self.checkpoint.metadata().hf().and_then(|hf| hf.config());
        config.map(|config| json(py, config)).transpose()
    }

    /// The family whose names and configuration the checkpoint has.
    ///
    /// Raises UnknownModelError if none claims it.
    #[getter]
    fn family(&self) -> PyResult<&'static str> {
        Ok(weighbridge::describe(&self.checkpoint).map_err(crate::error::Failure::from)?.family.name())
    }

    /// The files that a Hugging Face directory of the model has beside its weights (config.json, the tokenizer's, the chat template), by
    /// name, and what the checkpoint says that none of them does. The weights' names there are those of the layout `hf`.
    ///
    /// Raises an error if config.json cannot say all of the model; `allow_loss` names keys that may be lost.
    #[pyo3(signature = (*, allow_loss=None))]
    fn hf_files<'py>(
        &self,
        py: Python<'py>,
        allow_loss: Option<Vec<String>>,
    ) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
        let make = || -> Result<_> {
            Ok(weighbridge::convert::in_hf(&self.checkpoint, &allow_loss.unwrap_or_default())?)
        };
        let (files, left) = py.detach(make)?;
        let all = PyDict::new(py);
        let config = serde_json::to_vec_pretty(&files.config).unwrap_or_default();
        for (name, content) in [("config.json".to_owned(), config)].into_iter().chain(files.members) {
            all.set_item(name, PyBytes::new(py, &content))?;
        }
        let left = left.iter().map(|left| format!("{}, `{}`: {}", left.file, left.key, left.why));
        Ok((all, left.collect()))
    }

    /// The tensor called `name`, as it is stored, or with `dtype` decoded to that: `f32`, `bf16`, `f16`.
    ///
    /// One that is stored as it is asked for is borrowed from the mapped file, and is read when it is touched.
    #[pyo3(signature = (name, dtype=None))]
    fn get(&self, py: Python<'_>, name: &str, dtype: Option<&str>) -> PyResult<Tensor> {
        let Some(entry) = self.checkpoint.entry(name) else {
            return Err(self.unknown(name));
        };
        let scheme = match dtype {
            None => None,
            Some(dtype) => Some(scheme(dtype)?),
        };
        let load = || -> Result<_> {
            let plan = self.plan(vec![Target { name: name.to_owned(), expr: Expr::source(name), scheme }])?;
            let threads = if entry.byte_len() < SMALL { 1 } else { loading::threads(None) };
            loading::load_quietly(&plan, threads)
        };
        let loaded = py.detach(load)?;
        loaded.tensor(name)
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        self.get(py, name, None)
    }

    fn __len__(&self) -> usize {
        self.checkpoint.entries().len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.checkpoint.entry(name).is_some()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys(py)?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        let tensors = weighbridge::tensor::counted(self.checkpoint.entries().len(), "tensor");
        format!("<weighbridge.Checkpoint {} {}, {tensors}>", self.path(), self.format())
    }
}

/// Tensors with fewer bytes are not worth more threads.
const SMALL: u64 = 4 << 20;

impl Checkpoint {
    /// The plan of these targets over its entries.
    fn plan(&self, targets: Vec<Target>) -> Result<load::Plan> {
        let mut request = match self.request.get() {
            Some(request) => request,
            None => {
                let mut request = PlanBuilder::new(&self.checkpoint).layout(LayoutKind::Source).request()?;
                request.targets.clear();
                self.request.get_or_init(|| request)
            }
        }
        .clone();
        request.targets = targets;
        Ok(request.compile()?)
    }

    /// That there is no tensor called `name`, and which is the nearest.
    fn unknown(&self, name: &str) -> PyErr {
        let names = self.checkpoint.entries().iter().map(|entry| entry.name.as_str());
        unknown(&format!("`{}` has no tensor", self.path()), name, names)
    }
}

/// Loads the tensors that [`selection`] plans.
#[pyfunction]
#[pyo3(name = "_each")]
pub(crate) fn each(
    py: Python<'_>,
    checkpoint: &Bound<'_, Checkpoint>,
    dtype: Option<&str>,
    names: Option<Vec<String>>,
) -> PyResult<Vec<Tensor>> {
    let Plan { plan } = selection(checkpoint, dtype, names)?;
    let loaded = Loading { owned: false, threads: None, memory: None, progress: None }.load(py, &plan)?;
    plan.params().iter().map(|param| loaded.tensor(&param.name)).collect()
}

/// Plans the tensors of `checkpoint` called `names`, or all, in order: as they are stored, or decoded to `dtype`. Those in blocks become f32
/// if no dtype is asked for.
#[pyfunction]
#[pyo3(name = "_selection")]
pub(crate) fn selection(
    checkpoint: &Bound<'_, Checkpoint>,
    dtype: Option<&str>,
    names: Option<Vec<String>>,
) -> PyResult<Plan> {
    let this = checkpoint.get();
    let asked = dtype.map(scheme).transpose()?;
    let plain = scheme("f32")?;
    let wanted: Vec<&TensorEntry> = match &names {
        None => this.checkpoint.entries().iter().collect(),
        Some(names) => {
            let find = |name: &String| this.checkpoint.entry(name).ok_or_else(|| this.unknown(name));
            names.iter().map(find).collect::<PyResult<_>>()?
        }
    };
    let target = |entry: &&TensorEntry| {
        let blocks = entry.scheme.dtype().is_none().then(|| Arc::clone(&plain));
        Target { name: entry.name.clone(), expr: Expr::source(&entry.name), scheme: asked.clone().or(blocks) }
    };
    Ok(Plan { plan: this.plan(wanted.iter().map(target).collect())? })
}

/// The scheme called `name`, which can be encoded to.
pub(crate) fn scheme(name: &str) -> PyResult<Arc<weighbridge::Scheme>> {
    let rule: Result<EncodeRule> = format!("*={name}").parse().map_err(crate::error::Failure::from);
    Ok(Arc::clone(rule?.scheme()))
}

/// A tensor of a checkpoint.
#[pyclass(frozen, get_all, module = "weighbridge")]
pub(crate) struct Entry {
    /// Its name there.
    name: String,
    /// The extents, slowest axis first.
    shape: Py<PyTuple>,
    /// How it is stored: `bf16`, `q4_k`.
    scheme: String,
    /// Its bytes in the file.
    nbytes: u64,
}

impl Entry {
    pub(crate) fn of(entry: &TensorEntry) -> Entry {
        let shape = Python::attach(|py| PyTuple::new(py, entry.shape.iter()).map(Bound::unbind));
        Entry {
            name: entry.name.clone(),
            // A tuple of a few numbers fails with the interpreter alone.
            shape: shape.unwrap_or_else(|_| Python::attach(|py| PyTuple::empty(py).unbind())),
            scheme: entry.scheme.to_string(),
            nbytes: entry.byte_len(),
        }
    }
}

#[pymethods]
impl Entry {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Entry { name, shape, scheme, nbytes } = self;
        let shape = shape.bind(py).repr()?;
        Ok(format!("Entry(name={name:?}, shape={shape}, scheme={scheme:?}, nbytes={nbytes})"))
    }
}

fn put(into: &Bound<'_, PyDict>, gguf: &GgufMetadata) -> PyResult<()> {
    gguf.iter().try_for_each(|(key, value)| into.set_item(key, of_value(into.py(), &value)?))
}

fn of_value<'py>(py: Python<'py>, value: &Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::U8(n) => n.into_pyobject(py)?.into_any(),
        Value::I8(n) => n.into_pyobject(py)?.into_any(),
        Value::U16(n) => n.into_pyobject(py)?.into_any(),
        Value::I16(n) => n.into_pyobject(py)?.into_any(),
        Value::U32(n) => n.into_pyobject(py)?.into_any(),
        Value::I32(n) => n.into_pyobject(py)?.into_any(),
        Value::U64(n) => n.into_pyobject(py)?.into_any(),
        Value::I64(n) => n.into_pyobject(py)?.into_any(),
        Value::F32(x) => x.into_pyobject(py)?.into_any(),
        Value::F64(x) => x.into_pyobject(py)?.into_any(),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        // A string that is not UTF-8 stays bytes.
        Value::Str(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into_pyobject(py)?.into_any(),
            Err(_) => PyBytes::new(py, bytes).into_any(),
        },
        Value::Array(array) => {
            let list = PyList::empty(py);
            array.values().try_for_each(|value| list.append(of_value(py, &value)?))?;
            list.into_any()
        }
    })
}

/// JSON as Python's values.
pub(crate) fn json<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}
