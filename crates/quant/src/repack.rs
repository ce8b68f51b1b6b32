//! Between the stored form of a matrix and its row-interleaved forms: exact, both ways, at the speed of memory.

use tensor::Scheme;

use crate::interleave::{Form, form};
use crate::isa::Isa;
use crate::lanes::{Lanes, for_lanes};
use crate::packing::{At, Change, Field, Largest, PLANES, Packing, ROWS_MAX};

/// Writes the rows whose planes are `src`, stored as `from`, to `dst` as `to`. `k` is the number of columns.
///
/// One of the schemes is as stored and the other its interleaved form ([`crate::interleaved`]); `src` holds whole
/// groups of its rows. The same call with `from` and `to` swapped, and the buffers, gives back every bit.
///
/// # Panics
/// If the schemes are not such a pair, `k` is not a multiple of the unit, or a length is wrong: a plan has
/// checked all of that.
pub fn repack(from: &Scheme, to: &Scheme, k: usize, src: &[&[u8]], dst: &mut [&mut [u8]]) {
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    repack_with(isa, from, to, k, src, dst);
}

/// As [`repack`], with the instruction set given.
pub fn repack_with(isa: Isa, from: &Scheme, to: &Scheme, k: usize, src: &[&[u8]], dst: &mut [&mut [u8]]) {
    let (form, packing) = match (form(&to.name), form(&from.name)) {
        (Some(f), _) if f.stored.name() == from.name => (f, true),
        (_, Some(f)) if f.stored.name() == to.name => (f, false),
        _ => panic!("`{from}` and `{to}` are not forms of each other"),
    };
    let &Form { r, packing: p, .. } = form;
    assert!(k > 0 && k.is_multiple_of(p.unit), "{k} columns are not units of {}", p.unit);
    let (from_len, to_len): (Vec<_>, Vec<_>) =
        (src.iter().map(|p| p.len()).collect(), dst.iter().map(|p| p.len()).collect());
    let (stored, packed) = if packing { (&from_len, &to_len) } else { (&to_len, &from_len) };
    let units = k / p.unit;
    let group = units * p.vectors() * 4 * r;
    let groups = packed.first().map_or(0, |bytes| bytes / group);
    let records = |i: usize| groups * r * units * p.stored[i];
    let factors = p.factor.map(|_| groups * r * 4);
    let wanted_stored = (0..p.planes()).map(records).chain(factors);
    let wanted_packed = std::iter::once(groups * group).chain(factors);
    assert!(
        wanted_stored.eq(stored.iter().copied()) && wanted_packed.eq(packed.iter().copied()),
        "`{from}` to `{to}`: {from_len:?} bytes do not become {to_len:?}"
    );
    if p.factor.is_some() {
        let (from, to) = if packing { (p.planes(), 1) } else { (1, p.planes()) };
        dst[to].copy_from_slice(src[from]);
    }

    let stride = p.stored.map(|bytes| units * bytes);
    for g in 0..groups {
        let part = |i: usize| g * r * stride[i]..(g + 1) * r * stride[i];
        if packing {
            let at = std::array::from_fn(|i| src.get(i).map_or(&[][..], |src| &src[part(i)]).as_ptr());
            let next = at[0].wrapping_add(r * stride[0]);
            let dst = dst[0][g * group..][..group].as_mut_ptr();
            // SAFETY: `isa` witnesses the features; the source holds `r` rows of `units` records, and `dst` as
            // many units.
            unsafe { pack_of(isa, r)(p, &Source { at, stride }, units, dst, next) }
        } else {
            let src = src[0][g * group..][..group].as_ptr();
            let at = std::array::from_fn(|i| match dst.get_mut(i) {
                Some(dst) if stride[i] > 0 => dst[part(i)].as_mut_ptr(),
                _ => std::ptr::dangling_mut(),
            });
            // SAFETY: as above, the other way.
            unsafe { unpack_of(isa, r)(p, src, units, &Target { at, stride }) }
        }
    }
}

/// Rows as stored, to read: in each plane where the first begins, and from there to the next. A plane that gives
/// a record nothing may begin anywhere.
pub(crate) struct Source {
    pub(crate) at: [*const u8; PLANES],
    pub(crate) stride: [usize; PLANES],
}

/// Rows as stored, to write.
pub(crate) struct Target {
    at: [*mut u8; PLANES],
    stride: [usize; PLANES],
}

/// A function of [`pack_of`].
pub(crate) type Pack = unsafe fn(&Packing, &Source, usize, *mut u8, *const u8);

for_lanes! {
    /// `units` units, one after the other, from the records of `V::N` rows. Meanwhile as many bytes as there are
    /// in their first plane are asked for from `next` on, which may point anywhere.
    pub(crate) fn pack_of<>(
        packing: &Packing,
        source: &Source,
        units: usize,
        out: *mut u8,
        next: *const u8,
    ) = pack
}

