//! What a directory of sentence-transformers says about the vectors of texts, in the words of GGUF.
//!
//! Source: conversion/base.py@0c1e57098, `TextModel._try_set_pooling_type`; `enum llama_pooling_type` of include/llama.h there.

use checkpoint::HfMetadata;
use model::Loss;
use serde_json::{Map, Value};

use super::Left;
use crate::Error;

const MODULES: &str = "modules.json";
const NO_KEY: &str = "GGUF has no key for it that is known here";

/// Ways to make one vector of a text's, by the names that settings of now and of before have for them, and llama.cpp's number.
const WAYS: &[(&str, &str, Option<u32>)] = &[
    ("mean", "pooling_mode_mean_tokens", Some(1)),
    ("cls", "pooling_mode_cls_token", Some(2)),
    ("lasttoken", "pooling_mode_lasttoken", Some(3)),
    ("max", "pooling_mode_max_tokens", None),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", None),
    ("weightedmean", "pooling_mode_weightedmean_tokens", None),
];

/// What the settings say, and what of it GGUF cannot say.
#[derive(Default)]
pub(super) struct Pooling {
    /// `pooling_type`.
    pub(super) kind: Option<u32>,
    pub(super) lost: Vec<Loss>,
    pub(super) left: Vec<Left>,
}

/// Reads the settings of a directory; nothing is said without a `modules.json`.
pub(super) fn of(hf: &HfMetadata) -> Result<Pooling, Error> {
    let mut pooling = Pooling::default();
    let Some(modules) = hf.file(MODULES)? else { return Ok(pooling) };
    let modules = parse(hf, MODULES, &modules)?;
    let text = |module: &Value, key: &str| module[key].as_str().unwrap_or_default().to_owned();
    let mut normalizes = false;
    for module in modules.as_array().into_iter().flatten() {
        let (kind, folder) = (text(module, "type"), text(module, "path"));
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {
                pooling.list(hf, "sentence_bert_config.json", &["do_lower_case"])?;
            }
            "Pooling" if pooling.kind.is_none() => pooling.read(hf, &format!("{folder}/config.json"))?,
            "Normalize" => normalizes = true,
            other => pooling.lost.push(Loss::beside(
                format!("{MODULES}.{other}"),
                format!("llama.cpp leaves `{folder}` out: every vector differs"),
            )),
        }
    }
    if !normalizes {
        let why = "programs of llama.cpp divide vectors by their length unless they are told otherwise";
        pooling.left.push(Left::new(MODULES, "Normalize", why));
    }
    pooling.list(hf, "config_sentence_transformers.json", &[])?;
    Ok(pooling)
}

impl Pooling {
    fn read(&mut self, hf: &HfMetadata, file: &str) -> Result<(), Error> {
        let settings = object(hf, file)?;
        let mut named: Vec<&str> = match settings.get("pooling_mode") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(name)) => vec![name],
            _ => WAYS
                .iter()
                .filter(|(_, old, _)| settings.get(*old) == Some(&Value::Bool(true)))
                .map(|(name, ..)| *name)
                .collect(),
        };
        if named.is_empty() {
            named.push("mean");
        }
        let known = |name: &str| WAYS.iter().find(|(known, ..)| *known == name).and_then(|(.., kind)| *kind);
        match (&named[..], named.first().and_then(|name| known(name))) {
            ([_], Some(kind)) => self.kind = Some(kind),
            _ => {
                let effect = format!(
                    "llama.cpp pools by mean, cls or the last token alone, not by {}: every vector differs",
                    named.join(" and ")
                );
                self.lost.push(Loss::beside("pooling_mode", effect));
            }
        }
        if settings.get("include_prompt") == Some(&Value::Bool(false)) {
            self.left.push(Left::new(file, "include_prompt", "GGUF has no prompts of texts"));
        }
        Ok(())
    }

    /// Lists what a file says that is neither null, empty nor false; what changes every vector is a loss.
    fn list(&mut self, hf: &HfMetadata, file: &str, losses: &[&str]) -> Result<(), Error> {
        for (key, value) in object(hf, file)? {
            let is_plain = match &value {
                Value::Null | Value::Bool(false) => true,
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            };
            if is_plain {
                continue;
            }
            if losses.contains(&key.as_str()) {
                let effect = "texts are not made lower case first, where the tokenizer does not do it";
                self.lost.push(Loss::beside(key, effect));
            } else {
                self.left.push(Left::new(file, &key, NO_KEY));
            }
        }
        Ok(())
    }
}

/// The object in `file`; empty if the file is not there.
fn object(hf: &HfMetadata, file: &str) -> Result<Map<String, Value>, Error> {
    let Some(bytes) = hf.file(file)? else { return Ok(Map::new()) };
    match parse(hf, file, &bytes)? {
        Value::Object(map) => Ok(map),
        _ => Err(wrong(hf, file, "wanted an object")),
    }
}

fn parse(hf: &HfMetadata, file: &str, bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map_err(|e| wrong(hf, file, &format!("not JSON: {e}")))
}

fn wrong(hf: &HfMetadata, file: &str, what: &str) -> Error {
    let what = format!("`{file}` of `{}`: {what}", hf.dir());
    Error::Convert { what: what.into() }
}
