//! Executes a plan: bytes from sources to slots, in parallel, each slot once.
//!
//! A parameter's life is in the types: planned ([`Plan`], which holds the checkpoint that it was compiled against),
//! [`Allocated`] (its address is fixed, nothing can be read), [`Loaded`]. [`Plan::load`] goes from the first to the last;
//! [`Plan::load_into`] fills the caller's [`Sink`], which lends memory or takes the bytes as they are made; [`Loaded::update`] puts other values of the same shapes in
//! the same places.

mod allocated;
mod change;
mod codecs;
mod compiled;
mod digest;
mod error;
mod export;
mod io;
mod lent;
mod loaded;
mod memory;
mod obstacle;
mod options;
mod pool;
mod report;
mod schedule;
mod sizes;
mod update;

pub use allocated::Allocated;
pub use codecs::Codecs;
pub use compiled::Plan;
pub use digest::Digest;
pub use error::Error;
pub use export::export;
pub use loaded::Loaded;
pub use memory::available::available_memory;
pub use memory::resident::{Resident, ResidentWatch};
pub use memory::sink::{Destination, Place, Sink};
pub use memory::slot::Slot;
pub use memory::tensor::Tensor;
pub use obstacle::Obstacle;
pub use options::{Guide, Guides, Observe, Options, Progress, Watch};
pub use pool::Pool;
pub use pool::race::{Race, Task};
pub use report::LoadReport;
pub use schedule::needs::{Needs, ReadSizes};
