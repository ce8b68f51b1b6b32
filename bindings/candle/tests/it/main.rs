//! Models of candle with weights from files of every ecosystem, against our own engine and candle's own readers.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../../examples/llama.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod llama;

mod blocks;
mod fit;
mod models;
