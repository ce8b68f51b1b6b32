//! What a checkpoint says about transcribing with it.

use ::model::Architecture;
use checkpoint::{Checkpoint, Metadata};
use serde_json::{Value, json};

use crate::sampling::FILE;
use crate::text::Tokenizer;
use crate::{Error, KvKind};

use super::{Markers, SpeechError, Transcriber};

impl Transcriber {
    /// A transcriber for the model of `checkpoint`, as its files say. What they do not say is as in the reference.
    ///
    /// # Errors
    /// If the tokenizer is none of a model that transcribes, or the settings cannot be read or do not fit it.
    pub fn of(
        checkpoint: &Checkpoint,
        arch: &Architecture,
        tokenizer: &Tokenizer,
        kind: KvKind,
    ) -> Result<Transcriber, Error> {
        let said = said(checkpoint)?;
        let markers = Markers::of(tokenizer)?;
        check(&said, &markers, tokenizer)?;
        check_front_end(checkpoint, arch)?;
        let frames = arch.audio_encoder().map_or(0, |encoder| encoder.context) as usize;
        let times =
            tokenizer.vocab_size().max(arch.vocab() as usize).saturating_sub(markers.first_time as usize);
        if times < frames {
            return Err(SpeechError::Times { frames: 2 * frames, times }.into());
        }
        let suppressed = tokens(&said, "suppress_tokens", arch)?;
        let suppressed = suppressed.unwrap_or_else(|| markers.suppressed(tokenizer));
        let first = tokens(&said, "begin_suppress_tokens", arch)?;
        let first = first.unwrap_or_else(|| markers.suppressed_first(tokenizer));
        let transcriber = Transcriber::new(markers, suppressed, first, heads(&said, arch)?, kind);
        Ok(match said["max_initial_timestamp_index"].as_u64() {
            Some(steps) => transcriber.with_latest_first(u32::try_from(steps).ok()),
            None => transcriber,
        })
    }
}

/// The settings, by the names that generation_config.json has for them.
fn said(checkpoint: &Checkpoint) -> Result<Value, Error> {
    let hf = match checkpoint.metadata() {
        Metadata::Hf(hf) => hf,
        Metadata::Ctranslate2(ct2) => {
            // Source: python/ctranslate2/converters/transformers.py@4.8.5, `WhisperLoader.set_config`.
            let config = |key: &str| ct2.config().map_or(Value::Null, |config| config[key].clone());
            return Ok(json!({
                "alignment_heads": config("alignment_heads"),
                "suppress_tokens": config("suppress_ids"),
                "begin_suppress_tokens": config("suppress_ids_begin"),
            }));
        }
        _ => return Ok(Value::Null),
    };
    let Some(member) = hf.generation_config() else { return Ok(Value::Null) };
    serde_json::from_slice(&member.read()?).map_err(|e| Error::Sampling {
        path: checkpoint.location().to_string(),
        what: format!("`{FILE}` is not JSON: {e}"),
    })
}

/// Whether preprocessor_config.json describes the spectrogram that is made here: of 100 frames a second and windows of 25 ms.
/// Source: transformers `WhisperFeatureExtractor`, models/whisper/feature_extraction_whisper.py@v5.24. Other keys change no value:
/// sizes of batches and of what is padded, names of classes, and filters that older files repeat.
fn check_front_end(checkpoint: &Checkpoint, arch: &Architecture) -> Result<(), Error> {
    const FRONT: &str = "preprocessor_config.json";
    let Metadata::Hf(hf) = checkpoint.metadata() else { return Ok(()) };
    let Some(member) = hf.preprocessor_config() else { return Ok(()) };
    let said: Value = serde_json::from_slice(&member.read()?).map_err(|e| Error::Sampling {
        path: checkpoint.location().to_string(),
        what: format!("`{FRONT}` is not JSON: {e}"),
    })?;
    let mels = arch.audio_encoder().map_or(0, |encoder| encoder.mels);
    let wanted = [
        ("feature_extractor_type", json!("WhisperFeatureExtractor")),
        ("feature_size", json!(mels)),
        ("sampling_rate", json!(16_000)),
        ("hop_length", json!(160)),
        ("n_fft", json!(400)),
        ("dither", json!(0.0)),
        ("do_normalize", json!(false)),
        ("padding_side", json!("right")),
        ("padding_value", json!(0.0)),
    ];
    let differs = |wanted: &Value, found: &Value| match (wanted.as_f64(), found.as_f64()) {
        (Some(wanted), Some(found)) => (wanted - found).abs() > 0.0,
        _ => wanted != found,
    };
    let found = wanted.iter().filter(|(key, wanted)| !said[key].is_null() && differs(wanted, &said[key]));
    let problems: Vec<String> =
        found.map(|(key, wanted)| format!("`{key}`: wanted {wanted}, found {}", said[key])).collect();
    if problems.is_empty() { Ok(()) } else { Err(SpeechError::FrontEnd { file: FRONT, problems }.into()) }
}

