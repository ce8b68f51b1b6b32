//! The verdict on every key of a checkpoint's metadata.

use checkpoint::convention::{KeyUse, config_key};
use checkpoint::{Checkpoint, Metadata};
use model::{KeyVerdict, Model, Verdict};
use serde_json::Value;

use engine::sampling;

use crate::Error;

/// A key of one of a checkpoint's files, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The file, or `metadata` for GGUF.
    pub file: &'static str,
    /// The key; dots descend into objects.
    pub key: String,
    /// The value, cut to a length that can be shown.
    pub value: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on every key of `checkpoint`, from which `model` was read.
///
/// # Errors
/// If a file beside the weights cannot be read.
pub fn coverage(checkpoint: &Checkpoint, model: &Model) -> Result<Vec<Covered>, Error> {
    let file = if checkpoint.metadata().gguf().is_some() { "metadata" } else { "config.json" };
    let sampling = sampling::sampling(checkpoint)?.keys;
    let config = match checkpoint.metadata() {
        Metadata::Hf(hf) => hf.config(),
        _ => None,
    };
    let own = model.verdicts(checkpoint.metadata()).into_iter().map(|key| match () {
        () if key.key.starts_with("tokenizer.") => tokenizer(key),
        () => quantisation(config, key),
    });
    let covered =
        |file| move |KeyVerdict { key, value, verdict }: KeyVerdict| Covered { file, key, value, verdict };
    Ok(match checkpoint.metadata() {
        Metadata::Gguf(_) => {
            let others = own.filter(|key| !key.key.starts_with("general.sampling."));
            others.chain(sampling).map(covered(file)).collect()
        }
        Metadata::Openai(_) => own.map(covered("dims")).collect(),
        Metadata::Ctranslate2(ct2) => own
            .map(|key| {
                let first = key.key.split('.').next().unwrap_or_default();
                let beside = ct2.config().is_some_and(|config| config.get(first).is_some());
                covered(if beside { file } else { "model.bin" })(key)
            })
            .collect(),
        _ => own.map(covered(file)).chain(sampling.into_iter().map(covered(sampling::FILE))).collect(),
    })
}

/// Keys of GGUF's tokenizer. Source: gguf-py/gguf/constants.py@0c1e57098, `Keys.Tokenizer`.
static TOKENIZER: &[(&str, Option<&str>)] = &[
    ("model", None),
    ("pre", None),
    ("tokens", None),
    ("scores", None),
    ("token_type", None),
    ("merges", None),
    ("bos_token_id", None),
    ("eos_token_id", None),
    ("eot_token_id", None),
    ("eom_token_id", None),
    ("unknown_token_id", None),
    ("padding_token_id", None),
    ("add_bos_token", None),
    ("add_eos_token", None),
    ("add_space_prefix", None),
    ("token_type_count", Some("of BERT, where it is a size")),
    ("seperator_token_id", None),
    ("normalizer.lowercase", None),
    ("normalizer.strip_accents", None),
    ("cls_token_id", Some("for encoder models only")),
    ("mask_token_id", Some("for encoder models only")),
    ("add_sep_token", Some("for encoder models only")),
    ("fim_pre_token_id", Some("for programs that fill in the middle")),
    ("fim_suf_token_id", Some("for programs that fill in the middle")),
    ("fim_mid_token_id", Some("for programs that fill in the middle")),
    ("fim_pad_token_id", Some("for programs that fill in the middle")),
    ("fim_rep_token_id", Some("for programs that fill in the middle")),
    ("fim_sep_token_id", Some("for programs that fill in the middle")),
    ("prefix_token_id", Some("for programs that fill in the middle")),
    ("suffix_token_id", Some("for programs that fill in the middle")),
    ("middle_token_id", Some("for programs that fill in the middle")),
    ("remove_extra_whitespaces", Some("of T5, whose tokenizer is refused")),
    ("precompiled_charsmap", Some("of T5, whose tokenizer is refused")),
];

fn tokenizer(key: KeyVerdict) -> KeyVerdict {
    let verdict = match key.key.as_str() {
        "tokenizer.chat_template" => Verdict::Used,
        "tokenizer.huggingface.json" => Verdict::WithoutEffect("the same as the other keys, in another form"),
        name => {
            let known = name.strip_prefix("tokenizer.ggml.");
            let known = known.and_then(|name| TOKENIZER.iter().find(|(known, _)| *known == name));
            match known {
                Some((_, None)) => Verdict::Used,
                Some((_, Some(why))) => Verdict::WithoutEffect(why),
                None => Verdict::Unknown,
            }
        }
    };
    KeyVerdict { verdict, ..key }
}

/// The verdict on a key of the quantisation, which the conventions read.
fn quantisation(config: Option<&Value>, key: KeyVerdict) -> KeyVerdict {
    let verdict = match config.and_then(|config| config_key(config, &key.key)) {
        None => return key,
        Some(KeyUse::Read) => Verdict::Used,
        Some(KeyUse::WithoutEffect(why)) => Verdict::WithoutEffect(why),
        Some(KeyUse::Unknown) => Verdict::Unknown,
    };
    KeyVerdict { verdict, ..key }
}
