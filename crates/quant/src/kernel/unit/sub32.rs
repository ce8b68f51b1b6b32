//! Blocks of 256 in eight sub-blocks of 32.

use super::products::{Products, Rows};
use super::{LOW, Unit, eight, for_eight, for_four, keep_order, nibbles, rolled, shifted};
use crate::activations::Tile;
use crate::lanes::{Lanes, Vectors};
use crate::packing::Listed;

/// Six-bit scales (or minima) of all sub-blocks, four to a vector, from the three words that pack them.
#[inline(always)]
unsafe fn six_bit_scales<V: Lanes>(low: V::I, high: V::I) -> [V::I; 2] {
    // SAFETY: as this function.
    unsafe { [V::and(low, 0x3F3F_3F3F), V::or(V::and(high, LOW), V::and(V::shr(low, 2), 0x3030_3030))] }
}

/// A block with scales and minima.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn scale_min<V: Lanes, const BITS: u32, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as `unit`.
    unsafe {
        let packed = unit.words(3);
        let mut sums = Sums {
            scales: six_bit_scales::<V>(unit.words(1), packed),
            mins: six_bit_scales::<V>(unit.words(2), V::shr(packed, 4)),
            s: [V::splat_f(0.0); NT],
            n: [V::splat_f(0.0); NT],
        };
        if NT == 1 && V::KEEPS {
            // Fifth bits, of codes of five.
            let mut fifth = if BITS == 5 { eight!(j => unit.words(4 + j)) } else { [V::splat(0); 8] };
            let (mut scales, mut mins) = (sums.scales[0], sums.mins[0]);
            if unit.ask {
                for pair in rolled(4) {
                    scale_min_pair::<V, BITS, NT>(
                        unit,
                        (&fifth, 0),
                        (scales, mins),
                        block,
                        x,
                        &mut sums,
                        pair,
                    );
                    (scales, mins) = match pair {
                        1 => (sums.scales[1], sums.mins[1]),
                        _ => (V::shr(scales, 16), V::shr(mins, 16)),
                    };
                    if BITS == 5 {
                        fifth = eight!(j => V::shr(fifth[j], 2));
                    }
                }
            } else {
                for_four!(PAIR => {
                    let scales = V::shr(sums.scales[PAIR / 2], 16 * (PAIR % 2) as u32);
                    let mins = V::shr(sums.mins[PAIR / 2], 16 * (PAIR % 2) as u32);
                    let fifth = (&fifth, 2 * PAIR);
                    scale_min_pair::<V, BITS, NT>(unit, fifth, (scales, mins), block, x, &mut sums, PAIR);
                });
            }
        } else {
            let mut words = [V::splat(0); 8];
            for_eight!(SUB => scale_min_sub::<V, BITS, NT, SUB>(unit, &mut words, block, x, &mut sums));
        }
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

struct Sums<V: Lanes, const NT: usize> {
    scales: [V::I; 2],
    mins: [V::I; 2],
    s: [V::F; NT],
    n: [V::F; NT],
}

/// Sub-blocks `2 * pair` and the next, whose codes are in the same vectors, for one row of activations: each vector is loaded
/// once. Written out for each sub-block it read memory a fifth slower on Zen 4.
#[inline(always)]
unsafe fn scale_min_pair<V: Lanes, const BITS: u32, const NT: usize>(
    unit: Unit<V>,
    (fifth, bit): (&[V::I; 8], usize),
    (scales, mins): (V::I, V::I),
    block: usize,
    x: Tile<'_, NT>,
    sums: &mut Sums<V, NT>,
    pair: usize,
) {
    // SAFETY: as `unit`.
    unsafe {
        let at = if BITS == 5 { 12 } else { 4 } + pair * 8;
        let each = if BITS == 5 { 11 } else { 9 };
        unit.begin_at::<NT>(each * pair, each);
        let words: [V::I; 8] = eight!(j => unit.words(at + j));
        for high in [false, true] {
            let sub = 2 * pair + usize::from(high);
            let codes = eight!(j => {
                let low = nibbles::<V>(words[j], high);
                if BITS == 5 {
                    let fifth = shifted::<V>(fifth[j], 4 - (bit + usize::from(high)) as i32);
                    V::or(low, V::and(fifth, 0x1010_1010))
                } else {
                    low
                }
            });
            let scale = byte::<V>(scales, usize::from(high));
            let min = byte::<V>(mins, usize::from(high));
            for t in 0..NT {
                let isum = V::dot::<BITS, 8, 1>(&codes, x.codes(block + sub, t), 0, 0);
                let factor = V::mul(scale, V::splat_f(x.scale(block + sub, t)));
                sums.s[t] = V::fma(V::to_f(isum), factor, sums.s[t]);
                sums.n[t] = V::fma(min, V::splat_f(x.sum(block + sub, t)), sums.n[t]);
            }
        }
    }
}

/// Sub-block `SUB`, for many rows of activations. Its codes share words with the sub-block before or after it.
#[inline(always)]
unsafe fn scale_min_sub<V: Lanes, const BITS: u32, const NT: usize, const SUB: usize>(
    unit: Unit<V>,
    words: &mut [V::I; 8],
    block: usize,
    x: Tile<'_, NT>,
    sums: &mut Sums<V, NT>,
) {
    // SAFETY: as `unit`.
    unsafe {
        if SUB.is_multiple_of(2) {
            let at = if BITS == 5 { 12 } else { 4 } + SUB / 2 * 8;
            unit.begin::<NT>(SUB / 2, 4, if BITS == 5 { 44 } else { 36 });
            *words = eight!(j => unit.words(at + j));
        }
        let codes = eight!(j => {
            let low = nibbles::<V>(words[j], SUB % 2 == 1);
            if BITS == 5 {
                V::or(low, V::and(shifted::<V>(unit.words(4 + j), 4 - SUB as i32), 0x1010_1010))
            } else {
                low
            }
        });
        let scale = byte::<V>(sums.scales[SUB / 4], SUB % 4);
        let min = byte::<V>(sums.mins[SUB / 4], SUB % 4);
        for t in 0..NT {
            let isum = V::dot::<BITS, 8, 1>(&codes, x.codes(block + SUB, t), 0, 0);
            let factor = V::mul(scale, V::splat_f(x.scale(block + SUB, t)));
            sums.s[t] = V::fma(V::to_f(isum), factor, sums.s[t]);
            sums.n[t] = V::fma(min, V::splat_f(x.sum(block + SUB, t)), sums.n[t]);
        }
    }
}

/// The values of a sub-block, whose codes are at `at`.
struct ListedCodes<V> {
    unit: Unit<V>,
    list: &'static Listed,
    at: usize,
}

impl<V: Lanes> Vectors<V> for ListedCodes<V> {
    #[inline(always)]
    unsafe fn vector(&self, j: usize) -> V::I {
        // SAFETY: as this function.
        unsafe {
            let codes = nibbles::<V>(self.unit.words(self.at + j % 4), j >= 4);
            V::lookup(codes, &self.list.values)
        }
    }
}

/// A block of listed values.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn listed<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    list: &'static Listed,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as this function.
    unsafe {
        let mut s = [V::splat_f(0.0); NT];
        if NT == 1 && V::KEEPS && unit.ask {
            // One vector of `d` and of high pairs of the scales, one of their low nibbles, 32 of codes.
            let (mut high, mut low) = (V::shl(V::load_u16(unit.halves(0, 1)), 4), unit.words(1));
            unit.begin_at::<NT>(0, 2);
            for sub in rolled(8) {
                unit.begin_at::<NT>(2 + 4 * sub, 4);
                listed_sub::<V, NT>(unit, list, (low, high), block + sub, 2 + 4 * sub, x, &mut s);
                (low, high) = (V::shr(low, 4), V::shr(high, 2));
            }
        } else {
            for_eight!(SUB => {
                // With many rows, each look at whether memory is asked for costs registers.
                let parts = if NT > 1 { 1 } else { 8 };
                if SUB < parts {
                    unit.begin::<NT>(SUB, parts, 34);
                } else {
                    keep_order();
                }
                let high = shifted::<V>(V::load_u16(unit.halves(0, 1)), 4 - 2 * SUB as i32);
                let scales = (V::shr(unit.words(1), 4 * SUB as u32), high);
                listed_sub::<V, NT>(unit, list, scales, block + SUB, 2 + 4 * SUB, x, &mut s);
            });
        }
        let d = unit.scales(0, 0);
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = V::fma(d, s[t], *acc);
        }
    }
}

/// A sub-block of listed values, whose codes are at `at`. The low bits of its scale are the lowest of `scales.0`, and the high ones
/// those from the fifth on of `scales.1`.
#[inline(always)]
unsafe fn listed_sub<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    list: &'static Listed,
    (low, high): (V::I, V::I),
    block: usize,
    at: usize,
    x: Tile<'_, NT>,
    s: &mut [V::F; NT],
) {
    // SAFETY: as `listed`.
    unsafe {
        let scale = V::to_f(V::or(V::and(low, 0x0F), V::and(high, 0x30)));
        let scale = V::add(scale, V::splat_f(-32.0));
        let codes = ListedCodes { unit, list, at };
        let products = Products::<V, 1, NT>::new(&codes, 8, Rows::of(x, block), list.zero);
        for (t, s) in s.iter_mut().enumerate() {
            let factor = V::mul(scale, V::splat_f(x.scale(block, t)));
            *s = V::fma(V::to_f(products.of(t)), factor, *s);
        }
    }
}
