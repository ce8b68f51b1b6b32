//! Runs a model whose weights a plan has loaded.

pub mod backend;
mod decoder;
mod error;
mod kv_cache;
mod weights;

pub use decoder::{BATCH, Decoder};
pub use error::Error;
pub use kv_cache::KvCache;
pub use weights::{Block, Linear, NormWeights, Projection, Weights};
