//! The arithmetic: one unit of `N` interleaved rows against `NT` rows of activations.
//!
//! For each row of the weight and of the activations, in this order:
//!
//! - blocks of 32: `acc = fma(isum, d * dx, acc)`, without `d` if there is none, then for a minimum
//!   `acc = fma(m, sx, acc)`;
//! - sub-blocks of 32: over the eight of them `s = fma(isum, scale * dx, s)` and for minima
//!   `n = fma(min, sx, n)`; then `acc = fma(d, s, acc)` and `acc = acc - dmin * n` in one rounding;
//! - sub-blocks of 16: over the eight pairs of them `s = fma(pair, dx, s)`, where `pair` is `isum0 * scale0 +
//!   isum1 * scale1`, exact but for six bits, where it is `fma(isum1, scale1, isum0 * scale0)`; and for minima
//!   `n = fma(pair, dx, n)`, where `pair` is `min0 * -isum0 + min1 * -isum1` with the sums of the activations
//!   alone; then `acc = fma(d, s, acc)` and `acc = fma(dmin, n, acc)`.
//!
//! `isum` is the exact integer sum of code times code with the zero point taken off, `dx` the scale of the
//! activations and `sx` their sum. Every implementation of [`Lanes`] keeps this order, so all give the same bits.

mod blocks32;
mod products;
mod sub16;
mod sub32;

use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::activations::Tile;
use crate::lanes::Lanes;
use crate::packing::{Codes, Number, Sharing};

use super::kinds::Kind;

/// Adds to `acc[t]` the products of the unit at `unit.0` with row `t` of `x`, from its block `block` on, and asks for memory
/// `unit.1` bytes ahead. The caller reads `G` places in turns. `blocks` is how many blocks of 32 columns count: fewer than the
/// unit has only at the end of a ragged row.
///
/// # Safety
/// As [`Lanes`]; the unit is one of `K::CODES` that shares scales as `sharing` says, and `x` has the blocks.
#[inline(always)]
pub(super) unsafe fn unit<V: Lanes, K: Kind, const NT: usize, const G: usize>(
    unit: (*const u8, usize),
    sharing: Sharing,
    block: usize,
    blocks: usize,
    x: Tile<'_, NT>,
    acc: &mut [V::F; NT],
) {
    let rolls_halves = K::ASK && (G == 1 || V::REGISTERS < 32);
    let (at, ahead) = unit;
    let unit = Unit::<V> { at, ahead, ask: K::ASK, rolls_halves, lanes: std::marker::PhantomData };
    // SAFETY: as this function.
    unsafe {
        match const { K::CODES } {
            Codes::Plain(plain) => {
                if unit.asks::<NT>() {
                    unit.ask(0..sharing.lead + plain.vectors() * sharing.blocks);
                }
                let blocks = blocks.min(sharing.blocks);
                for b in if NT == 1 && V::KEEPS { rolled(blocks) } else { 0..blocks } {
                    if NT > 1 {
                        // As in `begin`: codes of the next block are not made before there are registers for them.
                        keep_order();
                    }
                    blocks32::block(unit, plain, sharing, block, x, acc, b);
                }
            }
            Codes::ScaleMin { five: false } => sub32::scale_min::<V, 4, NT>(unit, block, x, acc),
            Codes::ScaleMin { five: true } => sub32::scale_min::<V, 5, NT>(unit, block, x, acc),
            Codes::ScaleListed(list) => sub32::listed(unit, list, block, x, acc),
            Codes::TwoBit => sub16::two_bit(unit, block, x, acc),
            Codes::ThreeBit => sub16::three_bit(unit, block, x, acc),
            Codes::SixBit => sub16::six_bit(unit, block, x, acc),
        }
    }
}

/// The vectors of one unit.
struct Unit<V> {
    at: *const u8,
    ahead: usize,
    /// Whether to ask for memory: a constant wherever this is inlined.
    ask: bool,
    /// Whether the two halves of a block of six bits run in a [`rolled`] loop: a constant, too. The loop costs 4 to 7 % with
    /// two places and 32 registers, measured on Emerald Rapids.
    rolls_halves: bool,
    lanes: std::marker::PhantomData<V>,
}

impl<V> Clone for Unit<V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for Unit<V> {}

impl<V: Lanes> Unit<V> {
    /// True if memory is asked for: always for a single row, and for more if there is a distance.
    #[inline(always)]
    fn asks<const NT: usize>(self) -> bool {
        self.ask && (NT == 1 || self.ahead > 0)
    }

    /// Asks for the memory of these vectors of a unit further on.
    #[inline(always)]
    fn ask(self, vectors: Range<usize>) {
        let lines = (4 * V::N * vectors.start).div_ceil(64)..(4 * V::N * vectors.end).div_ceil(64);
        for line in lines {
            V::prefetch(self.at.wrapping_add(self.ahead + 64 * line));
        }
    }

    /// Begins the `part`-th of `parts` of a unit of `vectors`: the compiler moves no load across, and the same part of
    /// a unit further on is asked for.
    ///
    /// Without this the compiler mixes the loads of a whole unit, and processors that read ahead by themselves do not see
    /// that memory is read in order: Q6_K and IQ4_XS then run at a quarter of the speed on Zen 4. With many rows it makes
    /// codes before there are registers for them. To ask for many lines at once would fill the buffers that misses wait
    /// in, and then all loads wait.
    #[inline(always)]
    fn begin<const NT: usize>(self, part: usize, parts: usize, vectors: usize) {
        keep_order();
        if self.asks::<NT>() {
            self.ask(vectors * part / parts..vectors * (part + 1) / parts);
        }
    }

