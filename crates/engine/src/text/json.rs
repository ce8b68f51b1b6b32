//! `tokenizer.json`, as Hugging Face's tokenizers library has it, read as a [`VocabularyBuf`] and written from a
//! [`Vocabulary`].
//!
//! Byte-level BPE is understood, with the ways of cutting text that the known models use, and BPE over characters
//! with byte fallback, which is how SentencePiece models are written; anything else is refused by name. The library
//! itself is not used: it is 140 CPU-seconds of build (1.0.0-rc.3 with `bpe` and `regex` alone), and one algorithm
//! for both kinds of file cannot disagree with itself.
//!
//! Source: the serde forms in tokenizers/src/{models/bpe,pre_tokenizers,processors}@v0.22.

mod spaces;
mod write;

use serde_json::Value;

use super::vocabulary::kinds;
use super::{Error, Tokenizer, Vocabulary, VocabularyBuf};

/// The regexes that `Split` has in the files of known models, and what GGUF calls them.
const SPLITS: &[(&str, &str)] = &[
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "llama-bpe",
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "qwen2",
    ),
];

impl Tokenizer {
    /// Makes the tokenizer of a `tokenizer.json`; see [`VocabularyBuf::from_json`].
    ///
    /// # Errors
    /// [`Error::Malformed`] where the file contradicts itself, [`Error::Unsupported`] for what is not BPE over
    /// bytes, or over characters with byte fallback.
    pub fn from_json(json: &[u8], config: Option<&[u8]>) -> Result<Tokenizer, Error> {
        Tokenizer::from_vocabulary(&VocabularyBuf::from_json(json, config)?.borrow())
    }
}

impl VocabularyBuf {
    /// What a `tokenizer.json` says; `config` is the `tokenizer_config.json` beside it, which names the tokens that
    /// begin and end a text.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`].
    pub fn from_json(json: &[u8], config: Option<&[u8]>) -> Result<VocabularyBuf, Error> {
        let file = parse("tokenizer.json", json)?;
        let config = config.map(|c| parse("tokenizer_config.json", c)).transpose()?.unwrap_or_default();
        let model = &file["model"];
        // Old files leave the type out, and only BPE has merges.
        match model["type"].as_str() {
            Some("BPE") => {}
            None if model["merges"].is_array() => {}
            other => return Err(unsupported("tokenizer model", other.unwrap_or("?"), "BPE")),
        }
        let spaces = spaces::prefix(&file);
        let pre = if spaces.is_some() { None } else { Some(cutting(&file)?) };
        let (tokens, types) = tokens(&file)?;
        let merges = merges(model)?;
        let first = first_special(&file["post_processor"]);
        let mut vocabulary = VocabularyBuf {
            model: "gpt2".to_owned(),
            pre: pre.map(str::to_owned),
            tokens,
            types: Some(types),
            merges,
            add_bos: Some(first.is_some() || config["add_bos_token"].as_bool().unwrap_or(false)),
            add_eos: config["add_eos_token"].as_bool(),
            add_space_prefix: config["add_prefix_space"].as_bool(),
            ..VocabularyBuf::default()
        };
        vocabulary.name_roles(&config, first);
        if let Some(unknown) = model["unk_token"].as_str() {
            vocabulary.unk = vocabulary.id(unknown);
        }
        match spaces {
            Some(prefix) => spaces::as_scores(vocabulary, prefix),
            None => Ok(vocabulary),
        }
    }

    /// The id of a token.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.tokens.iter().position(|t| t == text).and_then(|at| u32::try_from(at).ok())
    }

    /// The tokens with a role, as a `tokenizer_config.json` names them; `first` opens a text where it names none.
    pub(super) fn name_roles(&mut self, config: &Value, first: Option<&str>) {
        let named = |key: &str| config[key].as_str().or_else(|| config[key]["content"].as_str());
        let id = |text: Option<&str>| text.and_then(|text| self.id(text));
        let bos = id(named("bos_token").or(first));
        let (eos, pad, unk) = (id(named("eos_token")), id(named("pad_token")), id(named("unk_token")));
        (self.bos, self.eos, self.pad) = (bos.or(self.bos), eos.or(self.eos), pad.or(self.pad));
        if self.unk.is_none() {
            self.unk = unk.filter(|_| self.model == "llama");
        }
    }
}

fn parse(what: &'static str, json: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(json).map_err(|e| Error::malformed(what, e.to_string()))
}

fn unsupported(what: &'static str, found: &str, supported: &str) -> Error {
    Error::Unsupported { what, found: found.to_owned(), supported: supported.to_owned() }
}

