//! Llama and what shares its block: SmolLM, Mistral (without a window).
//!
//! Source: transformers `LlamaForCausalLM`; llama.cpp src/models/llama.cpp@0c1e57098.

use crate::architecture::{self, Architecture, Norm, Rope};
use crate::config::describe::{self, Description};
use crate::config::{Config, Reader, keys};
use crate::dialect::{Dialect, DialectName, GGUF_DECODER, HF_DECODER, Rule, unpermute_rope};
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Llama;

impl Family for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["llama"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["LlamaForCausalLM", "llama"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        Config { tied: r.tied(false), ..keys::decoder(r) }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        match dialect {
            DialectName::Gguf => {
                let mut d = describe::gguf(c, "llama", "attention.layer_norm_rms_epsilon");
                describe::gguf_rotary(&mut d, c, "llama");
                d.count("llama.rope.dimension_count", *c.head_dim);
                d
            }
            DialectName::Hf => {
                let mut d = describe::hf(c, "LlamaForCausalLM", "llama");
                d.text("hidden_act", "silu");
                d.flag("attention_bias", own("layers.0.attention.q.bias"));
                d.flag("mlp_bias", own("layers.0.ffn.up.bias"));
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |_| {
            let attention = Attention::new(c, Bias::Optional, Bias::Optional);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::Optional))
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block).with_rope_factors(c))
    }

    fn architecture(&self, c: &Config) -> Architecture {
        let rope = Rope { theta: *c.rope_theta, dims: *c.head_dim, scaling: *c.rope_scaling };
        let layer = architecture::Attention { window: None, rope: Some(rope) };
        Architecture::new(c, Norm::Rms { eps: *c.norm_eps as f32 }, vec![layer; *c.layers as usize])
    }

    fn dialect(&self, name: DialectName) -> Dialect {
        match name {
            DialectName::Gguf => {
                Dialect { name, rules: vec![GGUF_DECODER, GGUF], prefixes: &[""], drops: &[] }
            }
            DialectName::Hf => Dialect {
                name,
                rules: vec![HF_DECODER, HF],
                prefixes: &["", "language_model."],
                drops: &[(
                    "model.layers.{n}.self_attn.rotary_emb.inv_freq",
                    "computed from the configuration",
                )],
            },
        }
    }
}

/// The `llama` architecture of GGUF stores the rows of q and k in interleaved `RoPE` order.
/// Source: conversion/llama.py@0c1e57098, `LlamaModel.permute`.
static GGUF: &[Rule] = &[
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight", unpermute_rope),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_q.bias", unpermute_rope),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_k.weight", unpermute_rope),
    Rule::with("layers.{n}.attention.k.bias", "blk.{n}.attn_k.bias", unpermute_rope),
    Rule::same("layers.{n}.attention.v.weight", "blk.{n}.attn_v.weight"),
    Rule::same("layers.{n}.attention.v.bias", "blk.{n}.attn_v.bias"),
    Rule::same("rope_factors.weight", "rope_freqs.weight"),
];

/// `post_attention_layernorm` is the norm before the feed-forward network.
static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention.q.bias", "model.layers.{n}.self_attn.q_proj.bias"),
    Rule::same("layers.{n}.attention.k.bias", "model.layers.{n}.self_attn.k_proj.bias"),
    Rule::same("layers.{n}.attention.v.bias", "model.layers.{n}.self_attn.v_proj.bias"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn.gate.bias", "model.layers.{n}.mlp.gate_proj.bias"),
    Rule::same("layers.{n}.ffn.up.bias", "model.layers.{n}.mlp.up_proj.bias"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.down_proj.bias"),
    Rule::same("output_norm.weight", "model.norm.weight"),
];
