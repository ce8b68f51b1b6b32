//! compressed-tensors: sets that are recognised as one entry, and sets that do not fit together.

use insta::assert_snapshot;

use super::{Made, entries, g_idx, model, with, zeros};

fn config(weights: &str) -> String {
    format!(
        r#"{{"quant_method":"compressed-tensors","format":"pack-quantized",
        "config_groups":{{"group_0":{{"targets":["Linear"],"weights":{weights}}}}},"ignore":["lm_head"]}}"#
    )
}

fn shape(name: &'static str, shape: &[i64]) -> Made {
    let bytes: Vec<u8> = shape.iter().flat_map(|n| n.to_le_bytes()).collect();
    (name, "I64", vec![shape.len() as u64], bytes)
}

const G32: &str = r#"{"num_bits":4,"type":"int","strategy":"group","group_size":32,"symmetric":true}"#;

/// One linear module `[out 16, in 64]` of four bits in groups of 32, beside one that is not quantised.
fn packed() -> Vec<Made> {
    vec![
        zeros("l.weight_packed", "I32", &[16, 8]),
        zeros("l.weight_scale", "BF16", &[16, 2]),
        shape("l.weight_shape", &[16, 64]),
        zeros("lm_head.weight", "BF16", &[8, 64]),
    ]
}

fn zero_points(mut tensors: Vec<Made>) -> Vec<Made> {
    tensors.push(zeros("l.weight_zero_point", "I32", &[2, 2]));
    tensors
}

