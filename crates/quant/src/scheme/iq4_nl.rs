use super::{Block, half_at};
use crate::interleave::{Codes, Field, Listed, Number, Packed, Plain};

/// What the codes of IQ4_NL and IQ4_XS stand for.
///
/// Source: ggml `kvalues_iq4nl`.
pub(super) const VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// [`VALUES`] for the kernels.
pub(super) static LISTED: Listed = Listed::of(VALUES, 128);

/// 32 values `d * value of q`: `d` (f16), 16 bytes. Byte `i` holds code `i` in its low nibble and `i + 16` in
/// its high one; the values are those of a table of 16.
///
/// Source: ggml `block_iq4_nl`, `dequantize_row_iq4_nl`.
pub(crate) struct IQ4NL;

impl Block for IQ4NL {
    const NAME: &'static str = "iq4_nl";
    const PER: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        looked_up(&VALUES, half_at(b, 0), &b[2..18], out);
    }
}

impl Packed for IQ4NL {
    const CODES: Codes = Plain::listed(&LISTED, Number::F16);
    const FIELDS: &'static [Field] = &[Field::Scales(0, Some(18)), Field::Words(2, 4), Field::Words(20, 4)];
}

/// The values `d * value of q` of bytes of nibbles: the low ones, then the high ones.
#[inline(always)]
pub(super) fn looked_up(values: &[i8; 16], d: f32, codes: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(codes.len());
    for ((low, high), q) in low.iter_mut().zip(high).zip(codes) {
        *low = d * values[(q & 15) as usize] as f32;
        *high = d * values[(q >> 4) as usize] as f32;
    }
}
