//! modelopt: sets that are recognised as one entry, and sets that do not fit together.

use insta::assert_snapshot;

use super::{Made, entries, model, with, zeros};

#[test]
fn modelopt_is_one_entry() {
    let config = r#"{"quant_method":"modelopt","quant_algo":"NVFP4"}"#;
    let tensors = vec![
        zeros("l.weight", "U8", &[16, 32]),
        zeros("l.weight_scale", "F8_E4M3", &[16, 4]),
        zeros("l.weight_scale_2", "F32", &[]),
        zeros("l.input_scale", "F32", &[]),
        zeros("norm.weight", "BF16", &[64]),
    ];
    assert_snapshot!(entries(&model(config, &tensors)), @"
    l.weight modelopt-nvfp4:bf16 [16, 64]: 512 + 64 + 4
    l.input_scale f32 []: 4
    norm.weight bf16 [64]: 128
    ");
    let fp8 =
        |scale: &[u64]| [zeros("l.weight", "F8_E4M3", &[16, 32]), zeros("l.weight_scale", "F32", scale)];
    assert_snapshot!(entries(&model(config, &fp8(&[]))), @"l.weight fp8:e4m3,tensor,f32 [16, 32]: 512 + 4");
    assert_snapshot!(entries(&model(config, &fp8(&[16]))), @"l.weight fp8:e4m3,row,f32 [16, 32]: 512 + 64");
    assert_snapshot!(model(config, &fp8(&[4])).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_scale` is [4] f32, wanted [] f32, for `fp8:e4m3,tensor,f32` [16, 32]");
    let refused = |tensors: Vec<Made>| model(config, &tensors).error("m");
    assert_snapshot!(refused(with(tensors.clone(), "l.weight_scale", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight_scale` [16, 4] f8_e4m3, found none");
    assert_snapshot!(refused(with(tensors.clone(), "l.weight_scale_2", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight_scale_2` [] f32, found none");
    assert_snapshot!(refused(with(tensors.clone(), "l.weight", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight` beside `weight_scale`, `weight_scale_2`, found none");
    let missing = with(with(tensors.clone(), "l.weight_scale", None), "l.weight_scale_2", None);
    assert_snapshot!(refused(missing), @"
    mismatch in `DIR/m/model.safetensors`: 2 problems
      tensor `l`: wanted `weight_scale` [16, 4] f8_e4m3, found none
      tensor `l`: wanted `weight_scale_2` [] f32, found none
    ");
    let ints = with(tensors.clone(), "l.weight", Some(zeros("l.weight", "I8", &[16, 64])));
    assert_snapshot!(refused(ints), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight` is i8, wanted u8");
    let wide = zeros("l.weight_scale", "F8_E4M3", &[16, 2]);
    assert_snapshot!(refused(with(tensors, "l.weight_scale", Some(wide))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_scale` is [16, 2] f8_e4m3, wanted [16, 4] f8_e4m3, for `modelopt-nvfp4:bf16` [16, 64]");
}
