//! Executes a plan: bytes from sources to slots, in parallel, each slot once.
//!
//! A parameter's life is in the types: planned ([`Plan`], which holds the checkpoint that it was compiled against),
//! [`Allocated`] (its address is fixed, nothing can be read), [`Loaded`]. [`Plan::load`] goes from the first to the last;
//! [`Plan::load_into`] fills memory of the caller's [`Sink`]; [`Loaded::update`] puts other values of the same shapes in
//! the same places.

mod allocated;
mod change;
mod codecs;
mod compiled;
mod cut;
mod digest;
mod error;
mod executor;
mod export;
mod gather;
mod item;
mod memory;
mod needs;
mod options;
mod pages;
mod pool;
mod race;
mod report;
mod sink;
mod slot;
mod staged;
mod sync;
mod tensor;
mod update;

pub use crate::tensor::Tensor;
pub use allocated::{Allocated, Loaded};
pub use codecs::Codecs;
pub use compiled::Plan;
pub use digest::Digest;
pub use error::Error;
pub use export::export;
pub use needs::{Needs, ReadSizes};
pub use options::{Importance, Observe, Options, Progress, Watch};
pub use pool::Pool;
pub use race::{Race, Task};
pub use report::{Bytes, LoadReport};
pub use sink::{Place, Sink};
pub use slot::Slot;
pub use update::Obstacle;
