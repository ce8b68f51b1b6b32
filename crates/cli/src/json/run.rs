//! `run --json`.

use serde::Serialize;
use weighbridge::engine::{Stats, Stop as Stopped};

use super::{Real, Resident, real};

/// What `weighbridge run --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run<'a> {
    /// The answer; null if the model has no tokenizer.
    text: Option<&'a str>,
    /// The ids of its tokens, the one that ended it included.
    ids: &'a [u32],
    /// The number of tokens of the prompt that were run.
    prompt_tokens: usize,
    /// The number of tokens that were sampled.
    tokens: usize,
    prefill_tokens_per_second: Real,
    /// The first token, which the prefill gives, is not counted.
    decode_tokens_per_second: Real,
    /// From the start of the process.
    first_token_seconds: f64,
    stop: Stop,
    /// What computed: `cpu avx2`, `reference`, …
    backend: &'a str,
    resident: Resident,
}

/// Why the answer ended.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Stop {
    /// The model ended it.
    EndOfText,
    /// It has as many tokens as were asked for.
    Length,
    ContextFull,
    /// Ctrl-C; the exit code is 130.
    Interrupted,
}

impl<'a> Run<'a> {
    pub(crate) fn of(
        (text, ids): (Option<&'a str>, &'a [u32]),
        stats: &Stats,
        first_token_seconds: f64,
        backend: &'a str,
        resident: Resident,
    ) -> Run<'a> {
        Run {
            text,
            ids,
            prompt_tokens: stats.prompt_tokens,
            tokens: stats.tokens,
            prefill_tokens_per_second: real(stats.prefill_rate()),
            decode_tokens_per_second: real(stats.decode_rate()),
            first_token_seconds,
            stop: match stats.stop {
                Stopped::EndOfText => Stop::EndOfText,
                Stopped::Length => Stop::Length,
                Stopped::ContextFull => Stop::ContextFull,
                Stopped::Interrupted => Stop::Interrupted,
            },
            backend,
            resident,
        }
    }
}
