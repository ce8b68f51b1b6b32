//! Gemma 3 (text): local layers with a window, every sixth global; two rotary bases; norms of q and k
//! and after attention and feed-forward; norms multiply by `1 + w`.
//!
//! Source: transformers `Gemma3ForCausalLM`; llama.cpp src/models/gemma3.cpp@0c1e57098.

use crate::Fact;
use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{
    Config, DecoderKeys, Field, GGUF_DECODER_WITHOUT_EFFECT, Keys, Reader, Rotary, WithoutEffect, keys,
    windows,
};
use crate::dialect::{Dialect, GGUF_DECODER, HF_DECODER, HF_DROPS, Rule, add_one};
use crate::ecosystem::DialectName;
use crate::module::Module;
use crate::rope::{RopeScaling, yarn_mscale};

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Gemma3;

impl Family for Gemma3 {
    fn name(&self) -> &'static str {
        "gemma3"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["gemma3"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Gemma3ForCausalLM", "Gemma3TextModel", "gemma3_text"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let rotary = match r.dialect() {
            DialectName::Gguf => Rotary { local_theta: Some(10_000.0), ..Rotary::PLAIN },
            _ => Rotary { theta: 1e6, local_theta: Some(10_000.0), ..Rotary::PLAIN },
        };
        let common = DecoderKeys {
            activation: Keys::new("activation", &[], &["hidden_activation"]),
            activation_absent: Activation::GeluTanh,
            kv_heads_absent: Some(4),
            head_dim_absent: Some(256),
            rotary,
            ..DecoderKeys::LLAMA
        };
        let base = common.read(r);
        let base = windows::alternating(r, base, 4096, 6);
        let attention_scale = match (keys::attention_scale(r), r.dialect()) {
            (Some(scale), _) => scale,
            (None, DialectName::Gguf) => {
                let (scale, why) = scale_by_size(&base);
                Field::default(scale, why)
            }
            (None, _) => Field::default(256f64.powf(-0.5), "of transformers: 1 / sqrt(256)"),
        };
        let logit_soft_cap = if r.has_parts() {
            r.overridden(keys::LOGIT_SOFT_CAP, "`Gemma3ForConditionalGeneration` has no cap of logits");
            None
        } else {
            r.number(keys::LOGIT_SOFT_CAP)
        };
        let logit_soft_cap = logit_soft_cap.unwrap_or(Field::default(0.0, "none"));
        let tied = r.tied(true);
        r.only_flag(BIASES, false);
        let attention_bias = Field::default(Some(false), "none");
        r.only(SCORE_SOFT_CAP, "null: no cap of scores", |_| false);
        r.only_flag(BIDIRECTIONAL, false);
        Config { attention_scale, attention_bias, logit_soft_cap, tied, ..base }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let soft_cap = *c.logit_soft_cap > 0.0;
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "gemma3", "attention.layer_norm_rms_epsilon", Activation::GeluTanh);
            describe::gguf_rotary(&mut d, c, "gemma3");
            if c.has_windows() {
                d.number("gemma3.rope.freq_base_swa", *c.rope_local_theta);
                // llama-quantize and others want to see it.
                describe::gguf_windows(&mut d, c, "gemma3", None);
                if *c.rope_local_scaling != RopeScaling::None {
                    let what =
                        "llama.cpp stretches no frequencies of layers with a window: every result differs";
                    d.lose("rope_parameters.sliding_attention", "rope_local_scaling", what);
                }
                if let RopeScaling::Yarn(yarn) = &*c.rope_scaling
                    && (yarn.attention_factor / yarn_mscale(yarn.factor, 1.0) - 1.0).abs() > 1e-6
                {
                    let what = "llama.cpp scales layers with a window by it, too: every result differs";
                    d.lose("rope_parameters.full_attention.attention_factor", "", what);
                }
            }
            // llama.cpp scales by what it knows of the sizes of Gemma 3, and reads no key for it.
            let (scale, _) = scale_by_size(c);
            if (*c.attention_scale - scale).abs() > 1e-7 * *c.attention_scale {
                d.number("gemma3.attention.scale", *c.attention_scale);
                let what = format!(
                    "llama.cpp reads no key for it and scales scores by {:.6}, not {:.6}: every result differs",
                    scale, *c.attention_scale
                );
                d.lose("query_pre_attn_scalar", "", what);
            }
            if soft_cap {
                d.number("gemma3.final_logit_softcapping", *c.logit_soft_cap);
            }
            return d;
        }
        let mut d = describe::hf(c, "Gemma3ForCausalLM", "gemma3_text", "rms_norm_eps");
        let tanh = *c.activation == Activation::GeluTanh;
        d.text("hidden_activation", if tanh { "gelu_pytorch_tanh" } else { c.activation.name() });
        d.number("rope_local_base_freq", *c.rope_local_theta);
        describe::layer_types(&mut d, c);
        if c.has_windows() {
            d.count("sliding_window", *c.window);
            if let Some(period) = windows::period(&c.windowed) {
                d.count("sliding_window_pattern", period);
            }
        }
        describe::query_scalar(&mut d, c);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d.put("attn_logit_softcapping", Fact::Null);
        d.put("final_logit_softcapping", if soft_cap { Fact::Number(*c.logit_soft_cap) } else { Fact::Null });
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n).with_head_norms(c);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::No))
                .with_post_norms(c, blocks::Norm::rms)
        };
        let decoder = Decoder::new(c, blocks::Norm::rms, block);
        Box::new(decoder.with_scaled_embedding((*c.hidden as f32).sqrt()))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF]) },
        })
    }
}

