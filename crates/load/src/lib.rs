//! Executes a plan: bytes from sources to slots, in parallel, each slot once.

mod change;
mod codecs;
mod error;
mod executor;
mod export;
mod pool;
mod report;
mod slot;
mod tensor;

pub use crate::tensor::Tensor;
pub use codecs::Codecs;
pub use error::Error;
pub use executor::{Importance, Loaded, Options, execute, execute_with};
pub use export::export;
pub use pool::Pool;
pub use report::{Bytes, LoadReport};
pub use slot::Slot;
