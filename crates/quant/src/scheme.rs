//! The schemes, one file each: geometry and scalar decode.
//!
//! All sources named `ggml` in these files are llama.cpp@0c1e57098: block structs in ggml/src/ggml-common.h,
//! `dequantize_row_*` in ggml/src/ggml-quants.c. Scales are binary16, little-endian.

mod awq;
mod bf16;
mod big_endian;
mod bitnet;
mod bits;
mod bnb;
mod bnb_int8;
mod ct_float;
mod ct_int;
mod ctranslate2;
mod f16;
mod f32;
mod f64;
mod fp8;
mod gptq;
mod grids;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mlx_affine;
mod mlx_float;
mod mxfp4;
mod mxfp4_split;
mod nvfp4;
mod plane;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod real;
mod scope;
mod signs;
mod small_float;
mod squish;
#[cfg(test)]
mod toy;
mod tq1_0;
mod tq2_0;

pub(crate) use awq::AwqFamily;
pub(crate) use bf16::BF16;
pub(crate) use big_endian::{BF16_BE, F16_BE, F32_BE, F64_BE};
pub(crate) use bitnet::BitNet;
pub(crate) use bnb::BnbFamily;
pub use bnb::{NESTED as BNB_NESTED, Table as BnbTable, bnb_name};
pub(crate) use bnb_int8::BnbInt8;
pub(crate) use ct_float::{CT_MXFP4, CT_MXFP8, CT_NVFP4, ModeloptNvfp4};
pub(crate) use ct_int::{CtIntFamily, Store as CtStore};
pub(crate) use ctranslate2::{CTranslate2Int8, CTranslate2Int16};
pub(crate) use f16::F16;
pub(crate) use f32::F32;
pub(crate) use f64::F64;
pub use fp8::FP8_SCALES;
pub(crate) use fp8::{CtFp8, Fp8};
pub(crate) use gptq::GptqFamily;
pub use gptq::{GPTQ_BITS, Version as GptqVersion};
pub(crate) use iq1_m::IQ1M;
pub(crate) use iq1_s::IQ1S;
pub(crate) use iq2_s::IQ2S;
pub(crate) use iq2_xs::IQ2XS;
pub(crate) use iq2_xxs::IQ2XXS;
pub(crate) use iq3_s::IQ3S;
pub(crate) use iq3_xxs::IQ3XXS;
pub(crate) use iq4_nl::{IQ4, IQ4NL};
pub(crate) use iq4_xs::IQ4XS;
pub(crate) use mlx_affine::MlxAffine;
pub use mlx_affine::{BITS as MLX_BITS, GROUPS as MLX_GROUPS};
pub(crate) use mlx_float::{MLX_MXFP4, MLX_MXFP8, MLX_NVFP4};
pub(crate) use mxfp4::MXFP4;
pub(crate) use mxfp4_split::Mxfp4Split;
pub(crate) use nvfp4::NVFP4;
pub(crate) use q1_0::Q1_0;
pub(crate) use q2_0::Q2_0;
pub(crate) use q2_k::Q2K;
pub(crate) use q3_k::Q3K;
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_1::Q4_1;
pub(crate) use q4_k::Q4K;
pub(crate) use q5_0::Q5_0;
pub(crate) use q5_1::Q5_1;
pub(crate) use q5_k::Q5K;
pub(crate) use q6_k::Q6K;
pub(crate) use q8_0::Q8_0;
pub(crate) use q8_1::Q8_1;
pub(crate) use q8_k::Q8K;
pub use real::REALS;
pub(crate) use real::Real;
pub use scope::Scope;
pub(crate) use small_float::{F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0};
pub(crate) use squish::{SquishInt8, SquishQ4, SquishQ4a};
#[cfg(test)]
pub(crate) use toy::Toy;
pub(crate) use tq1_0::TQ1_0;
pub(crate) use tq2_0::TQ2_0;

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, Scheme};

