//! From logits to a token.
//!
//! Each sampler changes logits or removes tokens, in the order of llama.cpp (common/common.h, `common_params_sampling`, of
//! llama-cpp-python 0.3.36):
//!
//! | stage | option | what it does |
//! |---|---|---|
//! | constraint | [`Sampler::constrain`] | removes tokens that a grammar does not allow |
//! | bias | [`bias`](SamplerOptions::bias) | adds to the logits of some tokens |
//! | penalties | [`penalties`](SamplerOptions::penalties) | makes tokens of the text so far less likely |
//! | DRY | [`dry`](SamplerOptions::dry) | makes a token less likely that would continue a repetition |
//! | top-k | [`top_k`](SamplerOptions::top_k) | keeps the most likely tokens |
//! | typical-p | [`typical_p`](SamplerOptions::typical_p) | keeps tokens about as likely as expected |
//! | top-p | [`top_p`](SamplerOptions::top_p) | keeps the most likely tokens that reach a probability together |
//! | min-p | [`min_p`](SamplerOptions::min_p) | keeps tokens that are likely enough, compared with the most likely |
//! | XTC | [`xtc`](SamplerOptions::xtc) | sometimes removes all likely tokens but the least likely of them |
//! | temperature | [`temperature`](SamplerOptions::temperature) | divides the logits |
//! | draw | [`seed`](SamplerOptions::seed) | takes one by its probability |
//!
//! [`mirostat`](SamplerOptions::mirostat) takes the place of the stages from top-k to XTC, and comes after the temperature.
//! llama.cpp leaves out penalties and DRY then; here they stay, because they remove no token. At temperature 0 the stages from
//! top-k on have no say, as in transformers with `do_sample` off; in llama.cpp, typical-p and XTC may still remove the most likely token.

use std::fmt;

use candidates::Candidates;
use mirostat::Mirostat;
use random::Pcg32;

mod candidates;
mod constraint;
mod dry;
mod error;
#[cfg(test)]
mod golden;
mod mirostat;
mod options;
mod penalties;
pub(crate) mod random;
mod truncate;

pub use constraint::Constraint;
pub use dry::breakers;
pub use error::{Error, OptionProblem};
pub use options::{Dry, MirostatOptions, Penalties, SamplerOptions, Xtc};

