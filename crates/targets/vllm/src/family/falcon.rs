//! Falcon. Source: vllm/model_executor/models/falcon.py, v0.33.0.

use model::{Ends, Rule};

use super::Names;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |_| vec![VLLM],
    stages: Some(Ends::Everywhere),
    state: ShardedState { attention: &[("transformer.h.{n}.self_attention.{rest..}", "attn")], first: &[] },
};

static VLLM: &[Rule] = &[
    Rule::same("token_embedding.weight", "transformer.word_embeddings.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "transformer.h.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "transformer.h.{n}.input_layernorm.bias"),
    Rule::same("layers.{n}.attention.qkv.weight", "transformer.h.{n}.self_attention.query_key_value.weight"),
    Rule::same("layers.{n}.attention.qkv.bias", "transformer.h.{n}.self_attention.query_key_value.bias"),
    Rule::same("layers.{n}.attention.output.weight", "transformer.h.{n}.self_attention.dense.weight"),
    Rule::same("layers.{n}.attention.output.bias", "transformer.h.{n}.self_attention.dense.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "transformer.h.{n}.mlp.dense_h_to_4h.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "transformer.h.{n}.mlp.dense_h_to_4h.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "transformer.h.{n}.mlp.dense_4h_to_h.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "transformer.h.{n}.mlp.dense_4h_to_h.bias"),
    Rule::same("output_norm.weight", "transformer.ln_f.weight"),
    Rule::same("output_norm.bias", "transformer.ln_f.bias"),
    Rule::same("output.weight", "lm_head.weight"),
];
