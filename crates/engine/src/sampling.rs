//! How a checkpoint wants its tokens chosen, and which of them end a text.
//!
//! Source: transformers `GenerationConfig`@v5.23; gguf-py/gguf/constants.py@0c1e57098, `Keys.General`.

use checkpoint::{Checkpoint, Metadata};
use model::{KeyVerdict, Verdict};
use serde_json::Value;

use crate::Error;
use crate::sampler::{MirostatOptions, Penalties, SamplerOptions, Xtc};

/// The name of the file that says it in a directory.
pub const FILE: &str = "generation_config.json";

/// A checkpoint's sampling defaults; `None` where it has no value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the largest.
    pub temperature: Option<f32>,
    /// The most likely tokens that are kept; 0: all.
    pub top_k: Option<usize>,
    /// The probability that the kept tokens reach together.
    pub top_p: Option<f32>,
    /// The probability of the kept tokens, relative to the most likely.
    pub min_p: Option<f32>,
    /// The probability that the typical tokens reach together.
    pub typical_p: Option<f32>,
    /// Divides the logits of tokens that the text has, or multiplies them if they are negative.
    pub repeat_penalty: Option<f32>,
    /// The last tokens of the text that are penalised; `usize::MAX`: all, as transformers does.
    pub repeat_last: Option<usize>,
    /// How often the most likely tokens are removed.
    pub xtc_probability: Option<f32>,
    /// The probability of a token from which on it may be removed.
    pub xtc_threshold: Option<f32>,
    /// Mirostat 2 instead of the samplers that remove tokens.
    pub mirostat: Option<MirostatOptions>,
    /// Tokens that must not come.
    pub suppressed: Vec<u32>,
    /// Strings that end a text.
    pub stop_strings: Vec<String>,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
    /// The verdict on each key.
    pub keys: Vec<KeyVerdict>,
}

impl Sampling {
    /// These options, where the checkpoint says nothing else.
    pub fn over(&self, options: SamplerOptions) -> SamplerOptions {
        let mut bias = options.bias;
        bias.extend(self.suppressed.iter().map(|token| (*token, f32::NEG_INFINITY)));
        SamplerOptions {
            bias,
            penalties: Penalties {
                repeat: self.repeat_penalty.unwrap_or(options.penalties.repeat),
                last: self.repeat_last.unwrap_or(options.penalties.last),
                ..options.penalties
            },
            top_k: self.top_k.unwrap_or(options.top_k),
            typical_p: self.typical_p.unwrap_or(options.typical_p),
            top_p: self.top_p.unwrap_or(options.top_p),
            min_p: self.min_p.unwrap_or(options.min_p),
            xtc: Xtc {
                probability: self.xtc_probability.unwrap_or(options.xtc.probability),
                threshold: self.xtc_threshold.unwrap_or(options.xtc.threshold),
            },
            temperature: self.temperature.unwrap_or(options.temperature),
            mirostat: self.mirostat.or(options.mirostat),
            dry: options.dry,
            seed: options.seed,
        }
    }
}

/// Keys of generation_config.json that change no token, and why.
static NEEDLESS: &[(&str, &str)] = &[
    ("_from_model_config", "of the program that wrote it"),
    ("transformers_version", "of the program that wrote it"),
    ("bos_token_id", "the tokenizer says it"),
    ("pad_token_id", "it fills batches"),
    ("decoder_start_token_id", "of an encoder and decoder"),
    ("max_length", "for the program that runs it"),
    ("max_new_tokens", "for the program that runs it"),
    ("max_time", "for the program that runs it"),
    ("use_cache", "for the program that runs it"),
    ("max_cache_len", "for the program that runs it"),
    ("speculation_type", "for a second model that guesses"),
    ("use_mtp", "for a second model that guesses"),
    ("cache_implementation", "for the program that runs it"),
    ("cache_config", "for the program that runs it"),
    ("compile_config", "for the program that runs it"),
    ("disable_compile", "for the program that runs it"),
    ("continuous_batching_config", "for the program that runs it"),
    ("output_attentions", "for the program that runs it"),
    ("output_hidden_states", "for the program that runs it"),
    ("output_scores", "for the program that runs it"),
    ("output_logits", "for the program that runs it"),
    ("return_dict_in_generate", "for the program that runs it"),
    ("low_memory", "for the program that runs it"),
    ("token_healing", "for the program that runs it"),
    ("prefill_chunk_size", "for the program that runs it"),
    ("is_assistant", "for a second model that guesses"),
    ("num_assistant_tokens", "for a second model that guesses"),
    ("num_assistant_tokens_schedule", "for a second model that guesses"),
    ("assistant_confidence_threshold", "for a second model that guesses"),
    ("assistant_early_exit", "for a second model that guesses"),
    ("assistant_lookbehind", "for a second model that guesses"),
    ("assistant_ensemble_weight", "for a second model that guesses"),
    ("target_lookbehind", "for a second model that guesses"),
    ("prompt_lookup_num_tokens", "for a second model that guesses"),
    ("max_matching_ngram_size", "for a second model that guesses"),
];

