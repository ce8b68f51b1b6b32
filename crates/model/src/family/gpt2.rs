//! GPT-2: LayerNorm with bias, learned positions, biases everywhere, no gate.
//!
//! Source: transformers `GPT2LMHeadModel`; llama.cpp src/models/gpt2.cpp@0c1e57098.

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Field, GGUF_DECODER_WITHOUT_EFFECT, Keys, Reader, WithoutEffect};
use crate::dialect::{
    Dialect, GGUF_DECODER, Rule, conv1d, conv1d_k, conv1d_q, conv1d_v, rows_k, rows_q, rows_v,
};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, Ffn};

/// The unit that stands for the family in the table.
pub(super) struct Gpt2;

impl Family for Gpt2 {
    fn name(&self) -> &'static str {
        "gpt2"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["gpt2"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["GPT2LMHeadModel", "GPT2Model", "gpt2"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            layers: Keys::new("layers", &["block_count"], &["num_hidden_layers", "n_layer"]),
            hidden: Keys::new("hidden", &["embedding_length"], &["hidden_size", "n_embd"]),
            heads: Keys::new("heads", &["attention.head_count"], &["num_attention_heads", "n_head"]),
            kv_heads: Keys::new("kv_heads", &["attention.head_count_kv"], &[]),
            head_dim: Keys::new("head_dim", &["attention.key_length"], &[]),
            ffn: Keys::new("ffn", &["feed_forward_length"], &["n_inner"]),
            context: Keys::new("context", &["context_length"], &["max_position_embeddings", "n_positions"]),
            norm_eps: Keys::new("norm_eps", &["attention.layer_norm_epsilon"], &["layer_norm_epsilon"]),
            activation: Keys::new("activation", &[], &["activation_function"]),
            activation_absent: Activation::GeluTanh,
            ffn_by_hidden: Some(4),
            norm_eps_absent: 1e-5,
            ..DecoderKeys::LLAMA
        };
        let c = Config { tied: r.tied(true), ..common.read(r) };
        let attention_scale = match r.flag(SCALED) {
            Some(Field { value: false, origin }) => Field { value: 1.0, origin },
            _ => c.attention_scale,
        };
        let by_layer = r.flag(BY_LAYER).unwrap_or(c.attention_scale_by_layer);
        r.only_flag(CROSS, false);
        Config { attention_scale, attention_scale_by_layer: by_layer, ..c }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "gpt2", "attention.layer_norm_epsilon", Activation::GeluTanh);
            if !is_usual_scale(c) {
                let what = "llama.cpp scales scores by 1 / sqrt(head_dim) always: every result differs";
                d.lose("scale_attn_weights", "attention_scale", what);
            }
            if *c.attention_scale_by_layer {
                let what = "llama.cpp scales scores of all layers alike: every result differs";
                d.lose("scale_attn_by_inverse_layer_idx", "attention_scale_by_layer", what);
            }
            return d;
        }
        let mut d = Description::new(DialectName::Hf);
        d.named("GPT2LMHeadModel", "gpt2");
        let tanh = *c.activation == Activation::GeluTanh;
        d.text("activation_function", if tanh { "gelu_new" } else { c.activation.name() });
        d.flag("scale_attn_weights", is_usual_scale(c));
        d.flag("scale_attn_by_inverse_layer_idx", *c.attention_scale_by_layer);
        d.count("n_embd", *c.hidden);
        d.count("n_layer", *c.layers);
        d.count("n_head", *c.heads);
        d.count("n_positions", *c.context);
        d.count("n_ctx", *c.context);
        d.count("n_inner", *c.ffn);
        d.count("vocab_size", *c.vocab);
        d.number("layer_norm_epsilon", *c.norm_eps);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            Block::new(
                c,
                blocks::Norm::layer,
                Attention::new(c, n, Bias::Yes, Bias::Yes),
                Ffn::new(c, Bias::Yes),
            )
        };
        Box::new(Decoder::new(c, blocks::Norm::layer, block).with_positions(c))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF]),
            _ => Dialect {
                prefix: "transformer.",
                drops: &[
                    ("h.{n}.attn.bias", "the causal mask, a constant"),
                    ("h.{n}.attn.masked_bias", "the mask's fill value, a constant"),
                ],
                ..Dialect::new(name, vec![HF])
            },
        })
    }
}