for_lanes! {
    /// The inverse of [`pack_of`].
    fn unpack_of<>(packing: &Packing, src: *const u8, units: usize, target: &Target) = unpack
}

/// Writes the records of the `r` rows of one unit to `stored`, plane by plane and in each one after the other.
pub(crate) fn unpack_unit(packing: &Packing, r: usize, unit: &[u8], stored: &mut [&mut [u8]; PLANES]) {
    let lengths = stored.iter().zip(packing.stored).all(|(stored, bytes)| stored.len() == r * bytes);
    assert!(unit.len() == 4 * r * packing.vectors() && lengths);
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    let target = Target { at: stored.each_mut().map(|s| s.as_mut_ptr()), stride: packing.stored };
    // SAFETY: `isa` witnesses the features; `unit` is one, and `stored` has a record for each of its rows.
    unsafe { unpack_of(isa, r)(packing, unit.as_ptr(), 1, &target) }
}

/// # Safety
/// As [`Lanes`]; `source` has `V::N` rows of `units` records, `out` room for `units` units.
#[inline(always)]
unsafe fn pack<V: Lanes>(
    packing: &Packing,
    source: &Source,
    units: usize,
    mut out: *mut u8,
    mut next: *const u8,
) {
    let vector = 4 * V::N;
    for u in 0..units {
        for _ in 0..(V::N * packing.stored[0]).div_ceil(64) {
            V::prefetch(next);
            next = next.wrapping_add(64);
        }
        for field in &*packing.fields {
            let rows = |at: At| source.at[at.0].wrapping_add(u * packing.stored[at.0] + at.1);
            let stride = |at: At| source.stride[at.0];
            // SAFETY: fields lie in their record, their vectors in their unit (a test of `interleave` says so).
            unsafe {
                match *field {
                    Field::Scales(first, second) => {
                        halves::<V>(rows(first), stride(first), out);
                        match second {
                            Some(second) => halves::<V>(rows(second), stride(second), out.add(2 * V::N)),
                            None => out.add(2 * V::N).write_bytes(0, 2 * V::N),
                        }
                    }
                    Field::Powers(first, second, largest) => {
                        powers::<V>(rows(first), stride(first), largest, out);
                        powers::<V>(rows(second), stride(second), largest, out.add(2 * V::N));
                    }
                    Field::Word(at) => {
                        for lane in 0..V::N {
                            let word = rows(at).add(lane * stride(at)).cast::<u32>().read_unaligned();
                            out.cast::<u32>().add(lane).write_unaligned(word);
                        }
                    }
                    Field::Fifths(at) => {
                        for lane in 0..V::N {
                            let word = rows(at).add(lane * stride(at)).cast::<u32>().read_unaligned();
                            out.cast::<u32>().add(lane).write_unaligned(word);
                        }
                        V::store(out, sorted::<V>(sorted::<V>(V::load(out))));
                    }
                    Field::Words(at, n, Change::None) => {
                        words::<V, { Change::None as u8 }>(rows(at), stride(at), n, out);
                    }
                    Field::Words(at, n, Change::Flip) => {
                        words::<V, { Change::Flip as u8 }>(rows(at), stride(at), n, out);
                    }
                    Field::Words(at, n, Change::Runs) => {
                        words::<V, { Change::Runs as u8 }>(rows(at), stride(at), n, out);
                    }
                }
                out = out.add(vector * field.vectors());
            }
        }
    }
}

/// `n` vectors of the words at `rows` of each row, changed.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn words<V: Lanes, const CHANGE: u8>(rows: *const u8, stride: usize, n: usize, out: *mut u8) {
    for i in fours(n) {
        // SAFETY: as this function.
        unsafe {
            let [a, b, c, d] = V::gather(rows.add(4 * i), stride);
            let words = [
                changed::<V, CHANGE>(a),
                changed::<V, CHANGE>(b),
                changed::<V, CHANGE>(c),
                changed::<V, CHANGE>(d),
            ];
            for (j, word) in words.into_iter().enumerate() {
                V::store(out.add(4 * V::N * (i + j)), word);
            }
        }
    }
}

/// The inverse of [`words`].
///
/// # Safety
/// As [`unpack`].
#[inline(always)]
unsafe fn unwords<V: Lanes, const CHANGE: u8>(src: *const u8, n: usize, rows: *mut u8, stride: usize) {
    for i in fours(n) {
        // SAFETY: as this function.
        unsafe {
            let [a, b, c, d] = four::<V>(src.add(4 * V::N * i));
            let words = [
                restored::<V, CHANGE>(a),
                restored::<V, CHANGE>(b),
                restored::<V, CHANGE>(c),
                restored::<V, CHANGE>(d),
            ];
            V::scatter(words, rows.add(4 * i), stride);
        }
    }
}

