//! DeepSeek 2 and 3. Source: vllm/model_executor/models/deepseek_v2.py, v0.33.0.

use model::{Ends, Rule};

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |_| vec![VLLM, DECODER],
    stages: Some(Ends::Own),
    state: ShardedState {
        attention: &[("model.layers.{n}.self_attn.{rest..}", "mla_attn.mla_attn")],
        first: &[
            (
                "model.layers.{n}.self_attn.q_a_layernorm.weight",
                "model.layers.{n}.self_attn.mla_attn.q_a_layernorm.weight",
            ),
            ("model.layers.{n}.self_attn.q_proj.weight", "model.layers.{n}.self_attn.mla_attn.q_proj.weight"),
            (
                "model.layers.{n}.self_attn.q_b_proj.weight",
                "model.layers.{n}.self_attn.mla_attn.q_b_proj.weight",
            ),
            ("model.layers.{n}.self_attn.o_proj.weight", "model.layers.{n}.self_attn.mla_attn.o_proj.weight"),
            ("model.layers.{n}.mlp.gate.{rest..}", "model.layers.{n}.mlp.experts.gate.{rest..}"),
            (
                "model.layers.{n}.mlp.shared_experts.{rest..}",
                "model.layers.{n}.mlp.experts._shared_experts._layer.{rest..}",
            ),
        ],
    },
};

static VLLM: &[Rule] = &[
    Rule::same("layers.{n}.attention.qkv_a.weight", "model.layers.{n}.self_attn.fused_qkv_a_proj.weight"),
    Rule::same("layers.{n}.attention.q_a_norm.weight", "model.layers.{n}.self_attn.q_a_layernorm.weight"),
    Rule::same("layers.{n}.attention.q_b.weight", "model.layers.{n}.self_attn.q_b_proj.weight"),
    Rule::same("layers.{n}.attention.q.weight", "model.layers.{n}.self_attn.q_proj.weight"),
    Rule::same("layers.{n}.attention.kv_a.weight", "model.layers.{n}.self_attn.kv_a_proj_with_mqa.weight"),
    Rule::same("layers.{n}.attention.kv_a_norm.weight", "model.layers.{n}.self_attn.kv_a_layernorm.weight"),
    Rule::same("layers.{n}.attention.kv_b.weight", "model.layers.{n}.self_attn.kv_b_proj.weight"),
    Rule::same("layers.{n}.ffn.router.correction.bias", "model.layers.{n}.mlp.gate.e_score_correction_bias"),
    Rule::same(
        "layers.{n}.ffn.shared.gate_up.weight",
        "model.layers.{n}.mlp.shared_experts.gate_up_proj.weight",
    ),
    Rule::same("layers.{n}.ffn.shared.down.weight", "model.layers.{n}.mlp.shared_experts.down_proj.weight"),
];
