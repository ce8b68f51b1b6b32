//! Code that the schemes' encoders share.

use crate::float16::Half;

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
        Some(on)
    }};
}
pub(crate) use encode_row;

/// Makes the [`Recode`](crate::scheme::Recode) of a scheme from its levels and the function that puts codes into one block:
/// `fn(&[u8; PER], &mut [u8; BYTES])`.
macro_rules! recode {
    ($scheme:ty, $levels:expr, $put:path) => {
        Some(($levels, |codes, out| {
            let blocks = out.as_chunks_mut::<{ <$scheme>::BYTES }>().0;
            for (codes, out) in codes.as_chunks::<{ <$scheme>::PER }>().0.iter().zip(blocks) {
                $put(codes, out);
            }
        }))
    };
}
pub(crate) use recode;

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
pub(crate) fn put_half(out: &mut [u8], at: usize, half: Half) {
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

#[cfg(test)]
mod tests {
    use crate::Isa;
    use crate::scheme::*;

    /// Every instruction set gives the bytes of plain Rust, with and without importance.
    fn same_everywhere<B: Block>() {
        let encode = B::ENCODE.unwrap();
        let mut state = 0x9E37_79B9u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let k = 2048;
        // Cubes, for values of many sizes; from the largest to the smallest that binary16 has scales for.
        for size in [1e5, 1.0, 1e-2, 1e-4, 1e-6, 1e-8] {
            let values: Vec<f32> = (0..k).map(|_| noise().powi(3) * size).collect();
            let weights: Vec<f32> = (0..k).map(|_| noise().abs().powi(4)).collect();
            for importance in [None, Some(&weights[..])] {
                let mut wanted = vec![0; k / B::PER * B::BYTES];
                encode(Isa::Scalar, &values, importance, &mut wanted);
                for isa in Isa::available() {
                    let mut found = vec![0xA5; wanted.len()];
                    encode(isa, &values, importance, &mut found);
                    assert!(found == wanted, "`{}` of {size} with {}", B::NAME, isa.name());
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bytes() {
        same_everywhere::<Q4_0>();
        same_everywhere::<Q4_1>();
        same_everywhere::<Q5_0>();
        same_everywhere::<Q5_1>();
        same_everywhere::<Q8_0>();
        same_everywhere::<Q2K>();
        same_everywhere::<Q3K>();
        same_everywhere::<Q4K>();
        same_everywhere::<Q5K>();
        same_everywhere::<Q6K>();
        same_everywhere::<IQ4NL>();
        same_everywhere::<IQ4XS>();
        same_everywhere::<TQ1_0>();
        same_everywhere::<TQ2_0>();
        same_everywhere::<MXFP4>();
        same_everywhere::<NVFP4>();
        same_everywhere::<Q1_0>();
        same_everywhere::<Q2_0>();
    }
}
