//! GGUF adapters, as llama.cpp's `convert_lora_to_gguf.py` writes them.
//!
//! Source: llama.cpp src/llama-adapter.cpp@0c1e57098, `llama_adapter_lora_init_impl`.

use std::collections::BTreeMap;

use checkpoint::{Checkpoint, GgufMetadata};
use model::{Fact, Facts, KeyVerdict, Verdict};

use crate::factors::{Halves, factors, pair};
use crate::pair::Pair;
use crate::{Error, Problem};

const TYPE: &str = "general.type";
const ADAPTER: &str = "adapter.type";
const ALPHA: &str = "adapter.lora.alpha";
pub(crate) const ARCHITECTURE: &str = "general.architecture";
/// A token embedding is changed by `A · Bᵀ`.
const EMBEDDING: &str = "token_embd.weight";
const WANTED: &str = "`NAME.lora_a` or `NAME.lora_b`";

/// Keys without effect; those that end with a dot begin others.
static WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("adapter.lora.task_name", "about the adapter"),
    ("adapter.lora.prompt_prefix", "for the program that runs it"),
    ("general.", "about the adapter"),
];

/// What is read of a file.
pub(crate) struct Gguf {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) keys: Vec<KeyVerdict>,
    pub(crate) problems: Vec<Problem>,
}

/// Reads the adapter in a GGUF file.
pub(crate) fn read(file: &Checkpoint, metadata: &GgufMetadata) -> Result<Gguf, Error> {
    let facts = file.metadata();
    let mut problems = vec![];
    let text = |key: &str| match facts.lookup(key) {
        Some(Fact::Str(text)) => Some(text),
        _ => None,
    };
    for (key, wanted) in [(TYPE, "adapter"), (ADAPTER, "lora")] {
        if text(key).as_deref() != Some(wanted) {
            let (found, wanted) = (facts.lookup(key).map(|f| f.to_string()), format!("\"{wanted}\""));
            problems.push(Problem::Key { key: key.to_owned(), found, wanted, hint: None });
        }
    }
    let alpha = facts.lookup(ALPHA).and_then(|fact| fact.number());
    if alpha.is_none() {
        let (found, wanted) = (facts.lookup(ALPHA).map(|f| f.to_string()), "a number".to_owned());
        problems.push(Problem::Key { key: ALPHA.to_owned(), found, wanted, hint: None });
    }
    let keys = metadata.keys().map(|key| {
        let verdict = match key {
            ALPHA => Verdict::Used,
            TYPE | ADAPTER | ARCHITECTURE => Verdict::Checked,
            "adapter.alora.invocation_tokens" => Verdict::NotFollowed { wanted: "no value".to_owned() },
            key => {
                let fits = |(own, _): &&(&str, &str)| {
                    if own.ends_with('.') { key.starts_with(own) } else { key == *own }
                };
                let known = WITHOUT_EFFECT.iter().find(fits);
                known.map_or(Verdict::Unknown, |(_, why)| Verdict::WithoutEffect(why))
            }
        };
        let value = facts.lookup(key).unwrap_or(Fact::Null).to_string();
        KeyVerdict { key: key.to_owned(), value, verdict }
    });
    let keys: Vec<KeyVerdict> = keys.collect();
    for key in &keys {
        if let Verdict::NotFollowed { wanted } = &key.verdict {
            let (key, found) = (key.key.clone(), Some(key.value.clone()));
            problems.push(Problem::Key { key, found, wanted: wanted.clone(), hint: None });
        }
    }
    let mut halves: BTreeMap<String, Halves> = BTreeMap::new();
    for factor in factors(file, &mut problems)? {
        let place = match factor.tensor.strip_suffix(".lora_a") {
            Some(name) => Some((name.to_owned(), true)),
            None => factor.tensor.strip_suffix(".lora_b").map(|name| (name.to_owned(), false)),
        };
        let Some((name, is_a)) = place else {
            problems.push(Problem::NoFactor { tensor: factor.tensor, wanted: WANTED });
            continue;
        };
        let halves = halves.entry(name).or_default();
        *if is_a { &mut halves.a } else { &mut halves.b } = Some(factor);
    }
    let mut pairs = vec![];
    for (name, halves) in halves {
        let other = |tensor: &str| {
            let (name, end) = tensor.rsplit_once('.')?;
            Some(format!("{name}.{}", if end == "lora_a" { "lora_b" } else { "lora_a" }))
        };
        let Some((mut a, mut b)) = halves.both(other, &mut problems) else { continue };
        if name == EMBEDDING {
            (a, b) = (b.transposed(), a);
        }
        // llama.cpp takes an alpha of 0 for none.
        let alpha = alpha.unwrap_or(0.0);
        let scale = if alpha == 0.0 { 1.0 } else { alpha / a.rows.max(1) as f64 };
        #[expect(clippy::cast_possible_truncation, reason = "factors are f32")]
        pairs.extend(pair(name, a, b, scale as f32, &mut problems));
    }
    Ok(Gguf { pairs, keys, problems })
}
