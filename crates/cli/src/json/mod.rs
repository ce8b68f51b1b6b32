//! What `--json` prints: one document of typed values for each command.
//!
//! The types are the schemas: `docs/json/` is made from them, doc comments included. Every field is always there; what
//! does not apply is null. Counts are integers, sizes are in bytes, times in seconds, rates per second.
#![allow(clippy::struct_field_names, reason = "fields are named as the documents name them")]

mod bench;
mod cache;
mod calibrate;
mod check;
mod compress;
mod convert;
mod diff;
mod embed;
mod error;
mod eval;
#[cfg(feature = "hub")]
mod hub;
mod inspect;
mod load;
mod plan;
mod quants;
#[cfg(all(unix, feature = "serve"))]
mod reload;
mod rerank;
mod run;
#[cfg(test)]
mod schema;
mod shared;
mod tokenize;
#[cfg(feature = "speech")]
mod transcribe;
mod tune;
mod typed;

use std::io::{self, BufWriter, Write};

use serde::Serialize;

pub(crate) use bench::{Bench, Ceiling};
pub(crate) use cache::{Cache, CacheStatus};
pub(crate) use calibrate::{Calibrate, Calibrated};
pub(crate) use check::Check;
pub(crate) use compress::Compress;
pub(crate) use convert::Convert;
pub(crate) use diff::Diff;
pub(crate) use embed::{Embed, EmbedNote, EmbedVector, rate};
pub(crate) use error::{Error, Problem};
pub(crate) use eval::{
    Estimate, Eval, EvalAgainst, EvalPart, EvalTask, EvalTaskAgainst, EvalText, Gate, KlBin, ModelSize,
};
#[cfg(feature = "hub")]
pub(crate) use hub::{List, Pull, Pulled, weights};
pub(crate) use inspect::Inspect;
pub(crate) use load::Load;
pub(crate) use plan::{Fits, MemoryUse, Mesh, Param, Plan, Rank, Ranks, Replicated, Shared, Sizes, Untaken};
pub(crate) use quants::Quants;
#[cfg(all(unix, feature = "serve"))]
pub(crate) use reload::Reload;
pub(crate) use rerank::{Rerank, RerankText};
pub(crate) use run::{Logprob, Run, TokenLogprob};
pub(crate) use shared::{Absent, Dropped, Key, PeakOf, Real, Resident, real};
pub(crate) use tokenize::Tokenize;
#[cfg(feature = "speech")]
pub(crate) use transcribe::{Segment, Transcribe, Transcript, Word};
pub(crate) use tune::Tune;
pub(crate) use typed::Typed;

/// Prints `document` on standard output.
pub(crate) fn print(document: &impl Serialize) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)?;
    out.flush()
}
