use crate::float16::Half;

use super::{Block, EncodeRow, Recode, half_at};
use crate::codec::Levels;
use crate::encode::{encode_row, fifth_bits, put_half, put_nibbles, range, recode};
use crate::packing::{At, Change, Field, Packing, Plain};
use crate::search::{Parts, Whole, one_affine};

/// 32 values `d * q + m`: `d`, `m` (Half), fifth bits and nibbles as in Q5_0.
///
/// Source: ggml `block_q5_1`, `dequantize_row_q5_1`.
pub(crate) struct Q5_1;

impl Block for Q5_1 {
    const NAME: &'static str = "q5_1";
    const PER: usize = 32;
    const BYTES: usize = 24;
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::min(5),
        &[
            Field::Scales(At(0, 0), Some(At(0, 24))),
            Field::Scales(At(0, 2), Some(At(0, 26))),
            Field::Fifths(At(0, 4)),
            Field::Words(At(0, 8), 4, Change::None),
            Field::Fifths(At(0, 28)),
            Field::Words(At(0, 32), 4, Change::None),
        ],
    ));
    const ENCODE: Option<EncodeRow> = encode_row!(Q5_1, encode);
    const RECODE: Option<Recode> = recode!(Q5_1, Levels::Even(32), put);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(b, 0), half_at(b, 2));
        let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        for (i, q) in b[8..24].iter().enumerate() {
            let (lo, hi) = (high >> i << 4 & 16, high >> (i + 16) << 4 & 16);
            out[i] = (u32::from(q & 15) | lo) as f32 * d + m;
            out[i + 16] = (u32::from(q >> 4) | hi) as f32 * d + m;
        }
    }
}

/// Source of the case without importance: ggml `quantize_row_q5_1_ref`.
#[inline(always)]
fn encode(x: &[f32; 32], importance: Option<&[f32; 32]>, out: &mut [u8; 24]) {
    let (d, m, codes) = match importance {
        Some(_) => one_affine::<Whole<0, 31>, 32>(&Parts::new(x, importance)),
        None => {
            let (low, high) = range(x);
            let d = (high - low) / 31.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            let codes = x.map(|x| (((x - low) * inverse + 0.5) as u8).min(31));
            (Half::from_f32(d), Half::from_f32(low), codes)
        }
    };
    put_half(out, 0, d);
    put_half(out, 2, m);
    put(&codes, out);
}

#[inline(always)]
fn put(codes: &[u8; 32], out: &mut [u8; 24]) {
    out[4..8].copy_from_slice(&fifth_bits(codes));
    put_nibbles(&mut out[8..], codes);
}
