//! The arithmetic: one unit of `N` interleaved rows against `NT` rows of activations.
//!
//! For each row of the weight and of the activations, in this order:
//!
//! - blocks of 32: `acc = fma(isum, d * dx, acc)`, then for a minimum `acc = fma(m, sx, acc)`;
//! - scales and minima: over the eight sub-blocks `s = fma(isum, scale * dx, s)` and `n = fma(min, sx, n)`; then
//!   `acc = fma(d, s, acc)` and `acc = acc - dmin * n` in one rounding;
//! - six bits: over the eight pairs of sub-blocks `s = fma(fma(isum1, scale1, isum0 * scale0), dx, s)`; then
//!   `acc = fma(d, s, acc)`.
//!
//! `isum` is the exact integer sum of code times code with the zero point taken off, `dx` the scale of the
//! activations and `sx` their sum. Every implementation of [`Lanes`] keeps this order, so all give the same bits.

use crate::activations::Tile;
use crate::interleave::{Codes, Packed};
use crate::lanes::Lanes;

/// Adds to `acc[t]` the products of the unit at `unit` with row `t` of `x`, from its block `block` on.
/// `blocks` is how many blocks of 32 columns count: fewer than the unit has only at the end of a ragged row.
///
/// # Safety
/// As [`Lanes`]; `unit` has `S::VECTORS` vectors, and `x` has the blocks.
#[inline(always)]
pub(super) unsafe fn unit<V: Lanes, S: Packed, const NT: usize>(
    unit: *const u8,
    block: usize,
    blocks: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    let unit = Unit::<V>(unit, std::marker::PhantomData);
    // SAFETY: as this function.
    unsafe {
        match const { S::CODES } {
            Codes::Plain { bits: 4, min } => {
                plain::<V, 4, NT>(unit, min, block, x, acc, 0);
                if blocks > 1 {
                    plain::<V, 4, NT>(unit, min, block, x, acc, 1);
                }
            }
            Codes::Plain { bits: 5, min } => {
                plain::<V, 5, NT>(unit, min, block, x, acc, 0);
                if blocks > 1 {
                    plain::<V, 5, NT>(unit, min, block, x, acc, 1);
                }
            }
            Codes::Plain { min, .. } => {
                plain::<V, 8, NT>(unit, min, block, x, acc, 0);
                if blocks > 1 {
                    plain::<V, 8, NT>(unit, min, block, x, acc, 1);
                }
            }
            Codes::ScaleMin { five: false } => scale_min::<V, 4, NT>(unit, block, x, acc),
            Codes::ScaleMin { five: true } => scale_min::<V, 5, NT>(unit, block, x, acc),
            Codes::SixBit => six_bit::<V, NT>(unit, block, x, acc),
        }
    }
}

/// The vectors of one unit.
struct Unit<V>(*const u8, std::marker::PhantomData<V>);

impl<V> Clone for Unit<V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for Unit<V> {}

impl<V: Lanes> Unit<V> {
    /// Vector `i`.
    ///
    /// # Safety
    /// The unit has it.
    #[inline(always)]
    unsafe fn words(self, i: usize) -> V::I {
        // SAFETY: as this function.
        unsafe { V::load(self.0.add(4 * V::N * i)) }
    }

    /// One of the two kinds of scale in vector `i`.
    ///
    /// # Safety
    /// The unit has it.
    #[inline(always)]
    unsafe fn scales(self, i: usize, which: usize) -> V::F {
        // SAFETY: as this function.
        unsafe { V::load_half(self.0.add(4 * V::N * i + 2 * V::N * which)) }
    }
}

/// `[f(0), f(1), ..]`, written out so that constants reach every call, and no closure is left that the compiler
/// might not inline: it would not have the features enabled.
macro_rules! eight {
    ($j:ident => $e:expr) => {
        [
            eight!($j 0 $e), eight!($j 1 $e), eight!($j 2 $e), eight!($j 3 $e),
            eight!($j 4 $e), eight!($j 5 $e), eight!($j 6 $e), eight!($j 7 $e),
        ]
    };
    ($j:ident $value:literal $e:expr) => {{
        let $j: usize = $value;
        $e
    }};
}

