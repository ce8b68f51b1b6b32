//! The encodings that a matrix may have, by format.

use std::sync::Arc;

use planner::Preset;
use planner::encoding::fits;
use tensor::Scheme;

use super::Matrix;
use crate::OutputFormat;

/// Encodings of GGUF that llama.cpp runs fast, and that lose less than any smaller one on some matrices.
const GGUF: &[&str] =
    &["q2_k", "q3_k", "iq4_xs", "q4_0", "q4_k", "iq4_nl", "q4_1", "q5_0", "q5_k", "q5_1", "q6_k", "q8_0"];

/// Bits of mlx, in groups of 64.
const MLX: &[u32] = &[2, 3, 4, 5, 6, 8];

/// Encodings that squish reads.
const SQUISH: &[&str] =
    &["squish-q4a:g128", "squish-q4a:g64", "squish-q4a:g32", "squish-int8:row", "squish-int8:g64"];

/// The presets of a format that quantise every matrix that may be quantised, with the most bits. Of several, whose encodings one
/// `config.json` cannot describe together, the larger are first.
pub(super) fn presets(format: OutputFormat) -> Vec<&'static Preset> {
    let names: &[&str] = match format {
        OutputFormat::Gguf => &["q8_0"],
        OutputFormat::Mlx => &["mlx-8bit"],
        OutputFormat::Hf => &["int8", "gptq-4bit"],
        OutputFormat::NpyDir => &["squish-int8"],
        OutputFormat::Npz
        | OutputFormat::Safetensors
        | OutputFormat::Onnx
        | OutputFormat::Ctranslate2
        | OutputFormat::Ggml => &[],
    };
    names.iter().filter_map(|name| Preset::named(name)).collect()
}

/// Returns true if a program fuses matrices of `scheme` that lie side by side, and reads none of them if others are not alike: vLLM does with
/// GPTQ and AWQ.
pub(super) fn is_uniform(scheme: &Scheme) -> bool {
    ["gptq:", "awq:"].iter().any(|family| scheme.name.starts_with(family))
}

/// What a matrix may become: encodings of the format that fit its shape, and what it is, if the format holds that.
pub(super) fn candidates(format: OutputFormat, matrix: &Matrix) -> Vec<Arc<Scheme>> {
    let names: Vec<String> = match format {
        OutputFormat::Gguf => GGUF.iter().map(ToString::to_string).collect(),
        OutputFormat::Mlx => {
            let widest = &*matrix.widest.name;
            MLX.iter().map(|bits| widest.replacen(":b8,", &format!(":b{bits},"), 1)).collect()
        }
        OutputFormat::NpyDir => SQUISH.iter().map(ToString::to_string).collect(),
        _ => vec![matrix.widest.name.to_string()],
    };
    let mut schemes: Vec<Arc<Scheme>> = matrix.stored.iter().cloned().collect();
    for scheme in names.iter().filter_map(|name| quant::scheme(name)) {
        let fits = fits(&scheme, &matrix.shape).is_ok() && format.takes(&scheme, &matrix.shape);
        if fits && !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    }
    schemes
}
