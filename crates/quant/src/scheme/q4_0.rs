use super::{Block, half_at};
use crate::interleave::{Codes, Field, Packed, Plain};

/// 32 values `d * (q - 8)`: `d` (f16), 16 bytes. Byte `i` holds value `i` in its low nibble and `i + 16` in
/// its high one.
///
/// Source: ggml `block_q4_0`, `dequantize_row_q4_0`.
pub(crate) struct Q4_0;

impl Block for Q4_0 {
    const NAME: &'static str = "q4_0";
    const PER: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (i, q) in b[2..18].iter().enumerate() {
            out[i] = ((q & 15) as i32 - 8) as f32 * d;
            out[i + 16] = ((q >> 4) as i32 - 8) as f32 * d;
        }
    }
}

impl Packed for Q4_0 {
    const CODES: Codes = Plain::zero(4);
    const FIELDS: &'static [Field] = &[Field::Scales(0, Some(18)), Field::Words(2, 4), Field::Words(20, 4)];
}
