use crate::float16::Half;

use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, fifth_bits, peak, put_half, put_nibbles, recode};
use crate::packing::{At, Change, Field, Packing, Plain};
use crate::search::{Parts, Whole, one_scale};

/// 32 values `d * (q - 16)`: `d` (Half), a `u32` whose bit `i` is the fifth bit of value `i`, 16 bytes of
/// nibbles in the order of Q4_0.
///
/// Source: ggml `block_q5_0`, `dequantize_row_q5_0`.
pub(crate) struct Q5_0;

impl Block for Q5_0 {
    const NAME: &'static str = "q5_0";
    const PER: usize = 32;
    const BYTES: usize = 22;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::zero(5),
        &[
            Field::Scales(At(0, 0), Some(At(0, 22))),
            Field::Fifths(At(0, 2)),
            Field::Words(At(0, 6), 4, Change::None),
            Field::Fifths(At(0, 24)),
            Field::Words(At(0, 28), 4, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q5_0, encode);
    const RECODE: Option<Recode> = recode!(Q5_0, Levels::Even(32), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 0);
        let high = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
        for (i, q) in b[6..22].iter().enumerate() {
            let (lo, hi) = (high >> i << 4 & 16, high >> (i + 16) << 4 & 16);
            out[i] = ((u32::from(q & 15) | lo) as i32 - 16) as f32 * d;
            out[i + 16] = ((u32::from(q >> 4) | hi) as i32 - 16) as f32 * d;
        }
    }
}

/// Source of the case without importance: ggml `quantize_row_q5_0_ref`.
#[inline(always)]
fn encode(x: &[f32; 32], importance: Option<&[f32; 32]>, out: &mut [u8; 22]) {
    let (d, codes) = match importance {
        Some(_) => one_scale::<Whole<-16, 15>, 32>(&Parts::new(x, importance)),
        None => {
            let d = peak(x) / -16.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            (Half::from_f32(d), x.map(|x| ((x * inverse + 16.5) as u8).min(31)))
        }
    };
    put_half(out, 0, d);
    put(&codes, out);
}

#[inline(always)]
fn put(codes: &[u8; 32], out: &mut [u8; 22]) {
    out[2..6].copy_from_slice(&fifth_bits(codes));
    put_nibbles(&mut out[6..], codes);
}
