//! The token loop.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::sampler::Sampler;
use crate::{Error, Runner, Session};

/// When to stop, and how long it may take.
pub struct Limits<'a> {
    /// Tokens to generate at most; with 0 the prompt is run and nothing is sampled.
    pub tokens: usize,
    /// Tokens that end the text; they are counted and not passed on.
    pub end: &'a dyn Fn(u32) -> bool,
}

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").finish_non_exhaustive()
    }
}

/// A token that was sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'a> {
    /// The token.
    pub token: u32,
    /// The logits that it was chosen by, `[vocab]`, before any sampler.
    pub logits: &'a [f32],
}

/// Why a generation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model ended the text.
    EndOfText,
    /// The number of tokens asked for is reached.
    Length,
    /// The text has one of the [strings that end it](crate::text::StopStrings).
    StopString,
    /// No position is left.
    ContextFull,
    /// The caller said so.
    Interrupted,
}

/// The counts and times of a generation.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Seconds for them, up to the first sampled token.
    pub prefill_seconds: f64,
    /// Tokens sampled.
    pub tokens: usize,
    /// Seconds for those after the first.
    pub decode_seconds: f64,
    /// Why it stopped.
    pub stop: Stop,
}

impl Stats {
    /// Prompt tokens a second.
    pub fn prefill_rate(&self) -> f64 {
        self.prompt_tokens as f64 / self.prefill_seconds.max(1e-9)
    }

    /// Tokens a second, the first (which the prefill gave) left out.
    pub fn decode_rate(&self) -> f64 {
        self.tokens.saturating_sub(1) as f64 / self.decode_seconds.max(1e-9)
    }
}

/// Runs `prompt` in `session`, then samples until a limit; `each` sees every token as it comes, and may break with the
/// reason.
///
/// The sampler's text so far goes on: `prompt` is added to it, and each token that is sampled. Before another text, and before one
/// whose beginning the session holds already, call [`Sampler::begin`].
///
/// The loop allocates nothing.
///
/// # Errors
/// If the prompt does not fit, or the logits are not numbers.
pub fn generate(
    runner: &mut Runner,
    session: &mut Session,
    sampler: &mut Sampler,
    prompt: &[u32],
    limits: &Limits<'_>,
    each: &mut dyn FnMut(Sampled<'_>) -> ControlFlow<Stop>,
) -> Result<Stats, Error> {
    let started = Instant::now();
    sampler.reserve(prompt.len() + 1 + session.capacity().saturating_sub(session.position()));
    sampler.read(prompt);
    let mut logits = runner.forward(session, prompt)?;
    let mut stats = Stats {
        prompt_tokens: prompt.len(),
        prefill_seconds: started.elapsed().as_secs_f64(),
        tokens: 0,
        decode_seconds: 0.0,
        stop: Stop::Length,
    };
    if limits.tokens == 0 {
        return Ok(stats);
    }
    let mut token = sampler.sample(logits)?;
    stats.prefill_seconds = started.elapsed().as_secs_f64();
    stats.tokens = 1;
    let decoding = Instant::now();
    stats.stop = loop {
        sampler.accept(token);
        if (limits.end)(token) {
            break Stop::EndOfText;
        }
        if let ControlFlow::Break(why) = each(Sampled { token, logits }) {
            break why;
        }
        if stats.tokens >= limits.tokens {
            break Stop::Length;
        }
        if session.position() == session.capacity() {
            break Stop::ContextFull;
        }
        logits = runner.forward(session, &[token])?;
        token = sampler.sample(logits)?;
        stats.tokens += 1;
    };
    stats.decode_seconds = decoding.elapsed().as_secs_f64();
    Ok(stats)
}
