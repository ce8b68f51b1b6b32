//! Quantised weights spread over several tensors: sets that are recognised as one entry, and sets that do not fit
//! together.

mod compressed_tensors;
mod modelopt;

use insta::assert_snapshot;

use crate::{Dir, open_both};

/// A tensor to be: name, dtype as safetensors writes it, shape, bytes.
pub(crate) type Made = (&'static str, &'static str, Vec<u64>, Vec<u8>);

/// `DIR/m` with this quantisation in `config.json` and these tensors.
pub(crate) fn model(quantization: &str, tensors: &[Made]) -> Dir {
    let (mut header, mut data) = (vec![], vec![]);
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend(bytes);
        header.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let dir = Dir::new();
    dir.file("m/config.json", format!(r#"{{"model_type":"llama","quantization_config":{quantization}}}"#));
    dir.file(
        "m/model.safetensors",
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat(),
    );
    dir
}

/// A tensor of zeros.
pub(crate) fn zeros(name: &'static str, dtype: &'static str, shape: &[u64]) -> Made {
    let width = match dtype {
        "F32" | "I32" => 4,
        "I64" => 8,
        "F16" | "BF16" => 2,
        _ => 1,
    };
    let bytes = shape.iter().product::<u64>() * width;
    (name, dtype, shape.to_vec(), vec![0; usize::try_from(bytes).expect("small")])
}

/// Lists the entries as text: name, scheme, shape, and the length of each plane.
pub(crate) fn entries(dir: &Dir) -> String {
    let checkpoint = open_both(&dir.path("m")).unwrap_or_else(|e| panic!("{e}"));
    let mut lines = vec![];
    for entry in checkpoint.entries() {
        let planes: Vec<String> =
            entry.planes.iter().map(|p| (p.bytes.end - p.bytes.start).to_string()).collect();
        lines.push(format!("{} {} {}: {}", entry.name, entry.scheme, entry.shape, planes.join(" + ")));
        // Every name is found again.
        assert_eq!(checkpoint.entry(&entry.name).map(|e| &e.planes), Some(&entry.planes));
    }
    lines.join("\n")
}

fn g_idx(name: &'static str, groups: impl Iterator<Item = i32>) -> Made {
    let bytes: Vec<u8> = groups.flat_map(i32::to_le_bytes).collect();
    (name, "I32", vec![bytes.len() as u64 / 4], bytes)
}

/// One linear module `[out 16, in 64]` of four bits, in groups of 32.
fn gptq() -> Vec<Made> {
    vec![
        zeros("l.qweight", "I32", &[8, 16]),
        zeros("l.qzeros", "I32", &[2, 2]),
        zeros("l.scales", "F16", &[2, 16]),
        g_idx("l.g_idx", (0..64).map(|i| i / 32)),
        zeros("l.bias", "F16", &[16]),
        zeros("norm.weight", "F16", &[64]),
    ]
}

const GPTQ: &str = r#"{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":false,"sym":true}"#;

/// The tensors with one replaced or removed.
fn with(mut tensors: Vec<Made>, name: &str, made: Option<Made>) -> Vec<Made> {
    let at = tensors.iter().position(|t| t.0 == name).expect("there");
    match made {
        Some(made) => tensors[at] = made,
        None => _ = tensors.remove(at),
    }
    tensors
}

#[test]
fn gptq_is_one_entry() {
    assert_snapshot!(entries(&model(GPTQ, &gptq())), @"
    l.weight gptq:b4,g32,f16 [16, 64]: 512 + 16 + 64
    l.bias f16 [16]: 32
    norm.weight f16 [64]: 128
    ");
    let without = with(gptq(), "l.g_idx", None);
    assert!(
        entries(&model(GPTQ, &without)).starts_with("l.weight gptq:b4,g32,f16 [16, 64]: 512 + 16 + 64\n")
    );
    let v2 = GPTQ.replace(r#""sym":true"#, r#""checkpoint_format":"gptq_v2""#);
    assert!(entries(&model(&v2, &gptq())).starts_with("l.weight gptq-v2:b4,g32,f16 [16, 64]"));
}

#[test]
fn gptq_groups_follow_g_idx() {
    let act = GPTQ.replace("false", "true");
    let shuffled = with(gptq(), "l.g_idx", Some(g_idx("l.g_idx", (0..64).map(|i| i % 2))));
    let found = entries(&model(&act, &shuffled));
    assert!(found.starts_with("l.weight gptq:b4,act2,f16 [16, 64]: 512 + 16 + 64 + 256\n"), "{found}");
    // In order although it need not be: then it can be cut along the inputs.
    let found = entries(&model(&act, &gptq()));
    assert!(found.starts_with("l.weight gptq:b4,g32,f16 [16, 64]: 512 + 16 + 64\n"), "{found}");

    assert_snapshot!(model(GPTQ, &shuffled).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `g_idx` is out of order, but `desc_act` is false");
    let without = with(gptq(), "l.g_idx", None);
    assert_snapshot!(model(&act, &without).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `g_idx` beside `qweight`, `qzeros`, `scales`, found none");
}

#[test]
fn gptq_whole_rows_and_modules_that_differ() {
    let row = GPTQ.replace("32", "-1");
    let tensors = [
        zeros("l.qweight", "I32", &[8, 16]),
        zeros("l.qzeros", "I32", &[1, 2]),
        zeros("l.scales", "BF16", &[1, 16]),
    ];
    assert_snapshot!(entries(&model(&row, &tensors)), @"l.weight gptq:b4,row,bf16 [16, 64]: 512 + 8 + 32");

    let dynamic = GPTQ.replace(r#""sym":true"#, r#""dynamic":{"+:.*e.*":{"bits":8,"group_size":64}}"#);
    let mut both = gptq();
    both.extend([
        zeros("e.qweight", "I32", &[16, 16]),
        zeros("e.qzeros", "I32", &[1, 4]),
        zeros("e.scales", "F16", &[1, 16]),
    ]);
    assert_snapshot!(entries(&model(&dynamic, &both)), @"
    l.weight gptq:b4,g32,f16 [16, 64]: 512 + 16 + 64
    l.bias f16 [16]: 32
    norm.weight f16 [64]: 128
    e.weight gptq:b8,row,f16 [16, 64]: 1024 + 16 + 32
    ");
}

#[test]
fn gptq_parts_that_do_not_fit() {
    let refused = |config: &str, tensors: &[Made]| model(config, tensors).error("m");
    let missing = with(with(gptq(), "l.scales", None), "l.g_idx", None);
    assert_snapshot!(refused(GPTQ, &missing), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `scales` beside `qweight`, `qzeros`, found none");
    assert_snapshot!(refused(GPTQ, &with(gptq(), "l.qweight", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `qweight` beside `g_idx`, `qzeros`, `scales`, found none");
    assert_snapshot!(refused(&GPTQ.replace("32", "16"), &gptq()), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `scales` has 2 groups, wanted 4: 64 inputs, 16 to a group");
    assert_snapshot!(refused(&GPTQ.replace(r#""bits":4"#, r#""bits":8"#), &gptq()), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `scales` has 2 groups, wanted 1: 32 inputs, 32 to a group");
    assert_snapshot!(refused(&GPTQ.replace(r#""bits":4"#, r#""bits":7"#), &gptq()), @"mismatch in `DIR/m/config.json`: `bits` of gptq: wanted 2, 3, 4 or 8, found 7");
    assert_snapshot!(refused(&GPTQ.replace("32", "0"), &gptq()), @"mismatch in `DIR/m/config.json`: `group_size`: wanted a positive number or -1, found 0");
    let marlin = GPTQ.replace(r#""sym":true"#, r#""checkpoint_format":"marlin""#);
    assert_snapshot!(refused(&marlin, &gptq()), @"mismatch in `DIR/m/config.json`: `checkpoint_format`: wanted `gptq` or `gptq_v2`, found `marlin`");
    let narrow = with(gptq(), "l.qzeros", Some(zeros("l.qzeros", "I32", &[2, 4])));
    assert_snapshot!(refused(GPTQ, &narrow), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `qzeros` is [2, 4] i32, wanted [2, 2] i32, for `gptq:b4,g32,f16` [16, 64]");
    let short = with(gptq(), "l.g_idx", Some(g_idx("l.g_idx", 0..63)));
    assert_snapshot!(refused(GPTQ, &short), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `g_idx` has 63 entries, wanted one for each of 64 inputs");
    let floats = with(gptq(), "l.qweight", Some(zeros("l.qweight", "F32", &[8, 16])));
    assert_snapshot!(refused(GPTQ, &floats), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `qweight` is [8, 16] f32, wanted [8, 16] i32, for `gptq:b4,g32,f16` [16, 64]");
    let mut twice = gptq();
    twice.push(zeros("l.weight", "F16", &[16, 64]));
    assert_snapshot!(refused(GPTQ, &twice), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: its weight would be called `l.weight`, as another tensor is");
}

/// One linear module `[out 16, in 64]` in groups of 32.
fn awq() -> Vec<Made> {
    vec![
        zeros("l.qweight", "I32", &[64, 2]),
        zeros("l.qzeros", "I32", &[2, 2]),
        zeros("l.scales", "F16", &[2, 16]),
    ]
}

const AWQ: &str = r#"{"quant_method":"awq","bits":4,"group_size":32,"zero_point":true,"version":"gemm"}"#;

#[test]
fn awq_is_one_entry() {
    assert_snapshot!(entries(&model(AWQ, &awq())), @"l.weight awq:g32,f16 [16, 64]: 512 + 16 + 64");
    let old = AWQ.replace("gemm", "GEMM");
    assert_eq!(entries(&model(&old, &awq())), entries(&model(AWQ, &awq())));
}

#[test]
fn awq_parts_that_do_not_fit() {
    let refused = |config: &str, tensors: &[Made]| model(config, tensors).error("m");
    assert_snapshot!(refused(&AWQ.replace("gemm", "gemv"), &awq()), @r#"mismatch in `DIR/m/config.json`: `version` of awq: wanted "gemm", found "gemv""#);
    assert_snapshot!(refused(&AWQ.replace(r#""bits":4"#, r#""bits":7"#), &awq()), @"mismatch in `DIR/m/config.json`: `bits` of awq: wanted 4, found 7");
    assert_snapshot!(refused(&AWQ.replace("true", "false"), &awq()), @"mismatch in `DIR/m/config.json`: `zero_point` of awq: wanted true, found false");
    assert_snapshot!(refused(&AWQ.replace("32", "64"), &awq()), @"
    mismatch in `DIR/m/model.safetensors`: 2 problems
      tensor `l`: `qzeros` is [2, 2] i32, wanted [1, 2] i32, for `awq:g64,f16` [16, 64]
      tensor `l`: `scales` is [2, 16] f16, wanted [1, 16] f16, for `awq:g64,f16` [16, 64]
    ");
    assert_snapshot!(refused(&AWQ.replace("32", "48"), &awq()), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `qweight` has 64 inputs, wanted a multiple of the 48 in a group");
    assert_snapshot!(refused(AWQ, &with(awq(), "l.scales", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `scales` beside `qweight`, `qzeros`, found none");
    assert_snapshot!(refused(AWQ, &with(awq(), "l.scales", Some(zeros("l.scales", "F32", &[2, 16])))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `scales` is f32, wanted f16 or bf16");
}

/// One linear module `[out 16, in 64]`, and a norm that is not quantised.
fn nf4() -> Vec<Made> {
    vec![
        zeros("l.weight", "U8", &[512, 1]),
        zeros("l.weight.absmax", "F32", &[16]),
        state(r#"{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[16,64]}"#),
        zeros("norm.weight", "BF16", &[64]),
    ]
}

fn state(json: &str) -> Made {
    let bytes = json.as_bytes().to_vec();
    ("l.weight.quant_state.bitsandbytes__nf4", "U8", vec![bytes.len() as u64], bytes)
}

const BNB: &str = r#"{"quant_method":"bitsandbytes","_load_in_4bit":true}"#;
const STATE: &str = "l.weight.quant_state.bitsandbytes__nf4";

#[test]
fn bitsandbytes_four_bits_are_one_entry() {
    assert_snapshot!(entries(&model(BNB, &nf4())), @"
    l.weight bnb-nf4:b64,bf16 [16, 64]: 512 + 64
    norm.weight bf16 [64]: 128
    ");
    let nested = |shape: &str, absmax| {
        let json = format!(
            r#"{{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":{shape},
            "nested_blocksize":256,"nested_dtype":"float32","nested_offset":0.05}}"#
        );
        vec![
            zeros("l.weight", "U8", &[absmax * 32, 1]),
            zeros("l.weight.absmax", "U8", &[absmax]),
            zeros("l.weight.nested_absmax", "F32", &[absmax.div_ceil(256)]),
            zeros("l.weight.nested_quant_map", "F32", &[256]),
            state(&json),
        ]
    };
    assert_snapshot!(entries(&model(BNB, &nested("[6,4096]", 384))), @"l.weight bnb-nf4:b64,f16,r4,o3d4ccccd [6, 4096]: 12288 + 384 + 8 + 1024");
    assert_snapshot!(entries(&model(BNB, &nested("[2,32768]", 1024))), @"l.weight bnb-nf4:b64,f16,c16384,o3d4ccccd [2, 32768]: 32768 + 1024 + 16 + 1024");
    // 192 values a row: 256 blocks end inside a row.
    assert_snapshot!(entries(&model(BNB, &nested("[4,192]", 12))), @"l.weight bnb-nf4:b64,f16,4x192,o3d4ccccd [4, 192]: 384 + 12 + 4 + 1024");
    let mut odd = nf4();
    odd[0] = zeros("l.weight", "U8", &[32, 1]);
    odd[1] = zeros("l.weight.absmax", "F32", &[1]);
    odd[2] = state(r#"{"quant_type":"nf4","blocksize":64,"dtype":"float32","shape":[7,9]}"#);
    assert_snapshot!(entries(&model(BNB, &odd)), @"
    l.weight bnb-nf4:b64,f32,7x9 [7, 9]: 32 + 4
    norm.weight bf16 [64]: 128
    ");
}

#[test]
fn bitsandbytes_eight_bits_are_one_entry() {
    let int8 = [
        zeros("l.weight", "I8", &[16, 64]),
        zeros("l.SCB", "F32", &[16]),
        zeros("l.weight_format", "U8", &[]),
    ];
    assert_snapshot!(entries(&model(BNB, &int8)), @"l.weight bnb-int8 [16, 64]: 1024 + 64");
    let tiled = with(int8.to_vec(), "l.weight_format", Some(("l.weight_format", "U8", vec![], vec![2])));
    assert_snapshot!(model(BNB, &tiled).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight_format`: wanted 0, rows one after the other, found 2");
    let other = with(int8.to_vec(), "l.SCB", Some(zeros("l.SCB", "F32", &[64])));
    assert_snapshot!(model(BNB, &other).error("m"), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `SCB` is [64] f32, wanted [16] f32, for `bnb-int8` [16, 64]");
}

#[test]
fn bitsandbytes_parts_that_do_not_fit() {
    let refused = |tensors: &[Made]| model(BNB, tensors).error("m");
    let json = |json: &str| with(nf4(), STATE, Some(state(json)));
    assert_snapshot!(refused(&with(nf4(), STATE, None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight.quant_state.bitsandbytes__nf4` or `…__fp4`, found neither");
    assert_snapshot!(refused(&with(nf4(), "l.weight.absmax", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight.absmax` [16] f32, found none");
    assert_snapshot!(refused(&with(nf4(), "l.weight", None)), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: wanted `weight` [512] u8, found none");
    assert_snapshot!(refused(&json("{")), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state` is no JSON: EOF while parsing an object at line 1 column 1");
    assert_snapshot!(refused(&json("[]")), @r#"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state.quant_type`: wanted "nf4", found null"#);
    let sound = r#"{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[16,64]}"#;
    assert_snapshot!(refused(&json(&sound.replace("64,", "48,"))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state.blocksize`: wanted a power of two from 32 to 4096, found 48");
    assert_snapshot!(refused(&json(&sound.replace("bfloat16", "int8"))), @r#"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state.dtype`: wanted float16, bfloat16 or float32, found "int8""#);
    assert_snapshot!(refused(&json(&sound.replace("nf4", "fp4"))), @r#"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state.quant_type`: wanted "nf4", found "fp4""#);
    assert_snapshot!(refused(&json(&sound.replace("[16,64]", "[16,128]"))), @"
    mismatch in `DIR/m/model.safetensors`: 2 problems
      tensor `l`: `weight` is [512, 1] u8, wanted [1024] u8, for `bnb-nf4:b64,bf16` [16, 128]
      tensor `l`: `weight.absmax` is [16] f32, wanted [32] f32, for `bnb-nf4:b64,bf16` [16, 128]
    ");
    assert_snapshot!(refused(&json(&sound.replace("[16,64]", "[4294967296,4294967296]"))), @"
    mismatch in `DIR/m/model.safetensors`: 2 problems
      tensor `l`: `weight` is [512, 1] u8, wanted [0] u8, for `bnb-nf4:b64,bf16` [4294967296, 4294967296]
      tensor `l`: `weight.absmax` is [16] f32, wanted [0] f32, for `bnb-nf4:b64,bf16` [4294967296, 4294967296]
    ");
    assert_snapshot!(refused(&json(&sound.replace("[16,64]", "[1024]"))), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state.shape`: wanted [out, in], found [1024]");
    let mut map = nf4();
    map.push(zeros("l.weight.quant_map", "F32", &[16]));
    assert_snapshot!(refused(&map), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight.quant_map` is not the table of nf4");
    let mut nested = nf4();
    nested.push(zeros("l.weight.nested_absmax", "F32", &[1]));
    assert_snapshot!(refused(&nested), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `quant_state.nested_blocksize`: wanted 256, found null");
    let float = with(nf4(), "l.weight", Some(zeros("l.weight", "BF16", &[256, 1])));
    assert_snapshot!(refused(&float), @"mismatch in `DIR/m/model.safetensors`: tensor `l`: `weight` is [256, 1] bf16, wanted [512] u8, for `bnb-nf4:b64,bf16` [16, 64]");
}
