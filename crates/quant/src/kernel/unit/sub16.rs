//! Blocks of 256 in sixteen sub-blocks of 16.
//!
//! The sums of codes of two and three bits fit in 16 bits, so two of them meet their scales, also of 16 bits, in
//! one exact operation. The codes are not shifted down to the foot of their byte: it is the sums that are,
//! since a power of two does no harm to an integer.

use super::{Unit, eight, for_eight, for_rows, nibbles, rolled, shifted};
use crate::activations::Tile;
use crate::lanes::{Lanes, NONE};

/// Bytes `2 * half` and `2 * half + 1` of each lane, with their sign, as two numbers of 16 bits, 256 times as
/// large.
#[inline(always)]
unsafe fn spread<V: Lanes>(bytes: V::I, half: usize) -> V::I {
    let first = 2 * half as u8;
    // SAFETY: as this function.
    unsafe { V::pick(bytes, [NONE, first, NONE, first + 1]) }
}

/// Packs two integers, each `2^at` times a number of 16 bits, as those two numbers into one word.
#[inline(always)]
unsafe fn paired<V: Lanes>(low: V::I, high: V::I, at: u32) -> V::I {
    // SAFETY: as this function.
    unsafe { V::or(V::and(V::shr(low, at), 0xFFFF), V::shl(high, 16 - at)) }
}

/// The sums of the first and the second 16 codes, which stand at bit `at` of their byte, 0, 2 or 4, and are of
/// `bits`, as two numbers of 16 bits. `zero` is the zero point.
#[inline(always)]
unsafe fn sums<V: Lanes, const NT: usize>(
    codes: [V::I; 8],
    (bits, at): (u32, u32),
    zero: i32,
    x: Tile<'_, NT>,
    block: usize,
    t: usize,
) -> V::I {
    let [a, b, c, d, e, f, g, h] = codes;
    // SAFETY: as this function.
    unsafe {
        let x_codes = x.codes(block, t);
        let minus = [x.minus_half(block, t, 0), x.minus_half(block, t, 1)];
        let (first, second, zero) = ([a, b, c, d], [e, f, g, h], zero << at);
        let [first, second] = match bits + at {
            ..=4 => [
                V::dot::<4, 4, 1>(&first, x_codes, zero, minus[0]),
                V::dot::<4, 4, 1>(&second, x_codes.add(16), zero, minus[1]),
            ],
            5 => [
                V::dot::<5, 4, 1>(&first, x_codes, zero, minus[0]),
                V::dot::<5, 4, 1>(&second, x_codes.add(16), zero, minus[1]),
            ],
            6 => [
                V::dot::<6, 4, 1>(&first, x_codes, zero, minus[0]),
                V::dot::<6, 4, 1>(&second, x_codes.add(16), zero, minus[1]),
            ],
            _ => [
                V::dot::<7, 4, 1>(&first, x_codes, zero, minus[0]),
                V::dot::<7, 4, 1>(&second, x_codes.add(16), zero, minus[1]),
            ],
        };
        paired::<V>(first, second, at)
    }
}

/// Returns the pairs of bits of the `P`-th 32 values of a block, from the words that four such share. They stay in
/// place, or move down by two bits so that a third bit has room above them; [`foot`] gives their place.
#[inline(always)]
unsafe fn pair_of_bits<V: Lanes>(words: V::I, p: usize) -> V::I {
    // SAFETY: as `super::unit`.
    unsafe { V::and(if p % 4 == 3 { V::shr(words, 2) } else { words }, 0x0303_0303 << foot(p)) }
}

/// Where the codes of the `p`-th 32 values stand in their byte, as [`pair_of_bits`] leaves them.
const fn foot(p: usize) -> u32 {
    if p % 4 == 3 { 4 } else { 2 * (p % 4) as u32 }
}