/// Signed bytes made unsigned, and back.
const FLIP: u32 = 0x8080_8080;
/// The middle two of four bytes swapped, and back.
const MIDDLE: [u8; 4] = [0, 2, 1, 3];

/// A vector changed as [`Change`] says.
#[inline(always)]
unsafe fn changed<V: Lanes, const CHANGE: u8>(words: V::I) -> V::I {
    // SAFETY: as this function.
    unsafe {
        if CHANGE == Change::Flip as u8 {
            V::xor(words, FLIP)
        } else if CHANGE == Change::Runs as u8 {
            // Codes 0 1 2 3 4 5 6 7, then 0 1 4 5 2 3 6 7, then 0 4 1 5 2 6 3 7.
            swapped::<V>(V::pick(words, MIDDLE))
        } else {
            words
        }
    }
}

/// The inverse of [`changed`].
#[inline(always)]
unsafe fn restored<V: Lanes, const CHANGE: u8>(words: V::I) -> V::I {
    // SAFETY: as this function.
    unsafe {
        if CHANGE == Change::Runs as u8 {
            V::pick(swapped::<V>(words), MIDDLE)
        } else {
            changed::<V, CHANGE>(words)
        }
    }
}

/// The middle two of four nibbles swapped, in either half of each lane. It is its own inverse.
#[inline(always)]
unsafe fn swapped<V: Lanes>(words: V::I) -> V::I {
    // SAFETY: as this function.
    unsafe {
        let up = V::and(V::shl(words, 4), 0x0F00_0F00);
        let down = V::and(V::shr(words, 4), 0x00F0_00F0);
        V::or(V::and(words, 0xF00F_F00F), V::or(up, down))
    }
}

/// The bits with even numbers in the lower half of each lane, the others in the upper half, both in order. Done twice, bits
/// `4 * j + i` are at `8 * i + j`.
#[inline(always)]
unsafe fn sorted<V: Lanes>(words: V::I) -> V::I {
    // SAFETY: as this function.
    unsafe {
        let words = exchanged::<V>(words, 1, 0x2222_2222);
        let words = exchanged::<V>(words, 2, 0x0C0C_0C0C);
        let words = exchanged::<V>(words, 4, 0x00F0_00F0);
        exchanged::<V>(words, 8, 0x0000_FF00)
    }
}

/// The inverse of [`sorted`].
#[inline(always)]
unsafe fn mixed<V: Lanes>(words: V::I) -> V::I {
    // SAFETY: as this function.
    unsafe {
        let words = exchanged::<V>(words, 8, 0x0000_FF00);
        let words = exchanged::<V>(words, 4, 0x00F0_00F0);
        let words = exchanged::<V>(words, 2, 0x0C0C_0C0C);
        exchanged::<V>(words, 1, 0x2222_2222)
    }
}

/// The bits of `mask` of each lane exchanged with those `by` above them. It is its own inverse.
#[inline(always)]
unsafe fn exchanged<V: Lanes>(words: V::I, by: u32, mask: u32) -> V::I {
    // SAFETY: as this function.
    unsafe {
        let (up, down) = (V::shl(V::and(words, mask), by), V::and(V::shr(words, by), mask));
        V::or(V::and(words, !(mask | mask << by)), V::or(up, down))
    }
}

/// Copies the 16 bits at `rows` of each of `V::N` rows to `out`, which is left alone by every port of the
/// processor that the vectors want.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn halves<V: Lanes>(mut rows: *const u8, stride: usize, out: *mut u8) {
    for four in 0..V::N / 4 {
        // SAFETY: as this function.
        unsafe {
            let (a, b) = (rows.cast::<u16>(), rows.add(stride).cast::<u16>());
            let (c, d) = (rows.add(2 * stride).cast::<u16>(), rows.add(3 * stride).cast::<u16>());
            let halves = [a.read_unaligned(), b.read_unaligned(), c.read_unaligned(), d.read_unaligned()];
            out.add(8 * four).cast::<[u16; 4]>().write_unaligned(halves);
            rows = rows.wrapping_add(4 * stride);
        }
    }
}

/// The exponent at `rows` of each of `V::N` rows as a power.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn powers<V: Lanes>(rows: *const u8, stride: usize, largest: Largest, out: *mut u8) {
    for lane in 0..V::N {
        // SAFETY: as this function.
        unsafe {
            let power = half_power(rows.add(lane * stride).read(), largest);
            out.cast::<u16>().add(lane).write_unaligned(power);
        }
    }
}

