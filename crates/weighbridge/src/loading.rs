//! Loading with a say in how.

use checkpoint::Checkpoint;
use load::{LoadReport, Loaded, Needs, Options, Pool, Sink};

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

/// What [`load_with`] takes on so many threads: memory for parameters, buffers, reads. Reads nothing.
///
/// # Errors
/// If there is no codec for a change, or sizes are beyond what this machine addresses.
pub fn needs(
    plan: &Plan,
    checkpoint: &Checkpoint,
    options: Options<'_>,
    threads: usize,
) -> Result<Needs, Error> {
    Ok(load::needs(&plan.plan, checkpoint, options, threads)?)
}

/// As [`load_with`], into the memory that `sink` gives: all of it is copied.
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