/// A block of codes of two bits.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn two_bit<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as this function.
    unsafe {
        let (mut s, mut n) = ([V::splat_f(0.0); NT], [V::splat_f(0.0); NT]);
        // One vector of `d` and `dmin`, four of scales and minima, 16 of codes.
        if NT == 1 && V::KEEPS && unit.ask {
            unit.begin_at::<NT>(0, 5);
            for half in rolled(2) {
                unit.begin_at::<NT>(5 + 8 * half, 8);
                let (words, scales, block) = (five_on(unit, 8 * half), 1 + 2 * half, block + 4 * half);
                two_bit_pair::<V, NT, 0>(unit, &words, scales, block, x, &mut s, &mut n);
                two_bit_pair::<V, NT, 1>(unit, &words, scales, block, x, &mut s, &mut n);
                two_bit_pair::<V, NT, 2>(unit, &words, scales, block, x, &mut s, &mut n);
                two_bit_pair::<V, NT, 3>(unit, &words, scales, block, x, &mut s, &mut n);
            }
        } else {
            let mut words = [V::splat(0); 8];
            for_eight!(P => {
                if P.is_multiple_of(4) {
                    unit.begin::<NT>(P / 4, 2, 21);
                    words = five_on(unit, 2 * P);
                }
                two_bit_pair::<V, NT, P>(unit, &words, 1, block, x, &mut s, &mut n);
            });
        }
        // `spread` made the scales and minima larger.
        let d = V::mul(unit.scales(0, 0), V::splat_f(1.0 / 256.0));
        let dmin = V::mul(unit.scales(0, 1), V::splat_f(1.0 / 256.0));
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = V::fma(d, s[t], *acc);
            *acc = V::fma(dmin, n[t], *acc);
        }
    }
}

/// Vectors `5 + at` to `13 + at`.
#[inline(always)]
unsafe fn five_on<V: Lanes>(unit: Unit<V>, at: usize) -> [V::I; 8] {
    // SAFETY: as `super::unit`.
    unsafe { eight!(j => unit.words(5 + at + j)) }
}

/// The `P`-th 32 values from block `block` on, of codes of two bits, whose scales and minima begin at `scales`.
#[inline(always)]
unsafe fn two_bit_pair<V: Lanes, const NT: usize, const P: usize>(
    unit: Unit<V>,
    words: &[V::I; 8],
    scales: usize,
    block: usize,
    x: Tile<'_, NT>,
    s: &mut [V::F; NT],
    n: &mut [V::F; NT],
) {
    // SAFETY: as `two_bit`.
    unsafe {
        let codes = eight!(j => pair_of_bits::<V>(words[j], P));
        let both = unit.words(scales + P / 2);
        let scale = spread::<V>(nibbles::<V>(both, false), P % 2);
        let min = spread::<V>(nibbles::<V>(both, true), P % 2);
        for t in 0..NT {
            let dx = V::splat_f(x.scale(block + P, t));
            let sums = sums::<V, NT>(codes, (2, foot(P)), 0, x, block + P, t);
            s[t] = V::fma(V::to_f(V::dot_halves(sums, scale)), dx, s[t]);
            let minus = V::splat(x.minus_halves(block + P, t));
            n[t] = V::fma(V::to_f(V::dot_halves(minus, min)), dx, n[t]);
        }
    }
}

/// A block of codes of three bits.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn three_bit<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as this function.
    unsafe {
        // One vector of `d`, three of scales, eight of high bits, 16 of low pairs. The scales are put at the
        // top of their byte, where turning over their first bit takes off 32.
        let (low, high) = ([unit.words(1), unit.words(2)], unit.words(3));
        let scales = [
            three_bit_scales::<V>(V::shl(low[0], 2), V::shl(high, 6)),
            three_bit_scales::<V>(V::shl(low[1], 2), V::shl(high, 4)),
            three_bit_scales::<V>(V::shr(low[0], 2), V::shl(high, 2)),
            three_bit_scales::<V>(V::shr(low[1], 2), high),
        ];
        let mut s = [V::splat_f(0.0); NT];
        let (mut words, high) = ([V::splat(0); 8], eight!(j => unit.words(4 + j)));
        for_eight!(P => three_bit_pair::<V, NT, P>(unit, (&mut words, &high), &scales, block, x, &mut s));
        // They are 4 times what they were, and `spread` made them larger again.
        let d = V::mul(unit.scales(0, 0), V::splat_f(1.0 / 1024.0));
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = V::fma(d, s[t], *acc);
        }
    }
}

