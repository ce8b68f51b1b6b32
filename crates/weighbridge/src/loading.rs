//! Loading with a say in how.

use checkpoint::Checkpoint;
use load::{LoadReport, Loaded, Options, Pool, Sink};

use crate::{Error, Plan};

/// As [`load`](crate::load()), with options: memory of its own for all parameters, a limit on buffers, someone to tell
/// how far it is, who may end it.
///
/// # Errors
/// If a file cannot be read, memory is not to be had, or the caller ends it.
pub fn load_with(
    plan: &Plan,
    checkpoint: &Checkpoint,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<Loaded, Error> {
    Ok(load::execute_with(&plan.plan, checkpoint, pool, options)?)
}

/// The same, into the memory that `sink` gives: all of it is copied.
///
/// # Errors
/// As [`load_with`], and if the sink refuses.
pub fn load_into(
    plan: &Plan,
    checkpoint: &Checkpoint,
    sink: &mut dyn Sink<'_>,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<LoadReport, Error> {
    Ok(load::execute_into(&plan.plan, checkpoint, sink, pool, options)?)
}
