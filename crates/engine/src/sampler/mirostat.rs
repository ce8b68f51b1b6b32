//! Mirostat 2.

use std::f64::consts::LN_2;

use super::MirostatOptions;
use super::candidates::{Candidates, by_rank};
use super::random::Pcg32;

/// The limit of surprise, in bits (mu).
pub(super) struct Mirostat {
    options: MirostatOptions,
    limit: f32,
}

impl Mirostat {
    pub(super) fn new(options: MirostatOptions) -> Mirostat {
        Mirostat { options, limit: 2.0 * options.entropy }
    }

    /// Draws one of the tokens that surprise no more than the limit, and moves the limit.
    pub(super) fn draw(&mut self, candidates: &mut Candidates, random: &mut Pcg32) -> Option<u32> {
        self.remove(candidates);
        let drawn = candidates.draw(random)?;
        self.observe(candidates, drawn);
        Some(drawn)
    }

    /// Removes the tokens that surprise more than the limit; the most likely stays.
    pub(super) fn remove(&self, candidates: &mut Candidates) {
        let surprise = candidates.surprise();
        let best = candidates.all.iter().min_by(|a, b| by_rank(a, b)).map(|c| c.id);
        let limit = f64::from(self.limit) * LN_2;
        candidates.all.retain(|c| surprise(c) <= limit || Some(c.id) == best);
        candidates.sorted = 0;
    }

    /// Moves the limit by how far the surprise of `drawn`, among `candidates`, is from the target.
    pub(super) fn observe(&mut self, candidates: &mut Candidates, drawn: u32) {
        let surprise = candidates.surprise();
        if let Some(drawn) = candidates.all.iter().find(|c| c.id == drawn) {
            let surprise = (surprise(drawn) / LN_2) as f32;
            self.limit -= self.options.rate * (surprise - self.options.entropy);
        }
    }
}
