//! The tokens that may still come.

use std::cmp::Ordering;

use super::random::Pcg32;

/// A token with its logit.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
    /// After [`Candidates::weigh`], its weight: proportional to its probability, 1 for the most likely.
    pub(super) weight: f32,
}

/// The tokens that may still come. Tokens whose logit is −∞ have no weight and are never drawn.
pub(super) struct Candidates {
    pub(super) all: Vec<Candidate>,
    /// The number of candidates at the front that are the most likely, in order.
    pub(super) sorted: usize,
}

impl Candidates {
    pub(super) fn with_capacity(vocab: usize) -> Candidates {
        Candidates { all: Vec::with_capacity(vocab), sorted: 0 }
    }

    /// Begins with all tokens, in the order of their ids.
    pub(super) fn fill(&mut self, logits: &[f32]) {
        self.all.clear();
        self.all.extend(logits.iter().zip(0..).map(|(logit, id)| Candidate {
            id,
            logit: *logit,
            weight: 0.0,
        }));
        self.sorted = 0;
    }

    /// Removes the tokens whose bits are not set in `allowed`, by the logit −∞.
    pub(super) fn allow(&mut self, allowed: &[u32]) {
        for (word, candidates) in self.all.chunks_mut(32).enumerate() {
            let bits = allowed.get(word).copied().unwrap_or(0);
            for (bit, candidate) in candidates.iter_mut().enumerate() {
                if bits >> bit & 1 == 0 {
                    candidate.logit = f32::NEG_INFINITY;
                }
            }
        }
    }

    pub(super) fn logits(&self) -> impl Iterator<Item = f32> {
        self.all.iter().map(|c| c.logit)
    }

    /// The logit of `token`, as long as no stage has removed one.
    pub(super) fn logit_mut(&mut self, token: u32) -> Option<&mut f32> {
        let candidate = self.all.get_mut(usize::try_from(token).ok()?)?;
        debug_assert_eq!(candidate.id, token);
        Some(&mut candidate.logit)
    }

    /// Adds to the logit of `token`, as long as no stage has removed one.
    pub(super) fn add(&mut self, token: u32, change: f32) {
        if let Some(logit) = self.logit_mut(token) {
            *logit += change;
        }
    }

    /// Moves the `n` most likely to the front, in order.
    pub(super) fn sort(&mut self, n: usize) {
        let n = n.min(self.all.len());
        if n <= self.sorted {
            return;
        }
        if n < self.all.len() {
            self.all.select_nth_unstable_by(n - 1, by_rank);
        }
        self.all[..n].sort_unstable_by(by_rank);
        self.sorted = n;
    }

    /// Keeps the first `n`.
    pub(super) fn truncate(&mut self, n: usize) {
        self.all.truncate(n);
        self.sorted = self.sorted.min(n);
    }

    /// The largest logit; −∞ if no token is left.
    pub(super) fn best(&self) -> f32 {
        match self.all.first() {
            Some(first) if self.sorted > 0 => first.logit,
            _ => self.logits().fold(f32::NEG_INFINITY, f32::max),
        }
    }

    /// Sets the weights, `e^(logit - best)`, and returns their sum; 0 if no token may come.
    pub(super) fn weigh(&mut self) -> f64 {
        let best = self.best();
        let mut total = 0.0;
        for c in &mut self.all {
            c.weight = if best == f32::NEG_INFINITY { 0.0 } else { (c.logit - best).exp() };
            total += f64::from(c.weight);
        }
        total
    }

    /// Sets the weights, and returns the surprise of a candidate: the negative logarithm of its probability, in nats.
    pub(super) fn surprise(&mut self) -> impl Fn(&Candidate) -> f64 + Copy + use<> {
        // Of the softmax: no logarithm for each candidate.
        let most = self.weigh().ln() + f64::from(self.best());
        move |c| most - f64::from(c.logit)
    }

    /// Draws one by its probability.
    pub(super) fn draw(&mut self, random: &mut Pcg32) -> Option<u32> {
        let mut left = random.uniform() * self.weigh();
        for c in &self.all {
            left -= f64::from(c.weight);
            if left < 0.0 {
                return Some(c.id);
            }
        }
        // Rounding left a rest: the last that can come at all.
        self.all.iter().rev().find(|c| c.weight > 0.0).map(|c| c.id)
    }
}

/// The more likely first; the lower id first among equals.
pub(super) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}
