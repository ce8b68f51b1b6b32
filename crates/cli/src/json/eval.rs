//! `eval --json`.

use serde::Serialize;

use super::{Real, real};

/// What `weighbridge eval --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Eval<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// The path of the text.
    pub(crate) text: String,
    /// Tokens of the whole text.
    pub(crate) text_tokens: usize,
    /// Tokens of a chunk.
    pub(crate) chunk_tokens: usize,
    /// Chunks that are scored.
    pub(crate) chunks: usize,
    /// Tokens that are scored.
    pub(crate) tokens: u64,
    pub(crate) perplexity: Estimate,
    /// The comparison with another model; null without one.
    pub(crate) against: Option<EvalAgainst>,
    /// The limits of the gate; empty without one.
    pub(crate) gates: Vec<Gate<'a>>,
    /// Whether all limits are kept.
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
}

/// How far a model is from another.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EvalAgainst {
    /// The path of the other model.
    pub(crate) model: String,
    /// Its perplexity.
    pub(crate) perplexity: Estimate,
    /// The perplexity of the model divided by that.
    pub(crate) ratio: Estimate,
    /// The KL divergence from the other model to this one, in nats.
    pub(crate) kl: Estimate,
    /// The median of the divergences of the tokens.
    pub(crate) kl_median: Real,
    /// The divergence that 99 % of the tokens do not exceed.
    pub(crate) kl_99: Real,
    /// The largest divergence.
    pub(crate) kl_max: Real,
    /// The share of tokens for which both have the same most likely one.
    pub(crate) top1: Estimate,
    /// The share of the other's five most likely tokens that are among this model's.
    pub(crate) top5: Estimate,
}

/// A mean over tokens.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Estimate {
    value: Real,
    /// With tokens taken as independent. The 95 % confidence interval is 1.96 times as wide on either side.
    standard_error: Real,
}

impl From<(f64, f64)> for Estimate {
    fn from((value, error): (f64, f64)) -> Estimate {
        Estimate { value: real(value), standard_error: real(error) }
    }
}

/// A limit, and whether it is kept.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Gate<'a> {
    pub(crate) name: &'a str,
    /// Whether the limit is the most that is allowed, or the least.
    pub(crate) is_most: bool,
    pub(crate) limit: f64,
    pub(crate) found: Real,
    pub(crate) passed: bool,
}
