//! Bytes to entries: opens a checkpoint of any format and lists its tensors, reading headers only.
//!
//! [`open()`] takes a file or a directory, looks at the content (an extension is only a hint), and gives a
//! [`Checkpoint`]: its [`tensor::TensorEntry`] list, its [`Metadata`], and the [`File`]s whose
//! [`ByteSource`]s hold the tensor data.
//!
//! Nothing in a file is trusted: no allocation is sized by an unchecked number, every bound is checked,
//! nothing recurses on content, no path out of the checkpoint's directory is followed. Problems of one
//! file are reported together, each with its byte offset.
//!
//! Files are found and read through a [`Storage`], so that a checkpoint may be in memory or on a server as well:
//! [`open_from`].
//!
//! Nothing here reads tensor data, decodes values, or knows what names mean.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod checkpoint;
mod contents;
#[cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "a key that a JSON object lacks is null; entries are found by their index"
    )
)]
pub mod convention;
mod error;
mod fault;
mod file;
mod folder;
mod format;
mod index;
mod members;
mod more;
mod numbered;
mod open;
mod own;
mod write;

pub use checkpoint::{Checkpoint, FormatName, Metadata};
pub use contents::{File, Ignored};
pub use error::{Error, Problem, Report, Subject};
pub use fault::Fault;
pub use format::ctranslate2::{Attribute, Ctranslate2Files, Ctranslate2Metadata, ctranslate2_holds};
pub use format::ggml::ggml_holds;
pub use format::gguf::{Array, ArrayBuf, GgufMetadata, Strings, Value, ValueBuf, ValueType, gguf_holds};
pub use format::hf::{HfFiles, HfMetadata, Member, RankFiles, plain_config};
pub use format::openai::{MelFilters, OpenaiMetadata};
pub use more::More;
pub use open::{OpenOptions, files_at, open, open_from, open_with};
pub use storage::{ByteSource, Changed, Identity, Io, Location, Name, Pace, Storage};
pub use write::{
    Draft, Flavour, Held, Outgoing, Output, Refused, Removal, Split, WriteOptions, Writer, Zstd,
};
