//! Keys and values as a cache stores them, in pages of [`POSITIONS`] positions.
//!
//! Both are rows of few elements that lie one after the other, so that a page is read in the order of its addresses and no sum
//! goes across a vector:
//!
//! - keys by channel, `[d, POSITIONS]`, since a score is a sum over channels;
//! - values by position, `[POSITIONS, GROUP]` for each [`GROUP`] elements of a value, and for what is left over rows of 32 or 64.
//!
//! Codes are those of KIVI (Liu et al. 2024, arXiv 2402.02750): an element is `scale * code + least`, with a scale and a least
//! value for each row, which is a channel of the keys or [`GROUP`] elements of a value.

use crate::Isa;
use crate::float16::Half;
use crate::isa::per_isa;
use crate::lanes::{Lanes, for_16_lanes, prefetch_far};

/// Positions of a page.
pub const POSITIONS: usize = 64;
/// Elements of a value that lie together.
pub const GROUP: usize = 64;
/// Elements that are decoded at once.
const PART: usize = 32;
/// Lanes of a vector.
const LANES: usize = 16;
/// Bytes that memory gives at once.
const LINE: usize = 64;

/// Elements of a page of keys or values, of one head.
#[derive(Clone, Copy, Debug)]
pub enum Stored<'a> {
    /// As they are computed.
    F32(&'a [f32]),
    /// binary16, of which these are the bits.
    F16(&'a [u16]),
    /// Codes of 8 or 4 bits.
    Coded(Coded<'a>),
}

/// Unsigned codes. Those of 4 bits lie in parts of 32: byte `i` has code `i` in its low half and code `i + 16` in its high half.
#[derive(Clone, Copy, Debug)]
pub struct Coded<'a> {
    /// 8 or 4.
    pub bits: u32,
    /// The codes of the elements, in the same order.
    pub codes: &'a [u8],
    /// Of keys a scale of each channel, then the least value of each: `[2, d]`. Of values the same of each position, for each
    /// [`GROUP`] elements: `[groups, 2, POSITIONS]`.
    pub ranges: &'a [f32],
}

/// Elements that a row of `count` elements takes: a multiple of 32.
pub const fn padded(count: usize) -> usize {
    count.div_ceil(PART) * PART
}

/// The place of element `i` of the value at `position` of a page, of values of `width` elements.
#[inline(always)]
pub const fn value_place(width: usize, position: usize, i: usize) -> usize {
    let (group, within) = (i / GROUP, i % GROUP);
    let left = width - group * GROUP;
    let row = padded(if left < GROUP { left } else { GROUP });
    group * GROUP * POSITIONS + position * row + within
}

/// Rows of elements, with what their codes mean.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) kind: Kind,
    pub(super) start: *const u8,
    /// Scales and least values of the rows, where they have codes.
    pub(super) ranges: Option<(&'a [f32], &'a [f32])>,
}

/// The types of stored elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F16,
    U8,
    U4,
}

/// Calls `$of::<E>` with the elements `E` of a kind.
macro_rules! for_elements {
    ($kind:expr, $of:ident, $isa:expr) => {
        match $kind {
            $crate::attention::stored::Kind::F32 => $of::<$crate::attention::stored::F32>($isa),
            $crate::attention::stored::Kind::F16 => $of::<$crate::attention::stored::F16>($isa),
            $crate::attention::stored::Kind::U8 => $of::<$crate::attention::stored::U8>($isa),
            $crate::attention::stored::Kind::U4 => $of::<$crate::attention::stored::U4>($isa),
        }
    };
}
pub(super) use for_elements;

