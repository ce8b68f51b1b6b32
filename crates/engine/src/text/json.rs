//! `tokenizer.json`, as Hugging Face's tokenizers library writes it, read as a [`Vocabulary`].
//!
//! Byte-level BPE is understood, with the ways of cutting text that the known models use; anything else is
//! refused by name. The library itself is not used: it is 140 CPU-seconds of build (1.0.0-rc.3 with `bpe`
//! and `regex` alone), and one algorithm for both kinds of file cannot disagree with itself.
//!
//! Source: the serde forms in tokenizers/src/{models/bpe,pre_tokenizers,processors}@v0.22.

use serde_json::Value;

use super::{Error, Tokenizer, Vocabulary};

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
    /// Makes the tokenizer of a `tokenizer.json`; `config` is the `tokenizer_config.json` beside it, which
    /// names the tokens that begin and end a text.
    ///
    /// # Errors
    /// [`Error::Malformed`] where the file contradicts itself, [`Error::Unsupported`] for what is not
    /// byte-level BPE.
    pub fn from_json(json: &[u8], config: Option<&[u8]>) -> Result<Tokenizer, Error> {
        let file = parse("tokenizer.json", json)?;
        let config = config.map(|c| parse("tokenizer_config.json", c)).transpose()?.unwrap_or_default();
        let model = &file["model"];
        // Old files leave the type out, and only BPE has merges.
        match model["type"].as_str() {
            Some("BPE") => {}
            None if model["merges"].is_array() => {}
            other => return Err(unsupported("tokenizer model", other.unwrap_or("?"), "BPE")),
        }
        let pre = cutting(&file)?;
        let (tokens, types) = tokens(&file)?;
        let merges = merges(model)?;
        let id = |text: Option<&str>| {
            let text = text?;
            let at = tokens.iter().position(|t| t == text)?;
            u32::try_from(at).ok()
        };
        let named = |key: &str| config[key].as_str().or_else(|| config[key]["content"].as_str());
        let first = first_special(&file["post_processor"]);
        let vocabulary = Vocabulary {
            model: "gpt2",
            pre: Some(pre),
            tokens: tokens.iter().map(String::as_bytes).collect(),
            types: Some(types),
            merges: merges.iter().map(String::as_bytes).collect(),
            bos: id(named("bos_token").or(first)),
            eos: id(named("eos_token")),
            unk: id(model["unk_token"].as_str()),
            pad: id(named("pad_token")),
            add_bos: Some(first.is_some() || config["add_bos_token"].as_bool().unwrap_or(false)),
            add_eos: config["add_eos_token"].as_bool(),
            ..Vocabulary::default()
        };
        Tokenizer::from_vocabulary(&vocabulary)
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
    const KNOWN: &str = "ByteLevel alone, after Digits, or after the Split of Llama 3 or Qwen 2";
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
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    const USER: i32 = 4;
    let vocab = file["model"]["vocab"].as_object();
    let vocab = vocab.ok_or_else(|| Error::malformed("model.vocab", "wanted an object"))?;
    let added = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    // Ids that are dense are below this; a larger one leaves a gap, which is found below.
    let count = vocab.len() + added.len();
    let mut slots: Vec<Option<(&str, i32)>> = vec![None; count];
    for (text, id) in vocab {
        let slot = id.as_u64().and_then(|id| slots.get_mut(usize::try_from(id).ok()?));
        match slot {
            Some(slot @ None) => *slot = Some((text, NORMAL)),
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
        *slot = Some((text, if token["special"] == true { CONTROL } else { USER }));
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
