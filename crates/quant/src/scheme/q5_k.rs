use super::put_scales_mins;
use super::{Block, EncodeRow, half_at, scale_min};
use crate::encode::{encode_row, put_half};
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

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (d, dmin) = (half_at(b, 0), half_at(b, 2));
        for (j, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scale_min(&b[4..16], j);
            let (scale, min) = (d * scale as f32, dmin * min as f32);
            let codes = &b[48 + j / 2 * 32..][..32];
            for ((out, q), high) in out.iter_mut().zip(codes).zip(&b[16..48]) {
                let q = (q >> (j % 2 * 4) & 15) | (high >> j & 1) << 4;
                *out = scale * q as f32 - min;
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 176]) {
    let found = affine::<Whole<0, 31>, 32, 8, 63>(&Parts::new(x, importance));
    put_half(out, 0, found.d);
    put_half(out, 2, found.dmin);
    put_scales_mins(&mut out[4..16], &found.scales, &found.mins);
    out[16..48].fill(0);
    for (s, codes) in found.codes.iter().enumerate() {
        for i in 0..32 {
            out[16 + i] |= codes[i] >> 4 << s;
        }
    }
    for (out, codes) in out[48..].chunks_exact_mut(32).zip(found.codes.chunks_exact(2)) {
        for i in 0..32 {
            out[i] = codes[0][i] & 15 | codes[1][i] << 4;
        }
    }
}
