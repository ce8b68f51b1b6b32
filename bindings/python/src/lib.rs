//! The native half of the Python package `weighbridge`.
//!
//! Each class holds one of the library's values, and says no more than it does: what Python's users are used to (numpy, torch,
//! conveniences of safetensors) is written in Python, in `python/weighbridge`.

mod checkpoint;
mod compression;
mod dlpack;
mod embedder;
mod error;
mod evaluation;
mod files;
mod loading;
mod places;
mod plan;
mod runtime;
mod tensor;
mod transcriber;
mod waiting;

use pyo3::prelude::*;

/// The module `weighbridge._weighbridge`.
#[pymodule]
mod _weighbridge {
    #[pymodule_export]
    use super::checkpoint::{Checkpoint, Entry, each, open, selection};
    #[pymodule_export]
    use super::compression::{Compressed, CompressedMatrix, compress_to};
    #[pymodule_export]
    use super::embedder::Embedder;
    #[pymodule_export]
    use super::evaluation::{Evaluation, evaluate};
    #[pymodule_export]
    use super::files::{
        CheckReport, Compared, ConvertReport, Converted, DiffReport, KeyDifference, check, convert_to, diff,
    };
    #[pymodule_export]
    use super::loading::{Loaded, Report, export};
    #[pymodule_export]
    use super::plan::{Needs, Param, Plan, plan, vllm_state};
    #[pymodule_export]
    use super::runtime::{Generation, Runtime, Tokenizer};
    #[pymodule_export]
    use super::tensor::{Array, Plane, Tensor};
    #[pymodule_export]
    use super::transcriber::{Segment, Transcriber, Transcript, Word};

    #[pymodule_export]
    const __VERSION__: &str = env!("CARGO_PKG_VERSION");
}
