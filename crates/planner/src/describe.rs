//! Finds the model that a checkpoint holds.

use checkpoint::Checkpoint;
use model::{Model, better_fit};

use crate::error::{Error, shown};

/// Returns the model that the checkpoint's metadata describes.
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