    /// As [`begin`](Self::begin), of `count` vectors from `first` on: a constant number of lines, also in a loop that is [`rolled`].
    #[inline(always)]
    fn begin_at<const NT: usize>(self, first: usize, count: usize) {
        keep_order();
        if self.asks::<NT>() {
            let ahead = self.ahead + 4 * V::N * first;
            for line in 0..(4 * V::N * count).div_ceil(64) {
                V::prefetch(self.at.wrapping_add(ahead + 64 * line));
            }
        }
    }

    /// Vector `i`.
    ///
    /// # Safety
    /// The unit has it: also of the functions that follow.
    #[inline(always)]
    unsafe fn words(self, i: usize) -> V::I {
        // SAFETY: as this function.
        unsafe { V::load(self.at.add(4 * V::N * i)) }
    }

    /// One of the two kinds of 16 bits in vector `i`.
    #[inline(always)]
    unsafe fn halves(self, i: usize, which: usize) -> *const u8 {
        // SAFETY: as this function.
        unsafe { self.at.add(4 * V::N * i + 2 * V::N * which) }
    }

    /// Number `i` of those at the beginning of the unit. There must be such numbers.
    #[inline(always)]
    unsafe fn number(self, number: Number, i: usize) -> V::F {
        // SAFETY: as this function.
        unsafe {
            let at = self.at.add(number.bytes() * V::N * i);
            match number {
                Number::F16 => V::load_half(at),
                Number::BF16 => V::load_bf16(at),
                Number::F32 | Number::None => V::load_f(at.cast()),
            }
        }
    }

    /// One of the two kinds of scale in vector `i`.
    #[inline(always)]
    unsafe fn scales(self, i: usize, which: usize) -> V::F {
        // SAFETY: as this function.
        unsafe { V::load_half(self.halves(i, which)) }
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
use eight;

/// No load moves across.
#[inline(always)]
fn keep_order() {
    compiler_fence(Ordering::SeqCst);
}

/// `0..n`, as a loop that the compiler does not write out.
///
/// A processor finds out for each load instruction how far apart the places are that it reads. Where memory is asked for ahead, a few
/// instructions that read a unit line by line get it faster than many that each read one line of every unit: Q4_K and Q5_K by a
/// sixth to a quarter on Zen 5, Q6_K by a tenth. Where the processor is left alone K-quants lose as much, and are written out.
#[inline(always)]
fn rolled(mut n: usize) -> Range<usize> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: it does nothing; the compiler takes the number for another.
    unsafe {
        std::arch::asm!("/* {n} */", n = inout(reg) n, options(pure, nomem, nostack, preserves_flags));
    }
    0..n
}

/// The same statement for a constant of 0 to 3.
macro_rules! for_four {
    ($i:ident => $s:stmt) => {
        $crate::kernel::unit::for_four!($i 0 $s);
        $crate::kernel::unit::for_four!($i 1 $s);
        $crate::kernel::unit::for_four!($i 2 $s);
        $crate::kernel::unit::for_four!($i 3 $s);
    };
    ($i:ident $value:literal $s:stmt) => {{
        const $i: usize = $value;
        $s
    }};
}
use for_four;

/// The same statement for a constant of 0 to 7.
macro_rules! for_eight {
    ($p:ident => $s:stmt) => {
        $crate::kernel::unit::for_eight!($p 0 $s);
        $crate::kernel::unit::for_eight!($p 1 $s);
        $crate::kernel::unit::for_eight!($p 2 $s);
        $crate::kernel::unit::for_eight!($p 3 $s);
        $crate::kernel::unit::for_eight!($p 4 $s);
        $crate::kernel::unit::for_eight!($p 5 $s);
        $crate::kernel::unit::for_eight!($p 6 $s);
        $crate::kernel::unit::for_eight!($p 7 $s);
    };
    ($p:ident $value:literal $s:stmt) => {{
        const $p: usize = $value;
        $s
    }};
}
use for_eight;

/// The same statement for each row of a tile. If `$in_order`, a constant, those of a whole tile are written out, and no load moves
/// from one to the one before: the compiler would start the sums of all rows at once, and lack registers for the codes.
macro_rules! for_rows {
    ($rows:ident, $in_order:expr, $t:ident => $s:expr) => {
        if $in_order && $rows == $crate::activations::TILE {
            $crate::kernel::unit::for_eight!(ROW => {
                $crate::kernel::unit::keep_order();
                let $t = ROW;
                $s;
            });
        } else {
            for $t in 0..$rows {
                $s;
            }
        }
    };
}
use for_rows;

const LOW: u32 = 0x0F0F_0F0F;

/// The low or high nibbles of each byte.
#[inline(always)]
unsafe fn nibbles<V: Lanes>(words: V::I, high: bool) -> V::I {
    // SAFETY: as this function.
    unsafe { if high { V::high_nibbles(words) } else { V::and(words, LOW) } }
}

/// Each lane shifted by a constant: left, or right if it is negative.
#[inline(always)]
unsafe fn shifted<V: Lanes>(words: V::I, by: i32) -> V::I {
    // SAFETY: as this function.
    unsafe { if by < 0 { V::shr(words, by.unsigned_abs()) } else { V::shl(words, by.unsigned_abs()) } }
}
