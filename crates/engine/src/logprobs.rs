//! How likely tokens were.

use std::cmp::Ordering;

/// A token with the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// The token.
    pub token: u32,
    /// Of the probability that the model gives it: of the softmax of all logits, before any sampler.
    pub logprob: f32,
}

/// The most likely tokens of a step. Allocates once, in [`LogProbs::new`].
#[derive(Clone, Debug)]
pub struct LogProbs {
    top: usize,
    best: Vec<LogProb>,
}

impl LogProbs {
    /// Finds the `top` most likely tokens.
    pub fn new(top: usize) -> LogProbs {
        // One more, so that an insertion comes before a removal.
        LogProbs { top, best: Vec::with_capacity(top.saturating_add(1).min(1 << 20)) }
    }

    /// Returns `token`, and the most likely tokens, of `logits`, `[vocab]`. The most likely comes first, the lower id first among equals. The
    /// token's logarithm is NaN if the vocabulary lacks it.
    pub fn of(&mut self, logits: &[f32], token: u32) -> (LogProb, &[LogProb]) {
        let max = logits.iter().fold(f32::NEG_INFINITY, |max, l| max.max(*l));
        let total: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
        let log = |logit: f32| (f64::from(logit - max) - total.ln()) as f32;
        self.best.clear();
        for (logit, id) in logits.iter().zip(0..) {
            if self.best.len() == self.top && self.best.last().is_none_or(|worst| *logit <= worst.logprob) {
                continue;
            }
            let at = self.best.partition_point(|b| b.logprob.total_cmp(logit) != Ordering::Less);
            self.best.insert(at, LogProb { token: id, logprob: *logit });
            self.best.truncate(self.top);
        }
        self.best.iter_mut().for_each(|b| b.logprob = log(b.logprob));
        let logprob = logits.get(token as usize).map_or(f32::NAN, |logit| log(*logit));
        (LogProb { token, logprob }, &self.best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_softmax() {
        let logits = [1.0f32, 3.0, f32::NEG_INFINITY, 3.0, 2.0, -1.0];
        let total: f32 = logits.iter().map(|l| l.exp()).sum();
        let mut of = LogProbs::new(3);
        for _ in 0..2 {
            let (drawn, best) = of.of(&logits, 5);
            assert!((drawn.logprob - (-1.0 - total.ln())).abs() < 1e-6);
            assert_eq!(best.iter().map(|b| b.token).collect::<Vec<_>>(), [1, 3, 4]);
            assert!(best.iter().all(|b| (b.logprob - (logits[b.token as usize] - total.ln())).abs() < 1e-6));
        }
        assert!(of.of(&logits, 2).0.logprob.is_infinite());
        assert!(of.of(&logits, 6).0.logprob.is_nan());
        assert!(LogProbs::new(0).of(&logits, 0).1.is_empty());
        let mut nine = LogProbs::new(9);
        let (_, all) = nine.of(&logits, 0);
        assert_eq!(all.iter().map(|b| b.token).collect::<Vec<_>>(), [1, 3, 4, 0, 5, 2]);
    }
}
