//! Compares the values of one parameter with those of another, whatever schemes both are stored in.

use std::ops::Range;

use load::{Pool, Tensor};
use quant::{Codec, Difference, Matrix};
use tensor::Shape;

use super::Outcome;
use tensor::Bands;

/// Values that a thread decodes of each at a time: both stay in a core's cache.
const AT_ONCE: u64 = 1 << 16;
/// Bytes that a thread compares at a time.
const BYTES: usize = 1 << 20;

/// Compares two tensors of one shape: first their bytes, if they are encoded alike, then their values.
///
/// # Errors
/// Invalid data in one of them.
pub(super) fn compare(a: &Tensor, b: &Tensor, pool: &mut Pool) -> Result<Outcome, quant::BadData> {
    if a.scheme() == b.scheme() && same_bytes(a, b, pool) {
        return Ok(Outcome::Identical);
    }
    let elements = a.shape().elements().unwrap_or(0);
    if elements == 0 {
        return Ok(Outcome::SameValues);
    }
    let (Some(of_a), Some(of_b)) = (Values::of(a)?, Values::of(b)?) else { return Ok(Outcome::Opaque) };
    let width = of_a.bands.k.max(of_b.bands.k);
    let matrix = of_a.matrix().min(of_b.matrix());
    let step = (AT_ONCE / width).max(1) * width;
    let mut parts: Vec<ComparedRange> = (0..elements / matrix)
        .flat_map(|m| {
            let starts = (0..matrix.div_ceil(step)).map(move |i| m * matrix + i * step);
            starts.map(move |at| at..(at + step).min((m + 1) * matrix))
        })
        .map(|range| ComparedRange { range, found: Outcome::SameValues })
        .collect();
    let mut scratch: Vec<[Vec<f32>; 2]> = (0..pool.threads()).map(|_| [vec![], vec![]]).collect();
    pool.chunks(&mut scratch, &mut parts, 1, |[x, y], _, parts| {
        for part in parts {
            of_a.decode(&part.range, x);
            of_b.decode(&part.range, y);
            part.found = values(x, y);
        }
    });
    let all = parts.into_iter().map(|part| part.found).reduce(Outcome::and).unwrap_or(Outcome::SameValues);
    Ok(match all {
        Outcome::Values { unequal: 0, .. } => Outcome::SameValues,
        other => other,
    })
}

/// Some values of both, and how they compare.
struct ComparedRange {
    range: Range<u64>,
    found: Outcome,
}

/// Compares as many values. Zeros of both signs are equal, and no number is as good as another.
#[expect(clippy::float_cmp, reason = "whether they are equal is the question")]
fn values(x: &[f32], y: &[f32]) -> Outcome {
    let (mut unequal, mut not_finite) = (0u64, 0u64);
    for (x, y) in x.iter().zip(y) {
        unequal += u64::from(x != y && !(x.is_nan() && y.is_nan()));
        not_finite += u64::from(x.is_finite() != y.is_finite());
    }
    Outcome::Values { difference: Difference::of(x, y), unequal, not_finite }
}

fn same_bytes(a: &Tensor, b: &Tensor, pool: &mut Pool) -> bool {
    let (a, b) = (a.planes(), b.planes());
    let mut same: Vec<(&[u8], &[u8], bool)> = a
        .iter()
        .zip(b.iter())
        .flat_map(|(a, b)| a.chunks(BYTES).zip(b.chunks(BYTES)))
        .map(|(a, b)| (a, b, false))
        .collect();
    let mut nothing = vec![(); pool.threads()];
    pool.chunks(&mut nothing, &mut same, 1, |(), _, parts| {
        for (a, b, same) in parts {
            *same = a == b;
        }
    });
    let lengths = a.iter().map(|p| p.len()).eq(b.iter().map(|p| p.len()));
    lengths && same.iter().all(|(_, _, same)| *same)
}

/// The values of a tensor, in row-major order.
struct Values<'a> {
    codec: &'static dyn Codec,
    bands: Bands<'a>,
    planes: Vec<&'a [u8]>,
}

impl<'a> Values<'a> {
    /// Returns `None` if no codec knows the values, or there are none.
    fn of(tensor: &'a Tensor) -> Result<Option<Values<'a>>, quant::BadData> {
        let shape: &Shape = tensor.shape();
        let (Some(codec), Some(bands)) =
            (quant::codec(&tensor.scheme().name), Bands::of(tensor.scheme(), shape))
        else {
            return Ok(None);
        };
        let values = Values { codec, bands, planes: tensor.planes().to_vec() };
        for m in 0..values.bands.matrices {
            values.matrix_at(m, |matrix| codec.check(matrix))?;
        }
        Ok(Some(values))
    }

    /// Values of one matrix.
    fn matrix(&self) -> u64 {
        self.bands.rows * self.bands.k
    }

    fn matrix_at<T>(&self, m: u64, f: impl FnOnce(Matrix<'_>) -> T) -> T {
        let all = 0..self.bands.rows;
        let part = |(i, plane): (usize, &&'a [u8])| {
            let range = self.bands.bytes(i, m, &all);
            &plane[size(range.start)..size(range.end)]
        };
        let planes: Vec<&[u8]> = self.planes.iter().enumerate().map(part).collect();
        f(Matrix { planes: &planes, rows: size(self.bands.rows), k: size(self.bands.k) })
    }

    /// The values `range`, whole rows of one matrix, to `out`.
    fn decode(&self, range: &Range<u64>, out: &mut Vec<f32>) {
        let m = range.start / self.matrix();
        let row = |at: u64| size((at - m * self.matrix()) / self.bands.k);
        out.resize(size(range.end - range.start), 0.0);
        let rows = row(range.start)..row(range.end);
        self.matrix_at(m, |matrix| self.codec.decode(matrix, rows, out));
    }
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
