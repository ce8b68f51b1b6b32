use super::grids;
use super::signs::bytes;
use super::{Block, half_at};

/// The offset that an IQ1 type adds to every value of the grid, or subtracts from it.
const DELTA: f32 = 0.125;

/// 256 values in eight sub-blocks of 32, `d * (2 scale + 1) * (grid ± 1/8)`: `d` (f16), the low eight bits of 32
/// indices of eight values, then for each sub-block a u16 of four times three high bits, the three-bit scale,
/// and the sign of the eighth on top.
///
/// Source: ggml `block_iq1_s`, `dequantize_row_iq1_s`.
pub(crate) struct IQ1S;

impl Block for IQ1S {
    const NAME: &'static str = "iq1_s";
    const PER: usize = 256;
    const BYTES: usize = 50;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let (low, high) = (b[2..34].as_chunks::<4>().0, b[34..50].as_chunks::<2>().0);
        for ((out, low), high) in out.as_chunks_mut::<32>().0.iter_mut().zip(low).zip(high) {
            let high = u16::from_le_bytes(*high) as usize;
            let scale = d * (2 * (high >> 12 & 7) + 1) as f32;
            for (l, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                ternary(low[l] as usize | (high >> (3 * l) & 7) << 8, high >> 15, scale, out);
            }
        }
    }
}

/// Writes the eight values of entry `index` of the grid, an eighth less if `less` is 1, more if it is 0, times
/// `scale`.
#[inline(always)]
pub(super) fn ternary(index: usize, less: usize, scale: f32, out: &mut [f32; 8]) {
    let delta = f32::from_bits(DELTA.to_bits() | (less as u32) << 31);
    for (out, q) in out.iter_mut().zip(bytes(grids::IQ1[index])) {
        *out = (q.cast_signed() as f32 + delta) * scale;
    }
}
