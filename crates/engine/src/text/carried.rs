//! The tokenizer and the chat template that a checkpoint carries.

use std::path::Path;

use checkpoint::{Checkpoint, GgufMetadata, HfMetadata, Identity, Metadata, OpenOptions};

use super::speech;
use super::{ChatTemplate, Tokenizer, TokenizerLoss, Vocabulary, VocabularyBuf};
use crate::Error;

/// Returns the tokenizer of a checkpoint: GGUF's own metadata, or the tokenizer.json or tokenizer.model beside the
/// weights.
///
/// # Errors
/// If there is no tokenizer, or it contradicts itself.
pub fn tokenizer(checkpoint: &Checkpoint) -> Result<Tokenizer, Error> {
    read(checkpoint, Tokenizer::from_json)
}

/// The same, with texts that are made lower case first: see [`Tokenizer::from_json_in_lower_case`]. A tokenizer of another file is
/// what it is.
///
/// # Errors
/// As [`tokenizer`].
pub fn tokenizer_in_lower_case(checkpoint: &Checkpoint) -> Result<Tokenizer, Error> {
    read(checkpoint, Tokenizer::from_json_in_lower_case)
}

fn read(
    checkpoint: &Checkpoint,
    from_json: impl Fn(&[u8], Option<&[u8]>) -> Result<Tokenizer, super::Error>,
) -> Result<Tokenizer, Error> {
    let wrong = |source| Error::Text { path: shown(checkpoint), source };
    let absent = |looked_for, hint| Error::NoTokenizer { path: shown(checkpoint), looked_for, hint };
    match checkpoint.metadata() {
        Metadata::Gguf(gguf) => match vocabulary(gguf)? {
            Some(vocabulary) => Tokenizer::from_vocabulary(&vocabulary).map_err(wrong),
            None => Err(absent("`tokenizer.ggml.model`", "convert the model again, with its tokenizer")),
        },
        Metadata::Hf(hf) => {
            let config = hf.tokenizer_config().map(checkpoint::Member::read).transpose()?;
            match (hf.tokenizer(), hf.sentencepiece()) {
                (Some(json), _) => from_json(&json.read()?, config.as_deref()).map_err(wrong),
                (None, Some(model)) => VocabularyBuf::from_sentencepiece(&model.read()?, config.as_deref())
                    .and_then(|vocabulary| Tokenizer::from_vocabulary(&vocabulary.borrow()))
                    .map_err(wrong),
                (None, None) => {
                    let hint = "put the model's tokenizer.json beside its weights";
                    Err(absent("`tokenizer.json` or `tokenizer.model`", hint))
                }
            }
        }
        Metadata::Ctranslate2(ct2) => {
            if let Some(json) = ct2.member("tokenizer.json") {
                return from_json(&json.read()?, None).map_err(wrong);
            }
            let hint = "put the model's tokenizer.json beside its weights";
            let vocabulary = speech::of_ctranslate2(ct2, wrong)?;
            let vocabulary =
                vocabulary.ok_or_else(|| absent("`tokenizer.json` or `vocabulary.json`", hint))?;
            Tokenizer::from_vocabulary(&vocabulary.borrow()).map_err(wrong)
        }
        Metadata::Openai(openai) => {
            let hint = "convert it to an HF directory, and put the model's tokenizer.json into that";
            let vocabulary =
                speech::of_openai(openai).ok_or_else(|| absent("a vocabulary in the file", hint))?;
            Tokenizer::from_vocabulary(&vocabulary.borrow()).map_err(wrong)
        }
        _ => Err(absent("any that this version knows", "use a GGUF file or an HF directory")),
    }
}

/// The files that [`tokenizer`] reads beside those of the weights. `None` if one of them cannot be told from what it was before.
pub fn tokenizer_files(checkpoint: &Checkpoint) -> Option<Vec<(&'static str, Identity)>> {
    let members = match checkpoint.metadata() {
        Metadata::Hf(hf) => vec![
            ("tokenizer_config.json", hf.tokenizer_config()),
            ("tokenizer.json", hf.tokenizer()),
            ("tokenizer.model", hf.sentencepiece()),
        ],
        Metadata::Ctranslate2(ct2) => {
            let names = ["tokenizer.json", "vocabulary.json", "vocabulary.txt"];
            names.map(|name| (name, ct2.member(name))).to_vec()
        }
        _ => vec![],
    };
    let there = members.into_iter().filter_map(|(name, member)| Some((name, member?)));
    there.map(|(name, member)| Some((name, member.identity()?.clone()))).collect()
}

