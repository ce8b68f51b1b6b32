//! `eval --json`. The documents are read too: `report` compares them.

use serde::{Deserialize, Serialize};
use weighbridge::engine::eval::TaskKind;

use super::{Real, Resident, real};
use crate::estimate::{CONFIDENCE, interval};

/// What `weighbridge eval --json` prints.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Eval {
    /// The path of the model.
    pub(crate) model: String,
    /// The path of the model that it is compared with; null without one.
    pub(crate) against: Option<String>,
    pub(crate) size: ModelSize,
    /// The size of the model that it is compared with; null without one.
    pub(crate) against_size: Option<ModelSize>,
    /// How the text is predicted; null without a text.
    pub(crate) text: Option<EvalText>,
    /// How the tasks are answered; empty without tasks.
    pub(crate) tasks: Vec<EvalTask>,
    /// The limits of the gate; empty without one.
    pub(crate) gates: Vec<Gate>,
    /// Whether all limits are kept.
    pub(crate) passed: bool,
    pub(crate) resident: Resident,
    pub(crate) seconds: f64,
}

/// How large a model is.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelSize {
    /// Bytes of the files with its weights. If weights were encoded during the load, bytes of its parameters in memory.
    pub(crate) bytes: u64,
    /// The number of values of all tensors.
    pub(crate) parameters: u64,
    /// Bits for each value.
    pub(crate) bits: Real,
}

/// How well a model predicts a text.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalText {
    /// The path of the text.
    pub(crate) path: String,
    /// Tokens of the whole text.
    pub(crate) all_tokens: usize,
    /// Tokens of a chunk.
    pub(crate) chunk_tokens: usize,
    /// Chunks that are scored.
    pub(crate) chunks: usize,
    /// Tokens that are scored.
    pub(crate) tokens: u64,
    pub(crate) perplexity: Estimate,
    /// Each chunk, in the order of the text.
    pub(crate) by_chunk: Vec<EvalPart>,
    /// The same tokens by their positions in the chunk, in at most 16 ranges.
    pub(crate) by_position: Vec<EvalPart>,
    /// The comparison with another model; null without one.
    pub(crate) against: Option<EvalAgainst>,
}

/// Some of the tokens that are scored.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalPart {
    /// The position in its chunk of the first token.
    pub(crate) first: usize,
    /// The position in its chunk of the last token.
    pub(crate) last: usize,
    pub(crate) tokens: u64,
    pub(crate) perplexity: Estimate,
    /// The KL divergence, in nats; null without another model.
    pub(crate) kl: Option<Estimate>,
    /// The share of tokens for which both models have the same most likely one; null without another model.
    pub(crate) top1: Option<Estimate>,
}

/// Tokens whose divergences are in one range.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct KlBin {
    /// The least divergence, in nats.
    pub(crate) from: f64,
    /// The divergence from which on a token is in the next range; null of the last.
    pub(crate) below: Real,
    pub(crate) tokens: u64,
}

/// How far the predictions of a text are from another model's.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalAgainst {
    /// The other model's perplexity.
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
    /// The number of tokens by their divergence.
    pub(crate) kl_histogram: Vec<KlBin>,
    /// The share of tokens for which both have the same most likely one.
    pub(crate) top1: Estimate,
    /// The share of the other's five most likely tokens that are among this model's.
    pub(crate) top5: Estimate,
}

/// How well a model answers a multiple-choice task.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalTask {
    /// The path of the questions.
    pub(crate) path: String,
    /// The name in gates: that of the file, without its extension.
    pub(crate) name: String,
    pub(crate) kind: EvalTaskKind,
    pub(crate) questions: usize,
    /// Questions that lost tokens at the front, because the context is too short for them.
    pub(crate) truncated: usize,
    /// The share of questions whose right choice is the most likely.
    pub(crate) acc: Estimate,
    /// The same with log-likelihoods divided by the characters of the choices; null for `winogrande` and `mmlu`.
    pub(crate) acc_norm: Option<Estimate>,
    /// Fields that the data set does not have. They have no effect.
    pub(crate) unknown_fields: Vec<String>,
    /// The answers of the other model; null without one.
    pub(crate) against: Option<EvalTaskAgainst>,
}

/// The data set that a task's rows are like.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum EvalTaskKind {
    Arc,
    Hellaswag,
    Winogrande,
    Mmlu,
}

impl EvalTaskKind {
    /// As the data set is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EvalTaskKind::Arc => TaskKind::Arc,
            EvalTaskKind::Hellaswag => TaskKind::HellaSwag,
            EvalTaskKind::Winogrande => TaskKind::WinoGrande,
            EvalTaskKind::Mmlu => TaskKind::Mmlu,
        }
        .name()
    }
}

impl From<TaskKind> for EvalTaskKind {
    fn from(kind: TaskKind) -> EvalTaskKind {
        match kind {
            TaskKind::Arc => EvalTaskKind::Arc,
            TaskKind::HellaSwag => EvalTaskKind::Hellaswag,
            TaskKind::WinoGrande => EvalTaskKind::Winogrande,
            TaskKind::Mmlu => EvalTaskKind::Mmlu,
        }
    }
}

/// How another model answers a task.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EvalTaskAgainst {
    pub(crate) acc: Estimate,
    /// Null where the task has no `acc_norm`.
    pub(crate) acc_norm: Option<Estimate>,
    /// Questions that lost tokens at the front.
    pub(crate) truncated: usize,
    /// The share of questions for which both models take the same choice, right or wrong.
    pub(crate) same: Estimate,
    /// The same by the choices of `acc_norm`; null where the task has none.
    pub(crate) same_norm: Option<Estimate>,
}

/// A mean over tokens or questions.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Estimate {
    pub(crate) value: Real,
    /// With tokens and questions taken as independent. The 95 % confidence interval is 1.96 times as wide on either side.
    standard_error: Real,
}

impl Estimate {
    /// The mean and its standard error; not a number where JSON has null.
    pub(crate) fn pair(&self) -> (f64, f64) {
        (self.value.unwrap_or(f64::NAN), self.standard_error.unwrap_or(f64::NAN))
    }

    /// The mean, and the two ends of its 95 % confidence interval.
    pub(crate) fn ends(&self) -> (f64, f64, f64) {
        let (value, error) = self.pair();
        (value, value - CONFIDENCE * error, value + CONFIDENCE * error)
    }

    /// `15.92 ± 0.71`.
    pub(crate) fn shown(&self, digits: usize, unit: f64) -> String {
        interval(self.pair(), digits, unit)
    }
}

impl From<(f64, f64)> for Estimate {
    fn from((value, error): (f64, f64)) -> Estimate {
        Estimate { value: real(value), standard_error: real(error) }
    }
}

/// A limit, and whether it is kept.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Gate {
    pub(crate) name: String,
    /// Whether the limit is the most that is allowed, or the least.
    pub(crate) is_most: bool,
    pub(crate) limit: f64,
    pub(crate) found: Real,
    pub(crate) passed: bool,
}
