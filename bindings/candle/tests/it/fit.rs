//! What does not fit, all of it at once.

use candle_core::{DType, Device};
use candle_transformers::models::llama::{Config, Llama};
use insta::assert_snapshot;
use weighbridge_candle::{Error, Weights};

use crate::llama;

/// The problems of llama-tiny with a configuration that `change` has changed.
fn problems(change: impl Fn(&mut Config)) -> String {
    let weights = Weights::open(testkit::golden("models/llama-tiny")).unwrap();
    let mut config = llama::config(&weights).unwrap();
    change(&mut config);
    let error = weights.model(DType::F32, &Device::Cpu, |vb| Llama::load(vb, &config)).unwrap_err();
    assert!(matches!(error, Error::Misfit { .. }), "{error:?}");
    let folder = testkit::golden("models");
    format!("{error:?}").replace(&folder.display().to_string(), "models")
}

#[test]
fn a_layer_too_many_and_another_shape() {
    assert_snapshot!(problems(|config| {
        config.num_hidden_layers = 3;
        config.intermediate_size = 128;
    }), @"
    `models/llama-tiny` does not fit candle's model:
    `model.layers.2.input_layernorm.weight` is missing: wanted [64] for `model.layers.2.input_layernorm.weight`
    `model.layers.2.mlp.down_proj.weight` is missing: wanted [64, 128] for `model.layers.2.mlp.down_proj.weight`
    `model.layers.2.mlp.gate_proj.weight` is missing: wanted [128, 64] for `model.layers.2.mlp.gate_proj.weight`
    `model.layers.2.mlp.up_proj.weight` is missing: wanted [128, 64] for `model.layers.2.mlp.up_proj.weight`
    `model.layers.2.post_attention_layernorm.weight` is missing: wanted [64] for `model.layers.2.post_attention_layernorm.weight`
    `model.layers.2.self_attn.k_proj.weight` is missing: wanted [32, 64] for `model.layers.2.self_attn.k_proj.weight`
    `model.layers.2.self_attn.o_proj.weight` is missing: wanted [64, 64] for `model.layers.2.self_attn.o_proj.weight`
    `model.layers.2.self_attn.q_proj.weight` is missing: wanted [64, 64] for `model.layers.2.self_attn.q_proj.weight`
    `model.layers.2.self_attn.v_proj.weight` is missing: wanted [32, 64] for `model.layers.2.self_attn.v_proj.weight`
    `model.layers.{n}.mlp.down_proj.weight` in 2 layers (0–1): wanted [64, 128] for `model.layers.{n}.mlp.down_proj.weight`, found [64, 96]
    hint: only axis 1 differs: 128 wanted, 96 found
    `model.layers.{n}.mlp.gate_proj.weight` in 2 layers (0–1): wanted [128, 64] for `model.layers.{n}.mlp.gate_proj.weight`, found [96, 64]
    hint: only axis 0 differs: 128 wanted, 96 found
    `model.layers.{n}.mlp.up_proj.weight` in 2 layers (0–1): wanted [128, 64] for `model.layers.{n}.mlp.up_proj.weight`, found [96, 64]
    hint: only axis 0 differs: 128 wanted, 96 found
    ");
}

#[test]
fn tensors_that_are_not_used() {
    assert_snapshot!(problems(|config| config.tie_word_embeddings = true), @"
    `models/llama-tiny` does not fit candle's model:
    `lm_head.weight` [128, 64] is in the checkpoint, but no parameter uses it
    ");
    let layer = problems(|config| config.num_hidden_layers = 1);
    assert_eq!(layer.matches("`model.layers.1.").count(), 9, "{layer}");
    assert!(layer.contains("hint: the model wants such a tensor, but not with this number"), "{layer}");
}

#[test]
fn tied_tensors_are_used_by_either_name() {
    // GGUF has one matrix, and Hugging Face one name for it.
    let weights = Weights::open(testkit::model("smollm2")).unwrap();
    let mut config = llama::config(&weights).unwrap();
    assert!(config.tie_word_embeddings);
    weights.model(DType::F32, &Device::Cpu, |vb| Llama::load(vb, &config)).unwrap();
    config.tie_word_embeddings = false;
    let untied = weights.model(DType::F32, &Device::Cpu, |vb| Llama::load(vb, &config)).map(drop);
    assert!(format!("{untied:?}").contains("`lm_head.weight` is missing: wanted [49152, 576]"), "{untied:?}");
}

#[test]
fn a_tensor_of_any_shape_is_missing_too() {
    let weights = Weights::open(testkit::golden("models/llama-tiny")).unwrap().leave("*");
    let error = weights.model(DType::F32, &Device::Cpu, |vb| {
        vb.get(32, "model.norm.weight")?;
        vb.get_unchecked("model.norm.bias")
    });
    let error = format!("{:?}", error.unwrap_err());
    assert!(error.contains("`model.norm.bias` is missing: needed"), "{error}");
    assert!(error.contains("`model.norm.weight`: wanted [32]"), "{error}");
}

#[test]
fn a_failing_constructor_says_why() {
    let weights = Weights::open(testkit::golden("models/llama-tiny")).unwrap().leave("*");
    let error = weights.model(DType::F32, &Device::Cpu, |vb| {
        vb.get(64, "model.norm.weight")?;
        candle_core::bail!("no luck") as candle_core::Result<()>
    });
    assert!(format!("{:?}", error.unwrap_err()).contains("no luck"));
}
