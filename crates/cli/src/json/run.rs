//! `run --json`.

use serde::Serialize;
use weighbridge::engine::logprobs::LogProb;
use weighbridge::engine::text::{SpecialText, Tokenizer};
use weighbridge::engine::{Stats, Stop as Stopped};

use super::{Real, Resident, real};

/// What `weighbridge run --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run<'a> {
    /// The answer, without the string that ended it; null if the model has no tokenizer.
    text: Option<&'a str>,
    /// The ids of its tokens, without the one that ended it.
    ids: &'a [u32],
    /// How likely each of them was; null without `--logprobs`.
    logprobs: Option<&'a [TokenLogprob]>,
    /// The number of tokens of the prompt that were run.
    prompt_tokens: usize,
    /// The number of tokens of the prompt that `--prompt-cache` had, so that they were not run; 0 without it.
    cached_tokens: usize,
    /// The number of tokens that were sampled, the one that ended it included.
    tokens: usize,
    /// Tokens that were guessed and run ahead; 0 without `--prompt-lookup` and `--draft`.
    guessed_tokens: usize,
    /// Guesses that were sampled then.
    right_guesses: usize,
    prefill_tokens_per_second: Real,
    /// The first token, which the prefill gives, is not counted.
    decode_tokens_per_second: Real,
    /// From the start of the process.
    first_token_seconds: f64,
    stop: Stop,
    /// The string that ended it; null if none did.
    stop_string: Option<&'a str>,
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
    /// It has a string that ends it.
    #[serde(rename = "stop_string")]
    String,
    /// Ctrl-C; the exit code is 130.
    Interrupted,
}

/// A token of the answer, with the most likely ones in its place.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TokenLogprob {
    #[serde(flatten)]
    token: Logprob,
    /// The most likely tokens, the most likely first.
    top: Vec<Logprob>,
}

/// A token, and how likely the model finds it, before any sampler.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Logprob {
    id: u32,
    /// What it adds to a text, with U+FFFD for bytes that are no whole character; null if the model has no tokenizer.
    text: Option<String>,
    /// The natural logarithm of its probability; null if it cannot come.
    logprob: Real,
}

impl Logprob {
    pub(crate) fn of(of: LogProb, tokenizer: Option<&Tokenizer>) -> Logprob {
        let text = |t: &Tokenizer| {
            String::from_utf8_lossy(&t.token_bytes(of.token, SpecialText::Shown)).into_owned()
        };
        Logprob { id: of.token, text: tokenizer.map(text), logprob: real(of.logprob.into()) }
    }
}

impl TokenLogprob {
    pub(crate) fn new(token: Logprob, top: Vec<Logprob>) -> TokenLogprob {
        TokenLogprob { token, top }
    }
}

/// The answer, its tokens, how likely they were, and the string that ended it.
type Said<'a> = (Option<&'a str>, &'a [u32], Option<&'a [TokenLogprob]>, Option<&'a str>);

impl<'a> Run<'a> {
    pub(crate) fn of(
        (text, ids, logprobs, stop_string): Said<'a>,
        stats: &Stats,
        first_token_seconds: f64,
        backend: &'a str,
        resident: Resident,
    ) -> Run<'a> {
        Run {
            text,
            ids,
            logprobs,
            prompt_tokens: stats.prompt_tokens,
            cached_tokens: stats.known_tokens,
            tokens: stats.tokens,
            guessed_tokens: stats.guessed,
            right_guesses: stats.right,
            prefill_tokens_per_second: real(stats.prefill_rate()),
            decode_tokens_per_second: real(stats.decode_rate()),
            first_token_seconds,
            stop: match stats.stop {
                Stopped::EndOfText => Stop::EndOfText,
                Stopped::Length => Stop::Length,
                Stopped::ContextFull => Stop::ContextFull,
                Stopped::StopString => Stop::String,
                Stopped::Interrupted => Stop::Interrupted,
            },
            stop_string,
            backend,
            resident,
        }
    }
}
