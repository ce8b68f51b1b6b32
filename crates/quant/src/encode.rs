//! What the encoders of the schemes have in common.

use half::f16;

/// Makes the [`EncodeRow`](crate::scheme::EncodeRow) of a scheme from the function that encodes one block:
/// `fn(&[f32; PER], Option<&[f32; PER]>, &mut [u8; BYTES])`, marked `inline(always)`.
///
/// The function is compiled for every instruction set. It multiplies and adds in two roundings on all of them,
/// so that they give the same bytes.
macro_rules! encode_row {
    ($scheme:ty, $block:path) => {{
        #[inline(always)]
        fn body<const FMA: bool>(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
            const PER: usize = <$scheme>::PER;
            const BYTES: usize = <$scheme>::BYTES;
            let importance = importance.map(|all| all.as_chunks::<PER>().0);
            let blocks = values.as_chunks::<PER>().0.iter().zip(out.as_chunks_mut::<BYTES>().0);
            for (i, (values, out)) in blocks.enumerate() {
                $block(values, importance.map(|all| &all[i]), out);
            }
        }
        $crate::isa::per_isa! {
            fn on(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) = body
        }
        Some(|values, importance, out| on($crate::encode::isa(), values, importance, out))
    }};
}
pub(crate) use encode_row;

/// The instruction set to encode with: plain Rust if the variable that names one is wrong, since the bytes are
/// the same.
pub(crate) fn isa() -> crate::Isa {
    crate::Isa::detect().unwrap_or(crate::Isa::Scalar)
}

/// The first of the values that are farthest from 0; 0 if none is.
#[inline(always)]
pub(crate) fn peak<const N: usize>(x: &[f32; N]) -> f32 {
    // Without its sign bit, a float orders as its bits do.
    let mut most = 0;
    for x in x {
        most = most.max(x.abs().to_bits());
    }
    x.iter().copied().find(|x| most > 0 && x.abs().to_bits() == most).unwrap_or(0.0)
}

/// The first of the least values and the first of the largest.
#[inline(always)]
pub(crate) fn range<const N: usize>(x: &[f32; N]) -> (f32, f32) {
    let (mut low, mut high) = (*x, *x);
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            low[i] = if low[i + half] < low[i] { low[i + half] } else { low[i] };
            high[i] = if high[i + half] > high[i] { high[i + half] } else { high[i] };
        }
        half /= 2;
    }
    #[expect(clippy::float_cmp, reason = "minus zero equals zero, and the first of them is meant")]
    let first = |wanted: f32| x.iter().copied().find(|x| *x == wanted).unwrap_or(wanted);
    (first(low[0]), first(high[0]))
}

/// Writes `half` at byte `at`.
#[inline(always)]
pub(crate) fn put_half(out: &mut [u8], at: usize, half: f16) {
    out[at..at + 2].copy_from_slice(&half.to_le_bytes());
}

/// Writes 32 codes of four bits: code `i` to the low nibble of byte `i`, code `i + 16` to its high one.
#[inline(always)]
pub(crate) fn put_nibbles(out: &mut [u8], codes: &[u8; 32]) {
    for i in 0..16 {
        out[i] = codes[i] & 15 | codes[i + 16] << 4;
    }
}

/// The fifth bits of 32 codes.
#[inline(always)]
pub(crate) fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let mut bits = 0u32;
    for i in 0..32 {
        bits |= u32::from(codes[i] >> 4 & 1) << i;
    }
    bits.to_le_bytes()
}

/// Writes the low pairs of bits of 256 codes to 64 bytes: in each half of 128 codes, code `32 s + i` to bits
/// `2 s` of byte `i`.
#[inline(always)]
pub(crate) fn put_pairs(out: &mut [u8], codes: &[u8]) {
    for (out, codes) in out.as_chunks_mut::<32>().0.iter_mut().zip(codes.as_chunks::<128>().0) {
        for i in 0..32 {
            let pair = |s: usize| (codes[32 * s + i] & 3) << (2 * s);
            out[i] = pair(0) | pair(1) | pair(2) | pair(3);
        }
    }
}
