use super::iq4_nl::looked_up;
use super::mxfp4::Fp4;
use super::{Block, EncodeRow};
use crate::encode::{encode_row, peak};
use crate::packing::FP4_VALUES;
use crate::search::{Parts, TRIES, least_of};

/// 64 values in four sub-blocks of 16, `scale * e2m1`: four UE4M3 scales, 32 bytes. Byte `8 s + i` holds value
/// `16 s + i` in its low nibble and `16 s + 8 + i` in its high one.
///
/// The code of minus zero gives zero, as in MXFP4. The factor of the whole tensor is not in the block: it is a
/// tensor of its own.
///
/// Source: ggml `block_nvfp4`, `dequantize_row_nvfp4`.
pub(crate) struct NVFP4;

/// Half of each scale byte's value.
static SCALES: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = half_of_ue4m3(byte as u8);
        byte += 1;
    }
    table
};

/// Half of the value of a UE4M3 byte: four bits of exponent (bias 7), three of mantissa.
///
/// As in ggml, the top bit means nothing, and the NaN (7F) is read as 0; FF, which no encoder writes, is 480.
///
/// Source: ggml `ggml_ue4m3_to_fp32`, ggml/src/ggml-impl.h.
const fn half_of_ue4m3(byte: u8) -> f32 {
    if byte == 0x7F {
        return 0.0;
    }
    let (exponent, mantissa) = (byte >> 3 & 15, byte & 7);
    if exponent == 0 {
        mantissa as f32 / 1024.0
    } else {
        f32::from_bits((exponent as u32 + 119) << 23 | (mantissa as u32) << 20)
    }
}

impl Block for NVFP4 {
    const NAME: &'static str = "nvfp4";
    const PER: usize = 64;
    const BYTES: usize = 36;
    const ENCODE: Option<EncodeRow> = encode_row!(NVFP4, encode);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (scales, codes) = b.split_at(4);
        let codes = codes.as_chunks::<8>().0;
        for ((out, scale), codes) in out.as_chunks_mut::<16>().0.iter_mut().zip(scales).zip(codes) {
            // Hidden, as the bytes of a grid are (`signs::bytes`): the loop to make vectors of is the inner one.
            let scale = std::hint::black_box(SCALES[*scale as usize]);
            looked_up(&FP4_VALUES, scale, codes, out);
        }
    }
}

/// For each sub-block the scales are tried that bring its largest value to 6, to a little less, or to so much
/// more that it is cut off.
#[inline(always)]
fn encode(x: &[f32; 64], importance: Option<&[f32; 64]>, out: &mut [u8; 36]) {
    let parts = Parts::<16, 4>::new(x, importance);
    let (scales, codes) = out.split_at_mut(4);
    for (j, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let wanted = peak(x).abs() / 12.0;
        let middle = SCALES[..0x7F].partition_point(|s| *s < wanted);
        let first = middle.saturating_sub(5).min(0x7F - TRIES);
        let best = least_of::<Fp4, 16, 4>(&parts, j, &std::array::from_fn(|c| SCALES[first + c]));
        scales[j] = (first + best) as u8;
        let found = parts.codes::<Fp4>(j, SCALES[first + best]);
        for i in 0..8 {
            codes[8 * j + i] = found[i] | found[i + 8] << 4;
        }
    }
}
