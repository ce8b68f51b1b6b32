#![doc = include_str!("../README.md")]

mod backend;
mod blocks;
mod error;
mod fit;
mod weights;

pub use error::Error;
pub use weights::Weights;
