//! Row-interleaved forms of the block schemes, `q4_1.r16` and the like, made for the processor.
//!
//! A matrix `[out, in]` is cut into groups of `r` rows, and each group along `in` into *units* of 64 elements
//! (256 for schemes of 256-element blocks). What one row stores in that stretch, one or two blocks, is seen as
//! 32-bit words. The unit holds them word by word, each word `r` times, once for each row: a *vector* of
//! `4 * r` bytes that loads into one register, lane `i` for row `i`. So a product with `r` rows needs no sum
//! across lanes, and one activation is met by `r` weights at once.
//!
//! Three things are not left as they are: scales of 16 bits stand together, `r` of one kind and then `r` of
//! another; scales that are bare exponents (MXFP4) are widened to 16 bits; and signed codes (Q8_0) are made
//! unsigned by turning their top bit over. Nothing of a block is lost, so the stored form comes back exactly.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use tensor::{Hold, IN, OUT, PlaneAxis, PlaneSpec, Scheme};

use crate::codec::{Codec, Matrix};
use crate::repack::unpack_unit;
use crate::scheme::{self as s, Block};

/// Which part of a stored record becomes the next vectors of a unit. Offsets are bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// One vector of two 16-bit scales: `r` of the first, `r` of the second (zeros where there is none).
    Scales(usize, Option<usize>),
    /// One vector of two exponents (E8M0), as scales that are half of what they stand for, in bfloat16.
    Powers(usize, usize),
    /// This many vectors of words as they are. At least 4.
    Words(usize, usize),
    /// This many vectors of words of signed bytes, made unsigned. A multiple of 4.
    Signed(usize, usize),
}

impl Field {
    /// Vectors that the field fills.
    pub(crate) const fn vectors(self) -> usize {
        match self {
            Field::Scales(..) | Field::Powers(..) => 1,
            Field::Words(_, n) | Field::Signed(_, n) => n,
        }
    }
}

/// What the codes of a block mean to the kernels.
#[derive(Clone, Copy)]
pub(crate) enum Codes {
    /// Blocks of 32 with one scale.
    Plain(Plain),
    /// Eight sub-blocks of 32 with a scale and a minimum each; the codes have a fifth bit if `five`.
    ScaleMin { five: bool },
    /// Eight sub-blocks of 32 with a signed scale each, codes of four bits that stand for the values of a list.
    ScaleListed(&'static Listed),
    /// Sixteen sub-blocks of 16 with a scale and a minimum each, codes of two bits.
    TwoBit,
    /// Sixteen sub-blocks of 16 with a signed scale each, codes of three bits with zero point 4.
    ThreeBit,
    /// Sixteen sub-blocks of 16 with a signed scale each, codes of six bits with zero point 32.
    SixBit,
}

/// The codes of a block of 32 with one scale.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    /// Bits of a code: 4, 5 or 8.
    pub(crate) bits: u32,
    pub(crate) means: Means,
    pub(crate) scale: Number,
}

impl Plain {
    /// Unsigned codes whose zero point is half of their range, and a scale in binary16.
    pub(crate) const fn zero(bits: u32) -> Codes {
        Codes::Plain(Plain { bits, means: Means::Zero, scale: Number::F16 })
    }

    /// Unsigned codes with a scale and a minimum in binary16.
    pub(crate) const fn min(bits: u32) -> Codes {
        Codes::Plain(Plain { bits, means: Means::Min, scale: Number::F16 })
    }

    /// Codes of four bits that stand for the values of a list.
    pub(crate) const fn listed(list: &'static Listed, scale: Number) -> Codes {
        Codes::Plain(Plain { bits: 4, means: Means::Listed(list), scale })
    }
}

/// What the codes of a [`Plain`] block stand for, but for the scale.
#[derive(Clone, Copy)]
pub(crate) enum Means {
    /// Themselves; and there is a minimum.
    Min,
    /// Themselves less a zero point, which is half of their range.
    Zero,
    /// The values of a list.
    Listed(&'static Listed),
}

/// How 16 bits are a number.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    F16,
    BF16,
}

/// Sixteen values, made unsigned.
pub(crate) struct Listed {
    /// What `zero` is added to.
    pub(crate) values: [u8; 16],
    /// The zero point.
    pub(crate) zero: i32,
    /// Bits of the largest of `values`, at least 5.
    pub(crate) bits: u32,
}