/// Chooses tokens. Allocates once, in [`Sampler::new`], and where a text begins.
pub struct Sampler {
    options: SamplerOptions,
    random: Pcg32,
    vocab: usize,
    candidates: Candidates,
    /// The text so far. Empty unless a sampler looks at it.
    history: Vec<u32>,
    counts: penalties::Counts,
    dry: dry::State,
    mirostat: Option<Mirostat>,
    constraint: Option<Box<dyn Constraint>>,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Sampler {
    /// A sampler for logits of `vocab` tokens.
    ///
    /// # Errors
    /// If options are outside their ranges: the error names them all.
    pub fn new(options: &SamplerOptions, vocab: usize) -> Result<Sampler, Error> {
        options.check(vocab)?;
        Ok(Sampler {
            random: Pcg32::new(options.seed),
            vocab,
            candidates: Candidates::with_capacity(vocab),
            history: vec![],
            counts: penalties::Counts::new(&options.penalties, vocab),
            dry: dry::State::new(&options.dry, vocab),
            mirostat: options.mirostat.map(Mirostat::new),
            constraint: None,
            options: options.clone(),
        })
    }

    /// Lets only tokens come that `constraint` allows, from the next sampled token on.
    pub fn constrain(&mut self, constraint: Box<dyn Constraint>) {
        self.constraint = Some(constraint);
    }

    /// Begins another text, of which the tokens of `text` are known already. Forgets the text before.
    pub fn begin(&mut self, text: &[u32]) {
        self.history.clear();
        self.counts.clear();
        self.mirostat = self.options.mirostat.map(Mirostat::new);
        if let Some(constraint) = &mut self.constraint {
            constraint.begin();
        }
        self.read(text);
    }

    /// Adds the token that was sampled to the text so far.
    pub fn accept(&mut self, token: u32) {
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token);
        }
        self.read(&[token]);
    }

    /// Adds tokens that were not sampled, such as those of a prompt, to the text so far.
    ///
    /// No logit is changed for tokens outside the vocabulary, but they have their places in the text.
    pub fn read(&mut self, tokens: &[u32]) {
        if !self.looks_back() {
            return;
        }
        for token in tokens {
            self.history.push(*token);
            self.counts.add(&self.options.penalties, &self.history);
        }
    }

    /// Makes room for `tokens` more tokens, so that accepting them allocates nothing.
    pub fn reserve(&mut self, tokens: usize) {
        if self.looks_back() {
            self.history.reserve(tokens);
            self.dry.reserve(&self.options.dry, self.history.len() + tokens);
        }
    }

    /// Whether a sampler depends on the text so far.
    fn looks_back(&self) -> bool {
        self.options.penalties.are_on() || self.options.dry.is_on()
    }

    /// Chooses a token by its logit, `[vocab]`. −∞ is a token that must not come.
    ///
    /// The token does not belong to the text before [`Sampler::accept`] adds it.
    ///
    /// # Errors
    /// If logits are NaN or +∞, if there are not `vocab` of them, if all are −∞, or if the constraint allows no token.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, Error> {
        if logits.len() != self.vocab {
            return Err(Error::Vocabulary { wanted: self.vocab, found: logits.len() });
        }
        let broken = logits.iter().filter(|l| l.is_nan() || **l == f32::INFINITY).count();
        if broken > 0 {
            return Err(Error::NotNumbers { count: broken, vocab: self.vocab });
        }
        let changes = self.looks_back() || !self.options.bias.is_empty() || self.constraint.is_some();
        if self.options.is_greedy() && !changes {
            return argmax(logits.iter().copied()).ok_or(Error::NoToken);
        }
        self.candidates.fill(logits);
        if let Some(constraint) = &mut self.constraint {
            let allowed = constraint.allowed().map_err(|what| Error::Constraint { what })?;
            self.candidates.allow(allowed);
        }
        self.change();
        if self.options.is_greedy() {
            return argmax(self.candidates.logits()).ok_or(Error::NoToken);
        }
        self.remove();
        let drawn = match &mut self.mirostat {
            Some(mirostat) => mirostat.draw(&mut self.candidates, &mut self.random),
            None => self.candidates.draw(&mut self.random),
        };
        drawn.ok_or(Error::NoToken)
    }

    /// The stages that change the logits of all tokens.
    fn change(&mut self) {
        let options = &self.options;
        for (token, bias) in &options.bias {
            self.candidates.add(*token, *bias);
        }
        self.counts.apply(&options.penalties, &mut self.candidates);
        self.dry.apply(&options.dry, &self.history, &mut self.candidates);
    }

    /// The stages that remove tokens, and the temperature.
    fn remove(&mut self) {
        let (options, candidates) = (&self.options, &mut self.candidates);
        if self.mirostat.is_none() {
            candidates.top_k(options.top_k);
            candidates.typical_p(options.typical_p);
            candidates.top_p(options.top_p);
            candidates.min_p(options.min_p);
            if options.xtc.is_on() && self.random.uniform() < f64::from(options.xtc.probability) {
                candidates.exclude_top(options.xtc.threshold);
            }
        }
        candidates.heat(options.temperature);
    }
}

/// The index of the largest, the lowest of equals; none if all are −∞.
fn argmax(logits: impl Iterator<Item = f32>) -> Option<u32> {
    let mut best = (None, f32::NEG_INFINITY);
    for (l, id) in logits.zip(0..) {
        if l > best.1 {
            best = (Some(id), l);
        }
    }
    best.0
}
