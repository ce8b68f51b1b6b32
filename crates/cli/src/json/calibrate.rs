//! `calibrate --json`.

use serde::Serialize;
use weighbridge::engine::calibrate::Inputs;

use super::{Real, Resident, real};

/// The document that `weighbridge calibrate --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Calibrate<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// The path of the text.
    pub(crate) text: String,
    /// The path of the importance matrix.
    pub(crate) destination: String,
    /// Chunks that were run.
    pub(crate) chunks: usize,
    /// Tokens of a chunk.
    pub(crate) chunk_tokens: usize,
    /// Tokens that were run.
    pub(crate) tokens: u64,
    /// In the order in which they run.
    pub(crate) matrices: Vec<Calibrated<'a>>,
    /// By how much predictions diverge, in nats a token, for each unit of the mean square of an error in a row of token embeddings;
    /// null if it was not measured.
    pub(crate) lookup: Real,
    pub(crate) resident: Resident,
    pub(crate) seconds: f64,
}

/// A matrix.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Calibrated<'a> {
    /// Its canonical name.
    pub(crate) name: &'a str,
    /// Rows of inputs that were summed.
    pub(crate) rows: u64,
    /// By how much predictions diverge, in nats a token, for each unit of the mean square of an error in its results; null if it was
    /// not measured.
    pub(crate) sensitivity: Real,
    /// The divergence if its results are off by a tenth; null if it was not measured.
    pub(crate) divergence: Real,
}

impl<'a> From<&'a Inputs> for Calibrated<'a> {
    fn from(inputs: &'a Inputs) -> Calibrated<'a> {
        Calibrated {
            name: &inputs.name,
            rows: inputs.rows,
            sensitivity: inputs.sensitivity.and_then(real),
            divergence: inputs.moved().and_then(real),
        }
    }
}
