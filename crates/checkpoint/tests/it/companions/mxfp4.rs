//! gpt-oss: `quant_method: mxfp4`.

use insta::assert_snapshot;

use super::Model;

fn experts() -> Model {
    Model::new(r#"{"quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]}}"#)
}

#[test]
fn all_experts_are_one_weight() {
    let model = experts()
        .with("mlp.experts.gate_up_proj_bias", "BF16", &[4, 64])
        .with("mlp.experts.gate_up_proj_blocks", "U8", &[4, 64, 3, 16])
        .with("mlp.experts.gate_up_proj_scales", "U8", &[4, 64, 3])
        .with("self_attn.q_proj.weight", "BF16", &[8, 8]);
    assert_snapshot!(model.entries(), @"
    mlp.experts.gate_up_proj_bias [4, 64] bf16 [512]
    mlp.experts.gate_up_proj [4, 64, 96] mxfp4-split [12288, 768]
    self_attn.q_proj.weight [8, 8] bf16 [128]
    ");
}

#[test]
fn what_does_not_fit() {
    let model = experts()
        .with("a_blocks", "U8", &[4, 64, 3, 16])
        .with("b_scales", "U8", &[4, 64, 3])
        .with("c_blocks", "U8", &[4, 64, 3, 8])
        .with("c_scales", "U8", &[4, 64, 3])
        .with("d_blocks", "U8", &[4, 64, 3, 16])
        .with("d_scales", "U8", &[4, 64, 2])
        .with("e_blocks", "BF16", &[4, 64, 3, 16])
        .with("e_scales", "F32", &[4, 64, 3])
        .with("f_blocks", "U8", &[3, 16])
        .with("f_scales", "U8", &[3]);
    assert_snapshot!(model.error(), @"
    mismatch in `DIR/m/model.safetensors`: 7 problems
      tensor `a`: wanted `_scales` beside `_blocks`, found none
      tensor `b`: wanted `_blocks` beside `_scales`, found none
      tensor `c`: `_blocks` has shape [4, 64, 3, 8], wanted 16 bytes as the last axis
      tensor `d`: `_scales` is [4, 64, 2] u8, wanted [4, 64, 3] u8, for `mxfp4-split` [4, 64, 96]
      tensor `e`: `_blocks` is [4, 64, 3, 16] bf16, wanted [4, 64, 3, 16] u8, for `mxfp4-split` [4, 64, 96]
      tensor `e`: `_scales` is [4, 64, 3] f32, wanted [4, 64, 3] u8, for `mxfp4-split` [4, 64, 96]
      tensor `f`: `_blocks` has shape [3, 16], wanted [.., out, in / 32, 16]
    ");
}
