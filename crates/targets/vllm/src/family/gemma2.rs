//! Gemma 2, whose output is the embedding's module. Source: vllm/model_executor/models/gemma2.py, v0.33.0.

use model::Ends;

use super::Names;
use super::decoder::WITHOUT_OUTPUT as DECODER;
use super::gemma3::VLLM;
use crate::ShardedState;

pub(super) static NAMES: Names =
    Names { rules: |_| vec![VLLM, DECODER], stages: Some(Ends::Everywhere), state: ShardedState::DECODER };
