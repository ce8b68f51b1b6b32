//! The token loop.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::draft::{self, Draft};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// The model ended the text.
    EndOfText,
    /// The number of tokens asked for is reached.
    #[default]
    Length,
    /// The text has one of the [strings that end it](crate::text::StopStrings).
    StopString,
    /// No position is left.
    ContextFull,
    /// The caller said so.
    Interrupted,
}

/// The counts and times of a generation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that an earlier one had run.
    pub known_tokens: usize,
    /// Seconds for them, up to the first sampled token.
    pub prefill_seconds: f64,
    /// Tokens sampled.
    pub tokens: usize,
    /// Seconds for those after the first.
    pub decode_seconds: f64,
    /// Tokens that were guessed and run.
    pub guessed: usize,
    /// Guesses that were sampled then.
    pub right: usize,
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

/// Runs `prompt` in `session`, leaves out of it what is beyond the session's [budget](Session::set_kv_budget), then samples until a limit; `each` sees every token as it comes, and may break with the
/// reason. With a `draft`, tokens that it guesses are run ahead: the text is the same, bit for bit, and may come sooner.
///
/// The sampler's text so far goes on, and the draft's: `prompt` is added to it, and each token that is sampled. Before another
/// text, and before one whose beginning the session holds already, call [`Sampler::begin`] and [`Draft::begin`].
///
/// The loop allocates nothing. The token that was sampled last has not been run then.
///
/// # Errors
/// If the prompt does not fit, or the logits are not numbers.
pub fn generate(
    runner: &mut Runner,
    session: &mut Session,
    sampler: &mut Sampler,
    draft: Option<&mut dyn Draft>,
    prompt: &[u32],
    limits: &Limits<'_>,
    each: &mut dyn FnMut(Sampled<'_>) -> ControlFlow<Stop>,
) -> Result<Stats, Error> {
    let started = Instant::now();
    let room = prompt.len() + 1 + session.capacity().saturating_sub(session.position());
    sampler.reserve(room);
    sampler.read(prompt);
    // Guesses that are wrong are taken back, which linear attention cannot.
    let draft = draft.filter(|_| runner.model().goes_back());
    let mut turn = Turn { sampler, draft, limits, each, stats: Stats::default() };
    if let Some(draft) = &mut turn.draft {
        draft.reserve(room)?;
        draft.read(prompt);
        runner.reserve_logits(draft::MOST + 1)?;
    }
    let logits = runner.forward(session, prompt)?;
    turn.stats.prompt_tokens = prompt.len();
    turn.stats.prefill_seconds = started.elapsed().as_secs_f64();
    if limits.tokens == 0 {
        return Ok(turn.stats);
    }
    let mut token = turn.sampler.sample(logits)?;
    turn.stats.prefill_seconds = started.elapsed().as_secs_f64();
    let mut stop = turn.take(token, logits);
    if stop.is_none() {
        runner.evict(session)?;
    }
    let decoding = Instant::now();
    while stop.is_none() {
        if session.position() == session.capacity() {
            stop = Some(Stop::ContextFull);
            break;
        }
        let (ahead, count) = turn.ahead(token, session.capacity() - session.position())?;
        let ahead = &ahead[..count];
        let before = session.position();
        let (mut taken, mut failed) = (0, None);
        runner.forward_each(session, ahead, |logits| {
            // Behind a guess that was wrong, or the end.
            if taken > 0 && (stop.is_some() || ahead[taken..].first() != Some(&token)) || failed.is_some() {
                return;
            }
            match turn.sampler.sample(logits) {
                Ok(sampled) => {
                    (token, taken) = (sampled, taken + 1);
                    stop = turn.take(token, logits);
                }
                Err(error) => failed = Some(error),
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        session.truncate(before + taken);
        turn.judge(count - 1, taken - 1);
    }
    turn.stats.decode_seconds = decoding.elapsed().as_secs_f64();
    turn.stats.stop = stop.unwrap_or(Stop::Length);
    Ok(turn.stats)
}

/// Takes the tokens that are sampled.
struct Turn<'a, 'd, 'l, 'e> {
    sampler: &'a mut Sampler,
    draft: Option<&'a mut (dyn Draft + 'd)>,
    limits: &'a Limits<'l>,
    each: &'a mut (dyn FnMut(Sampled<'_>) -> ControlFlow<Stop> + 'e),
    stats: Stats,
}

impl Turn<'_, '_, '_, '_> {
    /// Takes a token that was sampled. Returns why it is the last, if it is.
    fn take(&mut self, token: u32, logits: &[f32]) -> Option<Stop> {
        self.sampler.accept(token);
        if let Some(draft) = &mut self.draft {
            draft.read(&[token]);
        }
        self.stats.tokens += 1;
        if (self.limits.end)(token) {
            return Some(Stop::EndOfText);
        }
        if let ControlFlow::Break(why) = (self.each)(Sampled { token, logits }) {
            return Some(why);
        }
        (self.stats.tokens >= self.limits.tokens).then_some(Stop::Length)
    }

    /// The tokens to run next, and how many: `token`, and guesses as far as there is `room` for them and they may come.
    fn ahead(&mut self, token: u32, room: usize) -> Result<([u32; draft::MOST + 1], usize), Error> {
        let mut ahead = [token; draft::MOST + 1];
        let left = self.limits.tokens.saturating_sub(self.stats.tokens + 1);
        let guesses = match &mut self.draft {
            Some(draft) => draft.guess(left.min(room - 1).min(draft::MOST))?,
            None => &[],
        };
        let count = guesses.len().min(draft::MOST);
        ahead[1..=count].copy_from_slice(&guesses[..count]);
        Ok((ahead, 1 + count))
    }

    /// Counts guesses that were run, and those of them that were sampled.
    fn judge(&mut self, guessed: usize, right: usize) {
        self.stats.guessed += guessed;
        self.stats.right += right.min(guessed);
        if let Some(draft) = self.draft.as_mut().filter(|_| guessed > 0) {
            draft.judge(guessed, right.min(guessed));
        }
    }
}
