//! The schemes, one file each: geometry and scalar decode.
//!
//! All sources named `ggml` in these files are llama.cpp@0c1e57098: block structs in ggml/src/ggml-common.h,
//! `dequantize_row_*` in ggml/src/ggml-quants.c. Scales are binary16, little-endian.

mod bf16;
mod f16;
mod f32;
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
mod mxfp4;
mod nvfp4;
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
mod signs;
mod tq1_0;
mod tq2_0;

pub(crate) use bf16::BF16;
pub(crate) use f16::F16;
pub(crate) use f32::F32;
pub(crate) use iq1_m::IQ1M;
pub(crate) use iq1_s::IQ1S;
pub(crate) use iq2_s::IQ2S;
pub(crate) use iq2_xs::IQ2XS;
pub(crate) use iq2_xxs::IQ2XXS;
pub(crate) use iq3_s::IQ3S;
pub(crate) use iq3_xxs::IQ3XXS;
pub(crate) use iq4_nl::{IQ4, IQ4NL};
pub(crate) use iq4_xs::IQ4XS;
pub(crate) use mxfp4::{FP4, MXFP4};
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
pub(crate) use tq1_0::TQ1_0;
pub(crate) use tq2_0::TQ2_0;

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, Scheme};

use crate::codec::{Codec, Encoder, Matrix};
use crate::isa::{Isa, per_isa};
use crate::packing::Packing;

/// Encodes one row of values, with the importance of each if that is known, to the row's blocks.
pub(crate) type EncodeRow = fn(Isa, &[f32], Option<&[f32]>, &mut [u8]);

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
    }
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

/// The binary16 at byte `at` of `block`.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> f32 {
    half(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// The value of a binary16. As `half::f16::to_f32`, without its question to the processor at each call; and the
/// compiler makes vectors of it.
#[inline(always)]
fn half(bits: u16) -> f32 {
    /// 2^112, the distance of the exponents.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let sign = (bits as u32 & 0x8000) << 16;
    let magnitude = (bits as u32 & 0x7FFF) << 13;
    // Denormals come out right, since the product is exact.
    let finite = (f32::from_bits(magnitude) * SCALE).to_bits();
    // Infinity stays so, and a NaN becomes a quiet one.
    let quiet = if magnitude << 9 == 0 { 0 } else { 0x0040_0000 };
    let special = magnitude | 0x7F80_0000 | quiet;
    f32::from_bits(sign | if bits & 0x7C00 == 0x7C00 { special } else { finite })
}

/// The u32 at byte `at` of `block`.
#[inline(always)]
fn word_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The six-bit scale and minimum of sub-block `j` (0–7) of a Q4_K or Q5_K block, from its twelve bytes.
///
/// Source: ggml `get_scale_min_k4`.
#[inline(always)]
fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let (scale, min) = (packed[j + 4] & 15, packed[j + 4] >> 4);
        (scale | (packed[j - 4] >> 6) << 4, min | (packed[j] >> 6) << 4)
    }
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
    fn every_binary16_is_what_the_library_says() {
        for bits in 0..=u16::MAX {
            let want = ::half::f16::from_bits(bits).to_f32();
            assert_eq!(half(bits).to_bits(), want.to_bits(), "{bits:#06x}");
        }
    }
}
