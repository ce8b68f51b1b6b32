//! How `run` chooses tokens.

use clap::Args as ClapArgs;
use weighbridge::engine::sampler::{
    Dry, MirostatOptions, Penalties, SamplerOptions, Xtc, breakers as breaker_tokens,
};
use weighbridge::engine::sampling::Sampling;
use weighbridge::engine::text::Tokenizer;

use super::number::{finite, real, whole};
use crate::failure::Failure;

/// The sampler's options, with llama.cpp's names.
#[derive(ClapArgs)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplerArgs {
    /// 0 always takes the most likely token [default: the model's, or 0.8]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = real(None))]
    temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the model's, or 40]
    #[arg(long, value_name = "K", value_parser = whole(0usize, None))]
    top_k: Option<usize>,
    /// Keep the most likely tokens that together reach this probability [default: the model's, or 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)))]
    top_p: Option<f32>,
    /// Keep tokens at least this likely, relative to the most likely [default: the model's, or 0.05]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)))]
    min_p: Option<f32>,
    /// Keep the tokens about as likely as expected that together reach this probability [default: the model's, or 1: all]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)))]
    typical: Option<f32>,
    /// How often to drop the likely tokens except the least likely of them (XTC) [default: the model's, or 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)))]
    xtc_probability: Option<f32>,
    /// How likely a token must be for XTC to drop it [default: the model's, or 0.1]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = real(Some(1.0)), hide_short_help = true)]
    xtc_threshold: Option<f32>,
    /// 2: keep the surprise of the text near a target, instead of the options above except the temperature [default: the model's, or 0]
    #[arg(long, value_name = "VERSION", value_parser = mirostat)]
    mirostat: Option<u8>,
    /// The surprise to aim at, in bits [default: the model's, or 5]
    #[arg(long, value_name = "BITS", allow_negative_numbers = true, value_parser = real(None), hide_short_help = true)]
    mirostat_ent: Option<f32>,
    /// How fast Mirostat adapts [default: the model's, or 0.1]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = real(None), hide_short_help = true)]
    mirostat_lr: Option<f32>,
    /// Add BIAS to a token's logit: 15043+1.5; 15043-inf never takes it. May be given many times
    #[arg(long, value_name = "TOKEN_ID(+/-)BIAS", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// The same seed gives the same text [default: from the clock]
    #[arg(long, value_name = "N", value_parser = whole(0u64, None))]
    seed: Option<u64>,
    #[command(flatten)]
    repetition: RepetitionArgs,
}

/// Options against repetition.
#[derive(ClapArgs)]
#[command(next_help_heading = "Repetition")]
struct RepetitionArgs {
    /// Divide the logits of tokens that came before; 1 changes nothing [default: the model's, or 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = real(None))]
    repeat_penalty: Option<f32>,
    /// Subtract X from the logits of tokens that came before [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite, default_value_t = 0.0, hide_default_value = true)]
    presence_penalty: f32,
    /// Subtract X for each time a token came before [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite, default_value_t = 0.0, hide_default_value = true)]
    frequency_penalty: f32,
    /// Penalise the last N tokens; -1: all [default: the model's, or 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(-1i64, None))]
    repeat_last_n: Option<i64>,
    /// Penalise tokens that would continue a repetition (DRY); 0.8 is usual [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = real(None))]
    dry_multiplier: Option<f32>,
    /// How much the penalty grows with each token of the repetition [default: 1.75]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = real(None), hide_short_help = true)]
    dry_base: Option<f32>,
    /// The longest repetition without a penalty, in tokens [default: 2]
    #[arg(long, value_name = "N", value_parser = whole(0usize, None), hide_short_help = true)]
    dry_allowed_length: Option<usize>,
    /// Search the last N tokens for repetitions; -1: all [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(-1i64, None), hide_short_help = true)]
    dry_penalty_last_n: Option<i64>,
    /// Nothing repeats across STRING; `none`: across all [default: \n : " *]
    #[arg(long, value_name = "STRING", value_parser = escaped, hide_short_help = true)]
    dry_sequence_breaker: Vec<String>,
}

