//! Every field of a `tokenizer_config.json`, with its verdict, where there is a `tokenizer.json` beside it.
//!
//! Source: transformers@5.23, `PreTrainedTokenizerBase._from_pretrained` (tokenization_utils_base.py) and
//! `TokenizersBackend` (tokenization_utils_tokenizers.py).

use serde_json::Value;

use super::super::{Error, Note};
use super::file::{self, Added, File, Model, Problems, Roles};

/// The name of the file in messages.
pub(super) const FILE: &str = "tokenizer_config.json";

/// Tokens with a role. If the file does not list one among its added tokens, it is added as a special one.
const ROLES: &[&str] =
    &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Lists of further special tokens.
const MORE: &[&str] = &["additional_special_tokens", "extra_special_tokens"];

/// Other fields that are read.
const USED: &[&str] = &["added_tokens_decoder", "chat_template", "clean_up_tokenization_spaces"];

/// Fields that must be false, and what they would do.
const REFUSED: &[(&str, &str)] = &[
    ("split_special_tokens", "special tokens in a text would be taken for text"),
    ("fix_mistral_regex", "it replaces the pattern that `pre_tokenizer` has"),
    (
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        "decoded text would lose spaces",
    ),
];

const SAID: &str = "tokenizer.json says it";
const CALLER: &str = "of calls in batches";
const PROGRAM: &str = "of the program that wrote it";

/// Fields that change neither tokens nor text, and why.
const IDLE: &[(&str, &str)] = &[
    ("add_bos_token", "transformers goes by the post-processor of tokenizer.json"),
    ("add_eos_token", "transformers goes by the post-processor of tokenizer.json"),
    ("add_prefix_space", SAID),
    ("legacy", SAID),
    ("do_lower_case", SAID),
    ("strip_accents", SAID),
    ("tokenize_chinese_chars", SAID),
    ("trim_offsets", SAID),
    ("sp_model_kwargs", "of tokenizer.model"),
    ("spaces_between_special_tokens", "of tokenizers in Python"),
    ("errors", "of tokenizers in Python"),
    ("remove_space", "of tokenizers in Python"),
    ("use_fast", "of tokenizers in Python"),
    ("from_slow", "of tokenizers in Python"),
    ("tokenizer_class", "names code, which is never run"),
    ("processor_class", "names code, which is never run"),
    ("auto_map", "names code, which is never run"),
    ("backend", PROGRAM),
    ("is_local", PROGRAM),
    ("local_files_only", PROGRAM),
    ("name_or_path", PROGRAM),
    ("special_tokens_map_file", PROGRAM),
    ("tokenizer_file", PROGRAM),
    ("vocab_file", PROGRAM),
    ("transformers_version", PROGRAM),
    ("init_inputs", PROGRAM),
    ("model_max_length", CALLER),
    ("max_length", CALLER),
    ("max_len", CALLER),
    ("stride", CALLER),
    ("truncation_side", CALLER),
    ("truncation_strategy", CALLER),
    ("padding_side", CALLER),
    ("pad_to_multiple_of", CALLER),
    ("pad_token_type_id", CALLER),
    ("pad_token_id", "`pad_token` names it"),
    ("model_input_names", CALLER),
    ("return_token_type_ids", CALLER),
    ("response_schema", "for reading answers"),
    ("use_default_system_prompt", "the chat template says it"),
];