/// Keys that change tokens, each with the values that change none: no others are followed.
static WITHOUT: &[(&str, &[&str])] = &[
    ("bad_words_ids", &["[]"]),
    ("begin_suppress_tokens", &["[]"]),
    ("constraints", &["[]"]),
    ("diversity_penalty", &["0", "0.0"]),
    ("dola_layers", &[]),
    ("early_stopping", &["false"]),
    ("encoder_no_repeat_ngram_size", &["0"]),
    ("encoder_repetition_penalty", &["1", "1.0"]),
    ("epsilon_cutoff", &["0", "0.0"]),
    ("eta_cutoff", &["0", "0.0"]),
    ("exponential_decay_length_penalty", &[]),
    ("force_words_ids", &["[]"]),
    ("forced_bos_token_id", &[]),
    ("forced_decoder_ids", &["[]"]),
    ("forced_eos_token_id", &[]),
    ("guidance_scale", &["1", "1.0"]),
    ("length_penalty", &["1", "1.0"]),
    ("min_length", &["0"]),
    ("min_new_tokens", &["0"]),
    ("no_repeat_ngram_size", &["0"]),
    ("num_beam_groups", &["1"]),
    ("num_beams", &["1"]),
    ("num_return_sequences", &["1"]),
    ("penalty_alpha", &["0", "0.0"]),
    ("remove_invalid_values", &["false"]),
    ("renormalize_logits", &["false", "true"]),
    ("sequence_bias", &["[]"]),
    ("top_h", &[]),
    ("watermarking_config", &[]),
];

/// Reads how `checkpoint` wants tokens chosen.
///
/// # Errors
/// If generation_config.json cannot be read or is not JSON.
pub fn sampling(checkpoint: &Checkpoint) -> Result<Sampling, Error> {
    match checkpoint.metadata() {
        Metadata::Gguf(gguf) => Ok(of_gguf(gguf)),
        Metadata::Hf(hf) => {
            let member = hf.generation_config().map(checkpoint::Member::read).transpose()?;
            let said = match member {
                Some(bytes) => serde_json::from_slice(&bytes).map_err(|e| Error::Sampling {
                    path: checkpoint.location().to_string(),
                    what: format!("`{FILE}` is not JSON: {e}"),
                })?,
                None => Value::Null,
            };
            let mut sampling = of_json(&said);
            // Older directories say it beside the model, where generation_config.json says nothing.
            let config = hf.config().unwrap_or(&Value::Null);
            for config in [config, &config["text_config"]] {
                sampling.ends.extend(ids(&config["eos_token_id"]).filter(|_| said["eos_token_id"].is_null()));
            }
            Ok(sampling)
        }
        _ => Ok(Sampling::default()),
    }
}

/// A value, or those of a list.
fn listed(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice).iter()
}

/// A token id, or a list of them.
fn ids(value: &Value) -> impl Iterator<Item = u32> {
    listed(value).filter_map(|id| u32::try_from(id.as_u64()?).ok())
}

fn of_json(said: &Value) -> Sampling {
    let number = |key: &str| said[key].as_f64().map(narrow);
    let greedy = said["do_sample"] == false;
    // Of a model that transcribes, it says much more.
    let transcribes = said["no_timestamps_token_id"].is_number() || said["alignment_heads"].is_array();
    let keys = said.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Sampling {
        temperature: if greedy { Some(0.0) } else { number("temperature") },
        top_k: said["top_k"].as_u64().and_then(|k| usize::try_from(k).ok()),
        top_p: number("top_p"),
        min_p: number("min_p"),
        typical_p: number("typical_p"),
        repeat_penalty: number("repetition_penalty"),
        repeat_last: said["repetition_penalty"].is_number().then_some(usize::MAX),
        suppressed: ids(&said["suppress_tokens"]).collect(),
        stop_strings: listed(&said["stop_strings"]).filter_map(|s| Some(s.as_str()?.to_owned())).collect(),
        ends: ids(&said["eos_token_id"]).collect(),
        keys: keys.map(|(key, value)| verdict(key, value, transcribes)).collect(),
        ..Sampling::default()
    }
}

/// Keys that a model which transcribes is run by.
/// Source: transformers `WhisperGenerationMixin`, models/whisper/generation_whisper.py@v5.24.
static SPEECH: &[&str] = &[
    "alignment_heads",
    "begin_suppress_tokens",
    "lang_to_id",
    "max_initial_timestamp_index",
    "no_timestamps_token_id",
    "prev_sot_token_id",
    "task_to_id",
];

/// Keys that such a model may have beside these, and that change no token.
static SPEECH_NEEDLESS: &[(&str, &str)] = &[
    ("is_multilingual", "the tokenizer says it"),
    ("return_timestamps", "for the program that runs it"),
    ("forced_decoder_ids", "the language and the task are the caller's"),
];

