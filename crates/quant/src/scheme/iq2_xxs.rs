use super::grids;
use super::signs::even_signed;
use super::{Block, half_at, word_at};

/// 256 values in eight sub-blocks of 32, `d * (scale + 1/2) / 4 * ±grid`: `d` (f16), then for each sub-block
/// four indices of eight values (u8) and a u32 of four times seven signs and, on top, the four-bit scale.
///
/// Source: ggml `block_iq2_xxs`, `dequantize_row_iq2_xxs`.
pub(crate) struct IQ2XXS;

impl Block for IQ2XXS {
    const NAME: &'static str = "iq2_xxs";
    const PER: usize = 256;
    const BYTES: usize = 66;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (out, b) in out.as_chunks_mut::<32>().0.iter_mut().zip(b[2..].as_chunks::<8>().0) {
            let rest = word_at(b, 4);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                even_signed(grids::IQ2_XXS[b[l] as usize], (rest >> (7 * l)) as usize, scale, out);
            }
        }
    }
}
