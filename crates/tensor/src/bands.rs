//! Tensors cut into bands of rows whose planes can be read and decoded apart from the others'.

use std::ops::Range;

use crate::{Rows, Scheme, Shape};

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
    /// A band begins at a multiple of so many rows.
    unit: u64,
}

impl<'a> Bands<'a> {
    /// A tensor of `shape` in `scheme`, which takes it. The values of a plain tensor are rows of one each; `None`
    /// if there are no values.
    pub fn of(scheme: &'a Scheme, shape: &Shape) -> Option<Bands<'a>> {
        let product = |axes: &[u64]| axes.iter().try_fold(1u64, |n, x| n.checked_mul(*x));
        let (matrices, rows, k) = match (scheme.trailing, &shape[..]) {
            (0, all) => (1, product(all)?, 1),
            (1, [rows @ .., k]) => (1, product(rows)?, *k),
            (_, [lead @ .., rows, k]) => (product(lead)?, *rows, *k),
            _ => return None,
        };
        if matrices == 0 || rows == 0 || k == 0 {
            return None;
        }
        let sizes = scheme.planes.iter().map(|p| Some(scheme.plane_bytes(p, shape).ok()? / matrices));
        let unit = scheme.planes.iter().fold(1, |unit, plane| match scheme.rows_in(plane) {
            Rows::Bands(per) => lcm(unit, per),
            Rows::Whole => unit,
            Rows::Scattered => rows,
        });
        Some(Bands { scheme, sizes: sizes.collect::<Option<_>>()?, matrices, rows, k, unit: unit.min(rows) })
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
        let within = match self.scheme.rows_in(&self.scheme.planes[plane]) {
            Rows::Bands(per) => {
                let run = size / self.rows.div_ceil(per);
                rows.start / per * run..rows.end.div_ceil(per) * run
            }
            Rows::Whole | Rows::Scattered => 0..size,
        };
        matrix * size + within.start..matrix * size + within.end
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}
