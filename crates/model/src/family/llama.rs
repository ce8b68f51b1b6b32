//! Llama and what shares its block: SmolLM, Mistral (without a window).
//!
//! Source: transformers `LlamaForCausalLM`; llama.cpp src/models/llama.cpp@0c1e57098.

use crate::architecture::{Activation, Architecture, Attention, Norm, Positions, Rope};
use crate::config::{Config, Field, Reader, keys};
use crate::dialect::{Dialect, DialectName, Rule, unpermute_rope};
use crate::param::{Axis, ParamSpec};

use super::Family;

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
        let tied = match r.dialect() {
            DialectName::Gguf => Field::default(None, "an absent output matrix is the token embedding"),
            DialectName::Hf => r.tied(false),
        };
        Config {
            tied,
            window: Field::default(0, "every layer sees all positions"),
            window_pattern: Field::default(0, "no window"),
            ..keys::decoder(r)
        }
    }

    fn params(&self, c: &Config) -> Vec<ParamSpec> {
        let hidden = (Axis::Hidden, *c.hidden);
        let heads = (Axis::Heads, *c.heads * *c.head_dim);
        let kv = (Axis::KvHeads, *c.kv_heads * *c.head_dim);
        let ffn = (Axis::Ffn, *c.ffn);
        let vocab = (Axis::Vocab, *c.vocab);
        let mut params = vec![ParamSpec::embedding("token_embedding.weight", vocab, hidden)];
        for n in 0..*c.layers {
            let at = |rest: &str| format!("layers.{n}.{rest}");
            params.extend([
                ParamSpec::vector(at("attention_norm.weight"), hidden),
                ParamSpec::matrix(at("attention.q.weight"), heads, hidden),
                ParamSpec::matrix(at("attention.k.weight"), kv, hidden),
                ParamSpec::matrix(at("attention.v.weight"), kv, hidden),
                ParamSpec::matrix(at("attention.output.weight"), hidden, heads),
                ParamSpec::vector(at("attention.q.bias"), heads).optional(),
                ParamSpec::vector(at("attention.k.bias"), kv).optional(),
                ParamSpec::vector(at("attention.v.bias"), kv).optional(),
                ParamSpec::vector(at("attention.output.bias"), hidden).optional(),
                ParamSpec::vector(at("ffn_norm.weight"), hidden),
                ParamSpec::matrix(at("ffn.gate.weight"), ffn, hidden),
                ParamSpec::matrix(at("ffn.up.weight"), ffn, hidden),
                ParamSpec::matrix(at("ffn.down.weight"), hidden, ffn),
                ParamSpec::vector(at("ffn.gate.bias"), ffn).optional(),
                ParamSpec::vector(at("ffn.up.bias"), ffn).optional(),
                ParamSpec::vector(at("ffn.down.bias"), hidden).optional(),
            ]);
        }
        params.push(ParamSpec::vector("output_norm.weight", hidden));
        params.push(super::output(c, vocab, hidden));
        params.push(ParamSpec::vector("rope_factors.weight", (Axis::HeadDim, *c.head_dim / 2)).optional());
        params
    }

    fn architecture(&self, c: &Config) -> Architecture {
        let rope = Rope { theta: *c.rope_theta, dims: *c.head_dim, scaling: *c.rope_scaling };
        Architecture {
            hidden: *c.hidden,
            heads: *c.heads,
            kv_heads: *c.kv_heads,
            head_dim: *c.head_dim,
            ffn: *c.ffn,
            vocab: *c.vocab,
            context: *c.context,
            norm: Norm::Rms { eps: *c.norm_eps as f32 },
            positions: Positions::Rotary,
            embedding_scale: 1.0,
            attention_scale: *c.attention_scale as f32,
            activation: Activation::Silu,
            logit_soft_cap: None,
            layers: vec![Attention { window: None, rope: Some(rope) }; *c.layers as usize],
        }
    }

    fn dialect(&self, name: DialectName) -> Dialect {
        match name {
            DialectName::Gguf => Dialect { name, rules: GGUF, prefixes: &[""], drops: &[] },
            DialectName::Hf => Dialect {
                name,
                rules: HF,
                prefixes: &["", "language_model."],
                drops: &[(
                    "model.layers.{n}.self_attn.rotary_emb.inv_freq",
                    "computed from the configuration",
                )],
            },
        }
    }
}

