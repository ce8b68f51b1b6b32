//! StarCoder 2, whose modules vLLM takes from transformers. Source: vllm/model_executor/models/transformers/base.py,
//! v0.33.0; golden/vllm_names.json and vllm_stages.json.

use model::{Ends, Rule};

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names =
    Names { rules: |_| vec![VLLM, DECODER], stages: Some(Ends::Own), state: ShardedState::DECODER };

static VLLM: &[Rule] = &[
    Rule::same("layers.{n}.attention_norm.bias", "model.layers.{n}.input_layernorm.bias"),
    Rule::same("layers.{n}.ffn_norm.bias", "model.layers.{n}.post_attention_layernorm.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "model.layers.{n}.mlp.c_fc.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "model.layers.{n}.mlp.c_fc.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "model.layers.{n}.mlp.c_proj.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.c_proj.bias"),
    Rule::same("output_norm.bias", "model.norm.bias"),
];