/// Four signed scales in each lane.
#[inline(always)]
unsafe fn three_bit_scales<V: Lanes>(low: V::I, high: V::I) -> V::I {
    // SAFETY: as `three_bit`.
    unsafe { V::xor(V::or(V::and(low, 0x3C3C_3C3C), V::and(high, 0xC0C0_C0C0)), 0x8080_8080) }
}

/// The `P`-th 32 values of a block of codes of three bits.
#[inline(always)]
unsafe fn three_bit_pair<V: Lanes, const NT: usize, const P: usize>(
    unit: Unit<V>,
    (words, high): (&mut [V::I; 8], &[V::I; 8]),
    scales: &[V::I; 4],
    block: usize,
    x: Tile<'_, NT>,
    s: &mut [V::F; NT],
) {
    // SAFETY: as `three_bit`.
    unsafe {
        if P.is_multiple_of(4) {
            unit.begin::<NT>(P / 4, 2, 28);
            *words = eight!(j => unit.words(12 + 2 * P + j));
        }
        let codes = eight!(j => {
            let high = shifted::<V>(high[j], foot(P) as i32 + 2 - P as i32);
            V::or(pair_of_bits::<V>(words[j], P), V::and(high, 0x0404_0404 << foot(P)))
        });
        let scale = spread::<V>(scales[P / 2], P % 2);
        for t in 0..NT {
            let sums = sums::<V, NT>(codes, (3, foot(P)), 4, x, block + P, t);
            let dx = V::splat_f(x.scale(block + P, t));
            s[t] = V::fma(V::to_f(V::dot_halves(sums, scale)), dx, s[t]);
        }
    }
}

/// Byte `i` of each lane, signed.
#[inline(always)]
unsafe fn signed_byte<V: Lanes>(packed: V::I, i: usize) -> V::F {
    // SAFETY: as this function.
    unsafe { V::to_f(V::top_byte(V::shl(packed, 24 - 8 * i as u32))) }
}

/// A block of codes of six bits.
///
/// # Safety
/// As [`super::unit`].
#[inline(always)]
pub(super) unsafe fn six_bit<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    // SAFETY: as `unit`.
    unsafe {
        let mut s = [V::splat_f(0.0); NT];
        if NT == 1 && V::KEEPS {
            if unit.rolls_halves {
                for half in rolled(2) {
                    six_bit_half::<V, NT>(unit, block, x, &mut s, half);
                }
            } else {
                six_bit_half::<V, NT>(unit, block, x, &mut s, 0);
                six_bit_half::<V, NT>(unit, block, x, &mut s, 1);
            }
        } else {
            for_eight!(P => six_bit_pair::<V, NT, P>(unit, block, x, &mut s));
        }
        let d = unit.scales(0, 0);
        for (t, acc) in acc.iter_mut().enumerate() {
            *acc = V::fma(d, s[t], *acc);
        }
    }
}

/// Codes of six bits. The low nibbles of the first two quarters of a half are the low nibbles of their vectors, those
/// of the other two the high nibbles; quarter `q` has bits `2 q` of the pairs.
#[inline(always)]
unsafe fn six_bits<V: Lanes>(low: V::I, pairs: V::I, quarter: usize) -> V::I {
    // SAFETY: as this function.
    unsafe {
        let high = V::and(shifted::<V>(pairs, 4 - 2 * quarter as i32), 0x3030_3030);
        V::or(nibbles::<V>(low, quarter >= 2), high)
    }
}

