//! Between the stored form of a matrix and its row-interleaved forms: exact, both ways, at the speed of memory.

use tensor::Scheme;

use crate::interleave::{Field, Form, Record, form};
use crate::isa::Isa;
use crate::lanes::{Lanes, for_lanes};

/// Writes the rows in `src`, stored as `from`, to `dst` as `to`. `k` is the number of columns.
///
/// One of the schemes is a block scheme and the other its interleaved form ([`crate::interleaved`]); `src`
/// holds whole groups of its rows. The same call with `from` and `to` swapped, and the buffers, gives back
/// every bit.
///
/// # Panics
/// If the schemes are not such a pair, `k` is not a multiple of the unit, or a length is wrong: a plan has
/// checked all of that.
pub fn repack(from: &Scheme, to: &Scheme, k: usize, src: &[u8], dst: &mut [u8]) {
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    repack_with(isa, from, to, k, src, dst);
}

/// As [`repack`], with the instruction set given.
pub fn repack_with(isa: Isa, from: &Scheme, to: &Scheme, k: usize, src: &[u8], dst: &mut [u8]) {
    let (form, packing) = match (form(&to.name), form(&from.name)) {
        (Some(f), _) if f.stored == from.name => (f, true),
        (_, Some(f)) if f.stored == to.name => (f, false),
        _ => panic!("`{from}` and `{to}` are not forms of each other"),
    };
    let Form { r, record, .. } = *form;
    assert!(k > 0 && k.is_multiple_of(record.unit), "{k} columns are not units of {}", record.unit);
    let row = k / record.unit * record.stored;
    let group = k / record.unit * record.vectors * 4 * r;
    let (stored, packed) = if packing { (src.len(), dst.len()) } else { (dst.len(), src.len()) };
    let groups = packed / group;
    assert!(
        packed == groups * group && stored == groups * r * row,
        "`{from}` to `{to}`: {} bytes do not become {}",
        src.len(),
        dst.len()
    );

    let units = k / record.unit;
    for g in 0..groups {
        let (at_rows, at_group) = (g * r * row, g * group);
        if packing {
            let (src, dst) = (&src[at_rows..][..r * row], &mut dst[at_group..][..group]);
            // SAFETY: `isa` witnesses the features; `src` holds `r` rows of `units` records, `dst` as many units.
            unsafe {
                let next = src.as_ptr().wrapping_add(r * row);
                pack_of(isa, r)(&record, src.as_ptr(), row, units, dst.as_mut_ptr(), next);
            }
        } else {
            let (src, dst) = (&src[at_group..][..group], &mut dst[at_rows..][..r * row]);
            // SAFETY: as above, the other way.
            unsafe { unpack_of(isa, r)(&record, src.as_ptr(), units, dst.as_mut_ptr(), row) }
        }
    }
}

/// A function of [`pack_of`].
pub(crate) type Pack = unsafe fn(&Record, *const u8, usize, usize, *mut u8, *const u8);

for_lanes! {
    /// `units` units, one after the other, from the records of `V::N` rows `stride` bytes apart. Meanwhile as many
    /// bytes are asked for from `next` on, which may point anywhere.
    pub(crate) fn pack_of<>(
        record: &Record,
        rows: *const u8,
        stride: usize,
        units: usize,
        out: *mut u8,
        next: *const u8,
    ) = pack
}

for_lanes! {
    /// The inverse of [`pack_of`].
    fn unpack_of<>(record: &Record, src: *const u8, units: usize, rows: *mut u8, stride: usize) = unpack
}

/// Writes the records of the `r` rows of one unit to `stored`, one after the other.
pub(crate) fn unpack_unit(record: &Record, r: usize, unit: &[u8], stored: &mut [u8]) {
    assert!(unit.len() == 4 * r * record.vectors && stored.len() == r * record.stored);
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    // SAFETY: `isa` witnesses the features; `unit` is one, and `stored` has a record for each of its rows.
    unsafe { unpack_of(isa, r)(record, unit.as_ptr(), 1, stored.as_mut_ptr(), record.stored) }
}

/// Signed bytes made unsigned, and back.
const FLIP: u32 = 0x8080_8080;

