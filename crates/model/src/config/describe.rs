//! A configuration as an ecosystem writes it: the way back from what [`super::keys`] reads.

use super::{Config, rope};
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

    /// A number that is written as whole where it is.
    pub(crate) fn whole(&mut self, key: &str, x: f64) {
        match u64::try_from(x as i64) {
            Ok(whole) if x.fract() == 0.0 && x < 1e15 => self.count(key, whole),
            _ => self.number(key, x),
        }
    }

    pub(crate) fn numbers(&mut self, key: &str, numbers: &[f64]) {
        self.put(key, Fact::List(numbers.iter().map(|x| Fact::Number(shortest(*x))).collect()));
    }

    /// `architectures` and `model_type`.
    pub(crate) fn named(&mut self, architecture: &str, model_type: &str) {
        self.put("architectures", Fact::List(vec![Fact::Str(architecture.to_owned())]));
        self.text("model_type", model_type);
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
    if *c.rope_dims != *c.head_dim {
        d.count(&key("rope.dimension_count"), *c.rope_dims);
    }
    rope::to_gguf(d, &c.rope_scaling, architecture, *c.context);
}

/// What a mixture of experts says besides.
///
/// Source: conversion/base.py@0c1e57098, `TextModel.set_gguf_parameters`; conversion/deepseek.py, `DeepseekV2Model`.
pub(crate) fn gguf_moe(d: &mut Description, c: &Config, architecture: &str) {
    let Some(moe) = &c.moe else { return };
    let key = |rest: &str| format!("{architecture}.{rest}");
    d.count(&key("expert_count"), *moe.experts);
    d.count(&key("expert_used_count"), *moe.used);
    if *moe.ffn != *c.ffn {
        d.count(&key("expert_feed_forward_length"), *moe.ffn);
    }
    if *moe.groups > 0 {
        d.count(&key("expert_group_count"), *moe.groups);
        d.count(&key("expert_group_used_count"), *moe.groups_used);
    }
    if (*moe.scale - 1.0).abs() > 1e-9 {
        d.number(&key("expert_weights_scale"), *moe.scale);
    }
}

/// The keys of a decoder in config.json, as Llama and its like have them.
pub(crate) fn hf(c: &Config, architecture: &str, model_type: &str) -> Description {
    let mut d = Description::new(DialectName::Hf);
    d.named(architecture, model_type);
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
    if *c.rope_dims != *c.head_dim {
        d.number("partial_rotary_factor", *c.rope_dims as f64 / *c.head_dim as f64);
    }
    rope::to_hf(&mut d, &c.rope_scaling);
    d
}

/// What a mixture of experts says besides; `experts` is the key for how many there are.
pub(crate) fn hf_moe(d: &mut Description, c: &Config, experts: &str) {
    let Some(moe) = &c.moe else { return };
    d.count(experts, *moe.experts);
    d.count("num_experts_per_tok", *moe.used);
    if *moe.ffn != *c.ffn {
        d.count("moe_intermediate_size", *moe.ffn);
    }
}

/// Windows as Qwen has them.
pub(crate) fn late_windows(d: &mut Description, c: &Config) {
    d.flag("use_sliding_window", *c.window > 0);
    if *c.window > 0 {
        d.count("sliding_window", *c.window);
        d.count("max_window_layers", *c.window_after);
    }
}

/// `layer_types`: which layers have a window.
pub(crate) fn layer_types(d: &mut Description, c: &Config) {
    let kind =
        |n| Fact::Str(if c.is_windowed(n) { "sliding_attention" } else { "full_attention" }.to_owned());
    d.put("layer_types", Fact::List((0..*c.layers).map(kind).collect()));
}
