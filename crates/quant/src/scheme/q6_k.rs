use super::{Block, half_at};
use crate::interleave::{Codes, Field, Packed};

/// 256 values in sixteen sub-blocks of 16, `d * scale * (q - 32)`: 128 bytes of low nibbles, 64 bytes of high
/// bit pairs, sixteen signed scales, `d` (f16).
///
/// In each half of 128 values, value `32 s + i` has its low nibble in byte `32 (s % 2) + i` (the low nibble
/// there for `s < 2`, else the high one) and its high pair in bits `2 s` of byte `i`.
///
/// Source: ggml `block_q6_K`, `dequantize_row_q6_K`.
pub(crate) struct Q6K;

impl Block for Q6K {
    const NAME: &'static str = "q6_k";
    const PER: usize = 256;
    const BYTES: usize = 210;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 208);
        for (j, out) in out.chunks_exact_mut(32).enumerate() {
            let (half, s) = (j / 4, j % 4);
            let low = &b[half * 64 + s % 2 * 32..][..32];
            let high = &b[128 + half * 32..][..32];
            for (i, out) in out.iter_mut().enumerate() {
                let scale = d * b[192 + 2 * j + i / 16].cast_signed() as f32;
                let q = (low[i] >> (s / 2 * 4) & 15) | (high[i] >> (2 * s) & 3) << 4;
                *out = scale * (q as i32 - 32) as f32;
            }
        }
    }
}

impl Packed for Q6K {
    const CODES: Codes = Codes::SixBit;
    const FIELDS: &'static [Field] = &[Field::Scales(208, None), Field::Words(192, 4), Field::Words(0, 48)];
}
