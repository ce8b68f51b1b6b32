//! Whisper. Source: vllm/model_executor/models/whisper.py, v0.33.0.

use model::Rule;

use super::Names;
use crate::ShardedState;

pub(super) static NAMES: Names = Names {
    rules: |_| vec![VLLM],
    stages: None,
    state: {
        let attention = &[
            ("model.decoder.layers.{n}.self_attn.{rest..}", "attn"),
            ("model.decoder.layers.{n}.encoder_attn.{rest..}", "attn"),
        ];
        ShardedState { attention, first: &[] }
    },
};

macro_rules! linear {
    ($param:literal, $entry:literal) => {
        Rule::same(concat!($param, ".weight"), concat!($entry, ".weight"))
    };
    ($param:literal, $entry:literal, bias) => {
        Rule::same(concat!($param, ".bias"), concat!($entry, ".bias"))
    };
}

/// Keys have no bias, and what is fused of queries and values alone has no place here: vLLM puts zeros between them
/// (`_create_fake_bias_for_k_proj`).
static VLLM: &[Rule] = &[
    linear!("enc.conv1", "model.encoder.conv1"),
    linear!("enc.conv1", "model.encoder.conv1", bias),
    linear!("enc.conv2", "model.encoder.conv2"),
    linear!("enc.conv2", "model.encoder.conv2", bias),
    linear!("enc.position_embedding", "model.encoder.embed_positions"),
    linear!("enc.layers.{n}.attention_norm", "model.encoder.layers.{n}.self_attn_layer_norm"),
    linear!("enc.layers.{n}.attention_norm", "model.encoder.layers.{n}.self_attn_layer_norm", bias),
    linear!("enc.layers.{n}.attention.qkv", "model.encoder.layers.{n}.self_attn.qkv_proj"),
    linear!("enc.layers.{n}.attention.qkv", "model.encoder.layers.{n}.self_attn.qkv_proj", bias),
    linear!("enc.layers.{n}.attention.output", "model.encoder.layers.{n}.self_attn.out_proj"),
    linear!("enc.layers.{n}.attention.output", "model.encoder.layers.{n}.self_attn.out_proj", bias),
    linear!("enc.layers.{n}.ffn_norm", "model.encoder.layers.{n}.final_layer_norm"),
    linear!("enc.layers.{n}.ffn_norm", "model.encoder.layers.{n}.final_layer_norm", bias),
    linear!("enc.layers.{n}.ffn.up", "model.encoder.layers.{n}.mlp.fc1"),
    linear!("enc.layers.{n}.ffn.up", "model.encoder.layers.{n}.mlp.fc1", bias),
    linear!("enc.layers.{n}.ffn.down", "model.encoder.layers.{n}.mlp.fc2"),
    linear!("enc.layers.{n}.ffn.down", "model.encoder.layers.{n}.mlp.fc2", bias),
    linear!("enc.output_norm", "model.encoder.layer_norm"),
    linear!("enc.output_norm", "model.encoder.layer_norm", bias),
    linear!("token_embedding", "model.decoder.embed_tokens"),
    linear!("position_embedding", "model.decoder.embed_positions"),
    linear!("layers.{n}.attention_norm", "model.decoder.layers.{n}.self_attn_layer_norm"),
    linear!("layers.{n}.attention_norm", "model.decoder.layers.{n}.self_attn_layer_norm", bias),
    linear!("layers.{n}.attention.qkv", "model.decoder.layers.{n}.self_attn.qkv_proj"),
    linear!("layers.{n}.attention.qkv", "model.decoder.layers.{n}.self_attn.qkv_proj", bias),
    linear!("layers.{n}.attention.output", "model.decoder.layers.{n}.self_attn.out_proj"),
    linear!("layers.{n}.attention.output", "model.decoder.layers.{n}.self_attn.out_proj", bias),
    linear!("layers.{n}.cross_attn_norm", "model.decoder.layers.{n}.encoder_attn_layer_norm"),
    linear!("layers.{n}.cross_attn_norm", "model.decoder.layers.{n}.encoder_attn_layer_norm", bias),
    linear!("layers.{n}.cross_attn.q", "model.decoder.layers.{n}.encoder_attn.q_proj"),
    linear!("layers.{n}.cross_attn.q", "model.decoder.layers.{n}.encoder_attn.q_proj", bias),
    linear!("layers.{n}.cross_attn.kv", "model.decoder.layers.{n}.encoder_attn.kv_proj"),
    linear!("layers.{n}.cross_attn.kv", "model.decoder.layers.{n}.encoder_attn.kv_proj", bias),
    linear!("layers.{n}.cross_attn.output", "model.decoder.layers.{n}.encoder_attn.out_proj"),
    linear!("layers.{n}.cross_attn.output", "model.decoder.layers.{n}.encoder_attn.out_proj", bias),
    linear!("layers.{n}.ffn_norm", "model.decoder.layers.{n}.final_layer_norm"),
    linear!("layers.{n}.ffn_norm", "model.decoder.layers.{n}.final_layer_norm", bias),
    linear!("layers.{n}.ffn.up", "model.decoder.layers.{n}.mlp.fc1"),
    linear!("layers.{n}.ffn.up", "model.decoder.layers.{n}.mlp.fc1", bias),
    linear!("layers.{n}.ffn.down", "model.decoder.layers.{n}.mlp.fc2"),
    linear!("layers.{n}.ffn.down", "model.decoder.layers.{n}.mlp.fc2", bias),
    linear!("output_norm", "model.decoder.layer_norm"),
    linear!("output_norm", "model.decoder.layer_norm", bias),
    Rule::same("output.weight", "proj_out.weight"),
];
