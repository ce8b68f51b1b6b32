//! Which tokens may follow in a transcript: times come in pairs and do not go back.
//!
//! Source: openai/whisper@v20250625, whisper/decoding.py, `SuppressBlank`, `SuppressTokens`, `ApplyTimestampRules`.

use super::Markers;

/// The rules of one window.
pub(super) struct Rules<'a> {
    pub(super) markers: &'a Markers,
    /// Never come.
    pub(super) suppressed: &'a [u32],
    /// Do not come first.
    pub(super) suppressed_first: &'a [u32],
    /// Whether times come.
    pub(super) times: bool,
    /// The first time is no later than this, in steps.
    pub(super) latest_first: Option<u32>,
}

impl Rules<'_> {
    /// Forbids, in the logits after the tokens `sampled` of a text, what may not follow; leaves their logarithms of probabilities.
    pub(super) fn apply(&self, logits: &mut [f32], sampled: &[u32]) {
        const NEVER: f32 = f32::NEG_INFINITY;
        let mut forbid = |token: u32| {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = NEVER;
            }
        };
        if sampled.is_empty() {
            self.suppressed_first.iter().for_each(|token| forbid(*token));
        }
        self.suppressed.iter().for_each(|token| forbid(*token));
        // Without times it is part of what comes before the text.
        forbid(self.markers.no_times);
        if self.times {
            self.times(logits, sampled);
        }
        log_softmax(logits);
        if self.times {
            let first = (self.markers.first_time as usize).min(logits.len());
            let (text, times) = logits.split_at_mut(first);
            let best = text.iter().copied().fold(NEVER, f32::max);
            // Any time at all is likelier than the likeliest text.
            if log_sum(times) > best && best > NEVER {
                text.fill(NEVER);
                log_softmax(logits);
            }
        }
    }

    fn times(&self, logits: &mut [f32], sampled: &[u32]) {
        let first = self.markers.first_time as usize;
        let vocab = logits.len();
        let mut forbid = |range: std::ops::Range<usize>| {
            logits[range.start.min(vocab)..range.end.clamp(range.start.min(vocab), vocab)]
                .fill(f32::NEG_INFINITY);
        };
        let is_time = |token: &u32| *token >= self.markers.first_time;
        let last = sampled.last().is_some_and(is_time);
        let before = sampled.len() < 2 || is_time(&sampled[sampled.len() - 2]);
        if last {
            if before {
                // A pair is complete: text follows.
                forbid(first..vocab);
            } else {
                // The end of a segment: its other half follows, or the end.
                forbid(0..self.markers.end as usize);
            }
        }
        if let Some(latest) = sampled.iter().rev().find(|token| is_time(token)) {
            // No time goes back, and none but the other half of a pair is repeated.
            let again = last && !before;
            forbid(first..*latest as usize + usize::from(!again));
        }
        if sampled.is_empty() {
            forbid(0..first);
            if let Some(latest) = self.latest_first {
                forbid(first + latest as usize + 1..vocab);
            }
        }
    }
}

/// Logits to logarithms of probabilities.
pub(super) fn log_softmax(logits: &mut [f32]) {
    let sum = log_sum(logits);
    if sum.is_finite() {
        for logit in logits {
            *logit -= sum;
        }
    }
}

/// The logarithm of the sum of exponentials.
pub(super) fn log_sum(x: &[f32]) -> f32 {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !most.is_finite() {
        return most;
    }
    let sum: f64 = x.iter().map(|x| f64::from((x - most).exp())).sum();
    most + sum.ln() as f32
}
