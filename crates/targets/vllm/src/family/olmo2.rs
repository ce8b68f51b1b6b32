//! OLMo 2, whose modules vLLM takes from transformers. Source: vllm/model_executor/models/transformers/base.py, v0.33.0;
//! golden/vllm_names.json and vllm_stages.json.

use model::{Ends, Rule};

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names =
    Names { rules: |_| vec![VLLM, DECODER], stages: Some(Ends::Own), state: ShardedState::DECODER };

static VLLM: &[Rule] = &[
    Rule::same("layers.{n}.attention_post_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn_post_norm.weight", "model.layers.{n}.post_feedforward_layernorm.weight"),
];
