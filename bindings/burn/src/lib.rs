#![doc = include_str!("../README.md")]

mod error;
mod fit;
mod plan;
mod store;

pub use error::Error;
pub use store::CheckpointStore;