/// Follows `config` as transformers does.
pub(super) fn apply(file: &mut File, config: &Value) -> Result<(), Error> {
    let mut problems = Problems::new();
    if !config.is_object() && !config.is_null() {
        problems.push((String::new(), "wanted an object".to_owned()));
    }
    for (key, what) in REFUSED {
        if !matches!(config[*key], Value::Null | Value::Bool(false)) {
            problems.push(((*key).to_owned(), format!("only false is supported: {what}")));
        }
    }
    for key in config.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
        let known = ROLES.contains(&key)
            || MORE.contains(&key)
            || USED.contains(&key)
            || REFUSED.iter().chain(IDLE).any(|(name, _)| *name == key);
        if !known && !config[key].is_null() {
            file.notes.push(Note::unknown(FILE, key));
        }
    }
    file.clean_up = config["clean_up_tokenization_spaces"] == true && !matches!(file.model, Model::Bpe(_));
    decoder(file, &config["added_tokens_decoder"], &mut problems);
    for role in ROLES {
        special(file, role, &config[*role], &mut problems);
    }
    for list in MORE {
        let values: Vec<&Value> = match &config[*list] {
            Value::Object(map) => map.values().collect(),
            other => other.as_array().map_or_else(Vec::new, |list| list.iter().collect()),
        };
        for value in values {
            special(file, list, value, &mut problems);
        }
    }
    if !problems.is_empty() {
        return Err(Error::Refused { file: FILE, problems });
    }
    let named = |role: &str| content(&config[role]).and_then(|text| file.id(text));
    file.roles = Roles {
        bos: named("bos_token"),
        eos: named("eos_token"),
        pad: named("pad_token"),
        unk: named("unk_token"),
        sep: named("sep_token"),
        cls: named("cls_token"),
        mask: named("mask_token"),
        add_prefix_space: config["add_prefix_space"].as_bool(),
    };
    contradictions(file, config);
    Ok(())
}

fn content(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str()).filter(|text| !text.is_empty())
}

/// Tokens whose flags differ from those in tokenizer.json, or which it does not add, are added once more.
fn decoder(file: &mut File, tokens: &Value, problems: &mut Problems) {
    let mut all: Vec<(&str, &Value)> =
        tokens.as_object().into_iter().flatten().map(|(id, token)| (id.as_str(), token)).collect();
    all.sort_by_key(|(id, _)| id.parse::<u64>().unwrap_or(u64::MAX));
    for (key, token) in all {
        let path = format!("added_tokens_decoder.{key}");
        let (Ok(id), Some(text)) = (key.parse::<u32>(), content(token)) else {
            problems.push((path, "wanted an id, and a token with a text".to_owned()));
            continue;
        };
        // Missing fields have the defaults of Python's `AddedToken`.
        let mut added = Added::read(token);
        added.id = id;
        added.normalized = token["normalized"].as_bool().unwrap_or(!added.special);
        let known = file.id(text);
        if known.unwrap_or_else(|| file.next_id()) != id {
            let found = known.map_or("no id".to_owned(), |id| format!("the id {id}"));
            problems.push((path, format!("`{text}` has {found} in {}", file::FILE)));
            continue;
        }
        match file.added_mut(text) {
            Some(old) => {
                // A token that was special once stays so.
                added.special |= old.special;
                *old = added;
            }
            None => file.push(added),
        }
        if problems.len() >= 20 {
            return;
        }
    }
}

/// A token with a role is special.
fn special(file: &mut File, role: &str, token: &Value, problems: &mut Problems) {
    let Some(text) = content(token) else {
        if !token.is_null() && token != "" {
            problems.push((role.to_owned(), "wanted a token".to_owned()));
        }
        return;
    };
    if file.added_mut(text).is_some() {
        return;
    }
    match file.ids.get(text).copied() {
        Some(id) => {
            let mut added = Added::read(token);
            (added.id, added.special) = (id, true);
            text.clone_into(&mut added.content);
            file.push(added);
        }
        None => file.notes.push(Note::new(FILE, role, format!("`{text}` is no token"))),
    }
}

/// Records where the file and the post-processor disagree about BOS and EOS.
fn contradictions(file: &mut File, config: &Value) {
    let Some((before, after)) = super::frame::of(&file.post_processor) else { return };
    let sides =
        [("add_bos_token", file.roles.bos, before.first()), ("add_eos_token", file.roles.eos, after.last())];
    for (key, id, found) in sides {
        let (Some(wanted), Some(_)) = (config[key].as_bool(), id) else { continue };
        if wanted != (found.copied() == id) {
            let adds = if wanted { "adds none" } else { "adds it" };
            let said = format!("{wanted}, and the post-processor {adds}; transformers goes by the latter");
            file.notes.push(Note::new(FILE, key, said));
        }
    }
}
