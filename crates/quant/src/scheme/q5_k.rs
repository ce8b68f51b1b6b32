use super::put_scales_mins;
use super::{Block, EncodeRow, Recode, apart, half_at, scales_mins};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, recode};
use crate::packing::{At, Change, Codes, Field, Packing};
use crate::search::{Parts, Whole, affine};

/// As Q4_K with a fifth bit: `d`, `dmin` (f16), twelve bytes of scales and minima, 32 bytes of fifth bits
/// (bit `s` of byte `i` is that of value `32 s + i`), 128 bytes of nibbles.
///
/// Source: ggml `block_q5_K`, `dequantize_row_q5_K`.
pub(crate) struct Q5K;

impl Block for Q5K {
    const NAME: &'static str = "q5_k";
    const PER: usize = 256;
    const BYTES: usize = 176;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Codes::ScaleMin { five: true },
        &[Field::Scales(At(0, 0), Some(At(0, 2))), Field::Words(At(0, 4), 43, Change::None)],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q5K, encode);
    const RECODE: Option<Recode> = recode!(Q5K, Levels::Even(32), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (scales, mins) = scales_mins(&b[4..16], half_at(b, 0), half_at(b, 2));
        for (c, out) in out.chunks_exact_mut(64).enumerate() {
            let (low, high) = out.split_at_mut(32);
            for (i, (q, fifth)) in b[48 + 32 * c..][..32].iter().zip(&b[16..48]).enumerate() {
                let fifth = fifth >> (2 * c);
                low[i] = scales[2 * c] * (q & 15 | fifth << 4 & 16) as f32 - mins[2 * c];
                high[i] = scales[2 * c + 1] * (q >> 4 | fifth << 3 & 16) as f32 - mins[2 * c + 1];
            }
            apart();
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 176]) {
    let found = affine::<Whole<0, 31>, 32, 8, 63>(&Parts::new(x, importance));
    put_half(out, 0, found.d);
    put_half(out, 2, found.dmin);
    put_scales_mins(&mut out[4..16], &found.scales, &found.mins);
    put(found.codes.as_flattened(), out);
}

#[inline(always)]
fn put(codes: &[u8], out: &mut [u8; 176]) {
    out[16..48].fill(0);
    for (s, codes) in codes.chunks_exact(32).enumerate() {
        for i in 0..32 {
            out[16 + i] |= codes[i] >> 4 << s;
        }
    }
    for (out, codes) in out[48..].chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for i in 0..32 {
            out[i] = codes[i] & 15 | codes[32 + i] << 4;
        }
    }
}
