use super::{Block, half_at};
use crate::interleave::{Codes, Field, Packed, Plain};

/// 32 values `d * q`: `d` (f16), 32 signed bytes.
///
/// Source: ggml `block_q8_0`, `dequantize_row_q8_0`.
pub(crate) struct Q8_0;

impl Block for Q8_0 {
    const NAME: &'static str = "q8_0";
    const PER: usize = 32;
    const BYTES: usize = 34;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (out, q) in out.iter_mut().zip(&b[2..34]) {
            *out = q.cast_signed() as f32 * d;
        }
    }
}

impl Packed for Q8_0 {
    const CODES: Codes = Plain::zero(8);
    const FIELDS: &'static [Field] = &[Field::Scales(0, Some(34)), Field::Signed(2, 8), Field::Signed(36, 8)];
}
