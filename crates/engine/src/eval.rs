//! How well a model predicts a text, and how far its predictions are from those of another model; how well it answers
//! [multiple-choice tasks](parse).
//!
//! The text is cut and scored as llama.cpp's `llama-perplexity` does it (tools/perplexity/perplexity.cpp@0c1e57098,
//! `perplexity`): chunks of equal length that share nothing, of which the first token is replaced by the one that begins
//! texts, if the tokenizer adds one. In each chunk the tokens of the second half are scored, but for the first of them:
//! half a chunk of context is there for each. What is left over at the end is not used.

mod choice;
mod part;
mod problems;
mod task;

use std::ops::ControlFlow;

use crate::sampler;
use crate::{Error, Runner, Session};

pub use choice::{Answer, EncodedTask, Score, encode, score};
pub use part::{Part, Parts};
pub use problems::RowProblem;
pub use task::{Choice, Question, Task, TaskKind, parse};

/// Positions whose logits are held at one time, for each model.
pub(crate) const ROWS: usize = 64;

/// The number of most likely tokens that [`Agreement::top5`] compares.
const TOP: usize = 5;

/// A model, and the sequence that it runs the text in.
#[derive(Debug)]
pub struct Predictor<'a> {
    /// Runs the model.
    pub runner: &'a mut Runner,
    /// A session of that model with at least [`EvalOptions::length`] positions, or [`EncodedTask::positions`].
    pub session: &'a mut Session,
}

/// How a text is scored.
#[derive(Clone, Copy, Debug)]
pub struct EvalOptions {
    /// Tokens of a chunk, at least 4.
    pub length: usize,
    /// Chunks to score at most; `None` for all.
    pub chunks: Option<usize>,
    /// The token that begins texts, if the tokenizer adds one.
    pub begin: Option<u32>,
    /// Threads that compare probabilities.
    pub threads: usize,
}

/// A mean of values, as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    count: u64,
    center: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl Mean {
    /// Welford's update: exact where sums of squares cancel.
    fn add(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.center;
        self.center += distance / self.count as f64;
        self.squares += distance * (value - self.center);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.center
    }

    /// The standard error of the mean, if the values are independent of each other; 0 of fewer than two.
    pub fn error(&self) -> f64 {
        match self.count {
            0 | 1 => 0.0,
            n => (self.squares / (n - 1) as f64 / n as f64).sqrt(),
        }
    }
}

/// How well a model predicts a text.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// Chunks that are scored.
    pub chunks: usize,
    /// `-ln p` of each token that is scored, in nats.
    pub nll: Mean,
    /// The same scores by chunk and by position.
    pub parts: Parts,
    /// How far the predictions are from those of a reference.
    pub against: Option<Agreement>,
}

impl Evaluation {
    /// The perplexity, and its standard error: `exp` of the mean of [`Evaluation::nll`].
    pub fn perplexity(&self) -> (f64, f64) {
        exp(&self.nll)
    }
}

/// How far the predictions of a model are from those of a reference, token by token.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// `-ln p` of each token, of the reference.
    pub nll: Mean,
    /// By how much `-ln p` of each token is larger than the reference's.
    pub excess: Mean,
    /// The Kullback-Leibler divergence from the reference's probabilities `p` to the model's `q`, `Σ p · ln(p / q)`, in nats.
    pub kl: Mean,
    /// The divergence of each token, in the order of the text.
    pub divergences: Vec<f32>,
    /// 1 where both have the same most likely token, else 0.
    pub top1: Mean,
    /// The share of the reference's five most likely tokens that are among the model's.
    pub top5: Mean,
}

impl Agreement {
    /// The perplexity of the reference, and its standard error.
    pub fn perplexity(&self) -> (f64, f64) {
        exp(&self.nll)
    }

    /// The perplexity of the model divided by the reference's, and its standard error. Both saw the same tokens, so the
    /// error is much smaller than that of either.
    pub fn ratio(&self) -> (f64, f64) {
        exp(&self.excess)
    }

