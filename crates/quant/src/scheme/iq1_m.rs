use super::iq1_s::ternary;
use super::{Block, half_at};

/// 256 values in sixteen sub-blocks of 16, `d * (2 scale + 1) * (grid ± 1/8)`: the low eight bits of 32 indices
/// of eight values, a nibble each of three high bits and the sign of the eighth, then four u16. Each has four
/// three-bit scales, and on top the next four bits of `d` (f16).
///
/// Source: ggml `block_iq1_m`, `dequantize_row_iq1_m`.
pub(crate) struct IQ1M;

impl Block for IQ1M {
    const NAME: &'static str = "iq1_m";
    const PER: usize = 256;
    const BYTES: usize = 56;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (low, high) = (b[..32].as_chunks::<2>().0, &b[32..48]);
        let d = half_at(&[b[49] >> 4 | b[51] & 0xf0, b[53] >> 4 | b[55] & 0xf0], 0);
        let scales = [48, 50, 52, 54].map(|at| u16::from_le_bytes([b[at], b[at + 1]]));
        for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scale = d * (2 * (scales[j / 4] >> (j % 4 * 3) & 7) + 1) as f32;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let high = high[j] as usize >> (4 * l);
                ternary(low[j][l] as usize | (high & 7) << 8, high >> 3 & 1, scale, out);
            }
        }
    }
}
