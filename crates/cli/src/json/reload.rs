//! `reload --json`.

use serde::Serialize;

use super::Real;

/// The document that `weighbridge reload --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reload {
    /// The name of the model.
    pub(crate) model: String,
    /// The number of its weights, as `system_fingerprint` has it: 1 for those that it was first loaded with.
    pub(crate) weights: u64,
    /// True with `--keep`: answers that were being made go on with them.
    pub(crate) kept: bool,
    pub(crate) seconds: Real,
}
