//! Models that make vectors.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weighbridge::embedder::{EmbedOptions, Prompt};

use crate::error::{Result, value_error};
use crate::plan::{Encode, Lora};
use crate::runtime::start_options;
use crate::tensor::Array;
use crate::waiting;

/// Texts between two looks whether Ctrl-C was pressed.
const STEP: usize = 64;

/// A model that makes vectors of texts, as sentence-transformers does.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Embedder {
    inner: Mutex<weighbridge::Embedder>,
    width: usize,
    notes: Vec<String>,
}

#[pymethods]
impl Embedder {
    #[new]
    #[pyo3(signature = (path, *, threads=None, max_tokens=None, encode=None, preset=None, lora=None, memory=None))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        max_tokens: Option<usize>,
        encode: Option<Encode>,
        preset: Option<&str>,
        lora: Option<Lora>,
        memory: Option<u64>,
    ) -> PyResult<Embedder> {
        let options = start_options(threads, max_tokens, encode, preset, lora, memory)?;
        let embedder = py.detach(|| -> Result<_> { Ok(weighbridge::Embedder::open(path, &options)?) })?;
        let notes = embedder.notes().iter().map(ToString::to_string).collect();
        Ok(Embedder { width: embedder.width(), notes, inner: Mutex::new(embedder) })
    }

    /// Elements of a vector.
    #[getter]
    fn width(&self) -> usize {
        self.width
    }

    /// Settings that are not followed, and what is done where there are none.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// The vectors of `texts`, `[texts, width]`.
    ///
    /// Before each comes the model's default prompt, or its prompt of the name `prompt`, or `prompt_text`.
    #[pyo3(signature = (texts, *, prompt=None, prompt_text=None, normalize=None))]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<String>,
        prompt: Option<String>,
        prompt_text: Option<String>,
        normalize: Option<bool>,
    ) -> PyResult<Array> {
        let prompt = match (prompt, prompt_text) {
            (None, None) => Prompt::Default,
            (Some(name), None) => Prompt::Named(name),
            (None, Some(text)) => Prompt::Text(text),
            (Some(_), Some(_)) => return Err(value_error("give a prompt's name or its text, not both")),
        };
        let (stop, options) = (AtomicBool::new(false), EmbedOptions { prompt, normalize });
        let work = || -> Result<Vec<f32>> {
            let mut embedder = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let mut values = vec![];
            // Texts of like lengths run best together. The vector of a text does not depend on the others.
            for part in texts.chunks(STEP) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                values.extend_from_slice(embedder.embed(part, &options)?.values());
            }
            Ok(values)
        };
        let values = waiting::run(py, &stop, || Ok(()), work)?;
        Ok(Array::of(texts.len(), self.width, values))
    }

    fn __repr__(&self) -> String {
        format!("<weighbridge.Embedder of {} numbers>", self.width)
    }
}
