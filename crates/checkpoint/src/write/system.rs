//! The parts of writing a checkpoint that depend on the operating system (docs/platforms.md).

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::path::Path;

#[cfg(unix)]
pub(super) use unix::{allocated, exchange, is_ours, open, rename_new};
#[cfg(windows)]
pub(super) use windows::{allocated, exchange, is_ours, open, rename_new};

/// The number of a file on its file system; it stays the same when the file gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub(super) u64, pub(super) u64);

impl Identity {
    /// Returns the identity of the file at `path`, if there is one.
    pub(super) fn of(path: &Path) -> Option<Identity> {
        let (device, file) = storage::platform::number_at(path).ok()?;
        Some(Identity(device, file))
    }
}
