use super::{Block, EncodeRow, half_at};
use crate::encode::{encode_row, put_half};
use crate::search::{Parts, mean};

/// 128 values `d` or `-d`: `d` (f16), sixteen bytes. Bit `i` of byte `j` is set where value `8 j + i` is `d`.
///
/// Source: ggml `block_q1_0`, `dequantize_row_q1_0`.
pub(crate) struct Q1_0;

impl Block for Q1_0 {
    const NAME: &'static str = "q1_0";
    const PER: usize = 128;
    const BYTES: usize = 18;
    const ENCODE: Option<EncodeRow> = encode_row!(Q1_0, encode);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0).to_bits();
        for (out, bits) in out.as_chunks_mut::<8>().0.iter_mut().zip(&b[2..18]) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = f32::from_bits(d ^ (!bits as u32 >> i) << 31);
            }
        }
    }
}

/// The best `d` is the mean distance from 0 for any signs.
#[inline(always)]
fn encode(x: &[f32; 128], importance: Option<&[f32; 128]>, out: &mut [u8; 18]) {
    put_half(out, 0, mean::<128>(&Parts::new(x, importance)));
    for (out, x) in out[2..].iter_mut().zip(x.as_chunks::<8>().0) {
        *out = (0..8).fold(0, |bits, i| bits | u8::from(x[i] >= 0.0) << i);
    }
}
