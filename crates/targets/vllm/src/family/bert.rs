//! BERT. Source: vllm/model_executor/models/bert.py, v0.33.0.

use model::Rule;

use super::Names;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |own| if own("prediction.dense.weight") { vec![VLLM_MASKED, VLLM_HEAD] } else { vec![VLLM] },
    stages: None,
    state: {
        let attention = &[
            ("model.encoder.layer.{n}.attention.self.{rest..}", "attn"),
            ("bert.encoder.layer.{n}.attention.self.{rest..}", "attn"),
        ];
        ShardedState { attention, first: &[] }
    },
};

/// The encoder, under its prefix.
macro_rules! encoder {
    ($prefix:literal) => {
        &[
            Rule::same("token_embedding.weight", concat!($prefix, "embeddings.word_embeddings.weight")),
            Rule::same(
                "position_embedding.weight",
                concat!($prefix, "embeddings.position_embeddings.weight"),
            ),
            Rule::same(
                "token_type_embedding.weight",
                concat!($prefix, "embeddings.token_type_embeddings.weight"),
            ),
            Rule::same("embedding_norm.weight", concat!($prefix, "embeddings.LayerNorm.weight")),
            Rule::same("embedding_norm.bias", concat!($prefix, "embeddings.LayerNorm.bias")),
            Rule::same(
                "layers.{n}.attention.qkv.weight",
                concat!($prefix, "encoder.layer.{n}.attention.self.qkv_proj.weight"),
            ),
            Rule::same(
                "layers.{n}.attention.qkv.bias",
                concat!($prefix, "encoder.layer.{n}.attention.self.qkv_proj.bias"),
            ),
            Rule::same(
                "layers.{n}.attention.output.weight",
                concat!($prefix, "encoder.layer.{n}.attention.output.dense.weight"),
            ),
            Rule::same(
                "layers.{n}.attention.output.bias",
                concat!($prefix, "encoder.layer.{n}.attention.output.dense.bias"),
            ),
            Rule::same(
                "layers.{n}.attention_output_norm.weight",
                concat!($prefix, "encoder.layer.{n}.attention.output.LayerNorm.weight"),
            ),
            Rule::same(
                "layers.{n}.attention_output_norm.bias",
                concat!($prefix, "encoder.layer.{n}.attention.output.LayerNorm.bias"),
            ),
            Rule::same(
                "layers.{n}.ffn.up.weight",
                concat!($prefix, "encoder.layer.{n}.intermediate.dense.weight"),
            ),
            Rule::same(
                "layers.{n}.ffn.up.bias",
                concat!($prefix, "encoder.layer.{n}.intermediate.dense.bias"),
            ),
            Rule::same(
                "layers.{n}.ffn.down.weight",
                concat!($prefix, "encoder.layer.{n}.output.dense.weight"),
            ),
            Rule::same("layers.{n}.ffn.down.bias", concat!($prefix, "encoder.layer.{n}.output.dense.bias")),
            Rule::same(
                "layers.{n}.output_norm.weight",
                concat!($prefix, "encoder.layer.{n}.output.LayerNorm.weight"),
            ),
            Rule::same(
                "layers.{n}.output_norm.bias",
                concat!($prefix, "encoder.layer.{n}.output.LayerNorm.bias"),
            ),
        ]
    };
}

/// As `BertEmbeddingModel`.
static VLLM: &[Rule] = encoder!("model.");

/// As `BertForMaskedLM`, which vLLM 0.20 does not have.
static VLLM_MASKED: &[Rule] = encoder!("bert.");

static VLLM_HEAD: &[Rule] = &[
    Rule::same("prediction.dense.weight", "mlm_head.dense.weight"),
    Rule::same("prediction.dense.bias", "mlm_head.dense.bias"),
    Rule::same("prediction.norm.weight", "mlm_head.layer_norm.weight"),
    Rule::same("prediction.norm.bias", "mlm_head.layer_norm.bias"),
    Rule::same("output.weight", "mlm_head.decoder.weight"),
    Rule::same("output.bias", "mlm_head.decoder.bias"),
];
