//! The stages that remove tokens, and the temperature.

use std::cmp::Ordering;

use super::candidates::{Candidate, Candidates, by_rank};

impl Candidates {
    /// Keeps the `k` most likely; 0 keeps all.
    pub(super) fn top_k(&mut self, k: usize) {
        if (1..self.all.len()).contains(&k) {
            self.sort(k);
            self.truncate(k);
        }
    }

    /// Keeps the fewest of the most likely tokens that reach the probability `p` together.
    ///
    /// Sorts no more than needed: four times as many, until they reach it.
    pub(super) fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let wanted = f64::from(p) * self.weigh();
        let (mut sum, mut n) = (0.0, 0);
        while n < self.all.len() {
            if n == self.sorted {
                self.sort((n * 4).max(64));
            }
            sum += f64::from(self.all[n].weight);
            n += 1;
            if sum >= wanted {
                return self.truncate(n);
            }
        }
    }

    /// Keeps tokens that are at least `p` times as likely as the most likely.
    pub(super) fn min_p(&mut self, p: f32) {
        let least = self.best() + p.ln();
        self.all.retain(|c| c.logit >= least);
        // The sorted ones are the most likely: those that stay are at the front as before.
        self.sorted = self.sorted.min(self.all.len());
    }

    /// Keeps the tokens whose surprise is nearest to the entropy, the fewest that exceed the probability `p` together.
    pub(super) fn typical_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let surprise = self.surprise();
        let total: f64 = self.all.iter().map(|c| f64::from(c.weight)).sum();
        let possible = self.all.iter().filter(|c| c.weight > 0.0);
        let entropy: f64 = possible.map(|c| f64::from(c.weight) / total * surprise(c)).sum();
        let distance = |c: &Candidate| (surprise(c) - entropy).abs();
        let nearest = |a: &Candidate, b: &Candidate| -> Ordering {
            distance(a).total_cmp(&distance(b)).then(by_rank(a, b))
        };
        self.sorted = 0;
        // As top-p, over the nearest instead of the most likely.
        let (mut sum, mut n, mut sorted) = (0.0, 0, 0);
        while n < self.all.len() && sum <= f64::from(p) * total {
            if n == sorted {
                sorted = (n * 4).max(64).min(self.all.len());
                if sorted < self.all.len() {
                    self.all.select_nth_unstable_by(sorted - 1, nearest);
                }
                self.all[..sorted].sort_unstable_by(nearest);
            }
            sum += f64::from(self.all[n].weight);
            n += 1;
        }
        self.truncate(n);
    }

    /// Removes the tokens with a probability of at least `threshold`, except the least likely of them.
    pub(super) fn exclude_top(&mut self, threshold: f32) {
        let least = f64::from(threshold) * self.weigh();
        let is_top = |c: &Candidate| f64::from(c.weight) >= least;
        let kept = self.all.iter().filter(|c| is_top(c)).max_by(|a, b| by_rank(a, b)).map(|c| c.id);
        self.all.retain(|c| !is_top(c) || Some(c.id) == kept);
        self.sorted = 0;
    }

    /// Divides the logits by `temperature`, which is not 0.
    pub(super) fn heat(&mut self, temperature: f32) {
        self.all.iter_mut().for_each(|c| c.logit /= temperature);
    }
}
