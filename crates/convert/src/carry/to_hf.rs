//! From GGUF metadata to the JSON files of an HF directory.

use checkpoint::{GgufMetadata, HfFiles, Metadata};
use engine::text::{self, Vocabulary};
use model::{Description, DialectName, Fact, Loss, Model};
use serde_json::{Map, Value, json};

use super::{Beside, Carried, LABELS, Left, SAMPLING, in_a_line, is_said, narrow, proven, why_left};
use crate::Error;

const METADATA: &str = "metadata";

/// Keys of the tokenizer that are carried.
const TOKENIZER: &[&str] = &[
    "model",
    "pre",
    "tokens",
    "scores",
    "token_type",
    "merges",
    "bos_token_id",
    "eos_token_id",
    "eot_token_id",
    "eom_token_id",
    "unknown_token_id",
    "padding_token_id",
    "seperator_token_id",
    "cls_token_id",
    "mask_token_id",
    "add_sep_token",
    "remove_extra_whitespaces",
    "precompiled_charsmap",
    "normalizer.lowercase",
    "normalizer.strip_accents",
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
];

/// The files of an HF directory with the model of a GGUF file, and what they do not say.
///
/// # Errors
/// If config.json has no way to say the model, or the metadata contradicts itself.
pub(crate) fn to_hf(
    gguf: &GgufMetadata,
    metadata: &Metadata,
    model: &Model,
    own: &dyn Fn(&str) -> bool,
) -> Result<Carried, Error> {
    let description = model.describe(DialectName::Hf, own);
    proven(model, &description)?;
    let mut config = config_of(&description);
    for (label, name) in names_of_scores(gguf)? {
        if let Some(slot) = config.get_mut("id2label").and_then(|labels| labels.get_mut(&label)) {
            *slot = name.into();
        }
    }
    let mut generation = Map::new();
    for (to, from) in SAMPLING {
        let number =
            gguf.get(from).and_then(|v| v.as_u64().map(|n| json!(n)).or(v.as_f64().map(|x| json!(short(x)))));
        if let Some(number) = number {
            generation.insert((*to).to_owned(), number);
        }
    }
    if generation.contains_key("temperature") {
        generation.insert("do_sample".to_owned(), json!(true));
    }
    let (mut members, mut left, mut lost) = (Vec::new(), Vec::new(), description.losses);
    let vocabulary = text::vocabulary(gguf)?;
    let template = gguf.str("tokenizer.chat_template")?;
    if let Some(vocabulary) = &vocabulary {
        let ids = [("bos_token_id", vocabulary.bos), ("pad_token_id", vocabulary.pad)];
        for (key, id) in ids.into_iter().filter_map(|(key, id)| Some((key, id?))) {
            config.insert(key.to_owned(), json!(id));
            generation.insert(key.to_owned(), json!(id));
        }
        let ends: Vec<u32> = [vocabulary.eos, vocabulary.eot, vocabulary.eom].into_iter().flatten().collect();
        if let Some(first) = ends.first() {
            config.insert("eos_token_id".to_owned(), json!(first));
            let all = if ends.len() == 1 { json!(first) } else { json!(ends) };
            generation.insert("eos_token_id".to_owned(), all);
        }
        match tokenizer(vocabulary, template, *model.config().context) {
            Ok(files) => members.extend(files),
            Err(why) => {
                lost.push(Loss::beside("tokenizer", format!("the directory has no tokenizer: {why}")));
            }
        }
    }
    // Absent, these are what each class of transformers has.
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        config.entry(key).or_insert(Value::Null);
    }
    if let Some(template) = template {
        members.push(("chat_template.jinja".to_owned(), template.as_bytes().to_vec()));
    }
    if !generation.is_empty() {
        members.push(("generation_config.json".to_owned(), pretty(&Value::Object(generation))));
    }
    for key in model.verdicts(metadata) {
        let tokenizer = key.key.strip_prefix("tokenizer.ggml.").is_some_and(|k| TOKENIZER.contains(&k));
        let sampling = SAMPLING.iter().any(|(_, k)| *k == key.key);
        if is_said(&key) || tokenizer || sampling || key.key == "tokenizer.chat_template" {
            continue;
        }
        // The tokenizer's are read elsewhere, and this one nowhere.
        let otherwise = "no file of an HF directory has a key for it that is known here";
        let other = key.key.starts_with("tokenizer.") || key.key.starts_with("general.sampling.");
        let why = if other { otherwise.to_owned() } else { why_left(&key, otherwise) };
        left.push(Left::new(METADATA, &key.key, why));
    }
    let files = HfFiles { config, members, pairs: vec![] };
    Ok(Carried { beside: Beside::Hf(Box::new(files)), made: vec![], left, lost })
}

/// The names that the file has for scores, by number.
fn names_of_scores(gguf: &GgufMetadata) -> Result<Vec<(String, String)>, Error> {
    let Some((key, _)) = gguf.iter().find(|(key, _)| key.ends_with(LABELS)) else { return Ok(vec![]) };
    let names = gguf.strings(key)?.into_iter().flatten();
    Ok(names
        .enumerate()
        .map(|(n, name)| (n.to_string(), String::from_utf8_lossy(name).into_owned()))
        .collect())
}

/// Returns the files of the tokenizer, or the reason why there are none.
fn tokenizer(
    vocabulary: &Vocabulary<'_>,
    template: Option<&str>,
    context: u64,
) -> Result<Vec<(String, Vec<u8>)>, String> {
    let why = |e: engine::text::Error| in_a_line(&e);
    let json = vocabulary.to_tokenizer_json().map_err(why)?;
    let config = vocabulary.to_tokenizer_config(template, context).map_err(why)?;
    Ok(vec![("tokenizer.json".to_owned(), json), ("tokenizer_config.json".to_owned(), pretty(&config))])
}

/// config.json as `description` has it.
pub(super) fn config_of(description: &Description) -> Map<String, Value> {
    let mut config = Map::new();
    for (key, fact) in &description.pairs {
        set(&mut config, key, of_fact(fact));
    }
    config
}

/// Puts a value where dots lead.
fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            map.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = map.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

fn of_fact(fact: &Fact) -> Value {
    match fact {
        Fact::Null | Fact::Object => Value::Null,
        Fact::Bool(b) => json!(b),
        Fact::Count(n) => json!(n),
        Fact::Number(x) => json!(x),
        Fact::Str(text) => json!(text),
        Fact::List(list) => Value::Array(list.iter().map(of_fact).collect()),
    }
}

/// An f32 of the file as its shortest decimal.
fn short(x: f64) -> f64 {
    narrow(x).to_string().parse().unwrap_or(x)
}

pub(super) fn pretty(value: &Value) -> Vec<u8> {
    // A value that was made here cannot fail to be JSON.
    let mut json = serde_json::to_vec_pretty(value).unwrap_or_default();
    json.push(b'\n');
    json
}
