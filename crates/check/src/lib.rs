//! Checks whether a checkpoint is sound, and whether it has changed.
//!
//! [`check`] reads every byte, or only the headers, and reports every problem. A [`Manifest`] keeps the digests of a
//! checkpoint's tensors and of its metadata; [`load_verified`] compares a checkpoint with one while its bytes are
//! loaded, so that they are read once. [`Said`] is a checkpoint's metadata, key by key.

mod check;
mod digest;
mod error;
mod finding;
mod keys;
mod manifest;
mod report;
mod said;
mod values;
mod verify;

pub use check::{CheckOptions, check};
pub use error::Error;
pub use finding::{Finding, Wrong};
pub use keys::{KeyFinding, ListedKey, WrongKey};
pub use manifest::{Listed, Manifest};
pub use report::{CheckReport, CheckedFile};
pub use said::{GGUF, Said, Saying, shortened};
pub use verify::{Verified, load_verified};