impl Listed {
    pub(crate) const fn of(values: [i8; 16], zero: u8) -> Listed {
        let (mut raised, mut max, mut i) = ([0; 16], 16, 0);
        while i < 16 {
            raised[i] = zero.strict_add_signed(values[i]);
            max |= raised[i];
            i += 1;
        }
        Listed { values: raised, zero: zero as i32, bits: max.ilog2() + 1 }
    }
}

/// A block scheme that has row-interleaved forms.
pub(crate) trait Packed: Block {
    /// What the codes mean.
    const CODES: Codes;
    /// The vectors of a unit, in order. Two blocks make a record if `PER` is 32.
    const FIELDS: &'static [Field];

    /// Blocks of one row in one unit.
    const BLOCKS: usize = if Self::PER == 32 { 2 } else { 1 };
    /// Elements of one row in one unit.
    const UNIT: usize = Self::BLOCKS * Self::PER;
    /// Bytes that one row stores for one unit.
    const RECORD: usize = Self::BLOCKS * Self::BYTES;
    /// Vectors in one unit.
    const VECTORS: usize = {
        let (mut n, mut i) = (0, 0);
        while i < Self::FIELDS.len() {
            n += Self::FIELDS[i].vectors();
            i += 1;
        }
        n
    };
}

/// What [`crate::repack`] needs to know of a [`Packed`] scheme, as data.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) fields: &'static [Field],
    /// Elements of one row in one unit.
    pub(crate) unit: usize,
    /// Bytes of one row in one unit, as stored.
    pub(crate) stored: usize,
    /// Bytes of a unit are this times `4 * r`.
    pub(crate) vectors: usize,
}

impl Record {
    pub(crate) const fn of<S: Packed>() -> Record {
        Record { fields: S::FIELDS, unit: S::UNIT, stored: S::RECORD, vectors: S::VECTORS }
    }
}

/// Bytes of the longest record.
pub(crate) const RECORD_MAX: usize = 210;
/// Rows of the largest group.
pub(crate) const ROWS_MAX: usize = 16;

/// A codec of a row-interleaved form: a cell is a unit.
struct Interleaved<S> {
    name: &'static str,
    r: usize,
    stored: PhantomData<fn() -> S>,
}

impl<S: Packed> Codec for Interleaved<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        let axes = vec![
            PlaneAxis::Cells { axis: OUT, per: self.r as u64, hold: Hold::Packed },
            PlaneAxis::Cells { axis: IN, per: S::UNIT as u64, hold: Hold::Packed },
        ];
        let bytes = (4 * self.r * S::VECTORS) as u64;
        let plane = PlaneSpec { axes: Cow::Owned(axes), ..PlaneSpec::new("units", bytes, &[]) };
        Arc::new(Scheme { name: Cow::Borrowed(self.name), trailing: 2, planes: Cow::Owned(vec![plane]) })
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let ([units], k, r) = (matrix.planes(), matrix.k, self.r);
        assert!(k.is_multiple_of(S::UNIT), "{k} columns are not units of {}", S::UNIT);
        assert_eq!(out.len(), rows.len() * k, "values of rows {rows:?}");
        let unit_bytes = 4 * r * S::VECTORS;
        let group_bytes = k / S::UNIT * unit_bytes;
        let mut stored = [0; ROWS_MAX * RECORD_MAX];
        let stored = &mut stored[..r * S::RECORD];
        for group in rows.start / r..rows.end.div_ceil(r) {
            let units = &units[group * group_bytes..][..group_bytes];
            let ours = (group * r).max(rows.start)..((group + 1) * r).min(rows.end);
            for (u, unit) in units.chunks_exact(unit_bytes).enumerate() {
                unpack_unit(&Record::of::<S>(), r, unit, stored);
                for row in ours.clone() {
                    let out = &mut out[(row - rows.start) * k + u * S::UNIT..][..S::UNIT];
                    blocks::<S>(&stored[row % r * S::RECORD..][..S::RECORD], out);
                }
            }
        }
    }
}

/// Writes the values of the stored blocks `stored`.
fn blocks<S: Packed>(stored: &[u8], out: &mut [f32]) {
    for (block, out) in stored.chunks_exact(S::BYTES).zip(out.chunks_exact_mut(S::PER)) {
        S::block(block, out);
    }
}

/// One row of the table of interleaved forms.
pub(crate) struct Form {
    /// The scheme as stored.
    pub(crate) stored: &'static str,
    /// Rows in a group.
    pub(crate) r: usize,
    /// The layout.
    pub(crate) record: Record,
    /// The codec, whose name is that of the form.
    pub(crate) codec: &'static dyn Codec,
}

