use super::Block;

/// 256 values `d * q`: `d` (f32), 256 signed bytes, the sums of each sixteen of them (i16). An intermediate
/// form of activations in ggml: the sums serve its dot products and add nothing to the values.
///
/// Source: ggml `block_q8_K`, `dequantize_row_q8_K`.
pub(crate) struct Q8K;

impl Block for Q8K {
    const NAME: &'static str = "q8_k";
    const PER: usize = 256;
    const BYTES: usize = 292;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        for (out, q) in out.iter_mut().zip(&b[4..260]) {
            *out = q.cast_signed() as f32 * d;
        }
    }
}
