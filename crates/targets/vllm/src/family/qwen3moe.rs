//! Qwen 3, mixtures of experts. Source: vllm/model_executor/models/qwen3_moe.py, v0.33.0.

use model::Ends;

use super::Names;
use super::decoder::RULES as DECODER;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |_| vec![DECODER],
    stages: Some(Ends::Everywhere),
    state: {
        let first = &[("model.layers.{n}.mlp.gate.{rest..}", "model.layers.{n}.mlp.experts.gate.{rest..}")];
        ShardedState { first, ..ShardedState::DECODER }
    },
};
