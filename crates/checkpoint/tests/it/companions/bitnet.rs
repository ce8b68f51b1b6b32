//! BitNet: `quant_method: bitnet`.

use insta::assert_snapshot;

use super::Model;

fn layers(class: &str) -> Model {
    Model::new(&format!(r#"{{"quantization_config":{{"quant_method":"bitnet"{class}}}}}"#))
}

#[test]
fn the_kind_of_layer_says_what_the_scale_does() {
    let weights = |model: Model| {
        model
            .with("a.weight", "U8", &[16, 48])
            .with("a.weight_scale", "BF16", &[1])
            .with("norm.weight", "BF16", &[48])
            .entries()
    };
    assert_snapshot!(weights(layers(r#","linear_class":"autobitlinear""#)), @"
    a.weight [64, 48] bitnet:64x48,bf16,mul [768, 2]
    norm.weight [48] bf16 [96]
    ");
    assert_snapshot!(weights(layers("")), @"
    a.weight [64, 48] bitnet:64x48,bf16,div [768, 2]
    norm.weight [48] bf16 [96]
    ");
}

#[test]
fn what_does_not_fit() {
    let model = layers("")
        .with("a.weight", "U8", &[16, 48])
        .with("b.weight", "U8", &[16, 48])
        .with("b.weight_scale", "F32", &[64])
        .with("c.weight", "U8", &[16, 48, 1])
        .with("c.weight_scale", "F32", &[1])
        .with("d.weight", "BF16", &[16, 48])
        .with("d.weight_scale", "F32", &[1]);
    assert_snapshot!(model.error(), @"
    mismatch in `DIR/m/model.safetensors`: 4 problems
      tensor `a`: wanted `weight_scale` beside `weight`, found none
      tensor `b`: `weight_scale` is [64] f32, wanted [] f32, for `bitnet:64x48,f32,div` [64, 48]
      tensor `c`: `weight` has shape [16, 48, 1], wanted 2 axes
      tensor `d`: `weight` is bf16, wanted u8
    ");
    let model = layers(r#","linear_class":"ternary""#).with("a", "F32", &[1]);
    assert_snapshot!(model.error(), @"mismatch in `DIR/m/config.json`: `quantization_config.linear_class` is `ternary`, wanted bitlinear or autobitlinear");
}
