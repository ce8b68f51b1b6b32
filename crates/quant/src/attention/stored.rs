//! Keys and values as a cache stores them.
//!
//! Codes are those of KIVI (Liu et al. 2024, arXiv 2402.02750): an element is `scale * code + least`, where keys have a scale and a
//! least value for each channel of some positions, and values for each position and some channels.

use crate::Isa;
use crate::float16::Half;
use crate::isa::per_isa;
use crate::lanes::{Lanes, for_16_lanes, prefetch};

/// Channels of a value that share a scale.
const GROUP: usize = 64;
/// Elements that are decoded at once.
const LANES: usize = 16;
/// Bytes that memory gives at once.
const LINE: usize = 64;

/// Rows of a cache, one for each position.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'a> {
    /// As they are computed.
    F32(&'a [f32]),
    /// binary16, of which these are the bits.
    F16(&'a [u16]),
    /// Codes of 8 or 4 bits.
    Coded(Coded<'a>),
}

/// Rows of unsigned codes.
#[derive(Clone, Copy, Debug)]
pub struct Coded<'a> {
    /// 8 or 4.
    pub bits: u32,
    /// Rows of [`code_bytes`] each.
    pub codes: &'a [u8],
    /// What the codes mean.
    pub ranges: Ranges<'a>,
}

/// Scales and least values of codes.
#[derive(Clone, Copy, Debug)]
pub enum Ranges<'a> {
    /// A scale of each channel, then the least value of each: `[2, channels]`.
    Channels(&'a [f32]),
    /// For each position, a scale of each of its [`token_groups`], then the least value of each: `[positions, 2, groups]`.
    Tokens(&'a [f32]),
}

/// Bytes of a row of `width` codes. Codes of 4 bits lie in blocks of 32: byte `i` has code `i` in its low half and code `i + 16`
/// in its high half.
pub const fn code_bytes(bits: u32, width: usize) -> usize {
    if bits == 8 {
        width
    } else {
        let rest = width % 32;
        width / 32 * 16 + if rest < 16 { rest } else { 16 }
    }
}

/// Groups of channels that have a scale of their own in each value.
pub const fn token_groups(width: usize) -> usize {
    width.div_ceil(GROUP)
}

impl Stored<'_> {
    /// Where they begin.
    fn start(&self) -> *const u8 {
        match self {
            Stored::F32(rows) => rows.as_ptr().cast(),
            Stored::F16(rows) => rows.as_ptr().cast(),
            Stored::Coded(coded) => coded.codes.as_ptr(),
        }
    }
}

/// The rows as f32, `[n, width]`: themselves, or decoded into `room`. While they are, memory is asked for `next`, which has rows of
/// the same kind.
///
/// # Panics
/// If there are fewer than `n` rows of `width` elements, or the room is too small.
pub fn widen<'a>(
    isa: Isa,
    rows: &Stored<'a>,
    n: usize,
    width: usize,
    next: Option<&Stored<'_>>,
    room: &'a mut [f32],
) -> &'a [f32] {
    let next = next.map_or(std::ptr::null(), Stored::start);
    match *rows {
        Stored::F32(rows) => &rows[..n * width],
        Stored::F16(rows) => {
            let (rows, room) = (&rows[..n * width], &mut room[..n * width]);
            // SAFETY: the instructions are there, since an `Isa` is a witness of its own; both have the same length.
            unsafe { halves_of(isa)(rows, next, room) }
            room
        }
        Stored::Coded(Coded { bits, codes, ranges }) => {
            let room = &mut room[..n * width];
            let codes = codes[..n * code_bytes(bits, width)].chunks_exact(code_bytes(bits, width));
            for (t, (codes, row)) in codes.zip(room.chunks_exact_mut(width)).enumerate() {
                if !next.is_null() {
                    for line in (0..codes.len()).step_by(LINE) {
                        prefetch(next.wrapping_add(t * codes.len() + line));
                    }
                }
                match ranges {
                    Ranges::Channels(ranges) => {
                        let (scales, leasts) = ranges.split_at(width);
                        assert!(leasts.len() == width);
                        // SAFETY: as above; all are of one row.
                        unsafe { channels_of(isa)(bits, codes, scales, leasts, row) }
                    }
                    Ranges::Tokens(ranges) => {
                        let groups = token_groups(width);
                        let (scales, leasts) = ranges[t * 2 * groups..][..2 * groups].split_at(groups);
                        for (group, row) in row.chunks_mut(GROUP).enumerate() {
                            let codes = &codes[code_bytes(bits, group * GROUP)..];
                            // SAFETY: as above; a group begins with a byte of its own.
                            unsafe { tokens_of(isa)(bits, codes, scales[group], leasts[group], row) }
                        }
                    }
                }
            }
            room
        }
    }
}

