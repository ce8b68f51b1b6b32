//! MLX: `quantization` in `config.json`.

use insta::assert_snapshot;

use super::Model;

fn affine(config: &str) -> Model {
    Model::new(&format!(r#"{{"quantization":{config}}}"#))
}

fn linear(model: Model, name: &str, words: u64, groups: u64) -> Model {
    model
        .with(&format!("{name}.biases"), "BF16", &[64, groups])
        .with(&format!("{name}.scales"), "BF16", &[64, groups])
        .with(&format!("{name}.weight"), "U32", &[64, words])
}

#[test]
fn modules_with_scales_are_weights() {
    let config = r#"{"group_size":64,"bits":4,
        "b":{"group_size":32,"bits":6},"c":false,"d":{"mode":"mxfp4"},"e":{"mode":"mxfp8"},"f":{"mode":"nvfp4"}}"#;
    let mut model = linear(affine(config), "a", 32, 4);
    model = linear(model, "b", 48, 8).with("c.weight", "BF16", &[64, 256]).with("a.bias", "BF16", &[64]);
    model = model.with("d.scales", "U8", &[64, 8]).with("d.weight", "U32", &[64, 32]);
    model = model.with("e.scales", "U8", &[64, 8]).with("e.weight", "U32", &[64, 64]);
    model = model.with("f.scales", "U8", &[64, 16]).with("f.weight", "U32", &[64, 32]);
    model = model.with("norm.weight", "F32", &[256]);
    // Experts are a leading axis.
    model = model.with("x.biases", "F16", &[3, 8, 1]).with("x.scales", "F16", &[3, 8, 1]);
    model = model.with("x.weight", "U32", &[3, 8, 8]);
    assert_snapshot!(model.entries(), @"
    a.weight [64, 256] mlx-affine:b4,g64,bf16 [8192, 512, 512]
    b.weight [64, 256] mlx-affine:b6,g32,bf16 [12288, 1024, 1024]
    c.weight [64, 256] bf16 [32768]
    a.bias [64] bf16 [128]
    d.weight [64, 256] mlx-mxfp4 [8192, 512]
    e.weight [64, 256] mlx-mxfp8 [16384, 512]
    f.weight [64, 256] mlx-nvfp4 [8192, 1024]
    norm.weight [256] f32 [1024]
    x.weight [3, 8, 64] mlx-affine:b4,g64,f16 [768, 48, 48]
    ");
}

#[test]
fn the_planes_lie_where_their_tensors_do() {
    let checkpoint = linear(affine(r#"{"bits":4,"group_size":64}"#), "a", 32, 4).open();
    let entry = checkpoint.entry("a.weight").expect("there");
    let starts: Vec<u64> = entry.planes.iter().map(|p| p.bytes.start - entry.planes[2].bytes.start).collect();
    // Biases come first in the file, and third in the scheme.
    assert_eq!(starts, [1024, 512, 0]);
    assert_eq!((checkpoint.entries().len(), checkpoint.entry("a.scales")), (1, None));
}

#[test]
fn quantization_goes_before_its_copy_and_null_is_none() {
    let config = r#"{"quantization":{"bits":8,"group_size":32},
        "quantization_config":{"quant_method":"fp8","bits":4,"group_size":64}}"#;
    assert_snapshot!(linear(Model::new(config), "a", 64, 8).entries(), @"a.weight [64, 256] mlx-affine:b8,g32,bf16 [16384, 1024, 1024]");
    let plain = Model::new(r#"{"quantization":null}"#).with("a.weight", "F32", &[2]).entries();
    assert_snapshot!(plain, @"a.weight [2] f32 [8]");
}

#[test]
fn what_does_not_fit_is_said_of_all_modules_at_once() {
    let mut model = linear(affine(r#"{"group_size":64,"bits":4,"z":{"bits":3},"n":false}"#), "group", 32, 8);
    model = model.with("noscales.biases", "BF16", &[64, 4]).with("noscales.weight", "U32", &[64, 32]);
    model = model.with("nobiases.scales", "BF16", &[64, 4]).with("nobiases.weight", "U32", &[64, 32]);
    model = linear(model, "z", 31, 4);
    model = linear(model, "n", 32, 4);
    model = model.with("f.biases", "F16", &[64, 4]).with("f.scales", "BF16", &[64, 4]);
    model = model.with("f.weight", "U32", &[64, 32]).with("g.scales", "BF16", &[64, 4]);
    model = model.with("r.biases", "BF16", &[64, 4]).with("r.scales", "BF16", &[32, 4]);
    model = model.with("r.weight", "U32", &[64, 32]).with("i.scales", "I32", &[64, 4]);
    model = model.with("i.weight", "U32", &[64, 32]).with("h.scales", "BF16", &[64, 4]);
    model = model.with("h.weight", "BF16", &[64, 256]);
    assert_snapshot!(model.error(), @"
    mismatch in `DIR/m/model.safetensors`: 10 problems
      tensor `f`: `biases` is [64, 4] f16, wanted [64, 4] bf16, for `mlx-affine:b4,g64,bf16` [64, 256]
      tensor `g`: wanted `weight` beside `scales`, found none
      tensor `group`: `weight` [64, 32] u32 holds 256 inputs of 4 bits, `scales` [64, 8] are for 512 in groups of 64
      tensor `h`: `weight` is bf16, wanted u32
      tensor `i`: `scales` is i32, wanted f16 or bf16 or f32
      tensor `n`: `quantization` says that it is not quantised, but `weight` is u32
      tensor `nobiases`: wanted `biases` beside `scales`, `weight`, found none
      tensor `noscales`: wanted `scales` beside `biases`, `weight`, found none
      tensor `r`: `scales` is [32, 4] bf16, wanted [64, 4] bf16, for `mlx-affine:b4,g64,bf16` [64, 256]
      tensor `z`: `weight` [64, 31] u32 holds no whole number of inputs of 3 bits, `scales` [64, 4] are for 256 in groups of 64
    ");
}

#[test]
fn a_mode_without_biases() {
    let model = linear(affine(r#"{"mode":"mxfp4"}"#), "a", 32, 8);
    assert_snapshot!(model.error(), @"mismatch in `DIR/m/model.safetensors`: tensor `a`: `scales` is bf16, wanted u8");
    let model =
        affine(r#"{"mode":"mxfp8"}"#).with("a.scales", "U8", &[64, 8]).with("a.biases", "U8", &[64, 8]);
    assert_snapshot!(model.with("a.weight", "U32", &[64, 64]).error(), @"mismatch in `DIR/m/model.safetensors`: tensor `a`: there are `biases`, which mode `mxfp8` has none of");
}

#[test]
fn a_configuration_that_makes_no_sense() {
    let error = |config| affine(config).with("a", "F32", &[1]).error();
    assert_snapshot!(error(r#"{"bits":7,"group_size":64}"#), @"mismatch in `DIR/m/config.json`: `quantization.bits` is 7, wanted 1, 2, 3, 4, 5, 6 or 8 for mode `affine`");
    assert_snapshot!(error(r#"{"bits":4,"group_size":0}"#), @"mismatch in `DIR/m/config.json`: `quantization.group_size` is 0, wanted 32, 64 or 128 for mode `affine`");
    assert_snapshot!(error(r#"{"bits":-4}"#), @"mismatch in `DIR/m/config.json`: `quantization.bits` is `-4`, wanted a whole number");
    assert_snapshot!(error(r#"{"mode":"q4_k"}"#), @"mismatch in `DIR/m/config.json`: `quantization.mode` is `q4_k`, wanted one of affine, mxfp4, nvfp4, mxfp8");
    assert_snapshot!(error(r#"{"bits":4,"a.b":{"mode":"nvfp4","group_size":32}}"#), @"mismatch in `DIR/m/config.json`: `quantization.a.b.group_size` is 32, wanted 16 for mode `nvfp4`");
    assert_snapshot!(error(r#"{"bits":4,"a.b":"mxfp4"}"#), @r#"mismatch in `DIR/m/config.json`: `quantization.a.b` is "mxfp4", wanted an object, true or false"#);
    assert_snapshot!(error(r#""4bit""#), @r#"mismatch in `DIR/m/config.json`: `quantization` is `"4bit"`, wanted an object"#);
}
