//! A configuration as an ecosystem writes it: the way back from what [`DecoderKeys`](super::DecoderKeys) reads.

use super::{Config, rope, windows};
use crate::activation::Activation;
use crate::{DialectName, Fact, Facts};

/// The metadata of a model in an ecosystem's files: keys and values, in the order of a file. In config.json, dots
/// descend into objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The ecosystem.
    pub dialect: DialectName,
    /// Keys and values, no key twice.
    pub pairs: Vec<(String, Fact)>,
    /// Values that the ecosystem cannot express, or that its programs compute differently.
    pub losses: Vec<Loss>,
    /// Fields of [`Config`] that read otherwise, though nothing is lost.
    as_said: Vec<&'static str>,
}

/// A value of a model that an ecosystem cannot express, or that its programs compute differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The key that says it, as config.json calls it. Keys of the tokenizer's file begin with `tokenizer`.
    pub key: String,
    /// The field of [`Config`] that reads back differently; empty if none does.
    pub(crate) field: &'static str,
    /// The effect on results.
    pub what: String,
}

impl Loss {
    /// A loss in a file beside config.json, which no field of [`Config`] shows.
    pub fn beside(key: impl Into<String>, what: impl Into<String>) -> Loss {
        Loss { key: key.into(), field: "", what: what.into() }
    }
}

impl Description {
    /// Nothing yet.
    pub fn new(dialect: DialectName) -> Description {
        Description { dialect, pairs: Vec::new(), losses: Vec::new(), as_said: Vec::new() }
    }

    /// Sets `key`, replacing an earlier value.
    pub fn put(&mut self, key: &str, fact: Fact) {
        match self.pairs.iter_mut().find(|(k, _)| k == key) {
            Some((_, there)) => *there = fact,
            None => self.pairs.push((key.to_owned(), fact)),
        }
    }

    /// Records that the ecosystem cannot express a value, or computes it differently: `key` is its key in config.json,
    /// `what` the effect on results, `field` the field of [`Config`] that reads back differently (empty: none). A
    /// conversion rejects such a model, unless its user accepts the loss by the name of the key.
    pub fn lose(&mut self, key: &str, field: &'static str, what: impl Into<String>) {
        self.losses.push(Loss { key: key.to_owned(), field, what: what.into() });
    }

    /// Records that a field reads back differently, though programs that run the files do as the model says.
    pub fn take_as_said(&mut self, field: &'static str) {
        self.as_said.push(field);
    }

    /// Returns true if the description explains why `field` reads back differently.
    pub(crate) fn accounts_for(&self, field: &str) -> bool {
        self.as_said.contains(&field) || self.losses.iter().any(|loss| loss.field == field)
    }

    /// Adds a count.
    pub fn count(&mut self, key: &str, n: u64) {
        self.put(key, Fact::Count(n));
    }

    /// Adds a number, as the shortest decimal that reads as the same f32.
    pub fn number(&mut self, key: &str, x: f64) {
        self.put(key, Fact::Number(shortest(x)));
    }

    /// Adds a number, written as a whole number if it is one.
    pub fn whole(&mut self, key: &str, x: f64) {
        match u64::try_from(x as i64) {
            Ok(whole) if x.fract() == 0.0 && x < 1e15 => self.count(key, whole),
            _ => self.number(key, x),
        }
    }

    /// Adds a list of numbers.
    pub fn numbers(&mut self, key: &str, numbers: &[f64]) {
        self.put(key, Fact::List(numbers.iter().map(|x| Fact::Number(shortest(*x))).collect()));
    }

    /// `architectures` and `model_type`.
    pub fn named(&mut self, architecture: &str, model_type: &str) {
        self.put("architectures", Fact::List(vec![Fact::Str(architecture.to_owned())]));
        self.text("model_type", model_type);
    }

    /// Adds a string.
    pub fn text(&mut self, key: &str, text: &str) {
        self.put(key, Fact::Str(text.to_owned()));
    }

