//! How the engine behaves, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod built;
mod calls;
mod chat;
mod grammar;
mod json;
mod models;
mod random;
mod sampler;
mod tokenizer;
