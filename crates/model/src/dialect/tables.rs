//! Names that families share within an ecosystem; what differs stands with the family.

use super::Rule;

/// Decoders in GGUF. Source: gguf-py/gguf/tensor_mapping.py@0c1e57098.
pub(crate) static GGUF_DECODER: &[Rule] = &[
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

/// Decoders after Llama in transformers: `model.layers.{n}.self_attn.q_proj` and so on. Norms differ.
pub(crate) static HF_DECODER: &[Rule] = &[
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

/// What quantisers add for activations and caches, which play no part in the weights.
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
    ("model.layers.{n}.{part}.k_proj.k_scale", CACHES),
    ("model.layers.{n}.{part}.v_proj.v_scale", CACHES),
    ("model.layers.{n}.{part}.k_scale", CACHES),
    ("model.layers.{n}.{part}.v_scale", CACHES),
    ("lm_head.input_scale", ACTIVATIONS),
    ("lm_head.input_global_scale", ACTIVATIONS),
];

const ACTIVATIONS: &str = "for quantised activations; here they are not";
const CACHES: &str = "for a quantised cache; here it is not";