impl<'a> Stored<'a> {
    /// `count` rows of `width` elements, of which the first is row `first` of rows as wide, and the ranges begin at `ranges`.
    fn rows(&self, first: usize, count: usize, width: usize, ranges: usize) -> Rows<'a> {
        let (from, len) = (first * width, count * width);
        let (kind, start) = match self {
            Stored::F32(all) => (Kind::F32, all[from..][..len].as_ptr().cast()),
            Stored::F16(all) => (Kind::F16, all[from..][..len].as_ptr().cast()),
            Stored::Coded(Coded { bits: 8, codes, .. }) => (Kind::U8, codes[from..][..len].as_ptr()),
            Stored::Coded(Coded { codes, .. }) => (Kind::U4, codes[from / 2..][..len / 2].as_ptr()),
        };
        let ranges = match self {
            Stored::Coded(coded) => Some(coded.ranges[ranges..][..2 * count].split_at(count)),
            _ => None,
        };
        Rows { kind, start, ranges }
    }

    /// Where they begin.
    pub(super) fn start(&self) -> *const u8 {
        match self {
            Stored::F32(all) => all.as_ptr().cast(),
            Stored::F16(all) => all.as_ptr().cast(),
            Stored::Coded(Coded { codes, .. }) => codes.as_ptr(),
        }
    }

    /// The `d` channels of keys, rows of [`POSITIONS`].
    ///
    /// # Panics
    /// If they are not there.
    pub(super) fn channels(&self, d: usize) -> Rows<'a> {
        self.rows(0, d, POSITIONS, 0)
    }

    /// The [`POSITIONS`] rows of a group of values of `width` elements.
    ///
    /// # Panics
    /// If they are not there.
    pub(super) fn group(&self, width: usize, group: usize) -> Rows<'a> {
        let row = padded((width - group * GROUP).min(GROUP));
        // The groups before have rows of `GROUP`.
        let first = group * GROUP * POSITIONS / row;
        self.rows(first, POSITIONS, row, group * 2 * POSITIONS)
    }
}

/// Elements that are read as floats, without what their codes mean.
pub(super) trait Element {
    /// Bytes of [`PART`] elements.
    const BYTES: usize;

    /// The [`PART`] elements at `p`.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn part<V: Lanes>(p: *const u8) -> [V::F; 2];
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct U8;
pub(super) struct U4;

impl Element for F32 {
    const BYTES: usize = 4 * PART;

    #[inline(always)]
    unsafe fn part<V: Lanes>(p: *const u8) -> [V::F; 2] {
        // SAFETY: as this function.
        unsafe { [V::load_f(p.cast()), V::load_f(p.cast::<f32>().add(LANES))] }
    }
}

impl Element for F16 {
    const BYTES: usize = 2 * PART;

    #[inline(always)]
    unsafe fn part<V: Lanes>(p: *const u8) -> [V::F; 2] {
        // SAFETY: as this function.
        unsafe { [V::load_half(p), V::load_half(p.add(2 * LANES))] }
    }
}

impl Element for U8 {
    const BYTES: usize = PART;

    #[inline(always)]
    unsafe fn part<V: Lanes>(p: *const u8) -> [V::F; 2] {
        // SAFETY: as this function.
        unsafe { [V::to_f(V::load_u8(p)), V::to_f(V::load_u8(p.add(LANES)))] }
    }
}

impl Element for U4 {
    const BYTES: usize = PART / 2;

    #[inline(always)]
    unsafe fn part<V: Lanes>(p: *const u8) -> [V::F; 2] {
        // SAFETY: as this function.
        unsafe {
            let codes = V::load_u8(p);
            [V::to_f(V::and(codes, 0xF)), V::to_f(V::shr(codes, 4))]
        }
    }
}

for_16_lanes! {
    /// `count` elements as floats.
    ///
    /// # Safety
    /// `count` is a multiple of [`PART`]; as many are at `from`, and room for them at `to`.
    fn floats_of<E: Element>(count: usize, from: *const u8, to: *mut f32) = floats
}

/// # Safety
/// As [`Lanes`] and [`floats_of`].
#[inline(always)]
unsafe fn floats<V: Lanes, E: Element>(count: usize, from: *const u8, to: *mut f32) {
    for i in 0..count / PART {
        // SAFETY: as this function.
        unsafe {
            let [a, b] = E::part::<V>(from.add(i * E::BYTES));
            V::store_f(to.add(i * PART), a);
            V::store_f(to.add(i * PART + LANES), b);
        }
    }
}

/// Asks for the cache lines of row `i` of `parts` parts at `next`, if anything is there.
#[inline(always)]
pub(super) fn ask<E: Element>(next: *const u8, i: usize, parts: usize) {
    let (start, end) = (i * parts * E::BYTES, (i + 1) * parts * E::BYTES);
    if !next.is_null() {
        for line in (start.next_multiple_of(LINE)..end).step_by(LINE) {
            prefetch_far(next.wrapping_add(line));
        }
    }
}

impl Rows<'_> {
    /// Writes the numbers that `count` rows stand for to `to`. `width` is the number of elements of a row, a multiple of [`PART`].
    pub(super) fn decoded(&self, isa: Isa, count: usize, width: usize, to: &mut [f32]) {
        let to = &mut to[..count * width];
        // SAFETY: the instructions are there, since an `Isa` is a witness of its own; as many elements are there.
        unsafe { for_elements!(self.kind, floats_of, isa)(count * width, self.start, to.as_mut_ptr()) }
        if let Some((scales, leasts)) = self.ranges {
            for (row, (scale, least)) in to.chunks_exact_mut(width).zip(scales.iter().zip(leasts)) {
                for x in row {
                    *x = *x * scale + least;
                }
            }
        }
    }
}

