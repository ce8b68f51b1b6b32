//! Names that families share within an ecosystem; names that differ are in the family's file.

use super::{Rule, unpermute_rope};

/// Decoders in GGUF. Source: gguf-py/gguf/tensor_mapping.py@0c1e57098.
pub static GGUF_DECODER: &[Rule] = &[
    Rule::same("token_embedding.weight", "token_embd.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "blk.{n}.attn_norm.weight"),
    Rule::same("layers.{n}.attention.output.weight", "blk.{n}.attn_output.weight"),
    Rule::same("layers.{n}.attention.output.bias", "blk.{n}.attn_output.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "blk.{n}.ffn_norm.weight"),
    Rule::same("layers.{n}.ffn.gate.weight", "blk.{n}.ffn_gate.weight"),
    Rule::same("layers.{n}.ffn.gate.bias", "blk.{n}.ffn_gate.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "blk.{n}.ffn_up.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "blk.{n}.ffn_up.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "blk.{n}.ffn_down.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "blk.{n}.ffn_down.bias"),
    Rule::same("output_norm.weight", "output_norm.weight"),
    Rule::same("output.weight", "output.weight"),
];

/// Queries, keys and values in GGUF, with their rows as transformers has them.
pub static GGUF_QKV: &[Rule] = &[
    Rule::same("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight"),
    Rule::same("layers.{n}.attention.q.bias", "blk.{n}.attn_q.bias"),
    Rule::same("layers.{n}.attention.k.weight", "blk.{n}.attn_k.weight"),
    Rule::same("layers.{n}.attention.k.bias", "blk.{n}.attn_k.bias"),
    Rule::same("layers.{n}.attention.v.weight", "blk.{n}.attn_v.weight"),
    Rule::same("layers.{n}.attention.v.bias", "blk.{n}.attn_v.bias"),
    Rule::same("layers.{n}.attention.q_norm.weight", "blk.{n}.attn_q_norm.weight"),
    Rule::same("layers.{n}.attention.k_norm.weight", "blk.{n}.attn_k_norm.weight"),
];

/// The same in the `llama` architecture, which has the rows of q and k in interleaved `RoPE` order.
/// Source: conversion/llama.py@0c1e57098, `LlamaModel.permute`.
pub static GGUF_QKV_INTERLEAVED: &[Rule] = &[
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight", unpermute_rope),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_q.bias", unpermute_rope),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_k.weight", unpermute_rope),
    Rule::with("layers.{n}.attention.k.bias", "blk.{n}.attn_k.bias", unpermute_rope),
    Rule::same("layers.{n}.attention.v.weight", "blk.{n}.attn_v.weight"),
    Rule::same("layers.{n}.attention.v.bias", "blk.{n}.attn_v.bias"),
];

/// Mixtures of experts in GGUF: experts are stacked.
pub static GGUF_MOE: &[Rule] = &[
    Rule::same("layers.{n}.ffn.router.weight", "blk.{n}.ffn_gate_inp.weight"),
    Rule::same("layers.{n}.ffn.router.bias", "blk.{n}.ffn_gate_inp.bias"),
    Rule::same("layers.{n}.ffn.router.correction.bias", "blk.{n}.exp_probs_b.bias"),
    Rule::same("layers.{n}.ffn.experts.gate.weight", "blk.{n}.ffn_gate_exps.weight"),
    Rule::same("layers.{n}.ffn.experts.gate.bias", "blk.{n}.ffn_gate_exps.bias"),
    Rule::same("layers.{n}.ffn.experts.up.weight", "blk.{n}.ffn_up_exps.weight"),
    Rule::same("layers.{n}.ffn.experts.up.bias", "blk.{n}.ffn_up_exps.bias"),
    Rule::same("layers.{n}.ffn.experts.down.weight", "blk.{n}.ffn_down_exps.weight"),
    Rule::same("layers.{n}.ffn.experts.down.bias", "blk.{n}.ffn_down_exps.bias"),
    Rule::same("layers.{n}.ffn.shared.gate.weight", "blk.{n}.ffn_gate_shexp.weight"),
    Rule::same("layers.{n}.ffn.shared.up.weight", "blk.{n}.ffn_up_shexp.weight"),
    Rule::same("layers.{n}.ffn.shared.down.weight", "blk.{n}.ffn_down_shexp.weight"),
];

/// Decoders after Llama in transformers: `model.layers.{n}.self_attn.q_proj` and so on. Norms differ.
pub static HF_DECODER: &[Rule] = &[
    Rule::same("token_embedding.weight", "model.embed_tokens.weight"),
    Rule::same("layers.{n}.attention.q.weight", "model.layers.{n}.self_attn.q_proj.weight"),
    Rule::same("layers.{n}.attention.k.weight", "model.layers.{n}.self_attn.k_proj.weight"),
    Rule::same("layers.{n}.attention.v.weight", "model.layers.{n}.self_attn.v_proj.weight"),
    Rule::same("layers.{n}.attention.output.weight", "model.layers.{n}.self_attn.o_proj.weight"),
    Rule::same("layers.{n}.ffn.gate.weight", "model.layers.{n}.mlp.gate_proj.weight"),
    Rule::same("layers.{n}.ffn.up.weight", "model.layers.{n}.mlp.up_proj.weight"),
    Rule::same("layers.{n}.ffn.down.weight", "model.layers.{n}.mlp.down_proj.weight"),
    Rule::same("output.weight", "lm_head.weight"),
];

/// Norms and biases of Llama and its successors. `post_attention_layernorm` is the norm before the feed-forward
/// network.
pub static HF_LLAMA: &[Rule] = &[
    Rule::same("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention.q.bias", "model.layers.{n}.self_attn.q_proj.bias"),
    Rule::same("layers.{n}.attention.k.bias", "model.layers.{n}.self_attn.k_proj.bias"),
    Rule::same("layers.{n}.attention.v.bias", "model.layers.{n}.self_attn.v_proj.bias"),
    Rule::same("layers.{n}.attention.q_norm.weight", "model.layers.{n}.self_attn.q_norm.weight"),
    Rule::same("layers.{n}.attention.k_norm.weight", "model.layers.{n}.self_attn.k_norm.weight"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn.gate.bias", "model.layers.{n}.mlp.gate_proj.bias"),
    Rule::same("layers.{n}.ffn.up.bias", "model.layers.{n}.mlp.up_proj.bias"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.down_proj.bias"),
    Rule::same("output_norm.weight", "model.norm.weight"),
];

/// Mixtures of experts as DeepSeek and Qwen name them: each expert apart; in directories of mlx-lm they are in a stack
/// (mlx_lm/models/qwen3_moe.py@v0.32.2, `sanitize`).
pub static HF_MOE: &[Rule] = &[
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.mlp.gate.weight"),
    Rule::same("layers.{n}.ffn.router.correction.bias", "model.layers.{n}.mlp.gate.e_score_correction_bias"),
    Rule::same("layers.{n}.ffn.experts.gate.weight", "model.layers.{n}.mlp.experts.{e}.gate_proj.weight"),
    Rule::same("layers.{n}.ffn.experts.up.weight", "model.layers.{n}.mlp.experts.{e}.up_proj.weight"),
    Rule::same("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.experts.{e}.down_proj.weight"),
    Rule::same("layers.{n}.ffn.shared.gate.weight", "model.layers.{n}.mlp.shared_experts.gate_proj.weight"),
    Rule::same("layers.{n}.ffn.shared.up.weight", "model.layers.{n}.mlp.shared_experts.up_proj.weight"),
    Rule::same("layers.{n}.ffn.shared.down.weight", "model.layers.{n}.mlp.shared_experts.down_proj.weight"),
    Rule::mlx("layers.{n}.ffn.experts.gate.weight", "model.layers.{n}.mlp.switch_mlp.gate_proj.weight"),
    Rule::mlx("layers.{n}.ffn.experts.up.weight", "model.layers.{n}.mlp.switch_mlp.up_proj.weight"),
    Rule::mlx("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.switch_mlp.down_proj.weight"),
];

/// Entries of checkpoints after Llama that are known and not needed.
pub static HF_DROPS: &[(&str, &str)] =
    &[("model.layers.{n}.self_attn.rotary_emb.inv_freq", COMPUTED), ("model.rotary_emb.inv_freq", COMPUTED)];

const COMPUTED: &str = "computed from the configuration";

/// Tensors that quantisers add for activations and caches, which do not affect the weights.
///
/// Source: compressed-tensors 0.20.0, compressed_tensors/quantization/lifecycle/initialize.py (`input_`, `output_`, and
/// of attention `k_` and `v_`, each with a `scale`, `zero_point` or `global_scale`); nvidia-modelopt 0.47.0,
/// modelopt/torch/export/quant_utils.py; transformers 5.23.0, integrations/finegrained_fp8.py (`activation_scale`).
pub(crate) static HF_ACTIVATIONS: &[(&str, &str)] = &[
    ("model.layers.{n}.{part}.{linear}.input_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.{linear}.input_zero_point", ACTIVATIONS),
    ("model.layers.{n}.{part}.{linear}.input_global_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.{linear}.activation_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.{linear}.output_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.{linear}.output_zero_point", ACTIVATIONS),
    ("model.layers.{n}.{part}.{of}.{linear}.input_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.{of}.{linear}.activation_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.experts.{n}.{linear}.input_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.experts.{n}.{linear}.input_zero_point", ACTIVATIONS),
    ("model.layers.{n}.{part}.experts.{n}.{linear}.input_global_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.experts.{n}.{linear}.activation_scale", ACTIVATIONS),
    ("model.layers.{n}.{part}.k_proj.k_scale", CACHES),
    ("model.layers.{n}.{part}.v_proj.v_scale", CACHES),
    ("model.layers.{n}.{part}.k_scale", CACHES),
    ("model.layers.{n}.{part}.v_scale", CACHES),
    ("lm_head.input_scale", ACTIVATIONS),
    ("lm_head.input_global_scale", ACTIVATIONS),
];

const ACTIVATIONS: &str = "for quantised activations; here they are not";
const CACHES: &str = "for a quantised cache; here it is not";
