//! `load --json`.

use serde::Serialize;

use super::Resident;

/// What `weighbridge load --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Load<'a> {
    pub(crate) path: String,
    /// The number of parameters that were loaded.
    pub(crate) parameters: usize,
    /// The number of entries that no parameter is made from.
    pub(crate) dropped: usize,
    /// How files were reached: `mmap`, `pread`, `direct`.
    pub(crate) io: &'a str,
    pub(crate) threads: usize,
    /// The limit on memory; null if there was none.
    pub(crate) memory: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) seconds_open: f64,
    pub(crate) seconds_plan: f64,
    pub(crate) seconds_execute: f64,
    /// Bytes read from files, with what lies in gaps that are read along.
    pub(crate) bytes_read: u64,
    /// Bytes that some parameter is made of, each counted once.
    pub(crate) bytes_needed: u64,
    /// Bytes that were not in the page cache; null where the system does not say.
    pub(crate) bytes_from_disk: Option<u64>,
    /// Bytes that stay in the map.
    pub(crate) bytes_borrowed: u64,
    /// Bytes moved as they are.
    pub(crate) bytes_copied: u64,
    /// Bytes written by a codec.
    pub(crate) bytes_encoded: u64,
    /// Bytes allocated for parameters.
    pub(crate) bytes_owned: u64,
    /// The most bytes of buffers at one time.
    pub(crate) scratch_bytes: u64,
    /// The same as the plan foresaw it: never less.
    pub(crate) scratch_bytes_expected: u64,
    /// Seconds that threads waited for new memory, all together.
    pub(crate) memory_seconds: f64,
    pub(crate) resident: Resident,
    /// The number of tensors that are what the manifest says; null without one.
    pub(crate) verified: Option<usize>,
    /// Tensors that were not read whole, and so not compared; null without a manifest.
    pub(crate) not_verified: Option<&'a [String]>,
}
