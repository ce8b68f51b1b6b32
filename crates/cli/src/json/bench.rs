//! `bench --json`.

use serde::Serialize;

use super::{Real, Resident};

/// What `weighbridge bench --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bench<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// What computes: `cpu avx2`, `reference`, …
    pub(crate) backend: &'a str,
    /// The layout of the parameters.
    pub(crate) layout: &'a str,
    pub(crate) threads: usize,
    /// Tokens of the prompt.
    pub(crate) prefill: u32,
    /// Tokens that are decoded one by one.
    pub(crate) decode: u32,
    /// Positions that are filled before.
    pub(crate) depth: u32,
    /// Sequences that are decoded together.
    pub(crate) sequences: u32,
    /// How keys and values are kept.
    pub(crate) kv: &'a str,
    /// Positions that are kept of those that are filled before.
    pub(crate) kv_budget: Option<usize>,
    /// Runs that are measured, after one that is not.
    pub(crate) repeat: u32,
    pub(crate) load_seconds: f64,
    /// The median of the runs.
    pub(crate) prefill_tokens_per_second: Real,
    /// The median of the runs.
    pub(crate) decode_tokens_per_second: Real,
    /// Tokens per second of each run.
    pub(crate) prefill_runs: Vec<f64>,
    /// Tokens per second of each run.
    pub(crate) decode_runs: Vec<f64>,
    /// Bytes of weights that a decoded token reads.
    pub(crate) weight_bytes_per_token: u64,
    /// Bytes of keys and values that the token in the middle reads.
    pub(crate) cache_bytes_per_token: u64,
    /// Of the model and its first runs, before the machine is measured.
    pub(crate) resident: Resident,
    /// What the machine allows; null with a backend that does not measure it.
    pub(crate) ceiling: Option<Ceiling>,
}

/// What the machine allows, measured in the same run: medians.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ceiling {
    /// A plain read of the weights and of the sessions' keys and values, up to 2 GiB.
    pub(crate) read_bytes_per_second: Real,
    /// What decoding reads a second, divided by that.
    pub(crate) decode_share_of_read: Real,
    /// Multiplications and additions of 8-bit integers, nothing else done.
    pub(crate) products_per_second: Real,
    /// The products of the prefill a second, divided by that.
    pub(crate) prefill_share_of_products: Real,
    /// Time of the matrix products alone, divided by the time of the prefill.
    pub(crate) products_share_of_prefill: Real,
}
