use super::{Block, EncodeRow};

/// Plain binary32.
pub(crate) struct F32;

impl Block for F32 {
    const NAME: &'static str = "f32";
    const PER: usize = 1;
    const BYTES: usize = 4;
    const ENCODE: Option<EncodeRow> = Some(|_, values, _, out| {
        for (x, out) in values.iter().zip(out.as_chunks_mut::<4>().0) {
            *out = x.to_le_bytes();
        }
    });

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    }
}
