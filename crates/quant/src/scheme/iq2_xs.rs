use super::grids;
use super::signs::even_signed;
use super::{Block, half_at};

/// 256 values in sixteen sub-blocks of 16, `d * (scale + 1/2) / 4 * ±grid`: `d` (f16), for each eight values a
/// u16 of a nine-bit index and seven signs, and the four-bit scales, the low nibble first.
///
/// Source: ggml `block_iq2_xs`, `dequantize_row_iq2_xs`.
pub(crate) struct IQ2XS;

impl Block for IQ2XS {
    const NAME: &'static str = "iq2_xs";
    const PER: usize = 256;
    const BYTES: usize = 74;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let pairs = b[2..66].as_chunks::<4>().0;
        for (j, (out, pair)) in out.as_chunks_mut::<16>().0.iter_mut().zip(pairs).enumerate() {
            let scale = b[66 + j / 2] >> (j % 2 * 4) & 15;
            let scale = d * (0.5 + scale as f32) * 0.25;
            for (out, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(pair.as_chunks::<2>().0) {
                let word = u16::from_le_bytes(*word) as usize;
                even_signed(grids::IQ2_XS[word & 511], word >> 9, scale, out);
            }
        }
    }
}