/// Whether the numbers of tokens in the settings are those of the tokenizer.
fn check(said: &Value, markers: &Markers, tokenizer: &Tokenizer) -> Result<(), SpeechError> {
    let mut named: Vec<(String, String, &Value)> = vec![];
    let each = |key: &str, spelled: &dyn Fn(&str) -> String| -> Vec<(String, String, Value)> {
        let all = said[key].as_object().into_iter().flatten();
        all.map(|(name, id)| (key.to_owned(), spelled(name), id.clone())).collect()
    };
    let mut tables = each("lang_to_id", &|name| name.to_owned());
    tables.extend(each("task_to_id", &|name| format!("<|{name}|>")));
    named.extend(tables.iter().map(|(key, token, id)| (key.clone(), token.clone(), id)));
    for (key, spelling) in
        [("no_timestamps_token_id", "<|notimestamps|>"), ("prev_sot_token_id", "<|startofprev|>")]
    {
        named.push((key.to_owned(), spelling.to_owned(), &said[key]));
    }
    for (key, token, id) in named {
        let (Some(said), Some(found)) = (id.as_u64(), tokenizer.token_id(&token)) else { continue };
        // A model of English alone may have a tokenizer with the tokens of all languages.
        if said != u64::from(found) && (markers.is_multilingual() || key == "no_timestamps_token_id") {
            return Err(SpeechError::Marker { key, token, said, found });
        }
    }
    Ok(())
}

/// The tokens that the settings list under `key`: an empty list suppresses nothing. `None` if there is no list, or -1 alone, which stands
/// for those of the reference.
fn tokens(said: &Value, key: &'static str, arch: &Architecture) -> Result<Option<Vec<u32>>, SpeechError> {
    let Some(list) = said[key].as_array().filter(|list| list[..] != [json!(-1)]) else { return Ok(None) };
    let token = |value: &Value| {
        let token =
            value.as_u64().filter(|token| *token < arch.vocab()).and_then(|token| u32::try_from(token).ok());
        token.ok_or_else(|| SpeechError::Token { key, found: value.to_string(), vocab: arch.vocab() })
    };
    list.iter().map(token).collect::<Result<_, _>>().map(Some)
}

/// The heads that times of words are read from.
fn heads(said: &Value, arch: &Architecture) -> Result<Vec<(usize, usize)>, SpeechError> {
    let crosses = arch.modules().filter_map(|(_, computes)| match computes {
        ::model::Computes::CrossAttention(cross) => Some(cross.heads as usize),
        _ => None,
    });
    let (layers, each) = (arch.layers() as usize, crosses.min().unwrap_or(0));
    let Some(said) = said["alignment_heads"].as_array() else {
        // As the reference has it: `Whisper.alignment_heads`, whisper/model.py.
        return Ok((layers / 2..layers).flat_map(|layer| (0..each).map(move |head| (layer, head))).collect());
    };
    let mut heads = vec![];
    for pair in said {
        let (layer, head) = (pair[0].as_u64().unwrap_or(u64::MAX), pair[1].as_u64().unwrap_or(u64::MAX));
        match (usize::try_from(layer), usize::try_from(head)) {
            (Ok(layer), Ok(head)) if layer < layers && head < each => heads.push((layer, head)),
            _ => return Err(SpeechError::AlignmentHead { layer, head, layers, heads: each }),
        }
    }
    Ok(heads)
}
