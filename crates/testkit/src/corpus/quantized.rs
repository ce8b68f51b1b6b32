//! Weights whose planes, scales and configuration do not fit each other.

use super::Blame::{self, Mismatch};
use super::build::{Plane, safetensors_of};
use super::{Case, Made};

/// What is wrong, the key and value of `config.json`, the tensors, whose fault, and what the error must say.
type Model = (&'static str, &'static str, Vec<Plane>, Blame, &'static str);

const fn zeros(name: &'static str, dtype: &'static str, shape: &'static [u64]) -> Plane {
    (name, dtype, shape, None)
}

/// MLX, four bits in groups of 64: `[64, 256]`.
fn mlx(words: &'static [u64], scales: &'static [u64]) -> Vec<Plane> {
    vec![zeros("l.weight", "U32", words), zeros("l.scales", "F16", scales), zeros("l.biases", "F16", scales)]
}

/// GPTQ, four bits in groups of 32: `[16, 64]`.
fn gptq() -> Vec<Plane> {
    vec![
        zeros("l.qweight", "I32", &[8, 16]),
        zeros("l.qzeros", "I32", &[2, 2]),
        zeros("l.scales", "F16", &[2, 16]),
    ]
}

fn g_idx(groups: impl Iterator<Item = i32>) -> Plane {
    ("l.g_idx", "I32", &[64], Some(groups.flat_map(i32::to_le_bytes).collect()))
}

/// `planes` with one replaced by name, or added.
fn with(mut planes: Vec<Plane>, plane: Plane) -> Vec<Plane> {
    planes.retain(|p| p.0 != plane.0);
    planes.push(plane);
    planes
}

fn without(mut planes: Vec<Plane>, name: &str) -> Vec<Plane> {
    planes.retain(|p| p.0 != name);
    planes
}

pub(super) fn models() -> Vec<Case> {
    let sound = || mlx(&[64, 32], &[64, 4]);
    let four = r#""quantization":{"bits":4,"group_size":64}"#;
    let mode = |name: &'static str, config: &'static str, says| (name, config, sound(), Mismatch, says);
    let g = r#""quantization_config":{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":false,"sym":true}"#;
    let act = r#""quantization_config":{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true,"sym":true}"#;
    let fp8 = r#""quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}"#;
    let awq = r#""quantization_config":{"quant_method":"awq","bits":4,"group_size":32,"zero_point":true,"version":"gemm"}"#;
    let cases: Vec<Model> = vec![
        mode("bits 7", r#""quantization":{"bits":7,"group_size":64}"#, "`quantization.bits` is 7"),
        mode("bits 0", r#""quantization":{"bits":0,"group_size":64}"#, "`quantization.bits` is 0"),
        mode("bits 2^64", r#""quantization":{"bits":18446744073709551616}"#, "`quantization.bits` is"),
        mode("bits of text", r#""quantization":{"bits":"4"}"#, "`quantization.bits` is"),
        mode("bits of half", r#""quantization":{"bits":4.5}"#, "`quantization.bits` is"),
        mode("groups of 0", r#""quantization":{"bits":4,"group_size":0}"#, "`quantization.group_size` is 0"),
        mode("groups of −1", r#""quantization":{"bits":4,"group_size":-1}"#, "`quantization.group_size` is"),
        mode(
            "groups of 63",
            r#""quantization":{"bits":4,"group_size":63}"#,
            "`quantization.group_size` is 63",
        ),
        mode("an unknown mode", r#""quantization":{"mode":"q4"}"#, "`quantization.mode` is `q4`"),
        mode("a list", r#""quantization":[4,64]"#, "`quantization` is"),
        mode(
            "another group",
            r#""quantization":{"bits":4,"group_size":32}"#,
            "tensor `l`: `weight` [64, 32] u32 holds 256 inputs",
        ),
        mode(
            "a module that is none",
            r#""quantization":{"bits":4,"group_size":64,"l":false}"#,
            "says that it is not quantised",
        ),
        mode("a mode of other scales", r#""quantization":{"mode":"mxfp4"}"#, "tensor `l`"),
        (
            "words that do not fit",
            four,
            mlx(&[64, 31], &[64, 4]),
            Mismatch,
            "tensor `l`: `weight` [64, 31] u32",
        ),
        ("rows that do not fit", four, mlx(&[63, 32], &[64, 4]), Mismatch, "tensor `l`"),
        ("scales of nothing", four, mlx(&[64, 32], &[64, 0]), Mismatch, "tensor `l`"),
        ("a number for a matrix", four, mlx(&[], &[]), Mismatch, "tensor `l`"),
        ("no scales", four, without(sound(), "l.scales"), Mismatch, "tensor `l`: wanted `scales` beside"),
        ("no biases", four, without(sound(), "l.biases"), Mismatch, "tensor `l`: wanted `biases` beside"),
        ("no weight", four, without(sound(), "l.weight"), Mismatch, "tensor `l`: wanted `weight` beside"),
        (
            "words of floats",
            four,
            with(sound(), zeros("l.weight", "F32", &[64, 32])),
            Mismatch,
            "tensor `l`: `weight` is f32, wanted u32",
        ),
        (
            "scales of integers",
            four,
            with(sound(), zeros("l.scales", "I16", &[64, 4])),
            Mismatch,
            "tensor `l`: `scales` is i16",
        ),
        (
            "gptq without scales",
            g,
            without(gptq(), "l.scales"),
            Mismatch,
            "tensor `l`: wanted `scales` beside",
        ),
        (
            "gptq without zeros",
            g,
            without(gptq(), "l.qzeros"),
            Mismatch,
            "tensor `l`: wanted `qzeros` beside",
        ),
        (
            "gptq, zeros of another width",
            g,
            with(gptq(), zeros("l.qzeros", "I32", &[2, 3])),
            Mismatch,
            "tensor `l`: `qzeros` is [2, 3]",
        ),
        (
            "gptq, words of floats",
            g,
            with(gptq(), zeros("l.qweight", "F32", &[8, 16])),
            Mismatch,
            "tensor `l`: `qweight` is",
        ),
        (
            "g_idx out of order",
            g,
            with(gptq(), g_idx((0..64).map(|i| i % 2))),
            Mismatch,
            "`g_idx` is out of order",
        ),
        (
            "g_idx of another length",
            act,
            with(gptq(), zeros("l.g_idx", "I32", &[63])),
            Mismatch,
            "tensor `l`: `g_idx` has 63 entries",
        ),
        (
            "gptq of 5 bits",
            r#""quantization_config":{"quant_method":"gptq","bits":5,"group_size":32}"#,
            gptq(),
            Mismatch,
            "bits",
        ),
        (
            "gptq in groups of −2",
            r#""quantization_config":{"quant_method":"gptq","bits":4,"group_size":-2}"#,
            gptq(),
            Mismatch,
            "group_size",
        ),
        (
            "gptq in groups of 0",
            r#""quantization_config":{"quant_method":"gptq","bits":4,"group_size":0}"#,
            gptq(),
            Mismatch,
            "group_size",
        ),
        ("awq that is gptq", awq, gptq(), Mismatch, "tensor `l`"),
        (
            "fp8 of other blocks",
            fp8,
            vec![zeros("l.weight", "F8_E4M3", &[256, 256]), zeros("l.weight_scale_inv", "F32", &[2, 3])],
            Mismatch,
            "tensor `l",
        ),
        (
            "fp8 of no blocks",
            r#""quantization_config":{"quant_method":"fp8","weight_block_size":[0,128]}"#,
            vec![zeros("l.weight", "F8_E4M3", &[256, 256]), zeros("l.weight_scale_inv", "F32", &[2, 2])],
            Mismatch,
            "weight_block_size",
        ),
        (
            "fp8 of three axes",
            r#""quantization_config":{"quant_method":"fp8","weight_block_size":[1,2,3]}"#,
            vec![zeros("l.weight", "F8_E4M3", &[256, 256]), zeros("l.weight_scale_inv", "F32", &[2, 2])],
            Mismatch,
            "weight_block_size",
        ),
        (
            "fp8 scales of nothing",
            fp8,
            vec![zeros("l.weight", "F8_E4M3", &[256, 256]), zeros("l.weight_scale_inv", "F32", &[0, 0])],
            Mismatch,
            "tensor `l",
        ),
        (
            "mxfp4 experts without scales",
            r#""quantization_config":{"quant_method":"mxfp4"}"#,
            vec![zeros("e.down_proj_blocks", "U8", &[2, 8, 2, 16])],
            Mismatch,
            "e.down_proj",
        ),
        (
            "mxfp4 blocks of 15",
            r#""quantization_config":{"quant_method":"mxfp4"}"#,
            vec![
                zeros("e.down_proj_blocks", "U8", &[2, 8, 2, 15]),
                zeros("e.down_proj_scales", "U8", &[2, 8, 2]),
            ],
            Mismatch,
            "e.down_proj",
        ),
    ];
    let case = |(name, config, planes, blame, says): Model| Case {
        family: "quantized",
        name: name.to_owned(),
        made: vec![
            ("m/config.json".to_owned(), Made::File(format!(r#"{{"model_type":"llama",{config}}}"#).into())),
            ("m/model.safetensors".to_owned(), Made::File(safetensors_of(&planes))),
        ],
        path: "m".to_owned(),
        blame,
        says: says.to_owned(),
    };
    cases.into_iter().map(case).collect()
}
