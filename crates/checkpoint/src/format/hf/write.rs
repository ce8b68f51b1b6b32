//! HF directories, written: the files beside the weights.

use std::collections::HashMap;

use serde_json::{Map, Value};
use tensor::{FileId, PlaneData, Scheme, TensorEntry};

use super::{CONFIG, HfMetadata, INDEX};
use crate::error::Error;
use crate::fault::Fault;
use crate::numbered::Numbered;
use crate::write::{Flavour, Outgoing, Refusals};

/// Small files that go along, where the source has them: tokenizers, templates, defaults. No code.
const MEMBERS: &[&str] = &[
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

impl Flavour {
    /// Returns true if a `config.json` can declare weights that are held in `scheme`.
    pub fn says(self, scheme: &Scheme) -> bool {
        let weight = [("model.layers.0.mlp.up_proj", scheme)];
        scheme.dtype().is_some() || crate::convention::describe(&weight, None, self == Flavour::Mlx).is_some()
    }
}

/// Returns true if a conversion may write a file of this name into a directory.
pub(crate) fn is_written(name: &str) -> bool {
    let is_shard = || {
        let stem = name.strip_suffix(".safetensors")?;
        let of_rank = stem.starts_with("model-rank-") || stem.starts_with("model-pp-");
        let numbered =
            Numbered::parse(name).is_some_and(|part| part.prefix == "model" && part.suffix == ".safetensors");
        (stem == "model" || of_rank || numbered).then_some(())
    };
    [CONFIG, INDEX].contains(&name) || MEMBERS.contains(&name) || is_shard().is_some()
}

/// Keys of `config.json` that say how weights are quantised.
const QUANTISATION: [&str; 2] = ["quantization", "quantization_config"];

/// The files beside the weights of an HF directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HfFiles {
    /// `config.json`; its description of quantised weights is derived anew.
    pub config: Map<String, Value>,
    /// `__metadata__` of the files with the weights.
    pub pairs: Vec<(String, String)>,
    /// Other small files: name and content.
    pub members: Vec<(String, Vec<u8>)>,
}

impl HfMetadata {
    /// All that a copy of the model needs beside its weights.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no `config.json`; or if a file cannot be read or leads out of the directory.
    pub fn files(&self) -> Result<HfFiles, Error> {
        let Some(Value::Object(config)) = self.config() else {
            let fault = Fault::Lacks { wants: "a `config.json` beside the weights of the source" };
            return Err(Error::whole(self.dir(), fault)
                .with_hint("write a `.safetensors` or an `.npz` file, which need none"));
        };
        let mut members = Vec::new();
        for (name, member) in self.beside().filter(|(name, _)| MEMBERS.contains(name)) {
            members.push((name.to_owned(), member.read()?));
        }
        Ok(HfFiles { config: config.clone(), pairs: self.safetensors().to_vec(), members })
    }
}

/// `__metadata__` of the file with the weights: the source's, with the framework that readers look for
/// (transformers modeling_utils.py, `load_state_dict`; mlx-lm utils.py, `save_model`).
pub(crate) fn pairs(source: &HfFiles, flavour: Flavour) -> Vec<(String, String)> {
    let format = match flavour {
        Flavour::Hf => "pt",
        Flavour::Mlx => "mlx",
    };
    let others = source.pairs.iter().filter(|(key, _)| key != "format").cloned();
    std::iter::once(("format".to_owned(), format.to_owned())).chain(others).collect()
}

/// The same `config.json` for weights none of which is quantised.
pub fn plain_config(config: &Map<String, Value>) -> Map<String, Value> {
    let mut plain = config.clone();
    for key in QUANTISATION {
        plain.remove(key);
    }
    plain
}