    /// Adds a flag.
    pub fn flag(&mut self, key: &str, flag: bool) {
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

    fn pairs(&self) -> Vec<(String, Fact)> {
        self.pairs.clone()
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

/// The keys of a decoder in GGUF, below `architecture`, with the norm's epsilon by `norm_eps`. llama.cpp knows the activation by
/// the architecture: it is `activation`, and a model with another one loses it.
///
/// Source: conversion/base.py@0c1e57098, `TextModel.set_gguf_parameters`.
pub fn gguf(c: &Config, architecture: &str, norm_eps: &str, activation: Activation) -> Description {
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
    if *c.activation != activation {
        let what =
            format!("llama.cpp runs `{architecture}` with `{}`: every result differs", activation.name());
        d.lose(&key_of(c, "hidden_act"), "activation", what);
    }
    d
}

/// The key of config.json that the activation was read from.
fn key_of(c: &Config, otherwise: &str) -> String {
    match &c.activation.origin {
        super::Origin::Key(key) => key.clone(),
        super::Origin::Default(_) => otherwise.to_owned(),
    }
}

/// Adds the window of every layer, which llama.cpp does not read for `architecture`.
pub fn gguf_unread_window(d: &mut Description, c: &Config, architecture: &str) {
    if *c.window == 0 {
        return;
    }
    d.count(&format!("{architecture}.attention.sliding_window"), *c.window);
    lose_window(d, c, "");
}

/// Records the loss of windows, which llama.cpp does not have here; `field` as in [`Description::lose`].
pub fn lose_window(d: &mut Description, c: &Config, field: &'static str) {
    // Within the window, nothing is seen less.
    if c.has_windows() && *c.window < *c.context {
        let what = format!(
            "llama.cpp lets every token see all before it: texts of more than {} tokens continue otherwise",
            *c.window
        );
        d.lose("sliding_window", field, what);
    }
}

/// Records the loss of attention's output bias, with which llama.cpp refuses the file.
pub fn lose_output_bias(d: &mut Description, own: &dyn Fn(&str) -> bool) {
    if own("layers.0.attention.output.bias") {
        d.lose("attention_bias", "", "llama.cpp has no bias after attention here, and refuses the file");
    }
}

/// Records the loss of heads that together are not as wide as the residual stream, with which llama.cpp refuses the file.
pub fn lose_head_dim(d: &mut Description, c: &Config) {
    if c.heads.checked_mul(*c.head_dim) != Some(*c.hidden) {
        d.lose(
            "head_dim",
            "",
            "llama.cpp wants heads as wide as the residual stream here, and refuses the file",
        );
    }
}

/// Adds the window of some layers, as llama.cpp reads it; `period` is its default where no key gives it.
pub fn gguf_windows(d: &mut Description, c: &Config, architecture: &str, period: Option<u64>) {
    let key = |rest: &str| format!("{architecture}.attention.{rest}");
    d.count(&key("sliding_window"), if c.has_windows() { *c.window } else { 0 });
    match windows::period(&c.windowed) {
        Some(found) if Some(found) == period => {}
        Some(found) => d.count(&key("sliding_window_pattern"), found),
        None => {
            let flags = c.windowed.iter().map(|windowed| Fact::Bool(*windowed)).collect();
            d.put(&key("sliding_window_pattern"), Fact::List(flags));
        }
    }
}

/// Adds the keys that decoders with rotary embeddings have in GGUF.
pub fn gguf_rotary(d: &mut Description, c: &Config, architecture: &str) {
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

/// Adds the keys that mixtures of experts have in GGUF.
///
/// Source: conversion/base.py@0c1e57098, `TextModel.set_gguf_parameters`; conversion/deepseek.py, `DeepseekV2Model`.
pub fn gguf_moe(d: &mut Description, c: &Config, architecture: &str) {
    let Some(moe) = &c.moe else { return };
    let key = |rest: &str| format!("{architecture}.{rest}");
    d.count(&key("expert_count"), *moe.experts);
    d.count(&key("expert_used_count"), *moe.used);
    if *moe.groups > 0 {
        d.count(&key("expert_group_count"), *moe.groups);
        d.count(&key("expert_group_used_count"), *moe.groups_used);
    }
    if (*moe.scale - 1.0).abs() > 1e-9 {
        d.number(&key("expert_weights_scale"), *moe.scale);
    }
}

/// The keys of a decoder in config.json, as Llama and its like have them, with the norm's epsilon by `norm_eps`. Says nothing of the
/// activation, biases and tied matrices.
pub fn hf(c: &Config, architecture: &str, model_type: &str, norm_eps: &str) -> Description {
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
    d.number(norm_eps, *c.norm_eps);
    d.number("rope_theta", *c.rope_theta);
    if *c.rope_dims != *c.head_dim {
        d.number("partial_rotary_factor", *c.rope_dims as f64 / *c.head_dim as f64);
    }
    rope::to_hf(&mut d, &c.rope_scaling);
    d
}

/// Adds the keys that mixtures of experts have in config.json; `experts` is the key for the number of experts.
pub fn hf_moe(d: &mut Description, c: &Config, experts: &str) {
    let Some(moe) = &c.moe else { return };
    d.count(experts, *moe.experts);
    d.count("num_experts_per_tok", *moe.used);
}

/// Adds the windows as Qwen has them.
pub fn late_windows(d: &mut Description, c: &Config) {
    d.flag("use_sliding_window", c.has_windows());
    if c.has_windows() {
        d.count("sliding_window", *c.window);
        d.put("layer_types", windows::types(c));
        // Older versions of transformers read this key instead.
        let first = c.windowed.iter().position(|windowed| *windowed).unwrap_or(0);
        d.count("max_window_layers", first as u64);
    }
}

/// The class of a model that may score texts, and the names of its scores: `BertModel`, or `BertForSequenceClassification`.
pub fn classifier(d: &mut Description, c: &Config, class: &str, model_type: &str) {
    if *c.labels == 0 {
        return d.named(&format!("{class}Model"), model_type);
    }
    d.named(&format!("{class}ForSequenceClassification"), model_type);
    for label in 0..*c.labels {
        d.text(&format!("id2label.{label}"), &format!("LABEL_{label}"));
    }
}

/// Adds the stretch of rotary frequencies: `rope_scaling`.
pub fn rope_scaling(d: &mut Description, c: &Config) {
    rope::to_hf(d, &c.rope_scaling);
}

/// Adds the list of layers with a window: `layer_types`.
pub fn layer_types(d: &mut Description, c: &Config) {
    d.put("layer_types", windows::types(c));
}

/// Adds what scores are divided by the root of, as Gemma has it.
pub(crate) fn query_scalar(d: &mut Description, c: &Config) {
    // A whole number in every released model, which the square root of a power does not always give back.
    let scalar = c.attention_scale.powi(-2);
    let near = (scalar - scalar.round()).abs() < 1e-3;
    match u64::try_from(scalar.round() as i64) {
        Ok(whole) if near => d.count("query_pre_attn_scalar", whole),
        _ => d.number("query_pre_attn_scalar", scalar),
    }
}