const SCALED: Keys = Keys::new("attention_scale", &[], &["scale_attn_weights"]);
const BY_LAYER: Keys = Keys::new("attention_scale", &[], &["scale_attn_by_inverse_layer_idx"]);
const CROSS: Keys = Keys::new("cross_attention", &[], &["add_cross_attention"]);

fn is_usual_scale(c: &Config) -> bool {
    (*c.attention_scale - (*c.head_dim as f64).powf(-0.5)).abs() < 1e-9
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("*_pdrop", "for training"),
    ("summary_*", "for another head"),
    ("n_layer", "`num_hidden_layers` says it, and wins"),
    ("n_embd", "`hidden_size` says it, and wins"),
    ("n_head", "`num_attention_heads` says it, and wins"),
    ("n_positions", "`max_position_embeddings` says it, and wins"),
    ("reorder_and_upcast_attn", "it computes the same in another order, in f32"),
    ("n_ctx", "`n_positions` says it"),
    ("layer_norm_eps", "`layer_norm_epsilon` says it"),
    ("rms_norm_eps", "of other families: these norms have `layer_norm_epsilon`"),
    ("head_dim", "the residual stream is shared out among the heads"),
    ("num_key_value_heads", "as many as query heads"),
    ("intermediate_size", "`n_inner` says it"),
    ("layer_types*", "of other families: every layer sees all positions"),
    ("sliding_window", "of other families: every layer sees all positions"),
    ("rope_theta", "positions are learned"),
    ("rope_parameters*", "positions are learned"),
    ("rope_scaling*", "positions are learned"),
    ("partial_rotary_factor", "positions are learned"),
    ("gradient_checkpointing", "for training"),
];

/// q, k and v are the three thirds of one tensor. Source: conversion/gpt2.py@0c1e57098.
static GGUF: &[Rule] = &[
    Rule::same("position_embedding.weight", "position_embd.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "blk.{n}.attn_norm.bias"),
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_qkv.weight", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_qkv.weight", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "blk.{n}.attn_qkv.weight", rows_v),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_qkv.bias", rows_q),
    Rule::with("layers.{n}.attention.k.bias", "blk.{n}.attn_qkv.bias", rows_k),
    Rule::with("layers.{n}.attention.v.bias", "blk.{n}.attn_qkv.bias", rows_v),
    Rule::same("layers.{n}.ffn_norm.bias", "blk.{n}.ffn_norm.bias"),
    Rule::same("output_norm.bias", "output_norm.bias"),
];

/// The four linears of a block are `Conv1D`: stored `[in, out]`. Source: transformers pytorch_utils.py@v4.57.
static HF: &[Rule] = &[
    Rule::same("token_embedding.weight", "wte.weight"),
    Rule::same("position_embedding.weight", "wpe.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "h.{n}.ln_1.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "h.{n}.ln_1.bias"),
    Rule::with("layers.{n}.attention.q.weight", "h.{n}.attn.c_attn.weight", conv1d_q),
    Rule::with("layers.{n}.attention.k.weight", "h.{n}.attn.c_attn.weight", conv1d_k),
    Rule::with("layers.{n}.attention.v.weight", "h.{n}.attn.c_attn.weight", conv1d_v),
    Rule::with("layers.{n}.attention.q.bias", "h.{n}.attn.c_attn.bias", rows_q),
    Rule::with("layers.{n}.attention.k.bias", "h.{n}.attn.c_attn.bias", rows_k),
    Rule::with("layers.{n}.attention.v.bias", "h.{n}.attn.c_attn.bias", rows_v),
    Rule::with("layers.{n}.attention.output.weight", "h.{n}.attn.c_proj.weight", conv1d),
    Rule::same("layers.{n}.attention.output.bias", "h.{n}.attn.c_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "h.{n}.ln_2.weight"),
    Rule::same("layers.{n}.ffn_norm.bias", "h.{n}.ln_2.bias"),
    Rule::with("layers.{n}.ffn.up.weight", "h.{n}.mlp.c_fc.weight", conv1d),
    Rule::same("layers.{n}.ffn.up.bias", "h.{n}.mlp.c_fc.bias"),
    Rule::with("layers.{n}.ffn.down.weight", "h.{n}.mlp.c_proj.weight", conv1d),
    Rule::same("layers.{n}.ffn.down.bias", "h.{n}.mlp.c_proj.bias"),
    Rule::same("output_norm.weight", "ln_f.weight"),
    Rule::same("output_norm.bias", "ln_f.bias"),
    Rule::unprefixed("output.weight", "lm_head.weight"),
];