    /// The divergence that `thousandths` of the tokens do not exceed: 500 for the median, 1000 for the largest.
    pub fn quantile(&self, thousandths: usize) -> f32 {
        let mut sorted = self.divergences.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = (last * thousandths + 500) / 1000;
        sorted.get(at.min(last)).copied().unwrap_or(0.0)
    }

    /// The number of tokens by their divergence: below the first of `edges`, between each and the next, and from the last on.
    /// `edges` ascend.
    pub fn histogram(&self, edges: &[f64]) -> Vec<u64> {
        let mut counts = vec![0; edges.len() + 1];
        for divergence in &self.divergences {
            counts[edges.partition_point(|edge| *edge <= f64::from(*divergence))] += 1;
        }
        counts
    }
}

/// `exp` of a mean with its standard error, to first order.
fn exp(mean: &Mean) -> (f64, f64) {
    let value = mean.mean().exp();
    (value, value * mean.error())
}

/// Bytes of logits that [`evaluate`] holds of each model.
pub fn logits_bytes(vocab: usize) -> u64 {
    (ROWS * 4) as u64 * vocab as u64
}

/// Scores `tokens` by `model`, beside `reference` if there is one. A session with a [budget](crate::Session::set_kv_budget) keeps as many positions
/// of the first half of each chunk. `each` sees the result so far and the number of all
/// chunks after each chunk, and may break.
///
/// # Errors
/// If there are not two chunks of tokens, as in llama.cpp; if the vocabularies differ in size; if a session is too short, or
/// logits are not numbers.
pub fn evaluate(
    model: &mut Predictor<'_>,
    mut reference: Option<&mut Predictor<'_>>,
    tokens: &[u32],
    options: &EvalOptions,
    each: &mut dyn FnMut(&Evaluation, usize) -> ControlFlow<()>,
) -> Result<Evaluation, Error> {
    let length = options.length.max(4);
    let wanted = length.saturating_mul(2);
    if tokens.len() < wanted {
        return Err(Error::ShortText { found: tokens.len(), wanted });
    }
    let vocab = model.runner.model().vocab();
    if let Some(reference) = &reference {
        let found = reference.runner.model().vocab();
        if found != vocab {
            return Err(Error::OtherVocabulary { model: vocab, reference: found });
        }
    }
    // The first token of the second half is given, not predicted.
    let predicted = length / 2 + 1..length;
    let mut result = Evaluation {
        parts: Parts::of(&predicted),
        against: reference.as_ref().map(|_| Agreement::default()),
        ..Evaluation::default()
    };
    let total = (tokens.len() / length).min(options.chunks.unwrap_or(usize::MAX));
    let (mut ours, mut theirs, mut chunk) = (vec![], vec![], vec![]);
    for whole in tokens.chunks_exact(length).take(total) {
        chunk.clear();
        chunk.extend_from_slice(whole);
        if let (Some(first), Some(begin)) = (chunk.first_mut(), options.begin) {
            *first = begin;
        }
        let (context, scored) = chunk.split_at(length / 2);
        begin(model, context)?;
        model.runner.evict(model.session)?;
        if let Some(reference) = &mut reference {
            begin(reference, context)?;
            reference.runner.evict(reference.session)?;
        }
        result.parts.begin(predicted.clone());
        let mut position = predicted.start;
        // The last token has none after it to be scored.
        for (run, next) in scored[..scored.len() - 1].chunks(ROWS).zip(scored[1..].chunks(ROWS)) {
            logits(model, run, &mut ours)?;
            if let Some(reference) = &mut reference {
                logits(reference, run, &mut theirs)?;
            }
            for row in compare((&ours, &theirs), next, vocab, options.threads)? {
                result.add(position, &row);
                position += 1;
            }
        }
        result.chunks += 1;
        if each(&result, total).is_break() {
            break;
        }
    }
    Ok(result)
}

/// Runs `tokens` from the first position on.
pub(crate) fn begin(predictor: &mut Predictor<'_>, tokens: &[u32]) -> Result<(), Error> {
    predictor.session.truncate(0);
    predictor.runner.forward(predictor.session, tokens).map(|_| ())
}

