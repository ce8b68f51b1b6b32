//! One file per command.

mod answer;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod calibrate;
mod chat;
pub(crate) mod check;
pub(crate) mod compress;
pub(crate) mod convert;
pub(crate) mod diff;
pub(crate) mod embed;
pub(crate) mod eval;
mod gate;
pub(crate) mod inspect;
#[cfg(feature = "hub")]
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod manual;
pub(crate) mod plan;
mod prompt_cache;
#[cfg(feature = "hub")]
pub(crate) mod pull;
pub(crate) mod quants;
#[cfg(all(unix, feature = "serve"))]
pub(crate) mod reload;
pub(crate) mod report;
pub(crate) mod rerank;
pub(crate) mod run;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod tokenize;
#[cfg(feature = "speech")]
pub(crate) mod transcribe;
pub(crate) mod tune;
