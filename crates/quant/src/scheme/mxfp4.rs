use super::iq4_nl::looked_up;
use super::{Block, EncodeRow};
use crate::encode::{encode_row, put_nibbles};
use crate::packing::{At, Change, FP4, FP4_VALUES, Field, Largest, Number, Packing, Plain};
use crate::search::{Book, Parts, TRIES, Tries, least_of, nearest_of, places_of};

/// 32 values `2^(e - 127) * q`, as GGUF stores them: `e` (E8M0), 16 bytes of four-bit floats in the order of
/// IQ4_NL. The largest `e` is a scale like the others, not NaN, and the code of minus zero gives zero.
///
/// Source: ggml `block_mxfp4`, `dequantize_row_mxfp4`.
pub(crate) struct MXFP4;

impl Block for MXFP4 {
    const NAME: &'static str = "mxfp4";
    const PER: usize = 32;
    const BYTES: usize = 17;
    const ENCODE: Option<EncodeRow> = encode_row!(MXFP4, encode);
    const PACKING: Option<Packing> = Some(Packing::blocks(
        Self::PER,
        Self::BYTES,
        Plain::listed(&FP4, Number::BF16),
        &[
            Field::Powers(At(0, 0), At(0, 17), Largest::Power),
            Field::Words(At(0, 1), 4, Change::None),
            Field::Words(At(0, 18), 4, Change::None),
        ],
    ));

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        looked_up(&FP4_VALUES, half_power(b[0]), &b[1..17], out);
    }
}

/// As OCP Microscaling Formats v1.0 (6.3) has it, the largest value would be brought between 4 and 8 (and what
/// is then above 6 cut off). The exponents around that one are tried.
#[inline(always)]
fn encode(x: &[f32; 32], importance: Option<&[f32; 32]>, out: &mut [u8; 17]) {
    let parts = Parts::<32, 1>::new(x, importance);
    let first = (parts.exponent() - 6).clamp(0, 255 - TRIES as i32);
    let best =
        least_of::<Fp4, 32, 1>(&parts, 0, &std::array::from_fn(|c| half_power((first + c as i32) as u8)));
    let e = (first + best as i32) as u8;
    out[0] = e;
    put_nibbles(&mut out[1..], &parts.codes::<Fp4>(0, half_power(e)));
}

/// [`FP4_VALUES`] to be searched.
pub(super) struct Fp4;

impl Fp4 {
    const RISING: [f32; 15] =
        [-12.0, -8.0, -6.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];
}

impl Book for Fp4 {
    const LOW: f32 = -12.0;
    const HIGH: f32 = 12.0;

    #[inline(always)]
    fn nearest(t: &Tries) -> Tries {
        nearest_of(&Self::RISING, t)
    }

    #[inline(always)]
    fn codes(t: &Tries) -> [u8; TRIES] {
        places_of(&Self::RISING, t).map(|place| if place < 7 { 15 - place } else { place - 7 })
    }
}

/// `2^(e - 128)`, half of what `e` stands for, since [`FP4_VALUES`] are doubled.
///
/// Source: ggml `ggml_e8m0_to_fp32_half`.
#[inline(always)]
fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}
