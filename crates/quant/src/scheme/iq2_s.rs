use super::grids;
use super::signs::signed;
use super::{Block, half_at};

/// 256 values in sixteen sub-blocks of 16, `d * (scale + 1/2) / 4 * ±grid`: `d` (f16), the low eight bits of 32
/// indices, 32 bytes of signs, the high two bits of the indices, the four-bit scales, the low nibble first.
///
/// Source: ggml `block_iq2_s`, `dequantize_row_iq2_s`.
pub(crate) struct IQ2S;

impl Block for IQ2S {
    const NAME: &'static str = "iq2_s";
    const PER: usize = 256;
    const BYTES: usize = 82;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let (low, signs) = (b[2..34].as_chunks::<2>().0, b[34..66].as_chunks::<2>().0);
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let half = j % 2 * 4;
            let (high, scale) = (b[66 + j / 2] >> half, b[74 + j / 2] >> half & 15);
            let scale = d * (0.5 + scale as f32) * 0.25;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let index = low[j][l] as usize | (high as usize >> (2 * l) & 3) << 8;
                signed(grids::IQ2_S[index], signs[j][l], scale, out);
            }
        }
    }
}