/// The logits after each of `tokens`, `[tokens, vocab]`.
pub(crate) fn logits(predictor: &mut Predictor<'_>, tokens: &[u32], all: &mut Vec<f32>) -> Result<(), Error> {
    all.clear();
    predictor.runner.forward_each(predictor.session, tokens, |row| all.extend_from_slice(row))
}

/// The scores of one token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    nll: f64,
    pub(crate) against: Option<Beside>,
}

/// The scores of one token beside the reference's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    nll: f64,
    pub(crate) kl: f64,
    same_top: bool,
    common: usize,
}

impl Evaluation {
    /// Adds the score of the token at `position` of its chunk.
    fn add(&mut self, position: usize, row: &Row) {
        self.nll.add(row.nll);
        self.parts.add(position, row);
        if let (Some(all), Some(one)) = (&mut self.against, row.against) {
            all.nll.add(one.nll);
            all.excess.add(row.nll - one.nll);
            all.kl.add(one.kl);
            all.divergences.push(one.kl as f32);
            all.top1.add(f64::from(u8::from(one.same_top)));
            all.top5.add(one.common as f64 / TOP as f64);
        }
    }
}

/// Scores the tokens `next` by rows of logits: of the model, and of the reference if there are any.
pub(crate) fn compare(
    (ours, theirs): (&[f32], &[f32]),
    next: &[u32],
    vocab: usize,
    threads: usize,
) -> Result<Vec<Row>, Error> {
    let share = next.len().div_ceil(threads.max(1)).max(1);
    let part = |n: usize, next: &[u32]| -> Result<Vec<Row>, Error> {
        let one = |(i, token): (usize, &u32)| {
            let at = (n * share + i) * vocab;
            let row = at..at + vocab;
            let Some(ours) = ours.get(row.clone()).map(Distribution::of).transpose()? else {
                return Ok(Row::default());
            };
            let theirs = theirs.get(row).map(Distribution::of).transpose()?;
            let against = theirs.map(|theirs| theirs.beside(&ours, *token));
            Ok(Row { nll: ours.nll(*token), against })
        };
        next.iter().enumerate().map(one).collect()
    };
    let parts: Result<Vec<Vec<Row>>, Error> = std::thread::scope(|scope| {
        let part = &part;
        let running: Vec<_> =
            next.chunks(share).enumerate().map(|(n, next)| scope.spawn(move || part(n, next))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect()
    });
    Ok(parts?.concat())
}

/// The probabilities of all tokens: `ln p = logit - offset`.
struct Distribution<'a> {
    logits: &'a [f32],
    offset: f64,
}

impl<'a> Distribution<'a> {
    fn of(logits: &'a [f32]) -> Result<Distribution<'a>, Error> {
        let count = logits.iter().filter(|l| l.is_nan() || **l == f32::INFINITY).count();
        let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        if count > 0 || max == f64::NEG_INFINITY {
            return Err(sampler::Error::NotNumbers { count: count.max(1), vocab: logits.len() }.into());
        }
        let sum: f64 = logits.iter().map(|l| (f64::from(*l) - max).exp()).sum();
        Ok(Distribution { logits, offset: max + sum.ln() })
    }

    fn nll(&self, token: u32) -> f64 {
        self.logits.get(token as usize).map_or(f64::INFINITY, |logit| self.offset - f64::from(*logit))
    }

    /// These probabilities as the reference for those of `other`.
    fn beside(&self, other: &Distribution<'_>, token: u32) -> Beside {
        let difference = |(mine, its): (&f32, &f32)| {
            let (p, q) = (f64::from(*mine) - self.offset, f64::from(*its) - other.offset);
            // A token that the reference rules out does not count, whatever the other thinks of it.
            if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }
        };
        let kl: f64 = self.logits.iter().zip(other.logits).map(difference).sum();
        let (mine, its) = (top(self.logits), top(other.logits));
        Beside {
            nll: self.nll(token),
            // It is never below 0 but for rounding.
            kl: kl.max(0.0),
            same_top: mine[0] == its[0],
            common: mine.iter().filter(|token| its.contains(token)).count(),
        }
    }
}

