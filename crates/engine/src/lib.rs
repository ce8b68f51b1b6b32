//! Runs a model whose weights a plan has loaded.

#![allow(
    clippy::cast_possible_truncation,
    reason = "sums and angles are taken in f64 and kept in f32; sizes are checked where they come in"
)]

pub mod backend;
mod decoder;
mod error;
mod generate;
mod kv_cache;
pub mod sampler;
pub mod sampling;
pub mod text;
mod weights;

pub use decoder::{BATCH, Decoder};
pub use error::Error;
pub use generate::{Limits, Stats, Stop, generate};
pub use kv_cache::KvCache;
pub use weights::{Block, Linear, NormWeights, Projection, Weights};
