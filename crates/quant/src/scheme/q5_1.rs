use super::{Block, half_at};
use crate::interleave::{Codes, Field, Packed, Plain};

/// 32 values `d * q + m`: `d`, `m` (f16), fifth bits and nibbles as in Q5_0.
///
/// Source: ggml `block_q5_1`, `dequantize_row_q5_1`.
pub(crate) struct Q5_1;

impl Block for Q5_1 {
    const NAME: &'static str = "q5_1";
    const PER: usize = 32;
    const BYTES: usize = 24;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        for (i, q) in b[8..24].iter().enumerate() {
            let (lo, hi) = (high >> i << 4 & 16, high >> (i + 16) << 4 & 16);
            out[i] = (u32::from(q & 15) | lo) as f32 * d + m;
            out[i + 16] = (u32::from(q >> 4) | hi) as f32 * d + m;
        }
    }
}

impl Packed for Q5_1 {
    const CODES: Codes = Plain::min(5);
    const FIELDS: &'static [Field] =
        &[Field::Scales(0, Some(24)), Field::Scales(2, Some(26)), Field::Words(4, 5), Field::Words(28, 5)];
}