/// Half a block of codes of six bits, for one row of activations: each vector is loaded once, in the order of addresses.
#[inline(always)]
unsafe fn six_bit_half<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    s: &mut [V::F; NT],
    half: usize,
) {
    // SAFETY: as `six_bit`.
    unsafe {
        let first = six_bit_sixteen::<V, NT>(unit, block, x, half, 0);
        let second = six_bit_sixteen::<V, NT>(unit, block, x, half, 1);
        for quarter in 0..4 {
            let scales = unit.words(1 + 2 * half + quarter / 2);
            let sum = V::mul(V::to_f(first[quarter]), signed_byte::<V>(scales, quarter % 2 * 2));
            let sum = V::fma(V::to_f(second[quarter]), signed_byte::<V>(scales, quarter % 2 * 2 + 1), sum);
            s[0] = V::fma(sum, V::splat_f(x.scale(block + 4 * half + quarter, 0)), s[0]);
        }
    }
}

/// The sums of the first or second sub-blocks of 16 of each quarter of a half.
#[inline(always)]
unsafe fn six_bit_sixteen<V: Lanes, const NT: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    half: usize,
    part: usize,
) -> [V::I; 4] {
    // SAFETY: as `six_bit`.
    unsafe {
        // One vector of `d`, four of scales; for each 16 columns of the quarters of a half four vectors of low nibbles of
        // the first and third, four of the second and fourth, and four of high pairs.
        let at = 5 + half * 24 + part * 12;
        unit.begin_at::<NT>(13 * (2 * half + part), 14);
        let low = [four(unit, at), four(unit, at + 4)];
        let pairs = four(unit, at + 8);
        let mut sums = [V::splat(0); 4];
        for (quarter, sum) in sums.iter_mut().enumerate() {
            let low = &low[quarter % 2];
            let codes = [
                six_bits::<V>(low[0], pairs[0], quarter),
                six_bits::<V>(low[1], pairs[1], quarter),
                six_bits::<V>(low[2], pairs[2], quarter),
                six_bits::<V>(low[3], pairs[3], quarter),
            ];
            let block = block + 4 * half + quarter;
            *sum =
                V::dot::<6, 4, 1>(&codes, x.codes(block, 0).add(16 * part), 32, x.minus_half(block, 0, part));
        }
        sums
    }
}

/// Vectors `at` to `at + 4`.
#[inline(always)]
unsafe fn four<V: Lanes>(unit: Unit<V>, at: usize) -> [V::I; 4] {
    // SAFETY: as `super::unit`.
    unsafe { [unit.words(at), unit.words(at + 1), unit.words(at + 2), unit.words(at + 3)] }
}

/// The two sub-blocks of 16 that make the `P`-th 32 values of a block of six-bit codes.
#[inline(always)]
unsafe fn six_bit_pair<V: Lanes, const NT: usize, const P: usize>(
    unit: Unit<V>,
    block: usize,
    x: Tile<'_, NT>,
    s: &mut [V::F; NT],
) {
    // SAFETY: as `unit`.
    unsafe {
        let (half, quarter) = (P / 4, P % 4);
        unit.begin::<NT>(P, 8, 53);
        let codes = eight!(j => {
            let at = 5 + half * 24 + j / 4 * 12 + j % 4;
            six_bits::<V>(unit.words(at + quarter % 2 * 4), unit.words(at + 8), quarter)
        });
        let [a, b, c, d, e, f, g, h] = codes;
        let (first, second) = ([a, b, c, d], [e, f, g, h]);
        let scales = unit.words(1 + P / 2);
        let scale = [signed_byte::<V>(scales, P % 2 * 2), signed_byte::<V>(scales, P % 2 * 2 + 1)];
        for_rows!(NT, true, t => {
            let x_codes = x.codes(block + P, t);
            let a = V::dot::<6, 4, 1>(&first, x_codes, 32, x.minus_half(block + P, t, 0));
            let b = V::dot::<6, 4, 1>(&second, x_codes.add(16), 32, x.minus_half(block + P, t, 1));
            let sum = V::mul(V::to_f(a), scale[0]);
            let sum = V::fma(V::to_f(b), scale[1], sum);
            s[t] = V::fma(sum, V::splat_f(x.scale(block + P, t)), s[t]);
        });
    }
}