use crate::codec::{Codec, Encoder, Levels, Matrix, Recoder};
use crate::float16::Half;
use crate::isa::{Isa, per_isa};
use crate::packing::Packing;

/// Encodes one row of values, with the importance of each if that is known, to the row's blocks.
pub(crate) type EncodeRow = fn(Isa, &[f32], Option<&[f32]>, &mut [u8]);

/// The levels of the codes, and a function that puts codes, a byte each, into blocks that are encoded.
pub(crate) type Recode = (Levels, fn(&[u8], &mut [u8]));

/// A scheme of one plane whose cells are runs of `PER` elements along the last axis.
pub(crate) trait Block: Send + Sync {
    /// The name of the scheme.
    const NAME: &'static str;
    /// Elements of one block.
    const PER: usize;
    /// Bytes of one block.
    const BYTES: usize;
    /// How rows are encoded, if they can be.
    const ENCODE: Option<EncodeRow> = None;
    /// How codes are replaced, if each stands for a value of its own.
    const RECODE: Option<Recode> = None;
    /// How it is interleaved and multiplied, if it can be.
    const PACKING: Option<Packing> = None;

    /// Writes the `PER` values of one block of `BYTES` bytes.
    fn block(block: &[u8], out: &mut [f32]);
}

impl<B: Block> Codec for B {
    fn name(&self) -> &str {
        B::NAME
    }

    fn scheme(&self) -> Arc<Scheme> {
        match Dtype::ALL.iter().find(|d| d.name() == B::NAME) {
            Some(dtype) => Scheme::plain(*dtype),
            None => Scheme::blocks(B::NAME, B::PER as u64, B::BYTES as u64),
        }
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [blocks] = matrix.planes();
        let row = matrix.k / B::PER * B::BYTES;
        let blocks = &blocks[rows.start * row..rows.end * row];
        assert!(
            matrix.k.is_multiple_of(B::PER) && out.len() == rows.len() * matrix.k,
            "`{}`: rows {rows:?} of {} values in {}",
            B::NAME,
            matrix.k,
            out.len()
        );
        decode::<B>(Isa::detect().unwrap_or(Isa::Scalar), blocks, out);
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        B::ENCODE.map(|_| self as &dyn Encoder)
    }

    fn recoder(&self) -> Option<&dyn Recoder> {
        B::RECODE.map(|_| self as &dyn Recoder)
    }

    fn packing(&self) -> Option<Packing> {
        B::PACKING
    }
}

per_isa! {
    /// Decodes whole blocks.
    fn decode<B: Block>(blocks: &[u8], out: &mut [f32]) = decode_blocks
}

#[inline(always)]
fn decode_blocks<B: Block>(blocks: &[u8], out: &mut [f32]) {
    for (block, out) in blocks.chunks_exact(B::BYTES).zip(out.chunks_exact_mut(B::PER)) {
        B::block(block, out);
        apart();
    }
}

/// Keeps the compiler from making vectors across the rounds of a loop, by gathers and scatters, where each round
/// is vectors itself.
#[inline(always)]
fn apart() {
    std::hint::black_box(());
}

impl<B: Block> Encoder for B {
    fn encode(&self, values: &[f32], k: usize, importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        let (Some(encode), [blocks]) = (B::ENCODE, planes) else { panic!("`{}` is not encoded so", B::NAME) };
        let row = k / B::PER * B::BYTES;
        assert!(
            k > 0 && k.is_multiple_of(B::PER) && values.len().is_multiple_of(k),
            "`{}`: {} values in rows of {k}",
            B::NAME,
            values.len()
        );
        assert_eq!(blocks.len(), values.len() / k * row, "bytes of `{}`", B::NAME);
        // If the variable that names an instruction set is wrong, plain Rust gives the same bytes.
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        for (values, blocks) in values.chunks_exact(k).zip(blocks.chunks_exact_mut(row)) {
            encode(isa, values, importance, blocks);
        }
    }
}

