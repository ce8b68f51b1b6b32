use crate::float16::bfloat_to_le_bytes;

use super::{Block, EncodeRow};

/// The upper half of a binary32.
pub(crate) struct BF16;

impl Block for BF16 {
    const NAME: &'static str = "bf16";
    const PER: usize = 1;
    const BYTES: usize = 2;
    const ENCODE: Option<EncodeRow> = Some(|_, values, _, out| {
        for (x, out) in values.iter().zip(out.as_chunks_mut::<2>().0) {
            *out = bfloat_to_le_bytes(*x);
        }
    });

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        out[0] = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
    }
}