/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn unpack<V: Lanes>(packing: &Packing, mut src: *const u8, units: usize, target: &Target) {
    let vector = 4 * V::N;
    for u in 0..units {
        for field in &*packing.fields {
            let rows = |at: At| target.at[at.0].wrapping_add(u * packing.stored[at.0] + at.1);
            let stride = |at: At| target.stride[at.0];
            // SAFETY: as in `pack`.
            unsafe {
                match *field {
                    Field::Scales(first, second) => {
                        for lane in 0..V::N {
                            let from = src.cast::<u16>().add(lane);
                            let to = rows(first).add(lane * stride(first)).cast::<u16>();
                            to.write_unaligned(from.read_unaligned());
                            if let Some(second) = second {
                                let to = rows(second).add(lane * stride(second)).cast::<u16>();
                                to.write_unaligned(from.add(V::N).read_unaligned());
                            }
                        }
                    }
                    Field::Powers(first, second, _) => {
                        for lane in 0..V::N {
                            let from = src.cast::<u16>().add(lane);
                            let (one, two) = (from.read_unaligned(), from.add(V::N).read_unaligned());
                            rows(first).add(lane * stride(first)).write(exponent(one));
                            rows(second).add(lane * stride(second)).write(exponent(two));
                        }
                    }
                    Field::Word(at) => {
                        for lane in 0..V::N {
                            let word = src.cast::<u32>().add(lane).read_unaligned();
                            rows(at).add(lane * stride(at)).cast::<u32>().write_unaligned(word);
                        }
                    }
                    Field::Fifths(at) => {
                        let mut lanes = [0u32; ROWS_MAX];
                        V::store(lanes.as_mut_ptr().cast(), mixed::<V>(mixed::<V>(V::load(src))));
                        for (lane, word) in lanes[..V::N].iter().enumerate() {
                            rows(at).add(lane * stride(at)).cast::<u32>().write_unaligned(*word);
                        }
                    }
                    Field::Words(at, n, Change::None) => {
                        unwords::<V, { Change::None as u8 }>(src, n, rows(at), stride(at));
                    }
                    Field::Words(at, n, Change::Flip) => {
                        unwords::<V, { Change::Flip as u8 }>(src, n, rows(at), stride(at));
                    }
                    Field::Words(at, n, Change::Runs) => {
                        unwords::<V, { Change::Runs as u8 }>(src, n, rows(at), stride(at));
                    }
                }
                src = src.add(vector * field.vectors());
            }
        }
    }
}

/// Four vectors.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn four<V: Lanes>(src: *const u8) -> [V::I; 4] {
    // SAFETY: as this function.
    unsafe {
        let vector = 4 * V::N;
        [V::load(src), V::load(src.add(vector)), V::load(src.add(2 * vector)), V::load(src.add(3 * vector))]
    }
}

/// `2^(e - 128)` in bfloat16, which is exact: for an E8M0 scale whose codes are doubled.
fn half_power(e: u8, largest: Largest) -> u16 {
    match (e, largest) {
        (255, Largest::Nan) => NAN,
        (0 | 1, _) => 0x20 << e,
        _ => (u16::from(e) - 1) << 7,
    }
}

/// No number, in bfloat16.
const NAN: u16 = 0x7FC0;

/// The inverse of [`half_power`].
fn exponent(power: u16) -> u8 {
    match power {
        NAN => 255,
        ..0x80 => (power >> 6) as u8,
        _ => (power >> 7) as u8 + 1,
    }
}

/// Starts of runs of four that cover `0..n`; the last may overlap the one before. `n` is at least 4.
#[inline(always)]
fn fours(n: usize) -> impl Iterator<Item = usize> {
    (0..n.div_ceil(4)).map(move |i| (4 * i).min(n - 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Scalar;

    #[test]
    fn fifth_bits_of_four_codes_are_one_shift_away() {
        for bit in 0..32 {
            let word = [1u32 << bit; 8];
            // SAFETY: plain Rust needs no features.
            let [sorted, back] = unsafe {
                let sorted = sorted::<Scalar<8>>(sorted::<Scalar<8>>(word));
                [sorted, mixed::<Scalar<8>>(mixed::<Scalar<8>>(sorted))]
            };
            let (j, i) = (bit / 4, bit % 4);
            assert_eq!(sorted, [1 << (8 * i + j); 8], "bit {bit}");
            assert_eq!(back, word);
        }
    }

    #[test]
    fn every_exponent_comes_back_from_its_power() {
        for e in 0..=255 {
            let power = half_power(e, Largest::Power);
            let value = f32::from_bits(u32::from(power) << 16);
            assert_eq!(value.to_bits(), (2f64.powi(i32::from(e) - 128) as f32).to_bits(), "{e}");
            assert_eq!(exponent(power), e);
            let power = half_power(e, Largest::Nan);
            assert_eq!(f32::from_bits(u32::from(power) << 16).is_nan(), e == 255);
            assert_eq!(exponent(power), e);
        }
    }
}
