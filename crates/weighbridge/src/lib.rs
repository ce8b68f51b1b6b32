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
//! modules of this one: [`tensor`], [`quant`], [`checkpoint`], [`model`], [`mod@plan`], [`load`], and `engine` with that
//! feature.

#[doc(no_inline)]
pub use ::{checkpoint, load, model, plan, quant, tensor};
#[cfg(feature = "engine")]
#[doc(no_inline)]
pub use ::engine;

mod adapter;
mod bands;
mod builder;
mod check;
#[cfg(feature = "convert")]
mod convert;
#[cfg(feature = "convert")]
mod coverage;
#[cfg(feature = "convert")]
mod diff;
mod encoding;
mod error;
mod layout;
mod pipeline;
#[cfg(feature = "engine")]
mod quants;
#[cfg(feature = "convert")]
mod rope;
mod rules;
#[cfg(feature = "engine")]
mod runtime;
mod said;
#[cfg(feature = "engine")]
mod sampling;
#[cfg(feature = "engine")]
mod text;
mod wanted;

pub use adapter::Adapter;
pub use builder::{PlanBuilder, Ranks};
pub use check::{
    CheckOptions, CheckReport, CheckedFile, Finding, KeyFinding, Listed, ListedKey, Manifest, Verified,
    Wrong, WrongKey, check, load_verified,
};
pub use checkpoint::{Checkpoint, Ignored, Io, Metadata, OpenOptions};
#[cfg(feature = "convert")]
pub use convert::{
    Conversion, ConvertOptions, ConvertReport, Converted, Group, Imatrix, Left, OutputFormat, Progress,
    Requantized, Split,
};
#[cfg(feature = "convert")]
pub use coverage::{Covered, coverage};
pub use derive::Module;
#[cfg(feature = "convert")]
pub use diff::{Compared, DiffGroup, DiffReport, Held, KeyDifference, Outcome, diff};
pub use encoding::{EncodeRule, Encoding, PRESETS, Preset};
#[cfg(feature = "engine")]
pub use engine::backend::{Ceiling, Tried, Tuned};
#[cfg(feature = "engine")]
pub use engine::sampler::{Sampler, SamplerOptions};
#[cfg(feature = "engine")]
pub use engine::text::{
    ChatTemplate, EncodeOptions, Error as TextError, Message, Note, SpecialText, TextStream, TokenStream,
    Tokenizer,
};
#[cfg(feature = "engine")]
pub use engine::{Limits, Stats, Stop};
pub use error::Error;
pub use layout::{LayoutKind, packed_layout};
pub use load::{
    Allocated, Bytes, Digest, Error as LoadError, LoadReport, Loaded, Needs, Obstacle,
    Options as LoadOptions, Place, Plan, Pool, Progress as LoadProgress, ReadSizes, Sink, Tensor, export,
};
pub use model::{
    Along, Axis, DialectName, ExpertPlacement, KeyVerdict, Loss, Mesh, Model, Module, NotFollowed, Origin,
    ParamSpec, Rank, Role, Tree, Verdict, module,
};
pub use pipeline::{describe, open, open_with, plan, plan_as_stored, resolve};
pub use plan::{
    Absent, Dropped, LoadPlan, Mapped, Problems, Replicated, Resolved, Summary, Untaken, Whole, dropped,
    reads,
};
pub use quant::Difference;
#[cfg(feature = "engine")]
pub use quant::{Access, processor};
#[cfg(feature = "engine")]
pub use quants::{Quant, quants};
pub use rules::{RulesProblems, parse_rules, read_rules};
#[cfg(feature = "engine")]
pub use runtime::{BackendKind, Options, Runtime, tune};
#[cfg(feature = "engine")]
pub use sampling::{Sampling, sampling};
pub use tensor::{
    Arrangement, Dtype, Expr, MapRule, MapStep, Mapping, Outcome as MapOutcome, Pattern, RopeOrder, Scheme,
    Shape, TensorEntry, nearest,
};
#[cfg(feature = "engine")]
pub use text::{chat_template, open_tokenizer, tokenizer};
