//! Makes a plan from a checkpoint and a runtime's requirements.
//!
//! 1. [`describe`] finds the family that claims the checkpoint, and reads its configuration.
//! 2. An [`Adapter`] matches the entries with the family's parameters, by its dialect or by the user's rules.
//! 3. A [`PlanBuilder`] takes the rest: the layout, the mesh, the encodings. Its [`Ranks`] share what they have in
//!    common.
//! 4. A [`Request`] is the layout's targets on one rank, as expressions over the parameters: the last step before
//!    pieces.
//! 5. [`Request::compile`] gives the [`load::Plan`].
//!
//! ```no_run
//! # use weighbridge_planner as planner;
//! # fn main() -> Result<(), planner::Error> {
//! use planner::{LayoutKind, PlanBuilder};
//!
//! let checkpoint = checkpoint::open("model.gguf")?;
//! let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build()?;
//! println!("{}", plan.summary());
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here reads tensor data or converts anything.

mod adapter;
mod builder;
mod describe;
pub mod encoding;
mod error;
mod layout;
mod merging;
mod pipeline;
mod ranks;
mod request;
mod rules;
mod shared;

pub use adapter::Adapter;
pub use builder::PlanBuilder;
pub use describe::describe;
pub use encoding::{EncodeRule, Encoding, PRESETS, Preset, PresetGroup};
pub use error::Error;
pub use layout::{LayoutKind, packed_layout};
pub use pipeline::{plan, plan_as_stored, resolve};
pub use ranks::{Ranks, runtime_layouts};
pub use request::Request;
pub use rules::{RulesProblems, parse_rules, read_rules};
