//! The steps from a checkpoint to a plan.

use checkpoint::Checkpoint;
use load::Plan;
use model::{Model, better_fit};
use plan::Resolved;

use crate::{Adapter, Error, LayoutKind, PlanBuilder};

/// What model the checkpoint says it is.
///
/// # Errors
/// If no family claims it, or its configuration is wrong.
pub fn describe(checkpoint: &Checkpoint) -> Result<Model, Error> {
    Model::from_facts(checkpoint.metadata()).map_err(|source| {
        let names = checkpoint.entries().iter().map(|e| e.name.as_str());
        let fit = better_fit(names, Model::claimed(checkpoint.metadata())).map(Box::new);
        Error::Model { path: shown(checkpoint), source, fit }
    })
}

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

pub(crate) fn misfit(
    checkpoint: &Checkpoint,
    family: Option<&'static str>,
    problems: plan::Problems,
) -> Error {
    let path = shown(checkpoint);
    match family {
        Some(family) => Error::Misfit { path, family, problems, fit: None, backbone: false },
        None => Error::AsStored { path, problems },
    }
}

pub(crate) fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.path().display().to_string()
}