/// Writes the numbers that a page of keys of `d` elements stands for to `to`: `[d, POSITIONS]`.
///
/// # Panics
/// If the keys are not there, or the room is too small.
pub fn keys(isa: Isa, stored: &Stored<'_>, d: usize, to: &mut [f32]) {
    stored.channels(d).decoded(isa, d, POSITIONS, to);
}

/// Writes the numbers that a page of values of `width` elements stands for to `to`, in the places that [`value_place`] says.
///
/// # Panics
/// If the values are not there, or the room is too small.
pub fn values(isa: Isa, stored: &Stored<'_>, width: usize, to: &mut [f32]) {
    for group in 0..width.div_ceil(GROUP) {
        let row = padded((width - group * GROUP).min(GROUP));
        let to = &mut to[group * GROUP * POSITIONS..];
        stored.group(width, group).decoded(isa, POSITIONS, row, to);
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

/// Codes of a page of keys, `[d, POSITIONS]`, and what they mean: `ranges` is `[2, d]`.
///
/// # Panics
/// If the lengths do not fit.
pub fn encode_keys(bits: u32, x: &[f32], codes: &mut [u8], ranges: &mut [f32]) {
    encode_rows(bits, x, POSITIONS, POSITIONS, codes, ranges);
}

/// Codes of a page of values of `width` elements in the places that [`value_place`] says, and what they mean: `ranges` is
/// `[groups, 2, POSITIONS]`.
///
/// # Panics
/// If the lengths do not fit.
pub fn encode_values(bits: u32, x: &[f32], width: usize, codes: &mut [u8], ranges: &mut [f32]) {
    const PAGE: usize = GROUP * POSITIONS;
    let groups = x.chunks(PAGE).zip(codes.chunks_mut(PAGE * bits as usize / 8));
    assert!(x.len() == POSITIONS * padded(width) && ranges.len() == width.div_ceil(GROUP) * 2 * POSITIONS);
    for ((group, (x, codes)), ranges) in groups.enumerate().zip(ranges.chunks_exact_mut(2 * POSITIONS)) {
        let count = (width - group * GROUP).min(GROUP);
        encode_rows(bits, x, padded(count), count, codes, ranges);
    }
}

/// Codes of rows of `width` elements, of which the first `count` count.
fn encode_rows(bits: u32, x: &[f32], width: usize, count: usize, codes: &mut [u8], ranges: &mut [f32]) {
    assert!(codes.len() * 8 == x.len() * bits as usize && ranges.len() * width == 2 * x.len());
    let (scales, leasts) = ranges.split_at_mut(x.len() / width);
    let codes = codes.chunks_exact_mut(width * bits as usize / 8);
    let ranges = scales.iter_mut().zip(leasts);
    for ((x, codes), (scale, least)) in x.chunks_exact(width).zip(codes).zip(ranges) {
        let most = x[..count].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        *least = x[..count].iter().copied().fold(f32::INFINITY, f32::min);
        *scale = (most - *least) / ((1u32 << bits) - 1) as f32;
        // All numbers may be the same.
        let inverse = if *scale > 0.0 { 1.0 / *scale } else { 0.0 };
        let code = |x: f32| nearest(bits, x, inverse, *least);
        if bits == 8 {
            codes.iter_mut().zip(x).for_each(|(to, x)| *to = code(*x));
        } else {
            for (x, codes) in x.chunks_exact(PART).zip(codes.chunks_exact_mut(PART / 2)) {
                let (low, high) = x.split_at(PART / 2);
                for (to, (low, high)) in codes.iter_mut().zip(low.iter().zip(high)) {
                    *to = code(*low) | code(*high) << 4;
                }
            }
        }
    }
}

/// The nearest code.
fn nearest(bits: u32, x: f32, inverse: f32, least: f32) -> u8 {
    // A number that is none becomes 0.
    (((x - least) * inverse).round_ties_even() as u8).min(((1u32 << bits) - 1) as u8)
}
