use super::{Block, half_at};

/// Plain binary16.
pub(crate) struct F16;

impl Block for F16 {
    const NAME: &'static str = "f16";
    const PER: usize = 1;
    const BYTES: usize = 2;

    fn block(b: &[u8], out: &mut [f32]) {
        out[0] = half_at(b, 0);
    }
}
