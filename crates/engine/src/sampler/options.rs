//! How a token is chosen, and the ranges of the options.

use super::{Error, OptionProblem};

/// How a token is chosen. [The module](super) has the order of the stages.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Added to the logits of tokens; −∞ keeps a token from coming. Biases of one token add up.
    pub bias: Vec<(u32, f32)>,
    /// Makes tokens of the text so far less likely.
    pub penalties: Penalties,
    /// Makes tokens less likely that would continue a repetition.
    pub dry: Dry,
    /// Keeps that many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the tokens whose surprise is nearest to the expected one, until they reach this probability together, in
    /// (0, 1]; 1 keeps all.
    ///
    /// Source: Meister et al., "Locally Typical Sampling", 2022.
    pub typical_p: f32,
    /// Keeps the fewest of the most likely tokens whose probabilities together reach this, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this likely relative to the most likely, in [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// Sometimes removes the most likely tokens.
    pub xtc: Xtc,
    /// Divides the logits; 0 takes the largest, whatever the stages from top-k to XTC would remove.
    pub temperature: f32,
    /// Keeps the surprise of the text near a target, instead of the stages from top-k to XTC.
    pub mirostat: Option<MirostatOptions>,
    /// The same seed gives the same draws, on every machine.
    pub seed: u64,
}

/// Penalties for tokens that the text so far has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Divides the logit of such a token if it is above 0, and multiplies it otherwise; 1 does nothing.
    ///
    /// Source: Keskar et al., "CTRL", 2019; transformers `RepetitionPenaltyLogitsProcessor`.
    pub repeat: f32,
    /// Subtracted from the logit once; 0 does nothing.
    pub presence: f32,
    /// Subtracted from the logit for each time the token is there; 0 does nothing.
    pub frequency: f32,
    /// The number of last tokens that count; `usize::MAX`: all.
    pub last: usize,
}

/// DRY: a token is penalised if it would make the end of the text repeat an earlier part of it once more.
///
/// The penalty is `multiplier * base ^ (length - allowed_length)`, where `length` is the number of tokens before it that repeat.
///
/// Source: text-generation-webui#5677; llama.cpp `llama_sampler_init_dry`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// 0 switches it off.
    pub multiplier: f32,
    /// 1 or more.
    pub base: f32,
    /// The longest repetition without a penalty, in tokens.
    pub allowed_length: usize,
    /// The number of last tokens that are searched; `usize::MAX`: all.
    pub last: usize,
    /// Sequences of tokens across which nothing repeats; see [`breakers`](super::breakers).
    pub breakers: Vec<Vec<u32>>,
}

/// XTC, "exclude top choices": of the tokens at least as likely as a threshold, keeps the least likely.
///
/// Source: text-generation-webui#6335; llama.cpp `llama_sampler_init_xtc`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// How often it happens, in [0, 1]; 0: never.
    pub probability: f32,
    /// The probability of a token from which on it may be removed, in [0, 1]; above 0.5 nothing is removed.
    pub threshold: f32,
}

/// Mirostat 2: removes tokens that are more surprising than a limit, which follows the surprise of the tokens drawn.
///
/// Source: Basu et al., "Mirostat", 2021; llama.cpp `llama_sampler_init_mirostat_v2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MirostatOptions {
    /// The surprise to aim at, in bits (tau). The limit begins at its double.
    pub entropy: f32,
    /// How fast the limit follows (eta).
    pub rate: f32,
}

/// llama.cpp's, common/common.h.
impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions {
            bias: vec![],
            penalties: Penalties::default(),
            dry: Dry::default(),
            top_k: 40,
            typical_p: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            xtc: Xtc::default(),
            temperature: 0.8,
            mirostat: None,
            seed: 0,
        }
    }
}

impl Default for Penalties {
    fn default() -> Self {
        Penalties { repeat: 1.0, presence: 0.0, frequency: 0.0, last: 64 }
    }
}

impl Default for Dry {
    fn default() -> Self {
        Dry { multiplier: 0.0, base: 1.75, allowed_length: 2, last: 64, breakers: vec![] }
    }
}

impl Default for Xtc {
    fn default() -> Self {
        Xtc { probability: 0.0, threshold: 0.1 }
    }
}

impl Default for MirostatOptions {
    fn default() -> Self {
        MirostatOptions { entropy: 5.0, rate: 0.1 }
    }
}

impl Penalties {
    pub(super) fn are_on(&self) -> bool {
        self.last > 0 && (self.repeat, self.presence, self.frequency) != (1.0, 0.0, 0.0)
    }
}

impl Dry {
    pub(super) fn is_on(&self) -> bool {
        self.last > 0 && self.multiplier > 0.0
    }
}

impl Xtc {
    pub(super) fn is_on(self) -> bool {
        self.probability > 0.0
    }
}

impl SamplerOptions {
    /// Whether the largest logit always wins, once biases and penalties are applied.
    pub(super) fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || (self.mirostat.is_none() && self.top_k == 1)
    }

    /// Checks all options against their ranges.
    pub(super) fn check(&self, vocab: usize) -> Result<(), Error> {
        let mut problems = vec![];
        let mut check = |option, wanted: &str, found: f32, ok: bool| {
            if !ok {
                problems.push(OptionProblem { option, wanted: wanted.to_owned(), found: found.to_string() });
            }
        };
        let (finite, part) = (|x: f32| x.is_finite(), |x: f32| (0.0..=1.0).contains(&x));
        let Penalties { repeat, presence, frequency, .. } = self.penalties;
        let invertible = repeat > 0.0 && finite(repeat) && finite(1.0 / repeat);
        check("repetition penalty", "above 0", repeat, invertible);
        check("presence penalty", "a finite number", presence, finite(presence));
        check("frequency penalty", "a finite number", frequency, finite(frequency));
        let Dry { multiplier, base, .. } = self.dry;
        check("DRY multiplier", "0 or more", multiplier, finite(multiplier) && multiplier >= 0.0);
        check("DRY base", "1 or more", base, finite(base) && base >= 1.0);
        check(
            "typical-p",
            "above 0 and at most 1",
            self.typical_p,
            part(self.typical_p) && self.typical_p > 0.0,
        );
        check("top-p", "above 0 and at most 1", self.top_p, part(self.top_p) && self.top_p > 0.0);
        check("min-p", "from 0 to 1", self.min_p, part(self.min_p));
        check("XTC probability", "from 0 to 1", self.xtc.probability, part(self.xtc.probability));
        check("XTC threshold", "from 0 to 1", self.xtc.threshold, part(self.xtc.threshold));
        let temperature = self.temperature;
        check("temperature", "0 or more", temperature, finite(temperature) && temperature >= 0.0);
        if let Some(MirostatOptions { entropy, rate }) = self.mirostat {
            check("Mirostat entropy", "0 or more", entropy, finite(entropy) && entropy >= 0.0);
            check("Mirostat rate", "0 or more", rate, finite(rate) && rate >= 0.0);
        }
        for (_, bias) in &self.bias {
            check("logit bias", "a finite number or −∞", *bias, *bias < f32::INFINITY);
        }
        let outside = self.bias.iter().filter(|(token, _)| *token as usize >= vocab);
        problems.extend(outside.map(|(token, _)| OptionProblem {
            option: "token of a logit bias",
            wanted: format!("below {vocab}"),
            found: token.to_string(),
        }));
        if problems.is_empty() { Ok(()) } else { Err(Error::Options { problems }) }
    }
}
