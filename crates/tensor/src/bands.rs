//! Tensors cut into bands of rows whose planes can be read, decoded and written apart from the others'.

use std::ops::Range;

use crate::{Lines, Rows, Scheme, Shape};

impl Shape {
    /// The shape as equal matrices: how many, the rows of each, and the values of a row. The last two axes are a matrix
    /// where a scheme has two trailing axes; else all axes but the last are rows. `None` if a number is too large, or there
    /// are fewer axes than trailing ones.
    pub fn matrices(&self, trailing: usize) -> Option<(u64, u64, u64)> {
        let product = |axes: &[u64]| axes.iter().try_fold(1u64, |n, x| n.checked_mul(*x));
        let lead = if trailing < 2 { 0 } else { self.len().checked_sub(2)? };
        let (rows, k) = match &self[lead..] {
            [] => (1, 1),
            [rows @ .., k] => (product(rows)?, *k),
        };
        Some((product(&self[..lead])?, rows, k))
    }
}

impl Scheme {
    /// The bytes of plane `plane` that rows `band` lie in, of a matrix of `rows` rows that takes `len` bytes of the plane.
    ///
    /// # Panics
    /// If there is no such plane.
    pub fn band_bytes(&self, plane: usize, len: u64, rows: u64, band: &Range<u64>) -> Range<u64> {
        self.line_bytes(Lines::Rows, plane, len, rows, band)
    }

    /// The bytes of plane `plane` that rows or columns `band` lie in, of a matrix of `count` of them that takes `len` bytes of the
    /// plane.
    ///
    /// # Panics
    /// If there is no such plane.
    pub fn line_bytes(
        &self,
        lines: Lines,
        plane: usize,
        len: u64,
        count: u64,
        band: &Range<u64>,
    ) -> Range<u64> {
        match self.lines_in(&self.planes[plane], lines) {
            Rows::Bands(per) => {
                let run = len / count.div_ceil(per);
                band.start / per * run..band.end.div_ceil(per) * run
            }
            Rows::Whole | Rows::Scattered => 0..len,
        }
    }
}

/// The number of rows or columns that can be read in the scheme `read`, and written in all of `written`, apart from the others of
/// a matrix of `count`: a band begins at a multiple of it.
pub fn band_unit<'a>(
    lines: Lines,
    read: &Scheme,
    written: impl IntoIterator<Item = &'a Scheme>,
    count: u64,
) -> u64 {
    let units = |scheme: &Scheme, whole: u64| {
        let unit = scheme.planes.iter().map(|plane| match scheme.lines_in(plane, lines) {
            Rows::Bands(per) => per,
            Rows::Whole => whole,
            Rows::Scattered => count,
        });
        unit.fold(1, lcm)
    };
    // Several bands may read one plane, but only one may write it.
    written.into_iter().fold(units(read, 1), |unit, scheme| lcm(unit, units(scheme, count))).min(count)
}

/// A tensor as equal matrices of rows.
#[derive(Debug)]
pub struct Bands<'a> {
    scheme: &'a Scheme,
    /// Bytes of each plane that one matrix has.
    sizes: Vec<u64>,
    /// How many matrices.
    pub matrices: u64,
    /// Rows of each.
    pub rows: u64,
    /// Values of a row.
    pub k: u64,
    /// The rows that the start of a band is a multiple of.
    unit: u64,
}

impl<'a> Bands<'a> {
    /// A tensor of `shape` in `scheme`, which takes it. The values of a plain tensor are rows of one each; `None`
    /// if there are no values.
    pub fn of(scheme: &'a Scheme, shape: &Shape) -> Option<Bands<'a>> {
        let (matrices, rows, k) = shape.matrices(scheme.trailing)?;
        let (rows, k) = if scheme.trailing == 0 { (rows.checked_mul(k)?, 1) } else { (rows, k) };
        if matrices == 0 || rows == 0 || k == 0 {
            return None;
        }
        let sizes = scheme.planes.iter().map(|p| Some(scheme.plane_bytes(p, shape).ok()? / matrices));
        let unit = band_unit(Lines::Rows, scheme, [], rows);
        Some(Bands { scheme, sizes: sizes.collect::<Option<_>>()?, matrices, rows, k, unit })
    }

    /// The rows of each band of one matrix, about `bytes` in each.
    pub fn cut(&self, bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let rows = self.rows;
        let all: u64 = self.sizes.iter().sum::<u64>().max(1);
        let step = u128::from(rows) * u128::from(bytes) / u128::from(all);
        let step = u64::try_from(step).unwrap_or(u64::MAX).clamp(1, rows);
        let step = step.next_multiple_of(self.unit);
        let bands = rows.div_ceil(step);
        (0..bands).map(move |i| i * step..((i + 1) * step).min(rows))
    }

    /// The bytes of `plane` that rows `rows` of a matrix need.
    pub fn bytes(&self, plane: usize, matrix: u64, rows: &Range<u64>) -> Range<u64> {
        let size = self.sizes[plane];
        let within = self.scheme.band_bytes(plane, size, self.rows, rows);
        matrix * size + within.start..matrix * size + within.end
    }
}

/// The least common multiple, at most the largest number.
pub fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}
