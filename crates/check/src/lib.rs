//! Checks whether a checkpoint is sound, and whether it has changed.
//!
//! [`check`] reads every byte, or only the headers, and reports all that is wrong. A [`Manifest`] keeps the digests of a
//! checkpoint's tensors and of what it says beside them; [`load_verified`] holds a checkpoint against one while its bytes are
//! loaded, so that they are read once. [`Said`] is what a checkpoint says beside its tensors, key by key.

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
