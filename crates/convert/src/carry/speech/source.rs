//! What a form of Whisper says beside its weights.
//!
//! Source: `generation_config.json` of openai/whisper-base; whisper/tokenizer.py (`get_encoding`, `non_speech_tokens`) of openai-whisper
//! 20250625; python/ctranslate2/converters/transformers.py (`WhisperLoader`) of CTranslate2 4.8.5.

use checkpoint::{Ctranslate2Metadata, HfMetadata, Metadata};
use engine::speech::Markers;
use engine::text::{LANGUAGES, Tokenizer, ctranslate2_tokens, speech_tokens, speech_vocabulary};
use model::Model;
use serde_json::{Value, json};

use super::{GENERATION, Speech, TOKENIZER};
use crate::Error;
use crate::carry::to_gguf::vocabulary_of_hf;
use crate::carry::{Left, is_said, why_left};

/// Keys of CTranslate2 that [`Speech`] holds, and its name of the specification, which every form says in its own way.
const OF_CTRANSLATE2: &[&str] =
    &["spec", "alignment_heads", "lang_ids", "suppress_ids", "suppress_ids_begin"];

/// Keys of generation_config.json that [`Speech`] holds, or that the vocabulary and the sizes say.
const OF_HF: &[&str] = &[
    "alignment_heads",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "is_multilingual",
    "lang_to_id",
    "max_length",
    "no_timestamps_token_id",
    "pad_token_id",
    "prev_sot_token_id",
    "suppress_tokens",
    "task_to_id",
];

/// Keys of generation_config.json that change nothing with these values.
static USUAL: &[(&str, Value)] =
    &[("return_timestamps", Value::Bool(false)), ("_from_model_config", Value::Bool(true))];

impl Speech {
    /// Reads the settings of the model of a checkpoint.
    pub(super) fn of(metadata: &Metadata, model: &Model) -> Result<Speech, Error> {
        let c = model.config();
        let mut speech = match metadata {
            Metadata::Hf(hf) => of_hf(hf, metadata, model)?,
            Metadata::Ctranslate2(ct2) => of_ctranslate2(ct2, metadata, model)?,
            Metadata::Openai(openai) => Speech { filters: openai.filters().cloned(), ..Speech::default() },
            _ => Speech::default(),
        };
        if speech.vocabulary.is_empty() {
            speech.vocabulary = usual_tokens(*c.vocab);
        }
        if !speech.has(TOKENIZER) {
            speech.tokenizer = speech_vocabulary(metadata)?;
        }
        if let (Metadata::Openai(_), Some(vocabulary)) = (metadata, &speech.tokenizer) {
            speech.vocabulary.clone_from(&vocabulary.tokens);
            // The program that reads this form makes the lists of its tokens.
            let tokenizer = Tokenizer::from_vocabulary(&vocabulary.borrow());
            if let Some((tokenizer, markers)) =
                tokenizer.ok().and_then(|t| Some((Markers::of(&t).ok()?, t))).map(|(m, t)| (t, m))
            {
                speech.suppressed = Some(json!(markers.suppressed(&tokenizer)));
                speech.suppressed_first = Some(json!(markers.suppressed_first(&tokenizer)));
            }
        }
        if let (Metadata::Openai(_), None) = (metadata, &speech.suppressed) {
            let why = "OpenAI's program makes the list from its tokenizer, which the file does not hold";
            speech.left.push(Left::new("dims", "suppress_tokens", why));
        }
        if speech.alignment_heads.is_none() {
            // Those of the later half of the layers, where a program does not know better.
            let later = *c.layers / 2..*c.layers;
            let heads: Vec<[u64; 2]> =
                later.flat_map(|layer| (0..*c.heads).map(move |head| [layer, head])).collect();
            speech.alignment_heads = Some(json!(heads));
        }
        if speech.languages.is_empty() {
            let codes = LANGUAGES.iter().map(|(code, _)| format!("<|{code}|>"));
            speech.languages = codes.filter_map(|token| speech.id(&token)).collect();
            speech.languages.sort_unstable();
        }
        Ok(speech)
    }
}

