use crate::float16::Half;

use super::{Block, EncodeRow, half_at};

/// Plain binary16.
pub(crate) struct F16;

impl Block for F16 {
    const NAME: &'static str = "f16";
    const PER: usize = 1;
    const BYTES: usize = 2;
    const ENCODE: Option<EncodeRow> = Some(|_, values, _, out| {
        for (x, out) in values.iter().zip(out.as_chunks_mut::<2>().0) {
            *out = Half::from_f32(*x).to_le_bytes();
        }
    });

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        out[0] = half_at(b, 0);
    }
}
