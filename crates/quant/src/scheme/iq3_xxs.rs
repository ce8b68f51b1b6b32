use super::grids;
use super::signs::{even_signed, scaled};
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

    #[inline]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let (indices, rest) = (b[2..66].as_chunks::<8>().0, b[66..98].as_chunks::<4>().0);
        for ((out, indices), rest) in out.as_chunks_mut::<32>().0.iter_mut().zip(indices).zip(rest) {
            let rest = word_at(rest, 0);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
            let mut codes = [[0; 8]; 4];
            for (l, codes) in codes.iter_mut().enumerate() {
                let [first, second] = [0, 1].map(|i| grids::IQ3_XXS[indices[2 * l + i] as usize] as u64);
                *codes = even_signed(first | second << 32, (rest >> (7 * l)) as usize);
            }
            scaled(&codes, scale, out);
        }
    }
}
