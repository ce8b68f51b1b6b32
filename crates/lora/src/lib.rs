//! `LoRA` adapters: what they change in a model, and how.
//!
//! An adapter holds pairs of thin matrices. The pair `A` `[rank, in]` and `B` `[out, rank]` of a matrix `W` `[out, in]` changes
//! it to `W + scale · B · A`.
//!
//! 1. [`Adapter::open`] reads a PEFT directory or a GGUF file, and everything that the adapter says about itself.
//! 2. [`Adapter::fit`] finds the model's parameters that it changes, through the names of the adapter's own ecosystem.
//! 3. [`Fitted::low_rank`] gives the change of a tensor that is made of these parameters, in the order of that tensor.
//! 4. [`Merge`] is that change as a stage of a plan.

mod adapter;
mod config;
mod error;
mod factors;
mod fitted;
mod gguf;
mod low_rank;
mod merge;
mod origin;
mod pair;
mod peft;
mod problem;

pub use adapter::Adapter;
pub use error::Error;
pub use fitted::Fitted;
pub use low_rank::LowRank;
pub use merge::Merge;
pub use problem::{Problem, Problems};
