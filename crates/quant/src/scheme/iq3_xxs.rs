use super::grids;
use super::signs::even_signed;
use super::{Block, half_at, word_at};

/// 256 values in eight sub-blocks of 32, `d * (scale + 1/2) / 2 * ±grid`: `d` (f16), 64 indices of four values
/// (u8), then for each sub-block a u32 of four times seven signs and, on top, the four-bit scale.
///
/// Source: ggml `block_iq3_xxs`, `dequantize_row_iq3_xxs`.
pub(crate) struct IQ3XXS;

impl Block for IQ3XXS {
    const NAME: &'static str = "iq3_xxs";
    const PER: usize = 256;
    const BYTES: usize = 98;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let (indices, rest) = (b[2..66].as_chunks::<8>().0, b[66..98].as_chunks::<4>().0);
        for ((out, indices), rest) in out.as_chunks_mut::<32>().0.iter_mut().zip(indices).zip(rest) {
            let rest = word_at(rest, 0);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let (first, second) = (indices[2 * l] as usize, indices[2 * l + 1] as usize);
                let entry = grids::IQ3_XXS[first] as u64 | (grids::IQ3_XXS[second] as u64) << 32;
                even_signed(entry, (rest >> (7 * l)) as usize, scale, out);
            }
        }
    }
}
