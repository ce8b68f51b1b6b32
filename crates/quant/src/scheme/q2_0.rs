use super::{Block, EncodeRow, half_at};
use crate::encode::{encode_row, put_half};
use crate::search::{Parts, Whole, one_scale};

/// 64 values `d * (q - 1)`: `d` (f16), sixteen bytes. Byte `j` holds values `4 j` to `4 j + 3`, the first in
/// its low bits.
///
/// Source: ggml `block_q2_0`, `dequantize_row_q2_0`.
pub(crate) struct Q2_0;

impl Block for Q2_0 {
    const NAME: &'static str = "q2_0";
    const PER: usize = 64;
    const BYTES: usize = 18;
    const ENCODE: Option<EncodeRow> = encode_row!(Q2_0, encode);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (out, q) in out.as_chunks_mut::<4>().0.iter_mut().zip(&b[2..18]) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = ((*q as i32 >> (2 * i) & 3) - 1) as f32 * d;
            }
        }
    }
}

#[inline(always)]
fn encode(x: &[f32; 64], importance: Option<&[f32; 64]>, out: &mut [u8; 18]) {
    let (d, codes) = one_scale::<Whole<-1, 2>, 64>(&Parts::new(x, importance));
    put_half(out, 0, d);
    for (out, codes) in out[2..].iter_mut().zip(codes.as_chunks::<4>().0) {
        *out = codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6;
    }
}
