use super::{Block, half_at};
use crate::interleave::{Codes, Field, Packed, Plain};

/// 32 values `d * q + m`: `d`, `m` (f16), 16 bytes of nibbles in the order of Q4_0.
///
/// Source: ggml `block_q4_1`, `dequantize_row_q4_1`.
pub(crate) struct Q4_1;

impl Block for Q4_1 {
    const NAME: &'static str = "q4_1";
    const PER: usize = 32;
    const BYTES: usize = 20;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        for (i, q) in b[4..20].iter().enumerate() {
            out[i] = (q & 15) as f32 * d + m;
            out[i + 16] = (q >> 4) as f32 * d + m;
        }
    }
}

impl Packed for Q4_1 {
    const CODES: Codes = Plain::min(4);
    const FIELDS: &'static [Field] =
        &[Field::Scales(0, Some(20)), Field::Scales(2, Some(22)), Field::Words(4, 4), Field::Words(24, 4)];
}
