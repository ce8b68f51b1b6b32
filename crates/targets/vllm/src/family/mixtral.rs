//! Mixtral. Source: vllm/model_executor/models/mixtral.py, v0.33.0.

use model::{Ends, Rule};

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names =
    Names { rules: |_| vec![VLLM, DECODER], stages: Some(Ends::Everywhere), state: ShardedState::DECODER };

static VLLM: &[Rule] = &[
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.block_sparse_moe.gate.weight"),
    Rule::same(
        "layers.{n}.ffn.experts.gate_up.weight",
        "model.layers.{n}.block_sparse_moe.experts.routed_experts.w13_weight",
    ),
    Rule::same(
        "layers.{n}.ffn.experts.down.weight",
        "model.layers.{n}.block_sparse_moe.experts.routed_experts.w2_weight",
    ),
];