per_isa! {
    /// The nearest numbers in binary16, of which these are the bits; what is larger becomes the largest.
    pub fn narrow(x: &[f32], out: &mut [u16]) = narrow_body
}
#[inline(always)]
fn narrow_body<const FMA: bool>(x: &[f32], out: &mut [u16]) {
    const MOST: f32 = 65504.0;
    assert_eq!(x.len(), out.len(), "halves of other numbers");
    for (out, x) in out.iter_mut().zip(x) {
        let x = if *x > MOST { MOST } else { *x };
        *out = Half::from_f32(if x < -MOST { -MOST } else { x }).to_bits();
    }
}

for_16_lanes! {
    /// # Safety
    /// Both have the same length.
    fn halves_of<>(rows: &[u16], next: *const u8, out: &mut [f32]) = halves
}

for_16_lanes! {
    /// # Safety
    /// All are of one row.
    fn channels_of<>(bits: u32, codes: &[u8], scales: &[f32], leasts: &[f32], out: &mut [f32]) = channels
}

for_16_lanes! {
    /// # Safety
    /// `codes` are those of `out` at least.
    fn tokens_of<>(bits: u32, codes: &[u8], scale: f32, least: f32, out: &mut [f32]) = tokens
}

/// # Safety
/// As [`Lanes`] and [`halves_of`].
#[inline(always)]
unsafe fn halves<V: Lanes>(rows: &[u16], next: *const u8, out: &mut [f32]) {
    let whole = out.len() / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        if (2 * i).is_multiple_of(LINE) && !next.is_null() {
            prefetch(next.wrapping_add(2 * i));
        }
        // SAFETY: there are `LANES` elements at `i` in both.
        unsafe { V::store_f(out.as_mut_ptr().add(i), V::load_half(rows.as_ptr().add(i).cast())) }
    }
    for (out, bits) in out[whole..].iter_mut().zip(&rows[whole..]) {
        *out = Half::from_bits(*bits).to_f32();
    }
}

/// # Safety
/// As [`Lanes`] and [`channels_of`].
#[inline(always)]
unsafe fn channels<V: Lanes>(bits: u32, codes: &[u8], scales: &[f32], leasts: &[f32], out: &mut [f32]) {
    // SAFETY: `LANES` channels at `i` are in all of them.
    let at = |i: usize| unsafe { (V::load_f(scales.as_ptr().add(i)), V::load_f(leasts.as_ptr().add(i))) };
    // SAFETY: as this function.
    unsafe { decode::<V>(bits, codes, at, |i| (scales[i], leasts[i]), out) }
}

/// # Safety
/// As [`Lanes`] and [`tokens_of`].
#[inline(always)]
unsafe fn tokens<V: Lanes>(bits: u32, codes: &[u8], scale: f32, least: f32, out: &mut [f32]) {
    // SAFETY: as this function.
    unsafe {
        let all = (V::splat_f(scale), V::splat_f(least));
        decode::<V>(bits, codes, |_| all, |_| (scale, least), out);
    }
}

/// `scale * code + least`, with the scales and least values of the `LANES` channels from one on, and of one.
///
/// # Safety
/// As [`Lanes`]; `codes` are those of `out` at least.
#[inline(always)]
unsafe fn decode<V: Lanes>(
    bits: u32,
    codes: &[u8],
    at: impl Fn(usize) -> (V::F, V::F),
    one: impl Fn(usize) -> (f32, f32),
    out: &mut [f32],
) {
    let (width, p) = (out.len(), out.as_mut_ptr());
    let whole = if bits == 8 { width / LANES * LANES } else { width / 32 * 32 };
    let mut i = 0;
    while i < whole {
        // SAFETY: as this function: the block of 16 or 32 codes at `i` is there.
        unsafe {
            let block = V::load_u8(codes.as_ptr().add(if bits == 8 { i } else { i / 2 }));
            let (scale, least) = at(i);
            if bits == 8 {
                V::store_f(p.add(i), V::fma(V::to_f(block), scale, least));
            } else {
                V::store_f(p.add(i), V::fma(V::to_f(V::and(block, 0xF)), scale, least));
                let (scale, least) = at(i + LANES);
                V::store_f(p.add(i + LANES), V::fma(V::to_f(V::shr(block, 4)), scale, least));
            }
        }
        i += if bits == 8 { LANES } else { 2 * LANES };
    }
    for (i, out) in out.iter_mut().enumerate().skip(whole) {
        let (scale, least) = one(i);
        *out = f32::from(code(bits, codes, i)).mul_add(scale, least);
    }
}

