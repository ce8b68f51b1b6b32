//! Keeps loaded parameters as the runtime wants them, so that the next start maps a file and moves nothing.
//!
//! A [`Cache`] is a folder. For each plan it has an [`Entry`]: a copy of the parameters in a `.safetensors` file that begins as the
//! plan says, and a record beside it, which says which file was verified. Where an entry stands is one of its [`State`]s:
//!
//! | state | is | what leads on |
//! |---|---|---|
//! | [`Absent`](State::Absent) | nothing is there | a [`Builder`] begins |
//! | [`Building`](State::Building) | a builder is at work, here or in another process | it ends, or is killed |
//! | [`Partial`](State::Partial) | a builder was ended on the way | the next one continues |
//! | [`Ready`](State::Ready) | the file is whole, and it is the one that was verified | someone writes to it, or moves it |
//! | [`Doubtful`](State::Doubtful) | it may be another file than the one that was verified | it is verified whole: then `Ready`, or removed |
//!
//! The entries of all ranks of one mesh are a [`RankSet`], which is ready when all of them are.
//!
//! The entry is the last of a model's [`Tier`]s: [`Tiers`] has the steps between them, and [`State::start`] says what a start does
//! with an entry.
//!
//! ```no_run
//! # use weighbridge_store as store;
//! # fn start(plan: &load::Plan, pool: &mut load::Pool) -> Result<load::Loaded, store::Error> {
//! let cache = store::Cache::new("/var/cache/models");
//! // A plan whose sources are in memory has no copy.
//! let Some(entry) = cache.entry(plan, "avx512vnni") else { return Ok(plan.load(pool)?) };
//! if let Some(ready) = entry.load()? {
//!     return Ok(ready); // mapped: no byte was moved
//! }
//! let loaded = plan.load(pool)?;
//! entry.builder(&loaded)?.leave(); // beside what comes next
//! Ok(loaded)
//! # }
//! ```
//!
//! # What is relied on
//!
//! An entry's [`Key`] covers the plan (headers, layout, mesh, encodings and their revisions), each source file's length, times and
//! inode, and the instruction set. A copy is used without reading it if its file's length, times and inode are still those of
//! when it was verified. A program that writes to it changes these; a disk that loses bits by itself does not, and [`Cache::verify`]
//! finds that. A [`Companion`] (the tokenizer beside the weights) is read whole, and its digest checked, each time.

mod builder;
mod cache;
mod companion;
mod digested;
mod entry;
mod error;
mod key;
mod manifest;
mod record;
mod set;
mod tier;

pub use builder::{Builder, Built, background};
pub use cache::{Cache, Listed, Ranks};
pub use companion::Companion;
pub use entry::{Entry, Stale};
pub use error::Error;
pub use key::Key;
pub use set::RankSet;
pub use tier::{Share, Start, State, Step, Tier, Tiers, Weights};