impl SamplerArgs {
    /// The sampler's options, as far as they are given; else the model's.
    ///
    /// # Errors
    /// If DRY needs a tokenizer and there is none.
    pub(crate) fn options(
        &self,
        model: &Sampling,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<SamplerOptions, Failure> {
        let clock = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |d| d.as_secs() ^ (u64::from(d.subsec_nanos()) << 32))
        };
        let own = model.over(SamplerOptions::default());
        let usual = own.mirostat.unwrap_or_default();
        let mirostat = MirostatOptions {
            entropy: self.mirostat_ent.unwrap_or(usual.entropy),
            rate: self.mirostat_lr.unwrap_or(usual.rate),
        };
        let mut bias = own.bias;
        bias.extend(&self.logit_bias);
        Ok(SamplerOptions {
            bias,
            penalties: self.repetition.penalties(own.penalties),
            dry: self.repetition.dry(own.dry, tokenizer)?,
            top_k: self.top_k.unwrap_or(own.top_k),
            typical_p: self.typical.unwrap_or(own.typical_p),
            top_p: self.top_p.unwrap_or(own.top_p),
            min_p: self.min_p.unwrap_or(own.min_p),
            xtc: Xtc {
                probability: self.xtc_probability.unwrap_or(own.xtc.probability),
                threshold: self.xtc_threshold.unwrap_or(own.xtc.threshold),
            },
            temperature: self.temperature.unwrap_or(own.temperature),
            mirostat: self
                .mirostat
                .map_or(own.mirostat.is_some(), |version| version == 2)
                .then_some(mirostat),
            seed: self.seed.unwrap_or_else(clock),
        })
    }
}

impl RepetitionArgs {
    fn penalties(&self, own: Penalties) -> Penalties {
        Penalties {
            repeat: self.repeat_penalty.unwrap_or(own.repeat),
            presence: self.presence_penalty,
            frequency: self.frequency_penalty,
            last: self.repeat_last_n.map_or(own.last, last),
        }
    }

    fn dry(&self, own: Dry, tokenizer: Option<&Tokenizer>) -> Result<Dry, Failure> {
        let multiplier = self.dry_multiplier.unwrap_or(own.multiplier);
        let usual = ["\n", ":", "\"", "*"].map(str::to_owned);
        let given = &self.dry_sequence_breaker[..];
        let strings = if given.is_empty() { &usual } else { given };
        let mut breakers = own.breakers;
        // The vocabulary is searched for each: only if something uses them.
        for string in strings.iter().filter(|string| multiplier > 0.0 && *string != "none") {
            let Some(tokenizer) = tokenizer else {
                return Err(Failure::Usage(
                    "the sequence breakers of DRY need a tokenizer\nhint: `--dry-sequence-breaker none` needs none"
                        .to_owned(),
                ));
            };
            let tokens = breaker_tokens(tokenizer, string);
            breakers.extend(tokens.map_err(|e| Failure::Usage(e.diagnostics().to_string()))?);
        }
        Ok(Dry {
            multiplier,
            base: self.dry_base.unwrap_or(own.base),
            allowed_length: self.dry_allowed_length.unwrap_or(own.allowed_length),
            last: self.dry_penalty_last_n.map_or(own.last, last),
            breakers,
        })
    }
}

/// A number of last tokens; -1: all.
fn last(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn mirostat(text: &str) -> Result<u8, String> {
    match text {
        "0" => Ok(0),
        "2" => Ok(2),
        "1" => Err("wanted 0 or 2: version 1 is not supported".to_owned()),
        _ => Err("wanted 0 or 2".to_owned()),
    }
}

/// A token and what is added to its logit.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let parts = text.find(['+', '-']).map(|at| text.split_at(at));
    let parsed = parts.and_then(|(token, bias)| {
        let bias = bias.parse::<f32>().ok().filter(|bias| *bias < f32::INFINITY)?;
        Some((token.parse().ok()?, bias))
    });
    parsed.ok_or_else(|| {
        "wanted a token id and what to add to its logit, such as 15043+1.5 or 15043-inf".to_owned()
    })
}

/// A text in which `\n` is a line break, as in llama.cpp.
pub(super) fn escaped(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match (c, c == '\\') {
            (c, false) => c,
            (_, true) => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('\\') => '\\',
                _ => return Err("wanted `\\n`, `\\r`, `\\t` or `\\\\` where there is a backslash".to_owned()),
            },
        });
    }
    if out.is_empty() { Err("wanted a text".to_owned()) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_is_a_token_and_a_number_with_its_sign() {
        assert_eq!(bias("15043+1.5"), Ok((15043, 1.5)));
        assert_eq!(bias("7-2"), Ok((7, -2.0)));
        assert_eq!(bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for wrong in ["7", "+1", "7+", "x-1", "7+inf", "7+nan", "7--1", "-1+2"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_backslash_begins_an_escape() {
        assert_eq!(escaped("a\\n\\t\\\\b").as_deref(), Ok("a\n\t\\b"));
        assert!(escaped("\\d").is_err() && escaped("a\\").is_err() && escaped("").is_err());
    }
}