/// The settings of a directory of transformers.
fn of_hf(hf: &HfMetadata, metadata: &Metadata, model: &Model) -> Result<Speech, Error> {
    let mut speech = Speech::default();
    let generation = match hf.generation_config() {
        Some(member) => serde_json::from_slice(&member.read()?)
            .map_err(|e| Error::Convert { what: format!("`{GENERATION}` is not JSON: {e}").into() })?,
        None => Value::Null,
    };
    // Older directories have the lists in config.json.
    let config = hf.config().cloned().unwrap_or_default();
    let said = |key: &str| [&generation[key], &config[key]].into_iter().find(|v| !v.is_null()).cloned();
    speech.alignment_heads = said("alignment_heads");
    speech.suppressed = said("suppress_tokens");
    speech.suppressed_first = said("begin_suppress_tokens");
    let languages = generation["lang_to_id"].as_object().into_iter().flatten();
    speech.languages = languages.filter_map(|(_, id)| id.as_u64()).collect();
    speech.languages.sort_unstable();
    let mut lost = vec![];
    if let Some((vocabulary, _)) = vocabulary_of_hf(hf, &mut lost)? {
        speech.vocabulary = complete(vocabulary.tokens, *model.config().vocab)?;
    }
    speech.members = hf.files()?.members;
    let otherwise = "no file of this form has a key for it that is known here";
    for (key, value) in generation.as_object().into_iter().flatten() {
        let usual = USUAL.iter().any(|(name, usual)| name == key && usual == value);
        if usual || value.is_null() || OF_HF.contains(&key.as_str()) {
            continue;
        }
        let why = match key.as_str() {
            "max_initial_timestamp_index" if value == 50 => continue,
            "transformers_version" => "of the program that wrote it",
            _ => otherwise,
        };
        speech.left.push(Left::new(GENERATION, key, why));
    }
    for key in model.verdicts(metadata) {
        let first = key.key.split('.').next().unwrap_or_default();
        if !is_said(&key) && !OF_HF.contains(&first) && first != "architectures" {
            speech.left.push(Left::new("config.json", &key.key, why_left(&key, otherwise)));
        }
    }
    Ok(speech)
}

/// The settings of a directory of CTranslate2.
fn of_ctranslate2(ct2: &Ctranslate2Metadata, metadata: &Metadata, model: &Model) -> Result<Speech, Error> {
    let config =
        |key: &str| ct2.config().and_then(|config| config.get(key)).filter(|v| !v.is_null()).cloned();
    let languages = match config("lang_ids") {
        Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_u64).collect(),
        _ => vec![],
    };
    let mut speech = Speech {
        alignment_heads: config("alignment_heads"),
        languages,
        suppressed: config("suppress_ids"),
        suppressed_first: config("suppress_ids_begin"),
        members: ct2.files()?,
        ..Speech::default()
    };
    if let Some((name, tokens)) = ctranslate2_tokens(ct2)? {
        let (wanted, found) = (*model.config().vocab, tokens.len());
        if found as u64 != wanted {
            let what =
                format!("`{name}` has {found} tokens, wanted {wanted}, as the token embedding has rows");
            return Err(Error::Convert { what: what.into() });
        }
        speech.vocabulary = tokens;
    }
    for key in model.verdicts(metadata) {
        let first = key.key.split('.').next().unwrap_or_default();
        if is_said(&key) || OF_CTRANSLATE2.contains(&first) {
            continue;
        }
        let is_beside = ct2.config().is_some_and(|config| config.get(first).is_some());
        let file = if is_beside { "config.json" } else { "model.bin" };
        let otherwise = "no file of this form has a key for it that is known here";
        speech.left.push(Left::new(file, &key.key, why_left(&key, otherwise)));
    }
    Ok(speech)
}

/// The tokens with a meaning of a vocabulary of a released size, at their ids. Other tokens are empty.
fn usual_tokens(size: u64) -> Vec<String> {
    let Some(special) = speech_tokens(size) else { return vec![] };
    let words = usize::try_from(size).unwrap_or(0).saturating_sub(special.len());
    let mut tokens = vec![String::new(); words];
    tokens.extend(special);
    tokens
}

/// `tokens`, and the times that follow them up to `size`: tokenizers of transformers may do without those.
fn complete(mut tokens: Vec<String>, size: u64) -> Result<Vec<String>, Error> {
    let found = tokens.len() as u64;
    if found > size {
        let what = format!("the tokenizer has {found} tokens, and the model's embedding {size} rows");
        return Err(Error::Convert { what: what.into() });
    }
    tokens.extend((0..size - found).map(|step| format!("<|{}.{:02}|>", step / 50, step % 50 * 2)));
    Ok(tokens)
}
