//! What storages list and open, and what their sources give.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

extern crate weighbridge_storage as storage;

mod local;
mod many;