const SCORE_SOFT_CAP: Keys =
    Keys::new("score_soft_cap", &["attn_logit_softcapping"], &["attn_logit_softcapping"]);
const BIASES: Keys = Keys::new("attention_bias", &[], &["attention_bias"]);
const BIDIRECTIONAL: Keys = Keys::new("bidirectional", &[], &["use_bidirectional_attention"]);

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("_sliding_window_pattern", "`layer_types` or `sliding_window_pattern` says it"),
    ("hidden_act", "`hidden_activation` says it"),
    ("cache_implementation", "for the program that runs it"),
];

/// Returns the scale of attention scores where no key gives it. The 27B model, which has 62 layers, was trained with
/// another rule. Source: src/models/gemma3.cpp@0c1e57098.
fn scale_by_size(c: &Config) -> (f64, &'static str) {
    if *c.layers == 62 {
        let scale = (*c.hidden as f64 / *c.heads as f64).powf(-0.5);
        return (scale, "1 / sqrt(hidden / heads), as the 27B model was trained");
    }
    ((*c.head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)")
}

/// Norms carry their +1 already. Source: conversion/gemma.py@0c1e57098, `norm_shift`.
static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight"),
    Rule::same("layers.{n}.attention.k.weight", "blk.{n}.attn_k.weight"),
    Rule::same("layers.{n}.attention.v.weight", "blk.{n}.attn_v.weight"),
    Rule::same("layers.{n}.attention.q_norm.weight", "blk.{n}.attn_q_norm.weight"),
    Rule::same("layers.{n}.attention.k_norm.weight", "blk.{n}.attn_k_norm.weight"),
    Rule::same("layers.{n}.attention_post_norm.weight", "blk.{n}.post_attention_norm.weight"),
    Rule::same("layers.{n}.ffn_post_norm.weight", "blk.{n}.post_ffw_norm.weight"),
];

/// `post_attention_layernorm` is the norm after attention here; in Llama the same name is the one before
/// the feed-forward network.
static HF: &[Rule] = &[
    Rule::with("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight", add_one),
    Rule::with("layers.{n}.attention.q_norm.weight", "model.layers.{n}.self_attn.q_norm.weight", add_one),
    Rule::with("layers.{n}.attention.k_norm.weight", "model.layers.{n}.self_attn.k_norm.weight", add_one),
    Rule::with(
        "layers.{n}.attention_post_norm.weight",
        "model.layers.{n}.post_attention_layernorm.weight",
        add_one,
    ),
    Rule::with("layers.{n}.ffn_norm.weight", "model.layers.{n}.pre_feedforward_layernorm.weight", add_one),
    Rule::with(
        "layers.{n}.ffn_post_norm.weight",
        "model.layers.{n}.post_feedforward_layernorm.weight",
        add_one,
    ),
    Rule::with("output_norm.weight", "model.norm.weight", add_one),
];
