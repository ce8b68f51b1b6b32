//! Row-interleaved forms of the block schemes, `q4_1.r16` and the like, made for the processor.
//!
//! A matrix `[out, in]` is cut into groups of `r` rows, and each group along `in` into *units* of 64 elements
//! (256 for schemes of 256-element blocks). What one row stores in that stretch, one or two blocks, is seen as
//! 32-bit words. The unit holds them word by word, each word `r` times, once for each row: a *vector* of
//! `4 * r` bytes that loads into one register, lane `i` for row `i`. So a product with `r` rows needs no sum
//! across lanes, and one activation is met by `r` weights at once.
//!
//! Two things are not left as they are: scales of 16 bits stand together, `r` of one kind and then `r` of
//! another, and signed codes (Q8_0) are made unsigned by turning their top bit over. Every bit of a block is
//! kept, so the stored form comes back exactly.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use tensor::{Hold, IN, OUT, PlaneAxis, PlaneSpec, Scheme};

use crate::codec::{Codec, Matrix};
use crate::scheme::{self as s, Block};

/// Which part of a stored record becomes the next vectors of a unit. Offsets are bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// One vector of two 16-bit scales: `r` of the first, `r` of the second (zeros where there is none).
    Scales(usize, Option<usize>),
    /// This many vectors of words as they are. At least 4.
    Words(usize, usize),
    /// This many vectors of words of signed bytes, made unsigned. A multiple of 4.
    Signed(usize, usize),
}

impl Field {
    /// Vectors that the field fills.
    pub(crate) const fn vectors(self) -> usize {
        match self {
            Field::Scales(..) => 1,
            Field::Words(_, n) | Field::Signed(_, n) => n,
        }
    }
}

/// What the codes of a block mean to the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Blocks of 32 with one scale: unsigned codes of `bits`, and either a minimum or a zero point.
    Plain { bits: u32, min: bool },
    /// Eight sub-blocks of 32 with a scale and a minimum each; the codes have a fifth bit if `five`.
    ScaleMin { five: bool },
    /// Sixteen sub-blocks of 16 with a signed scale each, codes of six bits with zero point 32.
    SixBit,
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

    /// Copies what row `lane` holds in a unit of `r` rows from `stored`, which may end early: what is missing
    /// is zero.
    pub(crate) fn put(&self, r: usize, lane: usize, stored: &[u8], unit: &mut [u8]) {
        let byte = |at: usize| stored.get(at).copied().unwrap_or(0);
        self.each(r, lane, |at, to, flip| unit[to] = at.map_or(0, byte) ^ flip);
    }

    /// The inverse of [`Record::put`].
    pub(crate) fn take(&self, r: usize, lane: usize, unit: &[u8], stored: &mut [u8]) {
        self.each(r, lane, |at, from, flip| {
            if let Some(to) = at.and_then(|at| stored.get_mut(at)) {
                *to = unit[from] ^ flip;
            }
        });
    }

    /// Calls `f(offset in the record, offset in the unit, bits to turn over)` for every byte of the unit that
    /// belongs to row `lane`. This is the definition of the layout.
    #[inline(always)]
    fn each(&self, r: usize, lane: usize, mut f: impl FnMut(Option<usize>, usize, u8)) {
        let mut vector = 0;
        for field in self.fields {
            match *field {
                Field::Scales(first, second) => {
                    for i in 0..2 {
                        f(Some(first + i), vector + 2 * lane + i, 0);
                        f(second.map(|s| s + i), vector + 2 * r + 2 * lane + i, 0);
                    }
                }
                Field::Words(at, n) | Field::Signed(at, n) => {
                    let flip = if matches!(field, Field::Signed(..)) { 0x80 } else { 0 };
                    for (word, i) in (0..n).flat_map(|word| (0..4).map(move |i| (word, i))) {
                        f(Some(at + 4 * word + i), vector + 4 * r * word + 4 * lane + i, flip);
                    }
                }
            }
            vector += 4 * r * field.vectors();
        }
    }
}

/// Bytes of the longest record.
const RECORD_MAX: usize = 210;

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
        let ([units], k) = (matrix.planes(), matrix.k);
        assert!(k.is_multiple_of(S::UNIT), "{k} columns are not units of {}", S::UNIT);
        assert_eq!(out.len(), rows.len() * k, "values of rows {rows:?}");
        let unit_bytes = 4 * self.r * S::VECTORS;
        let group_bytes = k / S::UNIT * unit_bytes;
        let mut stored = [0; RECORD_MAX];
        for (row, out) in rows.zip(out.chunks_exact_mut(k.max(1))) {
            let group = &units[row / self.r * group_bytes..][..group_bytes];
            for (unit, out) in group.chunks_exact(unit_bytes).zip(out.chunks_exact_mut(S::UNIT)) {
                Record::of::<S>().take(self.r, row % self.r, unit, &mut stored[..S::RECORD]);
                blocks::<S>(&stored[..S::RECORD], out);
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
    Q4K "q4_k.r8" "q4_k.r16";
    Q5K "q5_k.r8" "q5_k.r16";
    Q6K "q6_k.r8" "q6_k.r16";
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
    fn every_stored_byte_is_in_the_unit_once_and_units_of_sixteen_rows_keep_cache_lines() {
        for f in FORMS {
            let mut seen = vec![0; f.record.stored];
            let mut filled = vec![0; f.codec.cell_bytes()];
            for lane in 0..f.r {
                f.record.each(f.r, lane, |at, to, _| {
                    filled[to] += 1;
                    if let Some(at) = at {
                        seen[at] += 1;
                    }
                });
            }
            assert!(seen.iter().all(|&n| n == f.r), "`{}`: {seen:?}", f.codec.name());
            assert!(filled.iter().all(|&n| n == 1), "`{}`", f.codec.name());
            assert!(f.r != 16 || f.codec.cell_bytes() % 64 == 0, "`{}`", f.codec.name());
        }
    }
}
