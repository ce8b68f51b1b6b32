//! How a request wants its tokens chosen: OpenAI's fields, and llama.cpp's for what OpenAI has no field for.

use weighbridge::engine::sampler::{Dry, MirostatOptions, Penalties, SamplerOptions, Xtc, breakers};
use weighbridge::engine::sampling::Sampling;
use weighbridge::engine::text::Tokenizer;

use crate::fields::{Fields, narrow};

/// Sequence breakers of DRY at most, and bytes of each: the vocabulary is searched for every one.
const BREAKERS: (usize, usize) = (16, 64);

/// The size of a bias and of a penalty at most: more would leave no number that is one.
const BIAS: f32 = 1e4;
/// The least temperature that is not 0: less would too.
const COLD: f32 = 1e-4;

/// Reads the sampler's options from `fields`; what they leave open is as the model wants it.
///
/// `random` is the seed of a request without one.
pub(crate) fn options(
    fields: &mut Fields,
    model: &Sampling,
    tokenizer: &Tokenizer,
    vocab: usize,
    random: u64,
) -> SamplerOptions {
    const PENALTY: &str = "a number from -10000 to 10000";
    const PART: &str = "a number from 0 to 1";
    let part = |x: f32| (0.0..=1.0).contains(&x);
    // 0 leaves the most likely token alone, as the smallest number above it does.
    let above = |x: f32| x.max(f32::MIN_POSITIVE);
    let own = model.over(SamplerOptions::default());
    let usual = own.mirostat.unwrap_or_default();
    let mirostat = MirostatOptions {
        entropy: fields.number("mirostat_tau", "a number, 0 or more", |x| x >= 0.0).unwrap_or(usual.entropy),
        rate: fields.number("mirostat_eta", "a number, 0 or more", |x| x >= 0.0).unwrap_or(usual.rate),
    };
    let version = fields.whole("mirostat", 0, 2);
    if version == Some(1) {
        fields.problem("mirostat", "wanted 0 or 2: version 1 is not supported");
    }
    SamplerOptions {
        bias: [own.bias, bias(fields, vocab)].concat(),
        penalties: Penalties {
            repeat: fields
                .number("repeat_penalty", "a number from 0.01 to 100", |x| (0.01..=100.0).contains(&x))
                .unwrap_or(own.penalties.repeat),
            presence: fields.number("presence_penalty", PENALTY, |x| x.abs() <= BIAS).unwrap_or(0.0),
            frequency: fields.number("frequency_penalty", PENALTY, |x| x.abs() <= BIAS).unwrap_or(0.0),
            last: last(fields, "repeat_last_n").unwrap_or(own.penalties.last),
        },
        dry: dry(fields, own.dry, tokenizer),
        top_k: fields.whole("top_k", -1, i64::MAX).map_or(own.top_k, |k| usize::try_from(k).unwrap_or(0)),
        typical_p: fields.number("typical_p", PART, part).map_or(own.typical_p, above),
        top_p: fields.number("top_p", PART, part).map_or(own.top_p, above),
        min_p: fields.number("min_p", PART, part).unwrap_or(own.min_p),
        xtc: Xtc {
            probability: fields.number("xtc_probability", PART, part).unwrap_or(own.xtc.probability),
            threshold: fields.number("xtc_threshold", PART, part).unwrap_or(own.xtc.threshold),
        },
        temperature: fields
            .number("temperature", "a number, 0 or more", |x| x >= 0.0)
            .map_or(own.temperature, |x| if x > 0.0 { x.max(COLD) } else { x }),
        mirostat: version.map_or(own.mirostat.is_some(), |version| version == 2).then_some(mirostat),
        // Any whole number is a seed: those below 0 by their bits.
        seed: fields.whole("seed", i64::MIN, i64::MAX).map_or(random, i64::cast_unsigned),
    }
}

/// A number of last tokens; -1: all.
fn last(fields: &mut Fields, name: &'static str) -> Option<usize> {
    fields.whole(name, -1, i64::MAX).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// What is added to the logits of which tokens: `{"15043": 1.5}`.
fn bias(fields: &mut Fields, vocab: usize) -> Vec<(u32, f32)> {
    let wanted =
        format!("wanted token ids below {vocab} with numbers from -{BIAS} to {BIAS}, as in {{\"15\": -100}}");
    let Some(value) = fields.value("logit_bias") else { return vec![] };
    let pair = |(token, bias): (&String, &serde_json::Value)| {
        // One way to write a number, lest a token come twice.
        let id = token.parse::<u32>().ok().filter(|id| (*id as usize) < vocab && id.to_string() == *token)?;
        Some((id, narrow(bias).filter(|bias| bias.abs() <= BIAS)?))
    };
    let pairs: Option<Vec<(u32, f32)>> = value.as_object().and_then(|map| map.iter().map(pair).collect());
    if pairs.is_none() {
        fields.problem("logit_bias", &wanted);
    }
    pairs.unwrap_or_default()
}

fn dry(fields: &mut Fields, own: Dry, tokenizer: &Tokenizer) -> Dry {
    let multiplier =
        fields.number("dry_multiplier", "a number, 0 or more", |x| x >= 0.0).unwrap_or(own.multiplier);
    let given = fields.texts("dry_sequence_breakers", BREAKERS.0, BREAKERS.1);
    let strings = given.unwrap_or_else(|| ["\n", ":", "\"", "*"].map(str::to_owned).to_vec());
    let mut sequences = own.breakers;
    // The vocabulary is searched for each: only if something uses them.
    for string in strings.iter().filter(|_| multiplier > 0.0) {
        match breakers(tokenizer, string) {
            Ok(tokens) => sequences.extend(tokens),
            Err(error) => fields.problem("dry_sequence_breakers", &error.to_string()),
        }
    }
    Dry {
        multiplier,
        base: fields.number("dry_base", "a number, 1 or more", |x| x >= 1.0).unwrap_or(own.base),
        allowed_length: fields
            .whole("dry_allowed_length", 0, i64::MAX)
            .map_or(own.allowed_length, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        last: last(fields, "dry_penalty_last_n").unwrap_or(own.last),
        breakers: sequences,
    }
}