/// The `config.json` of a directory with `tensors`: the source's, with what it must say so that weights of
/// several planes are read back as they are meant, which is tried.
pub(crate) fn config_for(
    tensors: &[Outgoing],
    config: &Map<String, Value>,
    flavour: Flavour,
) -> Result<Vec<u8>, Error> {
    let plain = plain_config(config);
    let several: Vec<&Outgoing> = tensors.iter().filter(|t| t.scheme.dtype().is_none()).collect();
    if several.is_empty() {
        return Ok(pretty(&plain));
    }
    let mut refused = Refusals::default();
    for tensor in several.iter().filter(|t| parts(t).is_none()) {
        refused.scheme(tensor);
    }
    refused.check("safetensors", "a plain dtype or a scheme that config.json can describe")?;

    // Plain matrices too: some configurations list what is not quantised.
    let matrices = tensors
        .iter()
        .filter(|t| t.scheme.dtype().is_none() || (t.shape.len() > 1 && t.name.ends_with(".weight")));
    let weights: Vec<(&str, &Scheme)> = matrices.map(|t| (module(&t.name), &*t.scheme)).collect();
    let mlx = flavour == Flavour::Mlx;
    let before = config.get("quantization_config");
    let described = crate::convention::describe(&weights, before, mlx).map(|said| {
        let mut config = plain;
        config.extend(said);
        config
    });
    // The source's configuration works if its weights are left as they are.
    let said = described.into_iter().chain((!mlx).then(|| config.clone()));
    for config in said {
        if reads_back(&config, tensors) {
            return Ok(pretty(&config));
        }
    }
    let mut refused = Refusals::default();
    for tensor in several {
        refused.scheme(tensor);
    }
    refused.check("safetensors", "schemes that one config.json can describe together")?;
    Ok(pretty(config))
}

fn module(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

impl Outgoing {
    /// The tensors that readers of a directory want beside the planes of this one, which say again what its scheme says, each with
    /// its bytes.
    pub fn facts(&self) -> Vec<(Outgoing, Vec<u8>)> {
        let codec = quant::codec(&self.scheme.name);
        let facts = codec.map(|codec| codec.facts(&self.shape)).unwrap_or_default();
        let named = |quant::Fact { tensor, bytes }| {
            let name = format!("{}{}", module(&self.name), tensor.suffix);
            (Outgoing { name, shape: tensor.shape, scheme: Scheme::plain(tensor.dtype) }, bytes)
        };
        facts.into_iter().map(named).collect()
    }
}

fn parts(tensor: &Outgoing) -> Option<Vec<quant::PlaneTensor>> {
    let parts = quant::codec(&tensor.scheme.name)?.parts(&tensor.shape);
    (!parts.is_empty()).then_some(parts)
}

/// Whether the reader makes of `config` and of what would be written the tensors that are meant.
fn reads_back(config: &Map<String, Value>, tensors: &[Outgoing]) -> bool {
    let entry = |name: String, shape, scheme: std::sync::Arc<Scheme>| {
        let planes = scheme.planes.iter().map(|_| PlaneData { file: FileId(0), bytes: 0..0 }).collect();
        TensorEntry { name, shape, scheme, planes, strides: None }
    };
    // Tensors that only say again what others say are gone when these are read.
    let mut facts: HashMap<String, &Outgoing> = HashMap::new();
    let mut said = vec![];
    for tensor in tensors {
        for (fact, _) in tensor.facts() {
            said.push(entry(fact.name.clone(), fact.shape, fact.scheme));
            facts.insert(fact.name, tensor);
        }
    }
    let tensors: Vec<&Outgoing> = tensors.iter().filter(|t| !facts.contains_key(&t.name)).collect();
    let entries = tensors.iter().flat_map(|t| match parts(t) {
        Some(parts) => {
            let name = |p: &quant::PlaneTensor| format!("{}{}", module(&t.name), p.suffix);
            parts.iter().map(|p| entry(name(p), p.shape.clone(), Scheme::plain(p.dtype))).collect()
        }
        None => vec![entry(t.name.clone(), t.shape.clone(), t.scheme.clone())],
    });
    let read = |e: &TensorEntry| {
        let facts = facts.get(&e.name).map(|of| of.facts()).unwrap_or_default();
        let fact = facts.into_iter().find(|(fact, _)| fact.name == e.name);
        fact.map(|(_, bytes)| bytes).ok_or_else(|| format!("`{}` is not written yet", e.name))
    };
    let entries = entries.chain(said).collect();
    let Ok(found) = crate::convention::gather(&Value::Object(config.clone()), entries, &read) else {
        return false;
    };
    let same = |(e, t): (&TensorEntry, &Outgoing)| {
        e.name == t.name && e.shape == t.shape && e.scheme.name == t.scheme.name
    };
    found.len() == tensors.len() && found.iter().zip(tensors).all(same)
}

/// JSON as transformers writes it: two spaces, a newline at the end.
pub(crate) fn pretty(config: &Map<String, Value>) -> Vec<u8> {
    // A map that was JSON cannot fail to be JSON.
    let mut json = serde_json::to_vec_pretty(config).unwrap_or_default();
    json.push(b'\n');
    json
}
