use super::put_scales_mins;
use super::{Block, EncodeRow, Recode, half_at, scales_mins};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, recode};
use crate::packing::{At, Change, Codes, Field, Packing};
use crate::search::{Parts, Whole, affine};

/// 256 values in eight sub-blocks of 32, `d * scale * q - dmin * min`: `d`, `dmin` (f16), twelve bytes of
/// six-bit scales and minima, 128 bytes. Byte `i` of the `c`-th 32 holds value `64 c + i` in its low nibble
/// and `64 c + 32 + i` in its high one.
///
/// Source: ggml `block_q4_K`, `dequantize_row_q4_K`.
pub(crate) struct Q4K;

impl Block for Q4K {
    const NAME: &'static str = "q4_k";
    const PER: usize = 256;
    const BYTES: usize = 144;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Codes::ScaleMin { five: false },
        &[Field::Scales(At(0, 0), Some(At(0, 2))), Field::Words(At(0, 4), 35, Change::None)],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q4K, encode);
    const RECODE: Option<Recode> = recode!(Q4K, Levels::Even(16), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (scales, mins) = scales_mins(&b[4..16], half_at(b, 0), half_at(b, 2));
        for (c, out) in out.chunks_exact_mut(64).enumerate() {
            let (low, high) = out.split_at_mut(32);
            for (i, q) in b[16 + 32 * c..][..32].iter().enumerate() {
                low[i] = scales[2 * c] * (q & 15) as f32 - mins[2 * c];
                high[i] = scales[2 * c + 1] * (q >> 4) as f32 - mins[2 * c + 1];
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 144]) {
    let found = affine::<Whole<0, 15>, 32, 8, 63>(&Parts::new(x, importance));
    put_half(out, 0, found.d);
    put_half(out, 2, found.dmin);
    put_scales_mins(&mut out[4..16], &found.scales, &found.mins);
    put(found.codes.as_flattened(), out);
}

#[inline(always)]
fn put(codes: &[u8], out: &mut [u8; 144]) {
    for (out, codes) in out[16..].chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for i in 0..32 {
            out[i] = codes[i] | codes[32 + i] << 4;
        }
    }
}
