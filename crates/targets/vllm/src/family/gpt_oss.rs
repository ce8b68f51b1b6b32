//! gpt-oss. Source: vllm/model_executor/models/gpt_oss.py, v0.33.0.

use model::{Config, Ends, Rule};
use tensor::Expr;

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |_| vec![VLLM, DECODER],
    stages: Some(Ends::Everywhere),
    state: ShardedState { attention: &[("model.layers.{n}.attn.{rest..}", "attn")], first: &[] },
};

/// Gate and up in turn, as one after the other.
fn apart(expr: Expr, _: &Config, rank: usize) -> Expr {
    let order: &[usize] = if rank == 2 { &[0, 2, 1] } else { &[0, 2, 1, 3] };
    expr.split(1, 2).permute(order).merge(1)
}

static VLLM: &[Rule] = &[
    Rule::same("token_embedding.weight", "model.embedding.weight"),
    Rule::same("layers.{n}.attention.qkv.weight", "model.layers.{n}.attn.qkv_proj.weight"),
    Rule::same("layers.{n}.attention.qkv.bias", "model.layers.{n}.attn.qkv_proj.bias"),
    Rule::same("layers.{n}.attention.sinks.weight", "model.layers.{n}.attn.sinks"),
    Rule::same("layers.{n}.attention.output.weight", "model.layers.{n}.attn.o_proj.weight"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.attn.o_proj.bias"),
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.mlp.router.weight"),
    Rule::same("layers.{n}.ffn.router.bias", "model.layers.{n}.mlp.router.bias"),
    Rule::with(
        "layers.{n}.ffn.experts.gate_up.weight",
        "model.layers.{n}.mlp.experts.routed_experts.w13_weight",
        apart,
    ),
    Rule::with(
        "layers.{n}.ffn.experts.gate_up.bias",
        "model.layers.{n}.mlp.experts.routed_experts.w13_bias",
        apart,
    ),
    Rule::same("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.experts.routed_experts.w2_weight"),
    Rule::same("layers.{n}.ffn.experts.down.bias", "model.layers.{n}.mlp.experts.routed_experts.w2_bias"),
];
