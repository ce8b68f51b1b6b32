use super::{Block, half_at};

/// What the codes of IQ4_NL and IQ4_XS stand for.
///
/// Source: ggml `kvalues_iq4nl`.
pub(super) const VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 32 values `d * value of q`: `d` (f16), 16 bytes. Byte `i` holds code `i` in its low nibble and `i + 16` in
/// its high one; the values are those of a table of 16.
///
/// Source: ggml `block_iq4_nl`, `dequantize_row_iq4_nl`.
pub(crate) struct IQ4NL;

impl Block for IQ4NL {
    const NAME: &'static str = "iq4_nl";
    const PER: usize = 32;
    const BYTES: usize = 18;

    fn block(b: &[u8], out: &mut [f32]) {
        looked_up(&VALUES, half_at(b, 0), &b[2..18], out);
    }
}

/// The 32 values `d * value of q` of 16 bytes of nibbles in the order of [`IQ4NL`].
#[inline(always)]
pub(super) fn looked_up(values: &[i8; 16], d: f32, codes: &[u8], out: &mut [f32]) {
    for (i, q) in codes.iter().enumerate() {
        out[i] = d * values[(q & 15) as usize] as f32;
        out[i + 16] = d * values[(q >> 4) as usize] as f32;
    }
}
