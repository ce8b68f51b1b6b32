use crate::float16::Half;

use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, peak, put_half, put_nibbles, recode};
use crate::packing::{At, Change, Field, Packing, Plain};
use crate::search::{Parts, Whole, one_scale};

/// 32 values `d * (q - 8)`: `d` (Half), 16 bytes. Byte `i` holds value `i` in its low nibble and `i + 16` in
/// its high one.
///
/// Source: ggml `block_q4_0`, `dequantize_row_q4_0`.
pub(crate) struct Q4_0;

impl Block for Q4_0 {
    const NAME: &'static str = "q4_0";
    const PER: usize = 32;
    const BYTES: usize = 18;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::zero(4),
        &[
            Field::Scales(At(0, 0), Some(At(0, 18))),
            Field::Words(At(0, 2), 4, Change::None),
            Field::Words(At(0, 20), 4, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q4_0, encode);
    const RECODE: Option<Recode> = recode!(Q4_0, Levels::Even(16), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        for (i, q) in b[2..18].iter().enumerate() {
            out[i] = ((q & 15) as i32 - 8) as f32 * d;
            out[i + 16] = ((q >> 4) as i32 - 8) as f32 * d;
        }
    }
}

/// Source of the case without importance: ggml `quantize_row_q4_0_ref`.
#[inline(always)]
fn encode(x: &[f32; 32], importance: Option<&[f32; 32]>, out: &mut [u8; 18]) {
    let (d, codes) = match importance {
        Some(_) => one_scale::<Whole<-8, 7>, 32>(&Parts::new(x, importance)),
        None => {
            let d = peak(x) / -8.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            (Half::from_f32(d), x.map(|x| ((x * inverse + 8.5) as u8).min(15)))
        }
    };
    put_half(out, 0, d);
    put(&codes, out);
}

#[inline(always)]
fn put(codes: &[u8; 32], out: &mut [u8; 18]) {
    put_nibbles(&mut out[2..], codes);
}
