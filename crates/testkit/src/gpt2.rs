//! `gpt2-124m`: a model in the shape of GPT-2 small with random weights, for measuring speed.
//!
//! Its metadata and tokenizer are those of llama.cpp's vocabulary file for GPT-2, byte for byte. Matrices are
//! Q8_0, the rest F32, as `llama-quantize` would leave them; the output head is tied. The weights come from a
//! fixed seed, so the file is the same everywhere, and its text is noise.

use anyhow::{Result, bail};

const LAYERS: u64 = 12;
const HIDDEN: u64 = 768;
const VOCABULARY: u64 = 50_257;
const POSITIONS: u64 = 1024;

/// Sizes of the fixed part of a GGUF header: magic, version, tensor count, pair count.
const HEADER: usize = 24;
const ALIGNMENT: usize = 32;
/// `LLAMA_FTYPE_MOSTLY_Q8_0`, llama.h.
const FILE_TYPE_Q8_0: u32 = 7;

/// A tensor's encoding, with its number in ggml.h.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    F32 = 0,
    Q8_0 = 8,
}

/// What a tensor is filled with.
#[derive(Clone, Copy)]
enum Fill {
    Noise,
    Ones,
    Zeros,
}

struct Tensor {
    name: String,
    /// Fastest first, as GGUF has them.
    dims: Vec<u64>,
    encoding: Encoding,
    fill: Fill,
}

impl Tensor {
    fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    fn bytes(&self) -> u64 {
        match self.encoding {
            Encoding::F32 => self.elements() * 4,
            Encoding::Q8_0 => self.elements() / 32 * 34,
        }
    }
}

/// The whole file, from the bytes of `ggml-vocab-gpt-2.gguf`.
///
/// # Errors
/// `vocabulary` is not a GGUF file without tensors.
pub(crate) fn make(vocabulary: &[u8]) -> Result<Vec<u8>> {
    let Some((header, pairs)) = vocabulary.split_at_checked(HEADER) else {
        bail!("the vocabulary is too short")
    };
    if !header.starts_with(b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0") {
        bail!("the vocabulary is not a GGUF file of version 3 without tensors");
    }
    let tensors = tensors();
    let mut out = Vec::with_capacity(140 << 20);
    out.extend_from_slice(&header[..8]);
    out.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
    out.extend_from_slice(&header[16..]);
    out.extend_from_slice(pairs);
    set_file_type(&mut out)?;

    let mut offset = 0_u64;
    for tensor in &tensors {
        out.extend_from_slice(&(tensor.name.len() as u64).to_le_bytes());
        out.extend_from_slice(tensor.name.as_bytes());
        out.extend_from_slice(&u32::try_from(tensor.dims.len())?.to_le_bytes());
        tensor.dims.iter().for_each(|dim| out.extend_from_slice(&dim.to_le_bytes()));
        out.extend_from_slice(&(tensor.encoding as u32).to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        offset = (offset + tensor.bytes()).next_multiple_of(ALIGNMENT as u64);
    }
    let mut random = SplitMix(0x6770_7432);
    for tensor in &tensors {
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        fill(tensor, &mut random, &mut out);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    Ok(out)
}

/// The vocabulary says that its (absent) matrices are F16.
fn set_file_type(file: &mut [u8]) -> Result<()> {
    let key = b"general.file_type\x04\0\0\0";
    let Some(at) = file.windows(key.len()).position(|window| window == key) else {
        bail!("the vocabulary has no `general.file_type`");
    };
    let value = at + key.len();
    file[value..value + 4].copy_from_slice(&FILE_TYPE_Q8_0.to_le_bytes());
    Ok(())
}

/// Names and shapes as llama.cpp's conversion/gpt2.py gives them.
fn tensors() -> Vec<Tensor> {
    let matrix = |name: String, input, output, encoding| Tensor {
        name,
        dims: vec![input, output],
        encoding,
        fill: Fill::Noise,
    };
    let vector =
        |name: String, length, fill| Tensor { name, dims: vec![length], encoding: Encoding::F32, fill };
    let mut out = vec![
        matrix("token_embd.weight".into(), HIDDEN, VOCABULARY, Encoding::Q8_0),
        matrix("position_embd.weight".into(), HIDDEN, POSITIONS, Encoding::F32),
    ];
    for layer in 0..LAYERS {
        let linears = [
            ("attn_qkv", HIDDEN, 3 * HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_up", HIDDEN, 4 * HIDDEN),
            ("ffn_down", 4 * HIDDEN, HIDDEN),
        ];
        for (name, input, output) in linears {
            out.push(matrix(format!("blk.{layer}.{name}.weight"), input, output, Encoding::Q8_0));
            out.push(vector(format!("blk.{layer}.{name}.bias"), output, Fill::Zeros));
        }
        for name in ["attn_norm", "ffn_norm"] {
            out.push(vector(format!("blk.{layer}.{name}.weight"), HIDDEN, Fill::Ones));
            out.push(vector(format!("blk.{layer}.{name}.bias"), HIDDEN, Fill::Zeros));
        }
    }
    out.push(vector("output_norm.weight".into(), HIDDEN, Fill::Ones));
    out.push(vector("output_norm.bias".into(), HIDDEN, Fill::Zeros));
    out
}

fn fill(tensor: &Tensor, random: &mut SplitMix, out: &mut Vec<u8>) {
    match (tensor.encoding, tensor.fill) {
        // Uniform codes of -127 to 127 at a scale of 2^-12 (f16 0x0c00): a deviation of 0.018, GPT-2's own is 0.02.
        (Encoding::Q8_0, _) => {
            for _ in 0..tensor.elements() / 32 {
                out.extend_from_slice(&[0x00, 0x0c]);
                for _ in 0..4 {
                    let codes = random.next().to_le_bytes();
                    out.extend(codes.map(|code| if code == 0x80 { 0 } else { code }));
                }
            }
        }
        (Encoding::F32, fill) => {
            for _ in 0..tensor.elements() {
                let value = match fill {
                    Fill::Ones => 1.0,
                    Fill::Zeros => 0.0,
                    Fill::Noise => f32::from(i16::from_le_bytes(random.two_bytes())) * (1.0 / 1_048_576.0),
                };
                out.extend_from_slice(&f32::to_le_bytes(value));
            }
        }
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn two_bytes(&mut self) -> [u8; 2] {
        let [a, b, ..] = self.next().to_le_bytes();
        [a, b]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs for seed 1234567, from the reference implementation's test vector.
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn it_has_the_parameters_of_gpt2_small() {
        let all: u64 = tensors().iter().map(Tensor::elements).sum();
        assert_eq!(all, 124_439_808);
    }

    #[test]
    fn a_file_with_tensors_is_not_taken_for_a_vocabulary() {
        assert!(make(b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").is_err());
        assert!(make(b"GGUF").is_err());
    }
}
