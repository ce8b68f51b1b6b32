//! Requests between the weights that they began with and others.

use super::{Running, Scheduler};
use crate::{Error, Runner, Session};

/// The requests of a [`Scheduler`] without anything that weights have computed: it holds nothing of a model. They go on with the weights of
/// another version of it.
#[derive(Debug)]
pub struct Suspended {
    scheduler: Scheduler,
    texts: Vec<Text>,
}

/// The text of a request that had a place.
#[derive(Debug)]
struct Text {
    tokens: Vec<u32>,
    positions: usize,
    bytes: u64,
}

impl Scheduler {
    /// Gives up all that was computed, between two steps, and leaves no request here. Each keeps its text, and the state of its sampler.
    pub fn suspend(&mut self) -> Suspended {
        let empty = Scheduler::new(self.kind, self.bounds);
        let mut scheduler = std::mem::replace(self, empty);
        let text = |running: Running| Text {
            positions: running.session.capacity(),
            bytes: running.bytes,
            tokens: running.text,
        };
        let texts = scheduler.running.drain(..).map(text).collect();
        scheduler.prefixes = super::Prefixes::default();
        Suspended { scheduler, texts }
    }
}

impl Suspended {
    /// Requests that had a place.
    pub fn running(&self) -> usize {
        self.texts.len()
    }

    /// Goes on with the weights of `runner`, of a model of the same configuration and vocabulary. Each text is run again from its
    /// beginning, in the steps that follow, as prompts are; what is sampled from then on is what that model samples after this text.
    ///
    /// # Errors
    /// If the model has fewer tokens or positions than texts want, or memory runs out. All requests have ended then, and are told no more.
    pub fn resume(self, runner: &Runner) -> Result<Scheduler, Error> {
        let Suspended { mut scheduler, texts } = self;
        let model = runner.model();
        let vocab = model.vocab();
        let waiting = scheduler.waiting.iter().map(|waiting| (&waiting.request.prompt, waiting.positions));
        let running = texts.iter().map(|text| (&text.tokens, text.positions));
        for (tokens, positions) in running.chain(waiting) {
            if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
                return Err(Error::Token { token: *token, vocab });
            }
            if let Some(learned) = model.learned_positions().filter(|learned| positions > *learned) {
                return Err(Error::Positions { wanted: positions, learned });
            }
        }
        for (Text { tokens, positions, bytes }, turn) in texts.into_iter().zip(&scheduler.turns) {
            let mut session = Session::new(model, scheduler.kind, positions)?;
            session.set_kv_budget(scheduler.bounds.kv_budget)?;
            let evicts_at = session.kv_budget().map(|_| turn.stats.prompt_tokens);
            scheduler.running.push(Running { session, text: tokens, evicts_at, rows: 0, bytes });
        }
        Ok(scheduler)
    }
}