/// What GGUF would call the way in which the file cuts text.
fn cutting(file: &Value) -> Result<&'static str, Error> {
    const WHAT: &str = "pre_tokenizer";
    const KNOWN: &str = "ByteLevel alone, after Digits, or after the Split of Llama 3 or Qwen 2; Metaspace";
    if !file["normalizer"].is_null() && file["normalizer"]["type"] != "NFC" {
        let kind = file["normalizer"]["type"].as_str().unwrap_or("?");
        return Err(unsupported("normalizer", kind, "none, NFC"));
    }
    let pre = &file["pre_tokenizer"];
    let one = std::slice::from_ref(pre);
    let steps = pre["pretokenizers"].as_array().map_or(one, Vec::as_slice);
    let kind = |step: &Value| step["type"].as_str().unwrap_or("none").to_owned();
    let by_bytes = |step: &Value, regex: bool| {
        let adds = step["add_prefix_space"].as_bool().unwrap_or(false);
        step["type"] == "ByteLevel" && !adds && step["use_regex"].as_bool().unwrap_or(true) == regex
    };
    match steps {
        [bytes] if by_bytes(bytes, true) => return Ok("gpt-2"),
        [digits, bytes]
            if digits["type"] == "Digits" && digits["individual_digits"] == true && by_bytes(bytes, true) =>
        {
            return Ok("smollm");
        }
        [split, bytes]
            if split["type"] == "Split" && split["behavior"] == "Isolated" && by_bytes(bytes, false) =>
        {
            let regex = split["pattern"]["Regex"].as_str().unwrap_or_default();
            if let Some((_, name)) = SPLITS.iter().find(|(known, _)| *known == regex) {
                return Ok(name);
            }
        }
        _ => {}
    }
    Err(unsupported(WHAT, &steps.iter().map(kind).collect::<Vec<_>>().join(", "), KNOWN))
}

/// The tokens by id, and what each is, as GGUF numbers it.
fn tokens(file: &Value) -> Result<(Vec<String>, Vec<i32>), Error> {
    let vocab = file["model"]["vocab"].as_object();
    let vocab = vocab.ok_or_else(|| Error::malformed("model.vocab", "wanted an object"))?;
    let added = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    // Ids that are dense are below this; a larger one leaves a gap, which is found below.
    let count = vocab.len() + added.len();
    let mut slots: Vec<Option<(&str, i32)>> = vec![None; count];
    for (text, id) in vocab {
        let slot = id.as_u64().and_then(|id| slots.get_mut(usize::try_from(id).ok()?));
        match slot {
            Some(slot @ None) => *slot = Some((text, kinds::NORMAL)),
            Some(Some((other, _))) => {
                return Err(Error::malformed(
                    "model.vocab",
                    format!("`{other}` and `{text}` have the id {id}"),
                ));
            }
            None => {
                return Err(Error::malformed("model.vocab", format!("`{text}` has the id {id} of {count}")));
            }
        }
    }
    for token in added {
        let (text, id) = (token["content"].as_str(), token["id"].as_u64());
        let slot = id.and_then(|id| slots.get_mut(usize::try_from(id).ok()?));
        let (Some(text), Some(slot)) = (text, slot) else {
            return Err(Error::malformed(
                "added_tokens",
                format!("{token} has no content or no id below {count}"),
            ));
        };
        if let Some((other, _)) = slot.filter(|(other, _)| *other != text) {
            return Err(Error::malformed("added_tokens", format!("`{text}` has the id of `{other}`")));
        }
        *slot = Some((text, if token["special"] == true { kinds::CONTROL } else { kinds::USER_DEFINED }));
    }
    while slots.last().is_some_and(Option::is_none) {
        slots.pop();
    }
    let gap = slots.iter().position(Option::is_none);
    if let Some(id) = gap {
        return Err(Error::malformed("model.vocab", format!("no token has the id {id}")));
    }
    Ok(slots.into_iter().flatten().map(|(text, kind)| (text.to_owned(), kind)).unzip())
}

/// `left right` for each merge: files have them so, or as pairs.
fn merges(model: &Value) -> Result<Vec<String>, Error> {
    let merges = model["merges"].as_array();
    let merges = merges.ok_or_else(|| Error::malformed("model.merges", "wanted an array"))?;
    let one = |merge: &Value| match merge {
        Value::String(text) => Some(text.clone()),
        Value::Array(pair) => match &pair[..] {
            [Value::String(left), Value::String(right)] => Some(format!("{left} {right}")),
            _ => None,
        },
        _ => None,
    };
    let wrong = |i: usize| Error::malformed("model.merges", format!("merge {i} is no pair of tokens"));
    merges.iter().enumerate().map(|(i, merge)| one(merge).ok_or_else(|| wrong(i))).collect()
}

/// The special token that the file's template puts before a text.
fn first_special(processor: &Value) -> Option<&str> {
    let one = std::slice::from_ref(processor);
    let steps = processor["processors"].as_array().map_or(one, Vec::as_slice);
    let template = steps.iter().find(|step| step["type"] == "TemplateProcessing")?;
    template["single"][0]["SpecialToken"]["id"].as_str()
}
