use super::{Block, EncodeRow};

/// 16 values `d * (q - 1)`, `q` from 0 to 2: `d` (f32), four bytes of four codes, the first in the low bits.
///
/// Source: docs/adding-a-scheme.md.
pub(crate) struct Toy;

impl Block for Toy {
    const NAME: &'static str = "toy";
    const PER: usize = 16;
    const BYTES: usize = 8;
    const ENCODE: Option<EncodeRow> = Some(|_, values, _, blocks| {
        for (values, block) in values.chunks_exact(16).zip(blocks.chunks_exact_mut(8)) {
            let d = values.iter().fold(0f32, |max, x| max.max(x.abs()));
            let code = |x: &f32| if d > 0.0 { (x / d).round() as i32 + 1 } else { 1 };
            block[..4].copy_from_slice(&d.to_le_bytes());
            for (byte, values) in block[4..].iter_mut().zip(values.chunks_exact(4)) {
                *byte = values.iter().rev().fold(0, |byte, x| byte << 2 | code(x) as u8);
            }
        }
    });

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        for (i, out) in out.iter_mut().enumerate() {
            let q = b[4 + i / 4] >> (2 * (i % 4)) & 3;
            *out = d * (q as f32 - 1.0);
        }
    }
}
