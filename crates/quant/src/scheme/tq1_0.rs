use super::{Block, EncodeRow, half_at};
use crate::encode::{encode_row, put_half};
use crate::search::{Parts, ternary};

/// 256 values `d * (t - 1)` for `t` in 0–2: 48 bytes of five values each, four bytes of four, `d` (f16).
///
/// A byte is the fraction of 256 whose first digits in base 3 are its values, rounded up: the digits come out
/// of the top as it is multiplied by 3. Digit `n` of byte `i` is value `32 n + i` for the first 32 bytes,
/// `160 + 16 n + (i - 32)` for the next sixteen, `240 + 4 n + (i - 48)` for the last four.
///
/// Source: ggml `block_tq1_0`, `dequantize_row_tq1_0`.
pub(crate) struct TQ1_0;

impl Block for TQ1_0 {
    const NAME: &'static str = "tq1_0";
    const PER: usize = 256;
    const BYTES: usize = 54;
    const ENCODE: Option<EncodeRow> = encode_row!(TQ1_0, encode);

    #[inline(always)]
    fn block(b: &[u8], out: &mut [f32]) {
        let d = half_at(b, 52);
        let (first, rest) = out.split_at_mut(160);
        let (second, last) = rest.split_at_mut(80);
        digits::<32>(&b[..32], first, d);
        digits::<16>(&b[32..48], second, d);
        digits::<4>(&b[48..52], last, d);
    }
}

#[inline(always)]
fn encode(x: &[f32; 256], importance: Option<&[f32; 256]>, out: &mut [u8; 54]) {
    let (d, codes) = ternary::<256>(&Parts::new(x, importance));
    put_digits::<32>(&mut out[..32], &codes[..160]);
    put_digits::<16>(&mut out[32..48], &codes[160..240]);
    put_digits::<4>(&mut out[48..52], &codes[240..]);
    put_half(out, 52, d);
}

/// Packs up to five digits a byte, as [`digits`] takes them out.
#[inline(always)]
fn put_digits<const N: usize>(packed: &mut [u8], codes: &[u8]) {
    for (i, packed) in packed.iter_mut().enumerate() {
        let digit = |n: usize| u16::from(codes.get(n * N + i).copied().unwrap_or(0));
        let number = (0..5).fold(0, |number, n| number * 3 + digit(n));
        *packed = (number * 256).div_ceil(243) as u8;
    }
}

/// Writes digit after digit of the `N` bytes of `packed`, until `out` is full.
#[inline(always)]
fn digits<const N: usize>(packed: &[u8], out: &mut [f32], d: f32) {
    let mut rest = [0u8; N];
    rest.copy_from_slice(packed);
    for out in out.as_chunks_mut::<N>().0 {
        for (out, rest) in out.iter_mut().zip(&mut rest) {
            let digit = (*rest as u16 * 3) >> 8;
            *out = (digit as i32 - 1) as f32 * d;
            *rest = rest.wrapping_mul(3);
        }
    }
}
