//! FP8: `quant_method: fp8`.

use insta::assert_snapshot;

use super::Model;

fn blocks() -> Model {
    Model::new(r#"{"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}"#)
}

fn whole() -> Model {
    Model::new(r#"{"quantization_config":{"quant_method":"fp8","activation_scheme":"static"}}"#)
}

#[test]
fn scales_for_blocks_rows_or_the_whole() {
    let model = blocks()
        .with("a.weight", "F8_E4M3", &[576, 300])
        .with("a.weight_scale_inv", "F32", &[5, 3])
        .with("b.weight", "BF16", &[8, 8])
        .with("e.weight", "F8_E4M3", &[256, 128])
        .with("e.weight_scale_inv", "F8_E8M0", &[2, 1])
        .with("m.weight", "F8_E4M3", &[100, 64])
        .with("m.weight_scale", "F32", &[1]);
    assert_snapshot!(model.entries(), @"
    a.weight [576, 300] fp8:e4m3,b128x128,f32 [172800, 60]
    b.weight [8, 8] bf16 [128]
    e.weight [256, 128] fp8:e4m3,b128x128,f8_e8m0 [32768, 2]
    m.weight [100, 64] fp8:e4m3,tensor,f32 [6400, 4]
    ");
    let model = whole()
        .with("a.input_scale", "F32", &[])
        .with("a.weight", "F8_E4M3", &[64, 32])
        .with("a.weight_scale", "F32", &[])
        .with("b.weight", "F8_E5M2", &[64, 32])
        .with("b.weight_scale", "BF16", &[64, 1])
        .with("c.weight", "F8_E4M3", &[64, 32])
        .with("c.weight_scale_inv", "F32", &[])
        .with("d.weight", "F8_E4M3", &[64, 32])
        .with("d.weight_scale_inv", "F16", &[64]);
    assert_snapshot!(model.entries(), @"
    a.input_scale [] f32 [4]
    a.weight [64, 32] fp8:e4m3,tensor,f32 [2048, 4]
    b.weight [64, 32] fp8:e5m2,row,bf16 [2048, 128]
    c.weight [64, 32] fp8:e4m3,tensor,f32 [2048, 4]
    d.weight [64, 32] fp8:e4m3,row,f16 [2048, 128]
    ");
}

#[test]
fn what_does_not_fit() {
    let model = blocks()
        .with("grid.weight", "F8_E4M3", &[576, 300])
        .with("grid.weight_scale_inv", "F32", &[4, 3])
        .with("none.weight", "F8_E4M3", &[8, 8])
        .with("both.weight", "F8_E4M3", &[8, 8])
        .with("both.weight_scale", "F32", &[1])
        .with("both.weight_scale_inv", "F32", &[1, 1])
        .with("wide.weight", "BF16", &[8, 8])
        .with("wide.weight_scale_inv", "F32", &[1, 1])
        .with("int.weight", "F8_E4M3", &[8, 8])
        .with("int.weight_scale_inv", "I32", &[1, 1])
        .with("flat.weight", "F8_E4M3", &[8])
        .with("flat.weight_scale_inv", "F32", &[1])
        .with("lost.weight_scale_inv", "F32", &[1, 1]);
    assert_snapshot!(model.error(), @"
    mismatch in `DIR/m/model.safetensors`: 7 problems
      tensor `both`: wanted `weight_scale_inv` or `weight_scale`, found both
      tensor `flat`: `weight` has shape [8], wanted at least 2 axes
      tensor `grid`: `weight_scale_inv` is [4, 3] f32, wanted [5, 3] f32, for `fp8:e4m3,b128x128,f32` [576, 300]
      tensor `int`: `weight_scale_inv` is i32, wanted f32 or bf16 or f16 or f8_e8m0 or u8
      tensor `lost`: wanted `weight` beside `weight_scale_inv`, found none
      tensor `none`: `weight` is f8_e4m3, wanted `weight_scale_inv` or `weight_scale` beside it, found neither
      tensor `wide`: `weight` is bf16, wanted f8_e4m3 or f8_e5m2
    ");
    let model = whole().with("a.weight", "F8_E4M3", &[64, 32]).with("a.weight_scale", "F32", &[2, 1]);
    assert_snapshot!(model.error(), @"mismatch in `DIR/m/model.safetensors`: tensor `a`: `weight_scale` has shape [2, 1] for a weight [64, 32], wanted one scale or 64, or `weight_block_size` in the configuration");
}

#[test]
fn block_sizes_that_make_no_sense() {
    for size in ["[128]", "[0,128]", "[128,-1]", "\"128x128\"", "[128,128,1]", "[2000000,1]"] {
        let config =
            format!(r#"{{"quantization_config":{{"quant_method":"fp8","weight_block_size":{size}}}}}"#);
        let error = Model::new(&config).with("a", "F32", &[1]).error();
        let wants =
            format!("`quantization_config.weight_block_size` is `{size}`, wanted two sizes of 1 or more");
        assert!(error.contains(&wants), "{error}");
    }
}
