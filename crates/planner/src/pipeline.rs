//! The steps from a checkpoint to a plan.

use checkpoint::Checkpoint;
use load::Plan;
use model::Model;
use plan::Resolved;

use crate::{Adapter, Error, LayoutKind, PlanBuilder};

/// Matches the checkpoint's entries with the model's parameters.
///
/// # Errors
/// Everything that is missing, unused or mis-shaped.
pub fn resolve(checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, Error> {
    Adapter::default().resolve(checkpoint, model)
}

/// Compiles the plan that fills `layout` from the checkpoint. Reads nothing.
///
/// # Errors
/// Every way in which the checkpoint does not fit the model or the layout.
pub fn plan(checkpoint: &Checkpoint, model: &Model, layout: LayoutKind) -> Result<Plan, Error> {
    PlanBuilder::new(checkpoint).model(model).layout(layout).build()
}

/// Compiles the plan of [`LayoutKind::Source`], which needs no model: every entry under its own name.
///
/// # Errors
/// If the entries contradict each other.
pub fn plan_as_stored(checkpoint: &Checkpoint) -> Result<Plan, Error> {
    PlanBuilder::new(checkpoint).layout(LayoutKind::Source).build()
}
