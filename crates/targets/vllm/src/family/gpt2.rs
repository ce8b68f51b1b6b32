//! GPT-2. Source: vllm/model_executor/models/gpt2.py, v0.33.0.

use model::{Ends, Rule};

use super::Names;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |_| vec![VLLM],
    stages: Some(Ends::Everywhere),
    state: ShardedState { attention: &[("transformer.h.{n}.attn.{rest..}", "attn")], first: &[] },
};

/// vLLM holds the matrices `[out, in]`.
static VLLM: &[Rule] = &[
    Rule::same("token_embedding.weight", "transformer.wte.weight"),
    Rule::same("position_embedding.weight", "transformer.wpe.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "transformer.h.{n}.ln_1.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "transformer.h.{n}.ln_1.bias"),
    Rule::same("layers.{n}.attention.qkv.weight", "transformer.h.{n}.attn.c_attn.weight"),
    Rule::same("layers.{n}.attention.qkv.bias", "transformer.h.{n}.attn.c_attn.bias"),
    Rule::same("layers.{n}.attention.output.weight", "transformer.h.{n}.attn.c_proj.weight"),
    Rule::same("layers.{n}.attention.output.bias", "transformer.h.{n}.attn.c_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "transformer.h.{n}.ln_2.weight"),
    Rule::same("layers.{n}.ffn_norm.bias", "transformer.h.{n}.ln_2.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "transformer.h.{n}.mlp.c_fc.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "transformer.h.{n}.mlp.c_fc.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "transformer.h.{n}.mlp.c_proj.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "transformer.h.{n}.mlp.c_proj.bias"),
    Rule::same("output_norm.weight", "transformer.ln_f.weight"),
    Rule::same("output_norm.bias", "transformer.ln_f.bias"),
    Rule::same("output.weight", "lm_head.weight"),
];
