use super::Block;
use super::iq4_nl::looked_up;
use crate::interleave::{Codes, Field, Listed, Number, Packed, Plain};

/// Twice the values of a four-bit float (E2M1).
///
/// Source: ggml `kvalues_mxfp4`; OCP Microscaling Formats v1.0, 5.3.3.
pub(super) const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 values `2^(e - 127) * q`, as GGUF stores them: `e` (E8M0), 16 bytes of four-bit floats in the order of
/// IQ4_NL. The largest `e` is a scale like the others, not NaN, and the code of minus zero gives zero.
///
/// Source: ggml `block_mxfp4`, `dequantize_row_mxfp4`.
pub(crate) struct MXFP4;

impl Block for MXFP4 {
    const NAME: &'static str = "mxfp4";
    const PER: usize = 32;
    const BYTES: usize = 17;

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        looked_up(&VALUES, half_power(b[0]), &b[1..17], out);
    }
}

impl Packed for MXFP4 {
    const CODES: Codes = Plain::listed(const { &Listed::of(VALUES, 12) }, Number::BF16);
    const FIELDS: &'static [Field] = &[Field::Powers(0, 17), Field::Words(1, 4), Field::Words(18, 4)];
}

/// `2^(e - 128)`, half of what `e` stands for, since [`VALUES`] are doubled.
///
/// Source: ggml `ggml_e8m0_to_fp32_half`.
#[inline(always)]
fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}
