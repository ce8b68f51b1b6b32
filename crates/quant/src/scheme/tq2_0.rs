use super::{Block, EncodeRow, half_at};
use crate::encode::{encode_row, put_half, put_pairs};
use crate::search::{Parts, ternary};

/// 256 values `d * (q - 1)`: 64 bytes, `d` (f16). In each half of 128 values, value `32 s + i` is in bits `2 s`
/// of byte `i`.
///
/// Source: ggml `block_tq2_0`, `dequantize_row_tq2_0`.
pub(crate) struct TQ2_0;

impl Block for TQ2_0 {
    const NAME: &'static str = "tq2_0";
    const PER: usize = 256;
    const BYTES: usize = 66;
    const ENCODE: Option<EncodeRow> = encode_row!(TQ2_0, encode);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 64);
        for (out, codes) in out.as_chunks_mut::<128>().0.iter_mut().zip(b.as_chunks::<32>().0) {
            for (s, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                for (out, q) in out.iter_mut().zip(codes) {
                    *out = ((q >> (2 * s) & 3) as i32 - 1) as f32 * d;
                }
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 66]) {
    let (d, codes) = ternary::<256>(&Parts::new(x, importance));
    put_pairs(&mut out[..64], &codes);
    put_half(out, 64, d);
}