const LOW: u32 = 0x0F0F_0F0F;

/// The low or high nibbles of each byte.
#[inline(always)]
unsafe fn nibbles<V: Lanes>(words: V::I, high: bool) -> V::I {
    // SAFETY: as this function.
    unsafe { V::and(if high { V::shr(words, 4) } else { words }, LOW) }
}

/// Block `b` of the two in a unit of plain codes.
#[inline(always)]
unsafe fn plain<V: Lanes, const BITS: u32, const NT: usize>(
    unit: Unit<V>,
    min: bool,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
    b: usize,
) {
    // SAFETY: as `unit`.
    unsafe {
        let scales = 1 + usize::from(min);
        let codes = match BITS {
            8 => eight!(j => unit.words(scales + 8 * b + j)),
            4 => eight!(j => nibbles::<V>(unit.words(scales + 4 * b + j % 4), j >= 4)),
            _ => {
                let at = scales + 5 * b;
                let fifth = unit.words(at);
                eight!(j => {
                    let low = nibbles::<V>(unit.words(at + 1 + j % 4), j >= 4);
                    V::or(low, V::fifth_bit(fifth, j))
                })
            }
        };
        let d = unit.scales(0, b);
        for (t, acc) in acc.iter_mut().enumerate() {
            let offset = if min { 0 } else { x.minus(block + b, t) << (BITS - 1) };
            let isum = V::dot::<BITS, 8, 2>(&codes, x.codes(block + b, t), offset);
            let scale = V::mul(d, V::splat_f(x.scale(block + b, t)));
            *acc = V::fma(V::to_f(isum), scale, *acc);
            if min {
                *acc = V::fma(unit.scales(1, b), V::splat_f(x.sum(block + b, t)), *acc);
            }
        }
    }
}

/// Six-bit scales (or minima) of all sub-blocks, four to a vector, from the three words that pack them.
#[inline(always)]
unsafe fn six_bit_scales<V: Lanes>(low: V::I, high: V::I) -> [V::I; 2] {
    // SAFETY: as this function.
    unsafe { [V::and(low, 0x3F3F_3F3F), V::or(V::and(high, LOW), V::and(V::shr(low, 2), 0x3030_3030))] }
}

#[inline(always)]
unsafe fn scale_min<V: Lanes, const BITS: u32, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as `unit`.
    unsafe {
        let packed = unit.words(3);
        let sums = Sums {
            scales: six_bit_scales::<V>(unit.words(1), packed),
            mins: six_bit_scales::<V>(unit.words(2), V::shr(packed, 4)),
            s: [V::splat_f(0.0); NT],
            n: [V::splat_f(0.0); NT],
        };
        let sums = scale_min_sub::<V, BITS, NT, 0>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 1>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 2>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 3>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 4>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 5>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 6>(unit, block, x, sums);
        let sums = scale_min_sub::<V, BITS, NT, 7>(unit, block, x, sums);
        let (d, dmin) = (unit.scales(0, 0), unit.scales(0, 1));
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = V::fma(d, sums.s[t], *acc);
            *acc = V::fnma(dmin, sums.n[t], *acc);
        }
    }
}

/// Byte `i` of each lane, unsigned.
#[inline(always)]
unsafe fn byte<V: Lanes>(packed: V::I, i: usize) -> V::F {
    // SAFETY: as this function.
    unsafe { V::to_f(V::and(V::shr(packed, 8 * i as u32), 0xFF)) }
}

/// Byte `i` of each lane, signed.
#[inline(always)]
unsafe fn signed_byte<V: Lanes>(packed: V::I, i: usize) -> V::F {
    // SAFETY: as this function.
    unsafe { V::to_f(V::top_byte(V::shl(packed, 24 - 8 * i as u32))) }
}

