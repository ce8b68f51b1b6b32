//! Gemma 2: every other layer has a window; soft caps of scores and of logits; norms before and after attention and the
//! feed-forward network, which multiply by `1 + w`.
//!
//! Source: transformers `Gemma2ForCausalLM`@v5.23; llama.cpp conversion/gemma.py, `Gemma2Model`, and
//! src/models/gemma2.cpp@0c1e57098; vllm/model_executor/models/gemma2.py, v0.33.0.

use crate::Fact;
use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{
    Config, DecoderKeys, Field, GGUF_DECODER_WITHOUT_EFFECT, Keys, Reader, WithoutEffect, keys, windows,
};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, HF_DECODER, HF_DROPS, Rule, add_one};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Gemma2;

impl Family for Gemma2 {
    fn name(&self) -> &'static str {
        "gemma2"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["gemma2"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Gemma2ForCausalLM", "Gemma2Model", "gemma2"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            activation: Keys::new("activation", &[], &["hidden_activation"]),
            activation_absent: Activation::GeluTanh,
            kv_heads_absent: Some(4),
            head_dim_absent: Some(256),
            ..DecoderKeys::LLAMA
        };
        let base = common.read(r);
        let mut base = windows::alternating_by_types(r, base, 4096, 2);
        if r.dialect() == DialectName::Gguf && r.fact(windows::WINDOW).is_none() {
            base.window = Field::default(4096, "as the family was trained");
        }
        windows::not_empty(r, &base);
        let attention_scale = match (keys::attention_scale(r), r.dialect()) {
            (Some(scale), _) => scale,
            (None, DialectName::Gguf) => {
                let (scale, why) = scale_by_size(&base);
                Field::default(scale, why)
            }
            (None, _) => Field::default(256f64.powf(-0.5), "of transformers: 1 / sqrt(256)"),
        };
        let (score_soft_cap, logit_soft_cap) = (cap(r, SCORES, 50.0), cap(r, keys::LOGIT_SOFT_CAP, 30.0));
        if r.dialect() == DialectName::Gguf {
            let theta = *base.rope_theta;
            r.only(LOCAL_THETA, "the base of the other layers", |fact| {
                fact.number().is_some_and(|x| (x - theta).abs() < 1e-6 * theta)
            });
        }
        r.only_flag(BIDIRECTIONAL, false);
        Config {
            tied: r.tied(true),
            attention_bias: r.attention_bias(false),
            attention_scale,
            score_soft_cap,
            logit_soft_cap,
            ..base
        }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let caps = [
            ("attn_logit_softcapping", "score_soft_cap", &c.score_soft_cap),
            ("final_logit_softcapping", "logit_soft_cap", &c.logit_soft_cap),
        ];
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "gemma2", "attention.layer_norm_rms_epsilon", Activation::GeluTanh);
            describe::gguf_rotary(&mut d, c, "gemma2");
            describe::gguf_windows(&mut d, c, "gemma2", Some(2));
            if !c.has_windows() {
                d.lose("layer_types", "window", "llama.cpp ends where no layer has a window");
            }
            // llama.cpp scales by what it knows of the sizes of Gemma 2, and reads no key for it.
            let (scale, _) = scale_by_size(c);
            if (*c.attention_scale - scale).abs() > 1e-7 * *c.attention_scale {
                d.number("gemma2.attention.scale", *c.attention_scale);
                let what = format!(
                    "llama.cpp reads no key for it and scales scores by {:.6}, not {:.6}: every result differs",
                    scale, *c.attention_scale
                );
                d.lose("query_pre_attn_scalar", "", what);
            }
            for (key, field, cap) in caps {
                if **cap > 0.0 {
                    d.number(&format!("gemma2.{key}"), **cap);
                } else {
                    d.lose(key, field, "llama.cpp has a cap always: every result differs");
                }
            }
            describe::lose_output_bias(&mut d, own);
            if own("output.weight") {
                let what = "llama.cpp has no output matrix beside the embedding's, and refuses the file";
                d.lose("tie_word_embeddings", "", what);
            }
            return d;
        }
        let mut d = describe::hf(c, "Gemma2ForCausalLM", "gemma2", "rms_norm_eps");
        let tanh = *c.activation == Activation::GeluTanh;
        d.text("hidden_activation", if tanh { "gelu_pytorch_tanh" } else { c.activation.name() });
        describe::layer_types(&mut d, c);
        if c.has_windows() {
            d.count("sliding_window", *c.window);
        }
        describe::query_scalar(&mut d, c);
        for (key, _, cap) in caps {
            d.put(key, if **cap > 0.0 { Fact::Number(**cap) } else { Fact::Null });
        }
        d.flag("attention_bias", own("layers.0.attention.q.bias"));
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::No))
                .with_post_norms(c, blocks::Norm::rms)
        };
        let decoder = Decoder::new(c, blocks::Norm::rms, block);
        Box::new(decoder.with_scaled_embedding((*c.hidden as f32).sqrt()))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV, GGUF]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF, HF_DECODER]) },
        })
    }
}

const SCORES: Keys = Keys::new("score_soft_cap", &["attn_logit_softcapping"], &["attn_logit_softcapping"]);
const LOCAL_THETA: Keys = Keys::new("rope_local_theta", &["rope.freq_base_swa"], &[]);
const BIDIRECTIONAL: Keys = Keys::new("bidirectional", &[], &["use_bidirectional_attention"]);

/// A soft cap: null means none, and `absent` is the cap where no key gives one.
fn cap(r: &mut Reader, keys: Keys, absent: f64) -> Field<f64> {
    if r.is_null(keys) {
        return Field::default(0.0, "null: none");
    }
    r.number(keys).unwrap_or(Field::default(absent, "as the family was trained"))
}

/// Returns the scale of attention scores where no key gives it. The 27B model, which has 46 layers, was trained with
/// another rule. Source: src/models/gemma2.cpp@0c1e57098.
fn scale_by_size(c: &Config) -> (f64, &'static str) {
    if *c.layers == 46 {
        let scale = ((*c.hidden / *c.heads) as f64).powf(-0.5);
        return (scale, "1 / sqrt(hidden / heads), as the 27B model was trained");
    }
    ((*c.head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)")
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("sliding_window_pattern", "of Gemma 3: here `layer_types` says it, or every other layer has the window"),
    (
        "_sliding_window_pattern",
        "of Gemma 3: here `layer_types` says it, or every other layer has the window",
    ),
    ("hidden_act", "`hidden_activation` says it"),
    ("cache_implementation", "for the program that runs it"),
];

/// Norms carry their +1 already. Source: conversion/gemma.py@0c1e57098, `Gemma2Model.modify_tensors`.
static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention_post_norm.weight", "blk.{n}.post_attention_norm.weight"),
    Rule::same("layers.{n}.ffn_post_norm.weight", "blk.{n}.post_ffw_norm.weight"),
];

/// `post_attention_layernorm` is the norm after attention here; in Llama the same name is the one before
/// the feed-forward network.
static HF: &[Rule] = &[
    Rule::with("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight", add_one),
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
    Rule::same("layers.{n}.attention.q.bias", "model.layers.{n}.self_attn.q_proj.bias"),
    Rule::same("layers.{n}.attention.k.bias", "model.layers.{n}.self_attn.k_proj.bias"),
    Rule::same("layers.{n}.attention.v.bias", "model.layers.{n}.self_attn.v_proj.bias"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
];
