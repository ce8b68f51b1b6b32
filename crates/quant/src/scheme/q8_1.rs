use super::{Block, half_at};

/// 32 values `d * q`: `d` (f16), `d * Σq` (f16), 32 signed bytes. An intermediate form of activations in ggml,
/// which has no decoder for it: the sum serves its dot products and adds nothing to the values.
///
/// Source: ggml `block_q8_1`, `quantize_row_q8_1_ref`.
pub(crate) struct Q8_1;

impl Block for Q8_1 {
    const NAME: &'static str = "q8_1";
    const PER: usize = 32;
    const BYTES: usize = 36;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (out, q) in out.iter_mut().zip(&b[4..36]) {
            *out = q.cast_signed() as f32 * d;
        }
    }
}
