//! `eval --json`.

use serde::Serialize;
use weighbridge::engine::eval::TaskKind;

use super::{Real, real};

/// What `weighbridge eval --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Eval<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// The path of the model that it is compared with; null without one.
    pub(crate) against: Option<String>,
    /// How the text is predicted; null without a text.
    pub(crate) text: Option<EvalText>,
    /// How the tasks are answered; empty without tasks.
    pub(crate) tasks: Vec<EvalTask<'a>>,
    /// The limits of the gate; empty without one.
    pub(crate) gates: Vec<Gate<'a>>,
    /// Whether all limits are kept.
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
}

/// How well a model predicts a text.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// The comparison with another model; null without one.
    pub(crate) against: Option<EvalAgainst>,
}

/// How far the predictions of a text are from another model's.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// The share of tokens for which both have the same most likely one.
    pub(crate) top1: Estimate,
    /// The share of the other's five most likely tokens that are among this model's.
    pub(crate) top5: Estimate,
}

/// How well a model answers a multiple-choice task.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EvalTask<'a> {
    /// The path of the questions.
    pub(crate) path: &'a str,
    /// The name in gates: that of the file, without its extension.
    pub(crate) name: &'a str,
    pub(crate) kind: EvalTaskKind,
    pub(crate) questions: usize,
    /// Questions that lost tokens at the front, because the context is too short for them.
    pub(crate) truncated: usize,
    /// The share of questions whose right choice is the most likely.
    pub(crate) acc: Estimate,
    /// The same with log-likelihoods divided by the characters of the choices; null for `winogrande` and `mmlu`.
    pub(crate) acc_norm: Option<Estimate>,
    /// Fields that the data set does not have. They have no effect.
    pub(crate) unknown_fields: Vec<&'a str>,
    /// The answers of the other model; null without one.
    pub(crate) against: Option<EvalTaskAgainst>,
}

/// The data set that a task's rows are like.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum EvalTaskKind {
    Arc,
    Hellaswag,
    Winogrande,
    Mmlu,
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Estimate {
    value: Real,
    /// With tokens and questions taken as independent. The 95 % confidence interval is 1.96 times as wide on either side.
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
