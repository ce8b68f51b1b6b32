use crate::float16::Half;

use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, put_half, put_nibbles, range, recode};
use crate::packing::{At, Change, Field, Packing, Plain};
use crate::search::{Parts, Whole, one_affine};

/// 32 values `d * q + m`: `d`, `m` (Half), 16 bytes of nibbles in the order of Q4_0.
///
/// Source: ggml `block_q4_1`, `dequantize_row_q4_1`.
pub(crate) struct Q4_1;

impl Block for Q4_1 {
    const NAME: &'static str = "q4_1";
    const PER: usize = 32;
    const BYTES: usize = 20;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::min(4),
        &[
            Field::Scales(At(0, 0), Some(At(0, 20))),
            Field::Scales(At(0, 2), Some(At(0, 22))),
            Field::Words(At(0, 4), 4, Change::None),
            Field::Words(At(0, 24), 4, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q4_1, encode);
    const RECODE: Option<Recode> = recode!(Q4_1, Levels::Even(16), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        let (low, high) = out.split_at_mut(16);
        for (i, q) in b[4..20].iter().enumerate() {
            low[i] = (q & 15) as f32 * d + m;
            high[i] = (q >> 4) as f32 * d + m;
        }
    }
}

/// Source of the case without importance: ggml `quantize_row_q4_1_ref`.
#[inline(always)]
fn encode(x: &[f32; 32], importance: Option<&[f32; 32]>, out: &mut [u8; 20]) {
    let (d, m, codes) = match importance {
        Some(_) => one_affine::<Whole<0, 15>, 32>(&Parts::new(x, importance)),
        None => {
            let (low, high) = range(x);
            let d = (high - low) / 15.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            let codes = x.map(|x| (((x - low) * inverse + 0.5) as u8).min(15));
            (Half::from_f32(d), Half::from_f32(low), codes)
        }
    };
    put_half(out, 0, d);
    put_half(out, 2, m);
    put(&codes, out);
}

#[inline(always)]
fn put(codes: &[u8; 32], out: &mut [u8; 20]) {
    put_nibbles(&mut out[4..], codes);
}
