//! The tiers of a model, and what the next start uses.

use std::path::PathBuf;

use checkpoint::Checkpoint;
use planner::{LayoutKind, describe};
use store::{Cache, Key, Listed, Stale, Start, State, Tiers, Weights};

use crate::Error;
use crate::start::{CacheMode, RuntimeOptions, layout, plan};

/// The tiers of a model on this machine, and what a start with some options uses.
#[derive(Debug)]
pub struct CopyStatus {
    /// The tiers.
    pub tiers: Tiers,
    /// The encodings of the model's files.
    pub weights: Weights,
    /// `None` if there cannot be a copy, as [`store::Key::of`] says.
    pub key: Option<Key>,
    /// Where the copy stands.
    pub state: State,
    /// The use that the next start makes of it.
    pub start: Start,
    /// The length in bytes that the copy has when it is complete.
    pub bytes: u64,
    /// Bytes of it that are on the disk.
    pub stored: u64,
    /// The layout of its parameters.
    pub layout: LayoutKind,
    /// Where it is, or will be.
    pub path: Option<PathBuf>,
    /// The other copies of this model, with why the start does not use them.
    pub others: Vec<(Listed, Stale)>,
}

/// Looks at the tiers of a model, with the copy of what a start with `options` loads. Reads headers alone.
///
/// # Errors
/// If the model cannot be planned, or the cache cannot be listed.
pub fn copy_status(
    checkpoint: &Checkpoint,
    cache: &Cache,
    options: &RuntimeOptions,
) -> Result<CopyStatus, Error> {
    let model = describe(checkpoint)?;
    let (layout, isa) = layout(options)?;
    let planned = plan(checkpoint, &model, layout, options)?;
    let weights = Weights::of(checkpoint);
    let entry = cache.entry(&planned, isa.name());
    let state = entry.as_ref().map_or(State::Absent, store::Entry::state);
    let is_used = !matches!(options.cache, CacheMode::Off);
    Ok(CopyStatus {
        tiers: Tiers::new(&weights, state),
        weights,
        key: entry.as_ref().map(store::Entry::key),
        state,
        start: if is_used { state.start() } else { Start::Loads },
        bytes: entry.as_ref().map_or(Ok(0), store::Entry::bytes)?,
        stored: entry.as_ref().map_or(0, store::Entry::stored_bytes),
        layout,
        others: entry.as_ref().map_or(Ok(vec![]), store::Entry::others)?,
        path: entry.map(|entry| entry.path()),
    })
}