fn verdict(key: &str, value: &Value, transcribes: bool) -> KeyVerdict {
    const USED: &[&str] = &[
        "do_sample",
        "eos_token_id",
        "min_p",
        "repetition_penalty",
        "stop_strings",
        "suppress_tokens",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    ];
    let shown: String = value.to_string().chars().take(60).collect();
    let verdict = if USED.contains(&key) || transcribes && SPEECH.contains(&key) {
        Verdict::Used
    } else if let Some((_, why)) = SPEECH_NEEDLESS.iter().find(|(known, _)| transcribes && *known == key) {
        Verdict::WithoutEffect(why)
    } else if let Some((_, why)) = NEEDLESS.iter().find(|(known, _)| *known == key) {
        Verdict::WithoutEffect(why)
    } else if let Some((_, values)) = WITHOUT.iter().find(|(known, _)| *known == key) {
        let wanted = values.first().copied().unwrap_or("null");
        if values.contains(&shown.as_str()) {
            Verdict::Checked
        } else {
            Verdict::NotFollowed { wanted: wanted.to_owned() }
        }
    } else {
        Verdict::Unknown
    };
    KeyVerdict { key: key.to_owned(), value: shown, verdict }
}

fn of_gguf(gguf: &checkpoint::GgufMetadata) -> Sampling {
    const PREFIX: &str = "general.sampling.";
    const USED: &[&str] = &[
        "mirostat_eta",
        "mirostat_tau",
        "min_p",
        "penalty_last_n",
        "penalty_repeat",
        "temp",
        "top_k",
        "top_p",
        "xtc_probability",
        "xtc_threshold",
    ];
    let number = |key: &str| gguf.get(&format!("{PREFIX}{key}")).and_then(|v| v.as_f64()).map(narrow);
    let count = |key: &str| gguf.get(&format!("{PREFIX}{key}")).and_then(|v| v.as_u64());
    let keys = gguf.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
    let verdict = |(key, value): (&str, checkpoint::Value<'_>)| {
        let verdict = match key {
            _ if USED.contains(&key) => Verdict::Used,
            "mirostat" if [0, 2].map(Some).contains(&value.as_u64()) => Verdict::Used,
            "mirostat" => Verdict::NotFollowed { wanted: "0 or 2".to_owned() },
            "sequence" => Verdict::NotFollowed { wanted: "no order of one's own".to_owned() },
            _ => Verdict::Unknown,
        };
        KeyVerdict { key: format!("{PREFIX}{key}"), value: value.to_string(), verdict }
    };
    let usual = MirostatOptions::default();
    Sampling {
        temperature: number("temp"),
        top_k: count("top_k").and_then(|k| usize::try_from(k).ok()),
        top_p: number("top_p"),
        min_p: number("min_p"),
        typical_p: None,
        repeat_penalty: number("penalty_repeat"),
        // Below 0 llama.cpp penalises nothing.
        repeat_last: number("penalty_last_n").map(|n| usize::try_from(n as i64).unwrap_or(0)),
        xtc_probability: number("xtc_probability"),
        xtc_threshold: number("xtc_threshold"),
        mirostat: count("mirostat").filter(|version| *version == 2).map(|_| MirostatOptions {
            entropy: number("mirostat_tau").unwrap_or(usual.entropy),
            rate: number("mirostat_eta").unwrap_or(usual.rate),
        }),
        suppressed: vec![],
        stop_strings: vec![],
        ends: vec![],
        keys: keys.map(verdict).collect(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the sampler computes in f32")]
fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_transformers_has_a_verdict() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/config/fields.json");
        let fields: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let all = fields["generation"].as_object().unwrap();
        assert!(all.len() > 50);
        for key in all.keys() {
            assert_ne!(verdict(key, &serde_json::json!(7), false).verdict, Verdict::Unknown, "{key}");
        }
        assert_eq!(verdict("unheard_of", &serde_json::json!(7), false).verdict, Verdict::Unknown);
    }

    #[test]
    fn what_is_said_comes_before_what_is_usual() {
        let said = of_json(&serde_json::json!({
            "do_sample": true, "temperature": 0.6, "top_k": 20, "eos_token_id": [1, 2], "repetition_penalty": 1.1,
            "suppress_tokens": [7], "stop_strings": ["END"],
        }));
        let options = said.over(SamplerOptions::default());
        assert_eq!((options.temperature, options.top_k, options.top_p), (0.6, 20, 0.95));
        assert_eq!(said.ends, [1, 2]);
        assert_eq!(
            (&options.bias[..], &said.stop_strings[..]),
            (&[(7, f32::NEG_INFINITY)][..], &["END".to_owned()][..])
        );
        assert_eq!((options.penalties.repeat, options.penalties.last), (1.1, usize::MAX));
        let greedy = of_json(&serde_json::json!({"do_sample": false, "temperature": 0.6}));
        assert_eq!(greedy.temperature, Some(0.0));
    }
}