#[test]
fn packed_integers_are_one_entry() {
    assert_snapshot!(entries(&model(&config(G32), &packed())), @"
    l.weight ct-pack:b4,g32,bf16 [16, 64]: 512 + 64
    lm_head.weight bf16 [8, 64]: 1024
    ");
    let asymmetric = G32.replace("true", "false");
    assert_snapshot!(entries(&model(&config(&asymmetric), &zero_points(packed()))), @"
    l.weight ct-pack:b4,g32,z,bf16 [16, 64]: 512 + 64 + 16
    lm_head.weight bf16 [8, 64]: 1024
    ");
    let channel = r#"{"num_bits":8,"group_size":-1}"#;
    let mut rows = packed();
    rows[0] = zeros("l.weight_packed", "I32", &[16, 16]);
    rows[1] = zeros("l.weight_scale", "F16", &[16, 1]);
    assert_snapshot!(entries(&model(&config(channel), &rows)), @"
    l.weight ct-pack:b8,row,f16 [16, 64]: 1024 + 32
    lm_head.weight bf16 [8, 64]: 1024
    ");
    let one = r#"{"num_bits":4}"#;
    let tensor = with(packed(), "l.weight_scale", Some(zeros("l.weight_scale", "F32", &[1])));
    assert_snapshot!(entries(&model(&config(one), &tensor)), @"
    l.weight ct-pack:b4,tensor,f32 [16, 64]: 512 + 4
    lm_head.weight bf16 [8, 64]: 1024
    ");
}

#[test]
fn packed_groups_follow_g_idx() {
    let ordered = |groups: fn(i32) -> i32| {
        let mut tensors = packed();
        tensors.push(g_idx("l.weight_g_idx", (0..64).map(groups)));
        entries(&model(&config(G32), &tensors))
    };
    assert!(ordered(|i| i / 32).starts_with("l.weight ct-pack:b4,g32,bf16 [16, 64]: 512 + 64\n"));
    assert!(ordered(|_| -1).starts_with("l.weight ct-pack:b4,g32,bf16 [16, 64]: 512 + 64\n"));
    assert!(ordered(|i| i % 2).starts_with("l.weight ct-pack:b4,act2,bf16 [16, 64]: 512 + 64 + 256\n"));
}

#[test]
fn packed_parts_that_do_not_fit() {
    let refused = |weights: &str, tensors: &[Made]| model(&config(weights), tensors).error("m");
    assert_snapshot!(refused(G32, &with(packed(), "l.weight_scale", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight_scale` beside `weight_packed`, `weight_shape`, found none");
    assert_snapshot!(refused(G32, &with(packed(), "l.weight_shape", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight_shape` beside `weight_packed`, `weight_scale`, found none");
    assert_snapshot!(refused(&G32.replace("32", "16"), &packed()), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [16, 64] with [16, 2] scales, but `config_groups` has only 4-bit int by group of 16");
    assert_snapshot!(refused(&G32.replace(":4", ":7"), &packed()), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [16, 64] with [16, 2] scales, but `config_groups` has only 7-bit int by group of 32");
    assert_snapshot!(refused(&G32.replace("true", "false"), &packed()), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [16, 64] with [16, 2] scales, but `config_groups` has only 4-bit int by group of 32 with zero points");
    assert_snapshot!(refused(G32, &zero_points(packed())), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [16, 64] with [16, 2] scales and zero points, but `config_groups` has only 4-bit int by group of 32");
    assert_snapshot!(refused(&G32.replace(":32", ":0"), &packed()), @"mismatch in `DIR/m/config.json`: `config_groups.group_0.weights.group_size`: wanted a positive number, found 0");
    assert_snapshot!(refused(&G32.replace("int", "complex"), &packed()), @r#"mismatch in `DIR/m/config.json`: `config_groups.group_0.weights.type`: wanted "int" or "float", found "complex""#);
    assert_snapshot!(refused(&G32.replace(r#""group","#, r#""attn_head","#), &packed()), @r#"mismatch in `DIR/m/config.json`: `config_groups.group_0.weights.strategy`: wanted tensor, channel, group, tensor_group or block, found "attn_head""#);
    let zero = with(
        zero_points(packed()),
        "l.weight_zero_point",
        Some(zeros("l.weight_zero_point", "I32", &[2, 1])),
    );
    assert_snapshot!(refused(&G32.replace("true", "false"), &zero), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_zero_point` is [2, 1] i32, wanted [2, 2] i32, for `ct-pack:b4,g32,z,bf16` [16, 64]");
    let five = G32.replace(":4", ":5");
    assert_snapshot!(refused(&five, &with(packed(), "l.weight_packed", Some(zeros("l.weight_packed", "I32", &[16, 10])))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: no scheme is called `ct-pack:b5,g32,bf16`");
    let lie = |s: &[i64]| with(packed(), "l.weight_shape", Some(shape("l.weight_shape", s)));
    assert_snapshot!(refused(G32, &lie(&[16, 80])), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [16, 80] with [16, 2] scales, but `config_groups` has only 4-bit int by group of 32");
    assert_snapshot!(refused(G32, &lie(&[8, 64])), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [8, 64] with [16, 2] scales, but `config_groups` has only 4-bit int by group of 32");
    assert_snapshot!(refused(G32, &lie(&[-16, 64])), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_shape` is [-16, 64], wanted [out, in]");
    assert_snapshot!(refused(G32, &lie(&[i64::MAX, i64::MAX])), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in 8 words a row, [9223372036854775807, 9223372036854775807] with [16, 2] scales, but `config_groups` has only 4-bit int by group of 32");
    assert_snapshot!(refused(G32, &lie(&[1024])), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_shape` is [1024], wanted [out, in]");
    let mut short = packed();
    short.push(g_idx("l.weight_g_idx", 0..63));
    assert_snapshot!(refused(G32, &short), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_g_idx` has 63 entries, wanted one for each of 64 inputs");
    let sparse =
        config(G32).replace(r#""ignore""#, r#""sparsity_config":{"format":"sparse-24-bitmask"},"ignore""#);
    assert_snapshot!(model(&sparse, &packed()).error("m"), @r#"mismatch in `DIR/m/config.json`: `sparsity_config.format`: wanted "dense", found "sparse-24-bitmask""#);
    let rotated = config(G32)
        .replace(r#""ignore""#, r#""transform_config":{"config_groups":{"u":{"type":"hadamard"}}},"ignore""#);
    assert_snapshot!(model(&rotated, &packed()).error("m"), @"mismatch in `DIR/m/config.json`: `transform_config`: wanted none, found weights in a rotated basis");
    assert_snapshot!(model(r#"{"quant_method":"compressed-tensors"}"#, &packed()).error("m"), @"mismatch in `DIR/m/config.json`: `config_groups`: wanted an object, found null");
}

#[test]
fn bytes_are_one_entry() {
    let weights = |dtype, scales: Made| {
        let weight = zeros("l.weight", dtype, &[16, 64]);
        vec![weight, scales, zeros("l.input_scale", "F32", &[1]), zeros("norm.weight", "BF16", &[64])]
    };
    let scales = |shape| zeros("l.weight_scale", "BF16", shape);
    let int8 = r#"{"num_bits":8,"type":"int","strategy":"channel"}"#;
    assert_snapshot!(entries(&model(&config(int8), &weights("I8", scales(&[16, 1])))), @"
    l.weight ct-int8:row,bf16 [16, 64]: 1024 + 32
    l.input_scale f32 [1]: 4
    norm.weight bf16 [64]: 128
    ");
    let fp8 = int8.replace("int", "float");
    assert_snapshot!(entries(&model(&config(&fp8), &weights("F8_E4M3", scales(&[16, 1])))), @"
    l.weight ct-fp8:row,bf16 [16, 64]: 1024 + 32
    l.input_scale f32 [1]: 4
    norm.weight bf16 [64]: 128
    ");
    let tensor = fp8.replace("channel", "tensor");
    assert_snapshot!(entries(&model(&config(&tensor), &weights("F8_E4M3", scales(&[])))), @"
    l.weight ct-fp8:tensor,bf16 [16, 64]: 1024 + 2
    l.input_scale f32 [1]: 4
    norm.weight bf16 [64]: 128
    ");
    let block = r#"{"num_bits":8,"type":"float","strategy":"block","block_structure":[10,32]}"#;
    assert_snapshot!(entries(&model(&config(block), &weights("F8_E4M3", scales(&[2, 2])))), @"
    l.weight ct-fp8:b10x32,bf16 [16, 64]: 1024 + 8
    l.input_scale f32 [1]: 4
    norm.weight bf16 [64]: 128
    ");
    // In f32 nothing is rounded, and it is the scheme of other ecosystems.
    let wide = zeros("l.weight_scale", "F32", &[2, 2]);
    assert_snapshot!(entries(&model(&config(block), &weights("F8_E4M3", wide))), @"
    l.weight fp8:e4m3,b10x32,f32 [16, 64]: 1024 + 16
    l.input_scale f32 [1]: 4
    norm.weight bf16 [64]: 128
    ");
    let mx =
        r#"{"num_bits":8,"type":"float","strategy":"group","group_size":32,"scale_dtype":"torch.uint8"}"#;
    let powers = zeros("l.weight_scale", "U8", &[16, 2]);
    assert_snapshot!(entries(&model(&config(mx), &weights("F8_E4M3", powers))), @"
    l.weight ct-mxfp8 [16, 64]: 1024 + 32
    l.input_scale f32 [1]: 4
    norm.weight bf16 [64]: 128
    ");

    let refused = |weights: &str, tensors: &[Made]| model(&config(weights), tensors).error("m");
    assert_snapshot!(refused(&fp8, &weights("I8", scales(&[16, 1]))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are ints in bytes, [16, 64] with [16, 1] scales, but `config_groups` has only 8-bit float by row");
    assert_snapshot!(refused(&fp8, &weights("F8_E4M3", scales(&[]))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are 8-bit floats, [16, 64] with [1, 1] scales, but `config_groups` has only 8-bit float by row");
    assert_snapshot!(refused(&fp8, &weights("BF16", scales(&[16, 1]))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight` is bf16, wanted i8 or f8_e4m3 beside `weight_scale`");
    assert_snapshot!(refused(block, &weights("F8_E4M3", scales(&[2, 1]))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are 8-bit floats, [16, 64] with [2, 1] scales, but `config_groups` has only 8-bit float by block of 10x32");
}

#[test]
fn four_bit_floats_are_one_entry() {
    let nvfp4 = r#"{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16}"#;
    let tensors = vec![
        zeros("l.weight_packed", "U8", &[16, 32]),
        zeros("l.weight_scale", "F8_E4M3", &[16, 4]),
        zeros("l.weight_global_scale", "F32", &[1]),
        zeros("l.input_global_scale", "F32", &[1]),
    ];
    assert_snapshot!(entries(&model(&config(nvfp4), &tensors)), @"
    l.weight ct-nvfp4 [16, 64]: 512 + 64 + 4
    l.input_global_scale f32 [1]: 4
    ");
    let missing = with(tensors.clone(), "l.weight_global_scale", None);
    assert_snapshot!(model(&config(nvfp4), &missing).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight_global_scale` [] f32, found none");
    assert_snapshot!(model(&config(G32), &tensors).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: the tensors are 4-bit floats by group of 16, but `config_groups` has only 4-bit int by group of 32");
    let mxfp4 = nvfp4.replace("tensor_group", "group").replace("16", "32");
    let tensors = [zeros("l.weight_packed", "U8", &[16, 32]), zeros("l.weight_scale", "U8", &[16, 2])];
    assert_snapshot!(entries(&model(&config(&mxfp4), &tensors)), @"l.weight ct-mxfp4 [16, 64]: 512 + 32");
}
