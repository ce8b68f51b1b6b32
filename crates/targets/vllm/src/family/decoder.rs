//! Decoders after Llama. Source: vllm/model_executor/models/llama.py, v0.33.0.

use model::{Ends, Rule};

use super::Names;
use crate::ShardedState;

pub(super) static NAMES: Names =
    Names { rules: |_| vec![RULES], stages: Some(Ends::Own), state: ShardedState::DECODER };

pub(super) static RULES: &[Rule] = &[
    Rule::same("token_embedding.weight", "model.embed_tokens.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention.qkv.weight", "model.layers.{n}.self_attn.qkv_proj.weight"),
    Rule::same("layers.{n}.attention.qkv.bias", "model.layers.{n}.self_attn.qkv_proj.bias"),
    Rule::same("layers.{n}.attention.q_norm.weight", "model.layers.{n}.self_attn.q_norm.weight"),
    Rule::same("layers.{n}.attention.k_norm.weight", "model.layers.{n}.self_attn.k_norm.weight"),
    Rule::same("layers.{n}.attention.output.weight", "model.layers.{n}.self_attn.o_proj.weight"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn.gate_up.weight", "model.layers.{n}.mlp.gate_up_proj.weight"),
    Rule::same("layers.{n}.ffn.gate_up.bias", "model.layers.{n}.mlp.gate_up_proj.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "model.layers.{n}.mlp.down_proj.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.down_proj.bias"),
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.mlp.gate.weight"),
    Rule::same(
        "layers.{n}.ffn.experts.gate_up.weight",
        "model.layers.{n}.mlp.experts.routed_experts.w13_weight",
    ),
    Rule::same("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.experts.routed_experts.w2_weight"),
    Rule::same("output_norm.weight", "model.norm.weight"),
    Rule::same("output.weight", "lm_head.weight"),
];

/// The same but for the last, where the output has no module of its own.
pub(super) static WITHOUT_OUTPUT: &[Rule] = RULES.split_at(RULES.len() - 1).0;
