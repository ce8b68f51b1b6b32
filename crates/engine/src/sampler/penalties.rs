//! Repetition, presence and frequency penalties.

use super::Penalties;
use super::candidates::Candidates;

/// How often each token is in the last part of the text, `[vocab]`; empty if there are no penalties.
pub(super) struct Counts(Vec<u32>);

impl Counts {
    pub(super) fn new(penalties: &Penalties, vocab: usize) -> Counts {
        Counts(if penalties.are_on() { vec![0; vocab] } else { vec![] })
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Counts the last token of `history`, and drops the one that has left the window.
    pub(super) fn add(&mut self, penalties: &Penalties, history: &[u32]) {
        let mut change = |token: Option<&u32>, by: i32| {
            let count = token.and_then(|t| self.0.get_mut(usize::try_from(*t).ok()?));
            if let Some(count) = count {
                *count = count.saturating_add_signed(by);
            }
        };
        change(history.last(), 1);
        let left = history.len().checked_sub(1).and_then(|last| last.checked_sub(penalties.last));
        change(left.and_then(|i| history.get(i)), -1);
    }

    /// Changes the logits of the tokens that were counted.
    pub(super) fn apply(&self, penalties: &Penalties, candidates: &mut Candidates) {
        let Penalties { repeat, presence, frequency, .. } = *penalties;
        for (candidate, count) in candidates.all.iter_mut().zip(&self.0).filter(|(_, count)| **count > 0) {
            let logit = &mut candidate.logit;
            *logit = if *logit <= 0.0 { *logit * repeat } else { *logit / repeat };
            *logit -= *count as f32 * frequency + presence;
        }
    }
}
