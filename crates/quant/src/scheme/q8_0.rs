use crate::float16::Half;

use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, peak, put_half, recode};
use crate::packing::{At, Change, Field, Packing, Plain};

/// 32 values `d * q`: `d` (Half), 32 signed bytes.
///
/// Source: ggml `block_q8_0`, `dequantize_row_q8_0`.
pub(crate) struct Q8_0;

impl Block for Q8_0 {
    const NAME: &'static str = "q8_0";
    const PER: usize = 32;
    const BYTES: usize = 34;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::zero(8),
        &[
            Field::Scales(At(0, 0), Some(At(0, 34))),
            Field::Words(At(0, 2), 8, Change::Flip),
            Field::Words(At(0, 36), 8, Change::Flip),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q8_0, encode);
    const RECODE: Option<Recode> = recode!(Q8_0, Levels::Even(255), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (out, q) in out.iter_mut().zip(&b[2..34]) {
            *out = q.cast_signed() as f32 * d;
        }
    }
}

/// Source: ggml `quantize_row_q8_0_ref`, which has no use for the importance either.
#[inline(always)]
fn encode(x: &[f32; 32], _importance: Option<&[f32; 32]>, out: &mut [u8; 34]) {
    let d = peak(x).abs() / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_half(out, 0, Half::from_f32(d));
    for (out, x) in out[2..].iter_mut().zip(x) {
        *out = ((x * inverse).round() as i8).cast_unsigned();
    }
}

/// -128 has a code, which ggml's products do not expect: code 0 is -127.
#[inline(always)]
fn put(codes: &[u8; 32], out: &mut [u8; 34]) {
    for (out, code) in out[2..].iter_mut().zip(codes) {
        *out = code.wrapping_sub(127);
    }
}