macro_rules! forms {
    ($($scheme:ident $r8:literal $r16:literal;)*) => {
        &[$(forms!(@ $scheme $r8 8), forms!(@ $scheme $r16 16),)*]
    };
    (@ $scheme:ident $name:literal $r:literal) => {
        Form {
            stored: <s::$scheme as Block>::NAME,
            r: $r,
            record: Record::of::<s::$scheme>(),
            codec: &Interleaved::<s::$scheme> { name: $name, r: $r, stored: PhantomData },
        }
    };
}

/// Every interleaved form.
pub(crate) const FORMS: &[Form] = forms! {
    Q4_0 "q4_0.r8" "q4_0.r16";
    Q4_1 "q4_1.r8" "q4_1.r16";
    Q5_0 "q5_0.r8" "q5_0.r16";
    Q5_1 "q5_1.r8" "q5_1.r16";
    Q8_0 "q8_0.r8" "q8_0.r16";
    IQ4NL "iq4_nl.r8" "iq4_nl.r16";
    MXFP4 "mxfp4.r8" "mxfp4.r16";
    Q2K "q2_k.r8" "q2_k.r16";
    Q3K "q3_k.r8" "q3_k.r16";
    Q4K "q4_k.r8" "q4_k.r16";
    Q5K "q5_k.r8" "q5_k.r16";
    Q6K "q6_k.r8" "q6_k.r16";
    IQ4XS "iq4_xs.r8" "iq4_xs.r16";
};

/// The geometry of every form.
pub(crate) static SCHEMES: LazyLock<Vec<Arc<Scheme>>> =
    LazyLock::new(|| FORMS.iter().map(|f| f.codec.scheme()).collect());

/// The form called `name`, if it is an interleaved one.
pub(crate) fn form(name: &str) -> Option<&'static Form> {
    FORMS.iter().find(|f| f.codec.name() == name)
}

/// The interleaved form of the scheme called `stored` with `r` rows in a group, if it has one. `r` is 8 or 16;
/// see [`crate::Isa::interleave`].
///
/// A matrix can only take this form if its rows are a multiple of `r` and its columns one of the unit (64 or
/// 256): [`Scheme::byte_len`] says so, and the caller keeps the stored form.
pub fn interleaved(stored: &str, r: usize) -> Option<Arc<Scheme>> {
    let i = FORMS.iter().position(|f| f.stored == stored && f.r == r)?;
    Some(Arc::clone(&SCHEMES[i]))
}

#[cfg(test)]
mod tests {
    use tensor::{SchemeError, Shape};

    use super::*;

    #[test]
    fn names_say_the_scheme_and_the_rows_and_the_geometry_refuses_a_ragged_matrix() {
        for f in FORMS {
            assert_eq!(f.codec.name(), format!("{}.r{}", f.stored, f.r));
            assert_eq!(interleaved(f.stored, f.r).unwrap().name, f.codec.name());
        }
        let (rows, columns) = (Shape::from([15, 64]), Shape::from([16, 96]));
        let q4_0 = interleaved("q4_0", 16).unwrap();
        assert_eq!(q4_0.byte_len(&rows), Err(SchemeError::Ragged { axis: 0, extent: 15, per: 16 }));
        assert_eq!(q4_0.byte_len(&columns), Err(SchemeError::Ragged { axis: 1, extent: 96, per: 64 }));
        assert!(interleaved("q4_0", 4).is_none());
        assert!(interleaved("f16", 16).is_none());
    }

    #[test]
    fn fields_take_every_stored_byte_once_and_units_of_sixteen_rows_keep_cache_lines() {
        for f in FORMS {
            let mut seen = vec![0; f.record.stored];
            for field in f.record.fields {
                let (first, second) = match *field {
                    Field::Scales(first, second) => (first..first + 2, second.map_or(0..0, |s| s..s + 2)),
                    Field::Powers(first, second) => (first..first + 1, second..second + 1),
                    Field::Words(at, n) | Field::Signed(at, n) => (at..at + 4 * n, 0..0),
                };
                assert!(!matches!(field, Field::Words(_, ..4) | Field::Signed(_, ..4)), "whole gathers");
                first.chain(second).for_each(|at| seen[at] += 1);
            }
            assert!(seen.iter().all(|&n| n == 1), "`{}`: {seen:?}", f.codec.name());
            assert!(f.r != 16 || f.codec.cell_bytes() % 64 == 0, "`{}`", f.codec.name());
            assert!(f.r <= ROWS_MAX && f.record.stored <= RECORD_MAX, "`{}`", f.codec.name());
        }
    }
}
