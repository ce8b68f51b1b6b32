//! Weighbridge puts model weights where a runtime wants them.
//!
//! It opens a checkpoint of any format, proves that it fits its model, and moves exactly the bytes that are needed. With
//! the feature `engine` it runs the model, with `convert` it writes checkpoints.
//!
//! ```no_run
//! # fn main() -> Result<(), weighbridge::Error> {
//! use weighbridge::{LayoutKind, Pool};
//!
//! let checkpoint = weighbridge::open("model.gguf")?; // headers only
//! let model = weighbridge::describe(&checkpoint)?; // family, config, dialect
//! let plan = weighbridge::plan(&checkpoint, &model, LayoutKind::Canonical)?; // every problem, no reads
//! let loaded = plan.load(&mut Pool::new(2))?; // slots filled, each once
//! let q = loaded.get("layers.0.attention.q.weight").expect("a llama has it");
//! println!("{} {}", q.shape(), q.scheme());
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! The names that most programs need are here. The rest is in a module for each step, which is a crate of its own:
//!
//! | module | is for | begin with |
//! |---|---|---|
//! | [`checkpoint`] | opening files of any format, and writing them | [`open`], [`checkpoint::Draft`] |
//! | [`storage`] | checkpoints outside the file system: in memory, on a server | [`storage::Storage`], [`open_from`] |
//! | [`tensor`] | shapes, schemes, expressions: how a tensor is stored and moved | [`Scheme`], [`tensor::Expr`] |
//! | [`model`] | families, their configuration, and how ranks share them | [`Model`], [`Mesh`] |
//! | [`model::family`] | families of your own | [`model::Family`], [`model::register`] |
//! | [`module`] | models of your own, made of layers that own their parameters | [`Module`], [`module::Tree`] |
//! | [`planner`] | layouts, ranks, encodings, your own names and rules | [`PlanBuilder`], [`planner::Encoding`] |
//! | [`mod@plan`] | what a plan says: problems, reads, coverage | [`plan::Problems`], [`plan::Summary`] |
//! | [`lora`] | `LoRA` adapters, which a plan merges | [`lora::Adapter`], [`PlanBuilder::loras`] |
//! | [`load`] | filling memory, yours or its own, and updating it | [`Plan`], [`load::Options`], [`load::Sink`] |
//! | [`quant`] | blocks to floats and back, for each scheme | [`quant::codec`], [`quant::register`] |
//! | [`check`] | whether a checkpoint is sound, and what a manifest says | [`check::check`], [`check::Manifest`] |
//! | [`vllm`] | the layout of vLLM's layers, and the files of its ranks | [`vllm::LAYOUT`] |
//! | `convert` (feature) | converting and comparing checkpoints | `convert::Conversion`, `convert::diff` |
//! | `compress` (feature `convert`) | the smallest loss at a given size, measured on a text | `compress::choose` |
//! | `store` (feature) | keeping what was loaded, for the next start | `store::Cache` |
//! | `engine` (feature) | running models: sessions, batches, sampling, text | `Runtime`, `engine::generate` |
//! | `embedder` (feature `engine`) | vectors of texts, as sentence-transformers makes them | `Embedder` |
//! | `reranker` (feature `engine`) | scores of texts for a query | `Reranker` |
//! | `transcriber` (feature `speech`) | speech to text, with times | `Transcriber` |
//! | `runtime` (feature `engine`) | a model that is opened, loaded and run in one call | `Runtime`, `RuntimeOptions` |
//!
//! # Errors
//!
//! [`Error`] holds the error of the step that failed. Its message says what is wrong, all of it at once;
//! [`Error::hints`] says what to do about it. A `main` that returns `Result<(), weighbridge::Error>` prints both.

#[doc(inline)]
pub use ::{check, checkpoint, load, lora, model, plan, planner, quant, storage, tensor, vllm};
#[cfg(feature = "convert")]
#[doc(inline)]
pub use ::convert;
#[cfg(feature = "engine")]
#[doc(inline)]
pub use ::engine;
#[cfg(feature = "http")]
#[doc(inline)]
pub use ::remote;
#[cfg(feature = "store")]
#[doc(inline)]
pub use ::store;
#[doc(inline)]
pub use model::module;

#[cfg(feature = "convert")]
pub mod compress;
#[cfg(feature = "engine")]
pub mod embedder;
mod error;
mod layout;
#[cfg(feature = "engine")]
pub mod reranker;
#[cfg(feature = "engine")]
pub mod runtime;
#[cfg(feature = "engine")]
mod start;
#[cfg(feature = "engine")]
mod task;
#[cfg(feature = "speech")]
pub mod transcriber;

pub use checkpoint::{Checkpoint, Metadata, OpenOptions, open, open_from, open_with};
pub use derive::Module;
#[cfg(feature = "engine")]
#[doc(inline)]
pub use embedder::Embedder;
#[cfg(feature = "engine")]
pub use engine::{Batch, Session, sampler::Sampler};
pub use error::Error;
pub use layout::{LAYOUTS, layout};
pub use load::{Loaded, Plan, Pool, Tensor};
pub use model::{Mesh, Model, Module, Rank};
pub use planner::{LayoutKind, PlanBuilder, describe, plan};
#[cfg(feature = "engine")]
#[doc(inline)]
pub use reranker::Reranker;
#[cfg(feature = "engine")]
#[doc(inline)]
pub use runtime::{Runtime, RuntimeOptions};
#[cfg(feature = "engine")]
pub use task::Task;
pub use tensor::{Dtype, Scheme, Shape, TensorEntry};
#[cfg(feature = "speech")]
#[doc(inline)]
pub use transcriber::Transcriber;
