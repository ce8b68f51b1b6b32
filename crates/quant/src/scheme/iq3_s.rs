use super::grids;
use super::signs::signed;
use super::{Block, half_at};

/// 256 values in eight sub-blocks of 32, `d * (2 scale + 1) * ±grid`: `d` (f16), the low eight bits of 64
/// indices of four values, a byte a sub-block of their ninth bits, 32 bytes of signs, the four-bit scales, the
/// low nibble first.
///
/// Source: ggml `block_iq3_s`, `dequantize_row_iq3_s`.
pub(crate) struct IQ3S;

impl Block for IQ3S {
    const NAME: &'static str = "iq3_s";
    const PER: usize = 256;
    const BYTES: usize = 110;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let (low, signs) = (b[2..66].as_chunks::<8>().0, b[74..106].as_chunks::<4>().0);
        for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (high, scale) = (b[66 + j] as usize, b[106 + j / 2] >> (j % 2 * 4) & 15);
            let scale = d * (2 * scale + 1) as f32;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let first = low[j][2 * l] as usize | (high >> (2 * l) & 1) << 8;
                let second = low[j][2 * l + 1] as usize | (high >> (2 * l + 1) & 1) << 8;
                let entry = grids::IQ3_S[first] as u64 | (grids::IQ3_S[second] as u64) << 32;
                signed(entry, signs[j][l], scale, out);
            }
        }
    }
}
