//! Pulls from a hub on this machine, which does as a test says.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

mod faults;
mod hostile;
mod mock;
mod pull;
mod refusals;