struct Sums<V: Lanes, const NT: usize> {
    scales: [V::I; 2],
    mins: [V::I; 2],
    s: [V::F; NT],
    n: [V::F; NT],
}

/// Sub-block `SUB` of a block of scales and minima.
#[inline(always)]
unsafe fn scale_min_sub<V: Lanes, const BITS: u32, const NT: usize, const SUB: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    mut sums: Sums<V, NT>,
) -> Sums<V, NT> {
    // SAFETY: as `unit`.
    unsafe {
        let at = if BITS == 5 { 12 } else { 4 } + SUB / 2 * 8;
        let codes = eight!(j => {
            let low = nibbles::<V>(unit.words(at + j), SUB % 2 == 1);
            if BITS == 5 {
                let fifth = unit.words(4 + j);
                let fifth =
                    if SUB < 4 { V::shl(fifth, 4 - SUB as u32) } else { V::shr(fifth, SUB as u32 - 4) };
                V::or(low, V::and(fifth, 0x1010_1010))
            } else {
                low
            }
        });
        let scale = byte::<V>(sums.scales[SUB / 4], SUB % 4);
        let min = byte::<V>(sums.mins[SUB / 4], SUB % 4);
        for t in 0..NT {
            let isum = V::dot::<BITS, 8, 1>(&codes, x.codes(block + SUB, t), 0);
            let factor = V::mul(scale, V::splat_f(x.scale(block + SUB, t)));
            sums.s[t] = V::fma(V::to_f(isum), factor, sums.s[t]);
            sums.n[t] = V::fma(min, V::splat_f(x.sum(block + SUB, t)), sums.n[t]);
        }
        sums
    }
}

#[inline(always)]
unsafe fn six_bit<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as `unit`.
    unsafe {
        let s = [V::splat_f(0.0); NT];
        let s = six_bit_pair::<V, NT, 0>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 1>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 2>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 3>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 4>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 5>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 6>(unit, block, x, s);
        let s = six_bit_pair::<V, NT, 7>(unit, block, x, s);
        let d = unit.scales(0, 0);
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = V::fma(d, s[t], *acc);
        }
    }
}

/// The two sub-blocks of 16 that make the `P`-th 32 values of a block of six-bit codes.
#[inline(always)]
unsafe fn six_bit_pair<V: Lanes, const NT: usize, const P: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    mut s: [V::F; NT],
) -> [V::F; NT] {
    // SAFETY: as `unit`.
    unsafe {
        // One vector of `d`, four of scales, 32 of low nibbles, 16 of high pairs; each half of the values has
        // 16 and 8 of the latter.
        let (half, quarter) = (P / 4, P % 4);
        let (low_at, high_at) = (5 + half * 16 + quarter % 2 * 8, 37 + half * 8);
        let codes = eight!(j => {
            let high = unit.words(high_at + j);
            let high = match quarter {
                0 => V::shl(high, 4),
                1 => V::shl(high, 2),
                2 => high,
                _ => V::shr(high, 2),
            };
            V::or(nibbles::<V>(unit.words(low_at + j), quarter >= 2), V::and(high, 0x3030_3030))
        });
        let [a, b, c, d, e, f, g, h] = codes;
        let (first, second) = ([a, b, c, d], [e, f, g, h]);
        let scales = unit.words(1 + P / 2);
        let scale = [signed_byte::<V>(scales, P % 2 * 2), signed_byte::<V>(scales, P % 2 * 2 + 1)];
        for (t, s) in s.iter_mut().enumerate() {
            let x_codes = x.codes(block + P, t);
            let a = V::dot::<6, 4, 1>(&first, x_codes, x.minus_half(block + P, t, 0) << 5);
            let b = V::dot::<6, 4, 1>(&second, x_codes.add(16), x.minus_half(block + P, t, 1) << 5);
            let sum = V::mul(V::to_f(a), scale[0]);
            let sum = V::fma(V::to_f(b), scale[1], sum);
            *s = V::fma(sum, V::splat_f(x.scale(block + P, t)), *s);
        }
        s
    }
}
