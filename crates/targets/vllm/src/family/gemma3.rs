//! Gemma 3. Source: vllm/model_executor/models/gemma3.py, v0.33.0.

use model::{Ends, Rule, add_one};

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names =
    Names { rules: |_| vec![VLLM, DECODER], stages: Some(Ends::Everywhere), state: ShardedState::DECODER };

/// Norms are stored as in transformers.
pub(super) static VLLM: &[Rule] = &[
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