impl<B: Block> Recoder for B {
    fn levels(&self) -> Levels {
        B::RECODE.map_or(Levels::Even(1), |(levels, _)| levels)
    }

    fn columns(&self, _: usize) -> usize {
        B::PER
    }

    fn put(&self, codes: &[u8], _: usize, planes: &mut [&mut [u8]]) {
        let (Some((_, put)), [blocks]) = (B::RECODE, planes) else { panic!("`{}` has no codes", B::NAME) };
        assert_eq!(blocks.len(), codes.len() / B::PER * B::BYTES, "bytes of `{}`", B::NAME);
        put(codes, blocks);
    }
}

/// Takes values through memory, so that the compiler makes them together, and not one by one where they are used.
#[inline(always)]
fn at_once<const N: usize>(values: [f32; N]) -> [f32; N] {
    std::hint::black_box(values)
}

/// The `N` bytes from `at` on. Arrays are mapped, not filled by `from_fn`, which is not always inlined, and then not
/// made for this instruction set.
#[inline(always)]
fn bytes_at<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[at..at + N]);
    bytes
}

/// The binary16 at byte `at` of `block`.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> f32 {
    Half::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The u32 at byte `at` of `block`.
#[inline(always)]
fn word_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The six-bit scales and minima of the eight sub-blocks of a Q4_K or Q5_K block, from its twelve bytes, times
/// `d` and `dmin`.
///
/// Source: ggml `get_scale_min_k4`.
#[inline(always)]
fn scales_mins(packed: &[u8], d: f32, dmin: f32) -> ([f32; 8], [f32; 8]) {
    let (scales, mins, low) = (word_at(packed, 0), word_at(packed, 4), word_at(packed, 8));
    let (six, four, two) = (0x3F3F_3F3F, 0x0F0F_0F0F, 0x0303_0303);
    let join = |first: u32, second: u32, by: f32| {
        let codes = (first as u64 | (second as u64) << 32).to_le_bytes();
        at_once(codes.map(|code| by * code as f32))
    };
    (
        join(scales & six, low & four | (scales >> 6 & two) << 4, d),
        join(mins & six, low >> 4 & four | (mins >> 6 & two) << 4, dmin),
    )
}

/// Packs scales and minima of up to 63 as [`scale_min`] takes them out.
#[inline(always)]
fn put_scales_mins(packed: &mut [u8], scales: &[u8; 8], mins: &[u8; 8]) {
    for j in 0..4 {
        packed[j] = scales[j] | scales[j + 4] >> 4 << 6;
        packed[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        packed[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_adding_a_scheme_is_what_is_compiled_here() {
        let page = include_str!("../../../docs/adding-a-scheme.md");
        let code =
            |after: &str| page.split_once(after)?.1.split_once("```rust\n")?.1.split_once("```").map(|c| c.0);
        assert_eq!(code("`crates/quant/src/scheme/toy.rs`:"), Some(include_str!("scheme/toy.rs")));
        let line = code("The line in `CODECS`").unwrap();
        assert!(include_str!("registry.rs").contains(&format!("    {line}")), "{line}");
    }

    #[test]
    fn adding_a_scheme_makes_it_known_to_all() {
        let (scheme, codec) = (crate::scheme("toy").unwrap(), crate::codec("toy").unwrap());
        let wanted: Vec<f32> = (0..64).map(|i| [1.5, 0.0, -1.5][i % 3] * (1 + i / 16) as f32).collect();
        let mut blocks = vec![0; scheme.byte_len(&tensor::Shape::from([2, 32])).unwrap() as usize];
        codec.encoder().unwrap().encode(&wanted, 32, None, &mut [&mut blocks]);
        let mut found = vec![f32::NAN; 32];
        for row in 0..2 {
            let matrix = Matrix { planes: &[&blocks], rows: 2, k: 32 };
            crate::decode_row(&scheme, matrix, row, &mut found);
            assert_eq!(found, wanted[32 * row..][..32]);
        }
        assert!(crate::names().any(|name| name == "toy"));
    }
}