/// The tokenizer of a checkpoint, or of a `tokenizer.json` without one; the `tokenizer_config.json` beside that is read too.
///
/// # Errors
/// As [`tokenizer`], and if a file cannot be read.
pub fn open_tokenizer(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Tokenizer, Error> {
    let path = path.as_ref();
    if path.extension().is_none_or(|extension| extension != "json") || path.is_dir() {
        return tokenizer(&checkpoint::open_with(path, options)?);
    }
    let shown = || path.display().to_string();
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| Error::TextIo { path: path.display().to_string(), source })
    };
    let config = path.with_file_name("tokenizer_config.json");
    let config = config.is_file().then(|| read(&config)).transpose()?;
    let json = read(path)?;
    Tokenizer::from_json(&json, config.as_deref()).map_err(|source| Error::Text { path: shown(), source })
}

/// Reads tokenizer.json or tokenizer.model as GGUF's vocabulary, with the losses that it cannot express; `None` if
/// there is neither.
pub fn hf_vocabulary(
    hf: &HfMetadata,
    checkpoint: &Checkpoint,
) -> Result<Option<(VocabularyBuf, Vec<TokenizerLoss>)>, Error> {
    let config = hf.tokenizer_config().map(checkpoint::Member::read).transpose()?;
    let vocabulary = match (hf.tokenizer(), hf.sentencepiece()) {
        (Some(json), _) => VocabularyBuf::from_json(&json.read()?, config.as_deref()),
        (None, Some(model)) => VocabularyBuf::from_sentencepiece(&model.read()?, config.as_deref())
            .map(|vocabulary| (vocabulary, vec![])),
        (None, None) => return Ok(None),
    };
    vocabulary.map(Some).map_err(|source| Error::Text { path: shown(checkpoint), source })
}

/// The keys `tokenizer.ggml.*`; `None` if the file says that it has no tokenizer.
pub fn vocabulary(gguf: &GgufMetadata) -> Result<Option<Vocabulary<'_>>, Error> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let id = |name: &str| -> Result<Option<u32>, Error> {
        // An id beyond 32 bits is beyond any vocabulary: let the tokenizer say so.
        Ok(gguf.u64(&key(name))?.map(|id| u32::try_from(id).unwrap_or(u32::MAX)))
    };
    let Some(model) = gguf.str(&key("model"))?.filter(|m| !matches!(*m, "none" | "no_vocab")) else {
        return Ok(None);
    };
    let strings = |name: &str| -> Result<Vec<&[u8]>, Error> {
        Ok(gguf.strings(&key(name))?.map(Iterator::collect).unwrap_or_default())
    };
    Ok(Some(Vocabulary {
        model,
        pre: gguf.str(&key("pre"))?,
        tokens: strings("tokens")?,
        scores: gguf.f32s(&key("scores"))?.map(Iterator::collect),
        types: gguf.i32s(&key("token_type"))?.map(Iterator::collect),
        merges: strings("merges")?,
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        eom: id("eom_token_id")?,
        sep: id("seperator_token_id")?,
        cls: id("cls_token_id")?,
        mask: id("mask_token_id")?,
        unk: id("unknown_token_id")?,
        pad: id("padding_token_id")?,
        add_bos: gguf.bool(&key("add_bos_token"))?,
        add_eos: gguf.bool(&key("add_eos_token"))?,
        add_sep: gguf.bool(&key("add_sep_token"))?,
        add_space_prefix: gguf.bool(&key("add_space_prefix"))?,
        remove_extra_whitespaces: gguf.bool(&key("remove_extra_whitespaces"))?,
        charsmap: gguf.octets(&key("precompiled_charsmap"))?.map(<[u8]>::to_vec),
        lowercase: gguf.bool(&key("normalizer.lowercase"))?,
        strip_accents: gguf.bool(&key("normalizer.strip_accents"))?,
    }))
}

/// The chat template of a checkpoint, if it has one.
///
/// # Errors
/// If it is not a template.
pub fn chat_template(checkpoint: &Checkpoint) -> Result<Option<ChatTemplate>, Error> {
    let source = match checkpoint.metadata() {
        Metadata::Gguf(gguf) => gguf.str("tokenizer.chat_template")?.map(str::to_owned),
        Metadata::Hf(hf) => hf_template(hf)?,
        _ => None,
    };
    let wrong = |source| Error::Text { path: shown(checkpoint), source };
    source.map(|source| ChatTemplate::new(&source)).transpose().map_err(wrong)
}

/// chat_template.jinja, or `chat_template` of tokenizer_config.json: one, or the one of several that is called `default`.
pub fn hf_template(hf: &HfMetadata) -> Result<Option<String>, Error> {
    if let Some(file) = hf.chat_template() {
        return Ok(Some(String::from_utf8_lossy(&file.read()?).into_owned()));
    }
    let Some(config) = hf.tokenizer_config() else { return Ok(None) };
    let config = serde_json::from_slice::<serde_json::Value>(&config.read()?).unwrap_or_default();
    let template = &config["chat_template"];
    // Several have names; transformers takes the one called so.
    let default = template.as_array().and_then(|list| list.iter().find(|one| one["name"] == "default"));
    let template = default.map_or(template, |one| &one["template"]);
    Ok(template.as_str().map(str::to_owned))
}

fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.location().to_string()
}
