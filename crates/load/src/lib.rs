//! Executes a plan: bytes from sources to slots, in parallel, each slot once.

mod codec;
mod error;
mod executor;
mod pool;
mod report;
mod slot;
mod tensor;

pub use crate::tensor::Tensor;
pub use codec::Codecs;
pub use error::Error;
pub use executor::{Loaded, execute};
pub use pool::Pool;
pub use report::{Bytes, LoadReport};
pub use slot::Slot;
