//! The steps from a path to filled slots.

use std::path::Path;

use checkpoint::{Checkpoint, OpenOptions};
use load::{Loaded, Pool};
use model::{Model, RopeOrder, better_fit};
use plan::{LoadPlan, Resolved};

use crate::wanted::Wanted;
use crate::{Adapter, Error, LayoutKind, PlanBuilder};

/// A compiled plan, and what the kernels must know about the layout it fills.
pub struct Plan {
    /// The pieces of each parameter.
    pub plan: LoadPlan,
    /// The order in which rows of q and k lie.
    pub rope_order: RopeOrder,
    /// The layout.
    pub layout: LayoutKind,
    /// Canonical parameters that the layout has no name for.
    pub nameless: Vec<String>,
}

impl Plan {
    /// A plan to be asked for step by step: of a rank of a mesh, or for a model of one's own.
    pub fn builder(checkpoint: &Checkpoint) -> PlanBuilder<'_> {
        PlanBuilder::new(checkpoint)
    }
}

/// Opens a checkpoint: headers only.
///
/// # Errors
/// If it is not there, not readable, or malformed: every problem of the file at once.
pub fn open(path: &Path) -> Result<Checkpoint, Error> {
    Ok(checkpoint::open(path)?)
}

/// The same, with a choice of how to read.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Checkpoint, Error> {
    Ok(checkpoint::open_with(path, options)?)
}

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
    Wanted::of(checkpoint, model, layout)?.compile(checkpoint)
}

/// Compiles the plan of [`LayoutKind::Source`], which needs no model: every entry under its own name.
///
/// # Errors
/// If the entries contradict each other.
pub fn plan_as_stored(checkpoint: &Checkpoint) -> Result<Plan, Error> {
    Wanted::as_stored(checkpoint, &Adapter::default())?.compile(checkpoint)
}

/// Runs the plan: every slot filled once.
///
/// # Errors
/// If a file cannot be read or memory is not to be had.
pub fn load(plan: &Plan, checkpoint: &Checkpoint, pool: &mut Pool) -> Result<Loaded, Error> {
    Ok(load::execute(&plan.plan, checkpoint, pool)?)
}

pub(crate) fn misfit(
    checkpoint: &Checkpoint,
    family: Option<&'static str>,
    problems: plan::Problems,
) -> Error {
    let path = shown(checkpoint);
    match family {
        Some(family) => Error::Plan { path, family, problems, fit: None, backbone: false },
        None => Error::AsStored { path, problems },
    }
}

pub(crate) fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.path().display().to_string()
}
