//! Modules of burn with weights from files of every ecosystem, against our own engine.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../../examples/llama.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "its `main` is for people")]
mod llama;

mod fit;
mod models;
mod tensors;