/// The `llama` architecture of GGUF stores the rows of q and k in interleaved RoPE order.
/// Source: conversion/llama.py@0c1e57098, `LlamaModel.permute`.
static GGUF: &[Rule] = &[
    Rule::same("token_embedding.weight", "token_embd.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "blk.{n}.attn_norm.weight"),
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight", unpermute_rope),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_k.weight", unpermute_rope),
    Rule::same("layers.{n}.attention.v.weight", "blk.{n}.attn_v.weight"),
    Rule::same("layers.{n}.attention.output.weight", "blk.{n}.attn_output.weight"),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_q.bias", unpermute_rope),
    Rule::with("layers.{n}.attention.k.bias", "blk.{n}.attn_k.bias", unpermute_rope),
    Rule::same("layers.{n}.attention.v.bias", "blk.{n}.attn_v.bias"),
    Rule::same("layers.{n}.attention.output.bias", "blk.{n}.attn_output.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "blk.{n}.ffn_norm.weight"),
    Rule::same("layers.{n}.ffn.gate.weight", "blk.{n}.ffn_gate.weight"),
    Rule::same("layers.{n}.ffn.up.weight", "blk.{n}.ffn_up.weight"),
    Rule::same("layers.{n}.ffn.down.weight", "blk.{n}.ffn_down.weight"),
    Rule::same("layers.{n}.ffn.gate.bias", "blk.{n}.ffn_gate.bias"),
    Rule::same("layers.{n}.ffn.up.bias", "blk.{n}.ffn_up.bias"),
    Rule::same("layers.{n}.ffn.down.bias", "blk.{n}.ffn_down.bias"),
    Rule::same("output_norm.weight", "output_norm.weight"),
    Rule::same("output.weight", "output.weight"),
    Rule::same("rope_factors.weight", "rope_freqs.weight"),
];

static HF: &[Rule] = &[
    Rule::same("token_embedding.weight", "model.embed_tokens.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention.q.weight", "model.layers.{n}.self_attn.q_proj.weight"),
    Rule::same("layers.{n}.attention.k.weight", "model.layers.{n}.self_attn.k_proj.weight"),
    Rule::same("layers.{n}.attention.v.weight", "model.layers.{n}.self_attn.v_proj.weight"),
    Rule::same("layers.{n}.attention.output.weight", "model.layers.{n}.self_attn.o_proj.weight"),
    Rule::same("layers.{n}.attention.q.bias", "model.layers.{n}.self_attn.q_proj.bias"),
    Rule::same("layers.{n}.attention.k.bias", "model.layers.{n}.self_attn.k_proj.bias"),
    Rule::same("layers.{n}.attention.v.bias", "model.layers.{n}.self_attn.v_proj.bias"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn.gate.weight", "model.layers.{n}.mlp.gate_proj.weight"),
    Rule::same("layers.{n}.ffn.up.weight", "model.layers.{n}.mlp.up_proj.weight"),
    Rule::same("layers.{n}.ffn.down.weight", "model.layers.{n}.mlp.down_proj.weight"),
    Rule::same("layers.{n}.ffn.gate.bias", "model.layers.{n}.mlp.gate_proj.bias"),
    Rule::same("layers.{n}.ffn.up.bias", "model.layers.{n}.mlp.up_proj.bias"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.down_proj.bias"),
    Rule::same("output_norm.weight", "model.norm.weight"),
    Rule::same("output.weight", "lm_head.weight"),
];
