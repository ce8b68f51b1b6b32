//! A configuration as an ecosystem writes it: the way back from what [`super::keys`] reads.

use super::Config;
use crate::architecture::RopeScaling;
use crate::{DialectName, Fact, Facts};

/// What a checkpoint of an ecosystem says of its model: keys and values, in the order of a file. In config.json, dots
/// descend into objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The ecosystem.
    pub dialect: DialectName,
    /// Keys and values, no key twice.
    pub pairs: Vec<(String, Fact)>,
}

impl Description {
    pub(crate) fn new(dialect: DialectName) -> Description {
        Description { dialect, pairs: Vec::new() }
    }

    pub(crate) fn put(&mut self, key: &str, fact: Fact) {
        match self.pairs.iter_mut().find(|(k, _)| k == key) {
            Some((_, there)) => *there = fact,
            None => self.pairs.push((key.to_owned(), fact)),
        }
    }

    pub(crate) fn count(&mut self, key: &str, n: u64) {
        self.put(key, Fact::Count(n));
    }

    pub(crate) fn number(&mut self, key: &str, x: f64) {
        self.put(key, Fact::Number(shortest(x)));
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.put(key, Fact::Str(text.to_owned()));
    }

    pub(crate) fn flag(&mut self, key: &str, flag: bool) {
        self.put(key, Fact::Bool(flag));
    }
}

impl Facts for Description {
    fn dialect(&self) -> DialectName {
        self.dialect
    }

    fn lookup(&self, key: &str) -> Option<Fact> {
        let found = self.pairs.iter().find(|(k, _)| k == key);
        let inside =
            || self.pairs.iter().any(|(k, _)| k.strip_prefix(key).is_some_and(|k| k.starts_with('.')));
        match found {
            Some((_, fact)) => Some(fact.clone()),
            None => (self.dialect == DialectName::Hf && inside()).then_some(Fact::Object),
        }
    }

    fn vocabulary(&self) -> Option<(String, u64)> {
        None
    }
}

/// A number that was an f32 as the shortest decimal that is that f32: `1e-5`, not `9.99999974737875e-6`.
fn shortest(x: f64) -> f64 {
    let narrow = x as f32;
    if f64::from(narrow).to_bits() == x.to_bits() { narrow.to_string().parse().unwrap_or(x) } else { x }
}

/// The keys of a decoder in GGUF, below `architecture`, with the norm's epsilon by `norm_eps`.
///
/// Source: conversion/base.py@0c1e57098, `TextModel.set_gguf_parameters`.
pub(crate) fn gguf(c: &Config, architecture: &str, norm_eps: &str) -> Description {
    let mut d = Description::new(DialectName::Gguf);
    let key = |rest: &str| format!("{architecture}.{rest}");
    d.text("general.architecture", architecture);
    d.count(&key("block_count"), *c.layers);
    d.count(&key("context_length"), *c.context);
    d.count(&key("embedding_length"), *c.hidden);
    d.count(&key("feed_forward_length"), *c.ffn);
    d.count(&key("attention.head_count"), *c.heads);
    d.number(&key(norm_eps), *c.norm_eps);
    d.count(&key("vocab_size"), *c.vocab);
    d
}

/// What a decoder with rotary embeddings says besides.
pub(crate) fn gguf_rotary(d: &mut Description, c: &Config, architecture: &str) {
    let key = |rest: &str| format!("{architecture}.{rest}");
    d.count(&key("attention.head_count_kv"), *c.kv_heads);
    d.count(&key("attention.key_length"), *c.head_dim);
    d.count(&key("attention.value_length"), *c.head_dim);
    d.number(&key("rope.freq_base"), *c.rope_theta);
    if let RopeScaling::Linear { factor } = *c.rope_scaling {
        d.text(&key("rope.scaling.type"), "linear");
        d.number(&key("rope.scaling.factor"), factor);
    }
}

/// The keys of a decoder in config.json, as Llama and its like have them.
pub(crate) fn hf(c: &Config, architecture: &str, model_type: &str) -> Description {
    let mut d = Description::new(DialectName::Hf);
    d.put("architectures", Fact::List(vec![Fact::Str(architecture.to_owned())]));
    d.text("model_type", model_type);
    d.count("hidden_size", *c.hidden);
    d.count("intermediate_size", *c.ffn);
    d.count("num_hidden_layers", *c.layers);
    d.count("num_attention_heads", *c.heads);
    d.count("num_key_value_heads", *c.kv_heads);
    d.count("head_dim", *c.head_dim);
    d.count("vocab_size", *c.vocab);
    d.count("max_position_embeddings", *c.context);
    d.number("rms_norm_eps", *c.norm_eps);
    d.number("rope_theta", *c.rope_theta);
    hf_rope_scaling(&mut d, *c.rope_scaling);
    d
}

/// `rope_scaling`, which every version of transformers reads.
fn hf_rope_scaling(d: &mut Description, scaling: RopeScaling) {
    let mut kind = |kind: &str, numbers: &[(&str, f64)]| {
        d.text("rope_scaling.rope_type", kind);
        for (name, x) in numbers {
            d.number(&format!("rope_scaling.{name}"), *x);
        }
    };
    match scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => kind("linear", &[("factor", factor)]),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let numbers = [
                ("factor", factor),
                ("low_freq_factor", low_freq_factor),
                ("high_freq_factor", high_freq_factor),
            ];
            kind("llama3", &numbers);
            d.number("rope_scaling.original_max_position_embeddings", original_context);
        }
    }
}
