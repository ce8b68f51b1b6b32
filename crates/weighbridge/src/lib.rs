//! Weighbridge puts model weights where a runtime wants them.
//!
//! The way of the data, each step a function that can be called alone:
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
//! With the feature `engine`, `Runtime` does all of it and runs the model; with `convert`, `Conversion` writes it anew.
//!
//! What most programs need is here by name. All else that the items here speak of is in the crates beneath, which are
//! modules of this one: [`tensor`], [`quant`], [`storage`], [`checkpoint`], [`model`], [`mod@plan`], [`load`], and `engine`
//! with that feature.
//!
//! A checkpoint need not be in the file system: [`open_from`] opens it through a [`storage::Storage`].

#[doc(no_inline)]
pub use ::{check, checkpoint, load, model, plan, planner, quant, storage, tensor, vllm};
#[cfg(feature = "convert")]
#[doc(no_inline)]
pub use ::convert;
#[cfg(feature = "engine")]
#[doc(no_inline)]
pub use ::engine;

mod error;
#[cfg(feature = "engine")]
mod runtime;

pub use check::{
    CheckOptions, CheckReport, CheckedFile, Finding, KeyFinding, Listed, ListedKey, Manifest, Verified,
    Wrong, WrongKey, check, load_verified,
};
pub use checkpoint::{Checkpoint, Ignored, Io, Metadata, OpenOptions, open, open_from, open_with};
#[cfg(feature = "convert")]
pub use convert::{
    Compared, Conversion, ConvertOptions, ConvertReport, Converted, Covered, DiffGroup, DiffReport, Group,
    Held, Imatrix, KeyDifference, Left, Outcome, OutputFormat, Progress, Requantized, Split, coverage, diff,
};
pub use derive::Module;
#[cfg(feature = "engine")]
pub use engine::backend::{Ceiling, Tried, Tuned};
#[cfg(feature = "engine")]
pub use engine::sampler::{Sampler, SamplerOptions};
#[cfg(feature = "engine")]
pub use engine::sampling::{Sampling, sampling};
#[cfg(feature = "engine")]
pub use engine::text::{
    ChatTemplate, EncodeOptions, Error as TextError, Message, Note, SpecialText, TextStream, TokenStream,
    Tokenizer, chat_template, open_tokenizer, tokenizer,
};
#[cfg(feature = "engine")]
pub use engine::{Batch, Limits, Logits, Session, Snapshot, Stats, Stop};
pub use error::Error;
pub use load::{
    Allocated, Bytes, Digest, Error as LoadError, LoadReport, Loaded, Needs, Obstacle,
    Options as LoadOptions, Place, Plan, Pool, Progress as LoadProgress, ReadSizes, Sink, Tensor, export,
};
pub use model::{
    Along, Axis, DialectName, ExpertPlacement, KeyVerdict, Loss, Mesh, Model, Module, NotFollowed, Origin,
    ParamSpec, Rank, Role, Tree, Verdict, module,
};
pub use plan::{
    Absent, Dropped, LoadPlan, Mapped, Problems, Replicated, Resolved, Summary, Untaken, Whole, dropped,
    reads,
};
pub use planner::{
    Adapter, EncodeRule, Encoding, Error as PlanError, LayoutKind, PRESETS, PlanBuilder, Preset, Ranks,
    Request, RulesProblems, describe, packed_layout, parse_rules, plan, plan_as_stored, read_rules, resolve,
};
pub use quant::Difference;
#[cfg(feature = "engine")]
pub use quant::{Access, Quant, processor, quants};
#[cfg(feature = "engine")]
pub use runtime::{BackendKind, Options, Runtime, tune};
pub use tensor::{
    Arrangement, Dtype, Expr, MapRule, MapStep, Mapping, Outcome as MapOutcome, Pattern, RopeOrder, Scheme,
    Shape, TensorEntry, nearest,
};
