use super::{Block, half_at, scale_min};
use crate::interleave::{Codes, Field, Packed};

/// As Q4_K with a fifth bit: `d`, `dmin` (f16), twelve bytes of scales and minima, 32 bytes of fifth bits
/// (bit `s` of byte `i` is that of value `32 s + i`), 128 bytes of nibbles.
///
/// Source: ggml `block_q5_K`, `dequantize_row_q5_K`.
pub(crate) struct Q5K;

impl Block for Q5K {
    const NAME: &'static str = "q5_k";
    const PER: usize = 256;
    const BYTES: usize = 176;

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

impl Packed for Q5K {
    const CODES: Codes = Codes::ScaleMin { five: true };
    const FIELDS: &'static [Field] = &[Field::Scales(0, Some(2)), Field::Words(4, 43)];
}
