use super::{Block, EncodeRow};

/// Plain binary64, rounded to the nearest binary32.
pub(crate) struct F64;

impl Block for F64 {
    const NAME: &'static str = "f64";
    const PER: usize = 1;
    const BYTES: usize = 8;
    const ENCODE: Option<EncodeRow> = Some(|_, values, _, out| {
        for (x, out) in values.iter().zip(out.as_chunks_mut::<8>().0) {
            *out = f64::from(*x).to_le_bytes();
        }
    });

    fn block(b: &[u8], out: &mut [f32]) {
        out[0] = f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32;
    }
}