/// # Safety
/// As [`Lanes`]; `rows` has `V::N` rows of `units` records, `out` room for `units` units.
#[inline(always)]
unsafe fn pack<V: Lanes>(
    record: &Record,
    rows: *const u8,
    stride: usize,
    units: usize,
    out: *mut u8,
    mut next: *const u8,
) {
    let vector = 4 * V::N;
    for u in 0..units {
        for _ in 0..(V::N * record.stored).div_ceil(64) {
            V::prefetch(next);
            next = next.wrapping_add(64);
        }
        // SAFETY: fields lie in their record, their vectors in their unit (a test of `interleave` says so).
        unsafe {
            let rows = rows.add(u * record.stored);
            let mut out = out.add(u * record.vectors * vector);
            for field in record.fields {
                match *field {
                    Field::Scales(first, second) => {
                        halves::<V>(rows.add(first), stride, out);
                        match second {
                            Some(second) => halves::<V>(rows.add(second), stride, out.add(2 * V::N)),
                            None => out.add(2 * V::N).write_bytes(0, 2 * V::N),
                        }
                    }
                    Field::Powers(first, second) => {
                        for lane in 0..V::N {
                            let row = rows.add(lane * stride);
                            let to = out.cast::<u16>().add(lane);
                            to.write_unaligned(half_power(row.add(first).read()));
                            to.add(V::N).write_unaligned(half_power(row.add(second).read()));
                        }
                    }
                    Field::Words(at, n) => {
                        for i in fours(n) {
                            let words = V::gather(rows.add(at + 4 * i), stride);
                            for (j, word) in words.into_iter().enumerate() {
                                V::store(out.add(vector * (i + j)), word);
                            }
                        }
                    }
                    Field::Signed(at, n) => {
                        for i in fours(n) {
                            let words = V::gather(rows.add(at + 4 * i), stride);
                            for (j, word) in words.into_iter().enumerate() {
                                V::store(out.add(vector * (i + j)), V::xor(word, FLIP));
                            }
                        }
                    }
                }
                out = out.add(vector * field.vectors());
            }
        }
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

/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn unpack<V: Lanes>(record: &Record, src: *const u8, units: usize, rows: *mut u8, stride: usize) {
    let vector = 4 * V::N;
    for u in 0..units {
        // SAFETY: as in `pack`.
        unsafe {
            let rows = rows.add(u * record.stored);
            let mut src = src.add(u * record.vectors * vector);
            for field in record.fields {
                match *field {
                    Field::Scales(first, second) => {
                        for lane in 0..V::N {
                            let row = rows.add(lane * stride);
                            let from = src.cast::<u16>().add(lane);
                            row.add(first).cast::<u16>().write_unaligned(from.read_unaligned());
                            if let Some(second) = second {
                                let half = from.add(V::N).read_unaligned();
                                row.add(second).cast::<u16>().write_unaligned(half);
                            }
                        }
                    }
                    Field::Powers(first, second) => {
                        for lane in 0..V::N {
                            let row = rows.add(lane * stride);
                            let from = src.cast::<u16>().add(lane);
                            row.add(first).write(exponent(from.read_unaligned()));
                            row.add(second).write(exponent(from.add(V::N).read_unaligned()));
                        }
                    }
                    Field::Words(at, n) => {
                        for i in fours(n) {
                            let words = four::<V>(src.add(vector * i));
                            V::scatter(words, rows.add(at + 4 * i), stride);
                        }
                    }
                    Field::Signed(at, n) => {
                        for i in fours(n) {
                            let [a, b, c, d] = four::<V>(src.add(vector * i));
                            let words = [V::xor(a, FLIP), V::xor(b, FLIP), V::xor(c, FLIP), V::xor(d, FLIP)];
                            V::scatter(words, rows.add(at + 4 * i), stride);
                        }
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
fn half_power(e: u8) -> u16 {
    if e < 2 { 0x20 << e } else { (u16::from(e) - 1) << 7 }
}

/// The inverse of [`half_power`].
fn exponent(power: u16) -> u8 {
    if power < 0x80 { (power >> 6) as u8 } else { (power >> 7) as u8 + 1 }
}

/// Starts of runs of four that cover `0..n`; the last may overlap the one before. `n` is at least 4.
#[inline(always)]
fn fours(n: usize) -> impl Iterator<Item = usize> {
    (0..n.div_ceil(4)).map(move |i| (4 * i).min(n - 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exponent_comes_back_from_its_power() {
        for e in 0..=255 {
            let power = f32::from_bits(u32::from(half_power(e)) << 16);
            assert_eq!(power.to_bits(), (2f64.powi(i32::from(e) - 128) as f32).to_bits(), "{e}");
            assert_eq!(exponent(half_power(e)), e);
        }
    }
}