/// The five largest, the most likely first; of equals the first.
fn top(logits: &[f32]) -> [usize; TOP] {
    let (mut tokens, mut values) = ([usize::MAX; TOP], [f32::NEG_INFINITY; TOP]);
    for (token, logit) in logits.iter().enumerate() {
        if *logit <= values[TOP - 1] && tokens[TOP - 1] != usize::MAX {
            continue;
        }
        let at = (0..TOP).find(|i| *logit > values[*i] || tokens[*i] == usize::MAX).unwrap_or(TOP - 1);
        tokens.copy_within(at..TOP - 1, at + 1);
        values.copy_within(at..TOP - 1, at + 1);
        (tokens[at], values[at]) = (token, *logit);
    }
    tokens
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "small integers are exact")]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_the_standard_error_of_the_definition() {
        let mut mean = Mean::default();
        for value in [1.0, 2.0, 4.0, 9.0] {
            mean.add(value);
        }
        // Variance of the sample: (9 + 4 + 0 + 25) / 3.
        assert_eq!((mean.count(), mean.mean()), (4, 4.0));
        assert!((mean.error() - (38.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::default().error(), 0.0);
    }

    #[test]
    fn a_divergence_is_that_of_the_definition() {
        // p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2).
        let (p, q) = ([2.0_f32.ln(), 0.0, 0.0], [0.0, 0.0, 2.0_f32.ln()]);
        let (p, q) = (Distribution::of(&p).unwrap(), Distribution::of(&q).unwrap());
        let beside = p.beside(&q, 0);
        assert!((beside.kl - (0.5 * 2.0_f64.ln() - 0.25 * 2.0_f64.ln())).abs() < 1e-7, "{beside:?}");
        assert!((beside.nll - 2.0_f64.ln()).abs() < 1e-7 && (q.nll(0) - 4.0_f64.ln()).abs() < 1e-7);
        assert!(!beside.same_top);
        let same = p.beside(&p, 1);
        assert_eq!((same.kl, same.same_top), (0.0, true));
    }

    #[test]
    fn tokens_that_are_ruled_out_do_not_count_in_the_reference_and_are_infinitely_wrong_in_the_model() {
        let (p, q) = ([0.0, f32::NEG_INFINITY], [0.0, 0.0]);
        let (p, q) = (Distribution::of(&p).unwrap(), Distribution::of(&q).unwrap());
        assert!((p.beside(&q, 0).kl - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(q.beside(&p, 0).kl, f64::INFINITY);
        for broken in [[f32::NAN, 0.0], [f32::INFINITY, 0.0], [f32::NEG_INFINITY; 2]] {
            assert!(Distribution::of(&broken).is_err());
        }
    }

    #[test]
    fn the_five_largest_come_in_order_and_of_equals_the_first() {
        let logits = [1.0, 5.0, 3.0, 5.0, f32::NEG_INFINITY, 4.0, 3.0, 2.0];
        assert_eq!(top(&logits), [1, 3, 5, 2, 6]);
        assert_eq!(top(&[0.0, 1.0]), [1, 0, usize::MAX, usize::MAX, usize::MAX]);
        let mut random = 1u32;
        let many: Vec<f32> = (0..1000)
            .map(|_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 20) as f32
            })
            .collect();
        let mut sorted: Vec<usize> = (0..many.len()).collect();
        sorted.sort_by(|a, b| many[*b].total_cmp(&many[*a]).then(a.cmp(b)));
        assert_eq!(top(&many)[..], sorted[..TOP]);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let agreement = Agreement { divergences: vec![3.0, 1.0, 2.0, 5.0, 4.0], ..Agreement::default() };
        assert_eq!([0, 500, 1000, 2000].map(|of| agreement.quantile(of)), [1.0, 3.0, 5.0, 5.0]);
        assert_eq!(Agreement::default().quantile(500), 0.0);
    }

    #[test]
    fn every_token_is_in_one_bin_and_an_edge_begins_the_next() {
        let agreement =
            Agreement { divergences: vec![0.0, 0.5, 1.0, 2.0, 9.0, 0.75], ..Agreement::default() };
        assert_eq!(agreement.histogram(&[1.0, 2.0]), [3, 1, 2]);
        assert_eq!(agreement.histogram(&[]), [6]);
    }
}
