//! vLLM's view of a model: the names and shapes of its layers on each rank, and the files that its loader
//! `sharded_state` reads.
//!
//! [`LAYOUT`] describes the parameters of its layers, as any other layout does: use it to plan a load into vLLM's own
//! tensors.

pub mod absorbed;
mod family;
mod layout;
pub mod marlin;
pub mod rank_files;
mod rejoin;
mod sharded_state;

use planner::LayoutKind;

pub use layout::Vllm;
pub use rejoin::Rejoined;
pub(crate) use sharded_state::ShardedState;

/// As vLLM's layers hold the parameters.
pub const LAYOUT: LayoutKind = LayoutKind::Of(&Vllm);