/// Code `i` of a row.
fn code(bits: u32, codes: &[u8], i: usize) -> u8 {
    if bits == 8 {
        codes[i]
    } else {
        let byte = codes[i / 32 * 16 + i % 16];
        if i % 32 < 16 { byte & 0xF } else { byte >> 4 }
    }
}

/// The scale of codes for numbers from `least` to `most`.
fn step(bits: u32, least: f32, most: f32) -> f32 {
    (most - least) / ((1u32 << bits) - 1) as f32
}

/// One divided by a scale; 0 where all numbers are the same.
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// The nearest code.
fn nearest(bits: u32, x: f32, inverse: f32, least: f32) -> u8 {
    // A number that is none becomes 0.
    (((x - least) * inverse).round_ties_even() as u8).min(((1u32 << bits) - 1) as u8)
}

/// Codes of a row, whose elements have the inverse scales and least values that `of` says.
#[inline(always)]
fn codes_of(bits: u32, x: &[f32], of: impl Fn(usize) -> (f32, f32), codes: &mut [u8]) {
    let code = |i: usize| {
        let (inverse, least) = of(i);
        nearest(bits, x[i], inverse, least)
    };
    if bits == 8 {
        for (i, to) in codes.iter_mut().enumerate() {
            *to = code(i);
        }
    } else {
        for (i, to) in codes.iter_mut().enumerate() {
            let low = i / 16 * 32 + i % 16;
            *to = code(low) | if low + 16 < x.len() { code(low + 16) << 4 } else { 0 };
        }
    }
}

/// Codes of rows `x`, `[n, width]`, each channel by its own range: `ranges` is that of [`Ranges::Channels`].
///
/// # Panics
/// If the lengths do not fit.
pub fn encode_channels(bits: u32, x: &[f32], width: usize, codes: &mut [u8], ranges: &mut [f32]) {
    let bytes = code_bytes(bits, width);
    assert!(ranges.len() == 2 * width && codes.len() * width == x.len() * bytes);
    let (scales, leasts) = ranges.split_at_mut(width);
    // The largest first, where the scales come.
    scales.fill(f32::NEG_INFINITY);
    leasts.fill(f32::INFINITY);
    for x in x.chunks_exact(width) {
        for ((most, least), x) in scales.iter_mut().zip(&mut *leasts).zip(x) {
            (*most, *least) = (most.max(*x), least.min(*x));
        }
    }
    for (scale, least) in scales.iter_mut().zip(&*leasts) {
        *scale = step(bits, *least, *scale);
    }
    for (x, codes) in x.chunks_exact(width).zip(codes.chunks_exact_mut(bytes)) {
        codes_of(bits, x, |i| (inverse(scales[i]), leasts[i]), codes);
    }
}

/// Codes of rows `x`, `[n, width]`, each group of channels of a row by its own range: `ranges` is that of [`Ranges::Tokens`].
///
/// # Panics
/// If the lengths do not fit.
pub fn encode_tokens(bits: u32, x: &[f32], width: usize, codes: &mut [u8], ranges: &mut [f32]) {
    let (bytes, groups) = (code_bytes(bits, width), token_groups(width));
    assert!(ranges.len() * width == x.len() * 2 * groups && codes.len() * width == x.len() * bytes);
    let rows = x.chunks_exact(width).zip(codes.chunks_exact_mut(bytes));
    for ((x, codes), ranges) in rows.zip(ranges.chunks_exact_mut(2 * groups)) {
        let (scales, leasts) = ranges.split_at_mut(groups);
        let codes = codes.chunks_mut(code_bytes(bits, GROUP));
        for (((x, codes), scale), least) in x.chunks(GROUP).zip(codes).zip(scales).zip(leasts) {
            let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            *least = x.iter().copied().fold(f32::INFINITY, f32::min);
            *scale = step(bits, *least, most);
            let (inverse, least) = (inverse(*scale), *least);
            codes_of(bits, x, |_| (inverse, least), codes);
        }
    }
}
