//! From logits to a token.

use std::fmt;

use tensor::Diagnostics;

/// How a token is chosen.
///
/// The stages come in this order, which is llama.cpp's (common/sampling.cpp@0c1e57098), but for the
/// temperature, which comes last there: top-k, temperature and softmax, top-p, min-p, and a draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits; 0 takes the largest.
    pub temperature: f32,
    /// Keeps that many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest of the most likely tokens whose probabilities together reach this, in (0, 1].
    pub top_p: f32,
    /// Keeps tokens at least this likely relative to the most likely, in [0, 1].
    pub min_p: f32,
    /// The same seed gives the same draws, on every machine.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 0 }
    }
}

/// Errors in sampling options.
#[derive(PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option outside its range.
    #[error("`{option}` must be {wanted}, found {found}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its range.
        wanted: &'static str,
        /// The value given.
        found: f32,
    },
    /// Logits that no softmax takes.
    #[error("{count} of {vocab} logits are not numbers")]
    NotNumbers {
        /// How many are NaN or +∞.
        count: usize,
        /// How many there are.
        vocab: usize,
    },
    /// Logits for another vocabulary.
    #[error("{found} logits for a sampler of {wanted}")]
    Vocabulary {
        /// Tokens that the sampler was made for.
        wanted: usize,
        /// Logits given.
        found: usize,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let broken = "the weights or a kernel are broken; the reference backend tells which";
        Diagnostics::of(self, matches!(self, Error::NotNumbers { .. }).then(|| broken.to_owned()))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

/// Chooses tokens. Allocates once, in [`Sampler::new`].
pub struct Sampler {
    options: SamplerOptions,
    random: Pcg32,
    vocab: usize,
    /// Candidates; after a cut, the most likely first, the lower id first among equals.
    candidates: Vec<Candidate>,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Candidate {
    id: u32,
    /// The logit; after the softmax, the probability.
    p: f32,
}

impl Sampler {
    /// A sampler for logits of `vocab` tokens.
    ///
    /// # Errors
    /// If an option is outside its range.
    pub fn new(options: &SamplerOptions, vocab: usize) -> Result<Sampler, Error> {
        let check = |option, wanted, value: f32, ok: bool| {
            if ok { Ok(()) } else { Err(Error::Option { option, wanted, found: value }) }
        };
        let SamplerOptions { temperature, top_p, min_p, .. } = *options;
        check("temperature", "0 or more", temperature, temperature.is_finite() && temperature >= 0.0)?;
        check("top-p", "above 0 and at most 1", top_p, top_p > 0.0 && top_p <= 1.0)?;
        check("min-p", "from 0 to 1", min_p, (0.0..=1.0).contains(&min_p))?;
        let candidates = Vec::with_capacity(vocab);
        Ok(Sampler { options: *options, random: Pcg32::new(options.seed), vocab, candidates })
    }

    /// Chooses a token by its logit, `[vocab]`. −∞ is a token that must not come.
    ///
    /// # Errors
    /// If logits are NaN or +∞, or there are not `vocab` of them.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, Error> {
        if logits.len() != self.vocab {
            return Err(Error::Vocabulary { wanted: self.vocab, found: logits.len() });
        }
        let broken = logits.iter().filter(|l| l.is_nan() || **l == f32::INFINITY).count();
        if broken > 0 {
            return Err(Error::NotNumbers { count: broken, vocab: self.vocab });
        }
        if self.options.temperature == 0.0 || self.options.top_k == 1 {
            return Ok(argmax(logits));
        }
        self.candidates.clear();
        self.candidates.extend(logits.iter().zip(0..).map(|(p, id)| Candidate { id, p: *p }));
        if self.options.top_k > 0 {
            cut(&mut self.candidates, self.options.top_k);
        }
        let total = softmax(&mut self.candidates, self.options.temperature);
        let kept = self.top_p(total);
        let kept = self.min_p(kept);
        Ok(self.draw(kept))
    }

    /// Returns the number of candidates, the most likely first, that reach `top_p`.
    ///
    /// Sorts no more than needed: doubles the sorted number until they reach it.
    fn top_p(&mut self, total: f64) -> usize {
        let n = self.candidates.len();
        if self.options.top_p >= 1.0 {
            return n;
        }
        let wanted = f64::from(self.options.top_p) * total;
        let mut sorted = 64.min(n);
        loop {
            if sorted < n {
                self.candidates.select_nth_unstable_by(sorted - 1, by_rank);
            }
            self.candidates[..sorted].sort_unstable_by(by_rank);
            let mut sum = 0.0;
            for (i, c) in self.candidates[..sorted].iter().enumerate() {
                sum += f64::from(c.p);
                if sum >= wanted {
                    return i + 1;
                }
            }
            if sorted == n {
                return n;
            }
            sorted = (sorted * 4).min(n);
        }
    }

    /// Moves those of the first `kept` candidates that are likely enough to the front, in order.
    fn min_p(&mut self, kept: usize) -> usize {
        let kept = &mut self.candidates[..kept];
        let best = kept.iter().fold(0f32, |best, c| best.max(c.p));
        let least = best * self.options.min_p;
        let mut count = 0;
        for i in 0..kept.len() {
            if kept[i].p >= least {
                kept.swap(count, i);
                count += 1;
            }
        }
        count
    }

    /// Draws one of the first `kept` by probability.
    fn draw(&mut self, kept: usize) -> u32 {
        let kept = &self.candidates[..kept];
        let total: f64 = kept.iter().map(|c| f64::from(c.p)).sum();
        let mut left = self.random.uniform() * total;
        for c in kept {
            left -= f64::from(c.p);
            if left < 0.0 {
                return c.id;
            }
        }
        // Rounding left a rest: the last that can come at all.
        kept.iter().rev().find(|c| c.p > 0.0).map_or(0, |c| c.id)
    }
}

/// The index of the largest; the lowest of equals.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (l, id) in logits.iter().zip(0..) {
        if *l > best.1 {
            best = (id, *l);
        }
    }
    best.0
}

/// The more likely first; the lower id first among equals.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that sorting wants")]
fn by_rank(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.p.total_cmp(&a.p).then(a.id.cmp(&b.id))
}

/// Keeps the `k` first by rank.
fn cut(candidates: &mut Vec<Candidate>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, by_rank);
        candidates.truncate(k);
    }
}

/// Logits to weights `e^((l - max) / t)`; returns their sum.
fn softmax(candidates: &mut [Candidate], temperature: f32) -> f64 {
    let max = candidates.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.p));
    let mut total = 0.0;
    for c in candidates {
        c.p = ((c.p - max) / temperature).exp();
        total += f64::from(c.p);
    }
    total
}

/// PCG32 (XSH-RR), M. E. O'Neill, <https://www.pcg-random.org>: small, and the same on every machine.
struct Pcg32 {
    state: u64,
}

impl Pcg32 {
    const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
    const INCREMENT: u64 = 1_442_695_040_888_963_407;

    fn new(seed: u64) -> Pcg32 {
        let mut random = Pcg32 { state: seed.wrapping_add(Self::INCREMENT) };
        random.next();
        random
    }

    fn next(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(Self::MULTIPLIER).wrapping_add(Self::INCREMENT);
        let xored = (((old >> 18) ^ old) >> 27) as u32;
        xored.rotate_right((old >> 59) as u32)
    }

    /// In [0, 1), 53 bits.
    fn uniform(&mut self) -> f64 {
        let bits = (u64::from(self.next()) << 32 | u64::from(self.next())) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}
