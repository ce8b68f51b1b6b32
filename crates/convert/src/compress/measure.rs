//! What each encoding would cost a matrix.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};

use load::{Destination, Place, Pool, Sink};
use quant::Matrix;
use tensor::{Hold, OUT, PlaneAxis, Scheme, Shape, lcm};

use super::{Candidate, Guide};
use crate::{Conversion, Error};

/// Values of a matrix that are encoded to measure, at most, but for one row.
const SAMPLE: usize = 1 << 20;

/// Rows that one thread encodes at a time: a multiple of what any scheme has in common.
const ROWS: usize = 128;

/// Units of magnitudes in 1.
const UNIT: f64 = (1u64 << 40) as f64;

/// How far the largest values stand out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outliers {
    /// The largest magnitude of a row over the mean of the row: of the row where that is most.
    pub row: f64,
    /// The largest magnitude over the mean of all.
    pub tensor: f64,
}

/// The result of measuring a matrix.
pub(super) struct Measured {
    pub(super) candidates: Vec<Candidate>,
    pub(super) outliers: Outliers,
}

/// Some rows of a matrix as floats.
pub(super) struct Taken {
    /// `[rows taken, k]`.
    pub(super) values: Vec<f32>,
    pub(super) k: usize,
    /// The distance of rows that are taken.
    step: usize,
    /// Rows of the whole.
    rows: usize,
    outliers: Outliers,
    shape: Shape,
    /// How it is stored.
    own: Option<Arc<Scheme>>,
}

impl Taken {
    /// Decodes the parameter called `name` of `decoded`.
    pub(super) fn of(
        decoded: &Conversion<'_>,
        name: &str,
        memory: Option<u64>,
        pool: &mut Pool,
    ) -> Result<Taken, Error> {
        let plan = decoded.one(name).ok_or_else(|| not_there(name))?;
        let param = plan.params().first().ok_or_else(|| not_there(name))?;
        let own = param.stored().next().cloned();
        let shape = param.shape.clone();
        let mut rows = Rows::of(&shape);
        plan.load_into(&mut rows, pool, load::Options { memory, ..load::Options::default() })?;
        let outliers = rows.outliers();
        let values = rows.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Taken { values, k: rows.k, step: rows.step, rows: rows.count, outliers, shape, own })
    }

    /// Rows of the whole for each that was taken.
    pub(super) fn share(&self) -> f64 {
        self.rows as f64 * self.k as f64 / self.values.len().max(1) as f64
    }

    /// The sum of the squares of errors in `scheme` if columns are multiplied by `scale` before, each times the importance of its
    /// column.
    pub(super) fn lost_scaled(
        &self,
        scheme: &Arc<Scheme>,
        scale: &[f32],
        importance: &[f32],
        pool: &mut Pool,
    ) -> f64 {
        let scaled =
            self.values.chunks_exact(self.k).flat_map(|row| row.iter().zip(scale).map(|(x, s)| x * s));
        let scaled: Vec<f32> = scaled.collect();
        let importance: Vec<f32> = importance.iter().zip(scale).map(|(w, s)| w / (s * s)).collect();
        let guide = Guide { importance: Some(&importance), sensitivity: None };
        let sample = Sample { values: &scaled, k: self.k, step: self.step, rows: self.rows, guide: &guide };
        sample.lost(scheme, pool).0
    }
}

/// Encodes rows of the parameter called `name` of `decoded` in each of `schemes`.
pub(super) fn measure(
    decoded: &Conversion<'_>,
    name: &str,
    schemes: &[Arc<Scheme>],
    guide: &Guide<'_>,
    memory: Option<u64>,
    pool: &mut Pool,
) -> Result<Measured, Error> {
    let Taken { values, k, step, rows, outliers, shape, own } = Taken::of(decoded, name, memory, pool)?;
    let sample = Sample { values: &values, k, step, rows, guide };
    let mut candidates = vec![];
    for scheme in schemes {
        // What is kept as it is has no error.
        let (lost, of, plain) = match &own {
            Some(own) if own == scheme => (0.0, 1.0, 0.0),
            _ => sample.lost(scheme, pool),
        };
        let scale = rows as f64 / sample.taken().max(1) as f64;
        let cost = guide
            .sensitivity
            .map_or(0.0, |by| by.product * lost * scale + by.lookup * plain * scale / rows.max(1) as f64);
        candidates.push(Candidate {
            scheme: Arc::clone(scheme),
            bytes: scheme.byte_len(&shape).unwrap_or(u64::MAX),
            error: if lost > 0.0 { (lost / of).sqrt() } else { 0.0 },
            cost,
        });
    }
    Ok(Measured { candidates, outliers })
}

fn not_there(name: &str) -> Error {
    Error::Convert { what: tensor::Diagnostic::new(format!("`{name}` is not in the result")).into() }
}

/// Takes a matrix as floats: keeps some of its rows, and the largest magnitude of each.
struct Rows {
    k: usize,
    count: usize,
    /// The distance of rows that are taken.
    step: usize,
    taken: Mutex<Vec<f32>>,
    /// The sum of the magnitudes of each row, in units of 2^-40, and the largest. Whole numbers have the same sum in any order.
    magnitudes: Mutex<Vec<(u128, f32)>>,
}

impl Rows {
    fn of(shape: &Shape) -> Rows {
        let k = shape.last().and_then(|k| usize::try_from(*k).ok()).unwrap_or(1).max(1);
        let all = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let count = all / k;
        let step = all.div_ceil(SAMPLE).max(1);
        let taken = Mutex::new(vec![0.0; count.div_ceil(step) * k]);
        Rows { k, count, step, taken, magnitudes: Mutex::new(vec![(0, 0.0); count]) }
    }

    fn outliers(&self) -> Outliers {
        let all = self.magnitudes.lock().unwrap_or_else(PoisonError::into_inner);
        let ratio = |largest: f32, sum: u128, n: usize| {
            if sum > 0 { f64::from(largest) * n as f64 * UNIT / sum as f64 } else { 0.0 }
        };
        let row = all.iter().map(|(sum, largest)| ratio(*largest, *sum, self.k)).fold(0.0, f64::max);
        let sum = all.iter().fold(0u128, |sum, (row, _)| sum.saturating_add(*row));
        let largest = all.iter().map(|(_, largest)| *largest).fold(0.0, f32::max);
        Outliers { row, tensor: ratio(largest, sum, self.k * self.count) }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a magnitude becomes the nearest whole number, the largest one if it is larger"
)]
fn units(x: f32) -> u128 {
    (f64::from(x.abs()) * UNIT) as u128
}

impl Sink<'static> for Rows {
    fn place(&mut self, _: &Place<'_>) -> Result<Destination<'static>, Box<dyn StdError + Send + Sync>> {
        Ok(Destination::Write)
    }

    fn write(
        &self,
        _: &Place<'_>,
        _: usize,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let mut at = usize::try_from(at)? / 4;
        let mut values = bytes.as_chunks::<4>().0;
        while !values.is_empty() {
            let (row, column) = (at / self.k, at % self.k);
            let (part, rest) = values.split_at(values.len().min(self.k - column));
            let part: Vec<f32> = part.iter().map(|x| f32::from_le_bytes(*x)).collect();
            let sum = part.iter().fold(0u128, |sum, x| sum.saturating_add(units(*x)));
            let largest = part.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            {
                let mut all = self.magnitudes.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(of) = all.get_mut(row) {
                    *of = (of.0.saturating_add(sum), of.1.max(largest));
                }
            }
            if row.is_multiple_of(self.step) {
                let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
                let start = row / self.step * self.k + column;
                if let Some(place) = taken.get_mut(start..start + part.len()) {
                    place.copy_from_slice(&part);
                }
            }
            at += part.len();
            values = rest;
        }
        Ok(())
    }
}

/// The number of rows that cells of `scheme` pack.
fn rows_of_a_cell(scheme: &Scheme) -> usize {
    let axes = scheme.planes.iter().flat_map(|plane| plane.axes.iter());
    let rows = axes.filter_map(|axis| match axis {
        PlaneAxis::Cells { axis: OUT, per, hold: Hold::Packed } => Some(*per),
        _ => None,
    });
    usize::try_from(rows.fold(1, lcm)).unwrap_or(usize::MAX)
}

/// Some rows of a matrix.
struct Sample<'a> {
    values: &'a [f32],
    k: usize,
    step: usize,
    /// Of the whole.
    rows: usize,
    guide: &'a Guide<'a>,
}

impl Sample<'_> {
    /// How many rows there are.
    fn taken(&self) -> usize {
        self.values.len() / self.k
    }

    /// The columns' importance for row `row` of the sample, if it is known.
    fn importance(&self, row: usize) -> Option<&[f32]> {
        let all = self.guide.importance?;
        let matrices = (all.len() / self.k).max(1);
        // Rows of a stack: as many of each matrix.
        let of = (row * self.step) * matrices / self.rows.max(1);
        all.get(of.min(matrices - 1) * self.k..)?.get(..self.k)
    }

    /// The sums of the squares of errors in `scheme`, weighted; of the values, weighted; and of the errors, unweighted.
    fn lost(&self, scheme: &Arc<Scheme>, pool: &mut Pool) -> (f64, f64, f64) {
        let codec = quant::codec(&scheme.name);
        let encoder = codec.as_ref().and_then(|codec| Some((codec, codec.encoder()?)));
        let Some((codec, encoder)) = encoder else {
            return (f64::INFINITY, 1.0, f64::INFINITY);
        };
        let unit = rows_of_a_cell(scheme);
        let mut sums = vec![(0.0, 0.0, 0.0); self.taken().div_ceil(ROWS)];
        let mut locals = vec![(); pool.threads()];
        pool.chunks(&mut locals, &mut sums, 1, |(), i, sums| {
            let first = i * ROWS;
            let last = (first + ROWS).min(self.taken());
            let mut row = first;
            while row < last {
                // Rows of one matrix of a stack have one importance.
                let importance = self.importance(row);
                let same = |other: &usize| {
                    self.importance(*other).map(<[f32]>::as_ptr) == importance.map(<[f32]>::as_ptr)
                };
                let end = (row..last).take_while(same).last().unwrap_or(row) + 1;
                let values = &self.values[row * self.k..end * self.k];
                // Cells that pack several rows are filled up with rows of zeros.
                let count = end - row;
                let filled = count.next_multiple_of(unit);
                let mut more = vec![];
                let all = if filled > count {
                    more.extend_from_slice(values);
                    more.resize(filled * self.k, 0.0);
                    &more[..]
                } else {
                    values
                };
                let shape = Shape::from([filled as u64, self.k as u64]);
                let len =
                    |plane| usize::try_from(scheme.plane_bytes(plane, &shape).unwrap_or(0)).unwrap_or(0);
                let mut planes: Vec<Vec<u8>> =
                    scheme.planes.iter().map(|plane| vec![0; len(plane)]).collect();
                let mut places: Vec<&mut [u8]> = planes.iter_mut().map(|plane| &mut plane[..]).collect();
                encoder.encode(all, self.k, importance, &mut places);
                let planes: Vec<&[u8]> = planes.iter().map(|plane| &plane[..]).collect();
                let mut found = vec![0.0; values.len()];
                codec.decode(Matrix { planes: &planes, rows: filled, k: self.k }, 0..count, &mut found);
                for (values, found) in values.chunks_exact(self.k).zip(found.chunks_exact(self.k)) {
                    let (mut lost, mut of, mut plain) = (0.0f64, 0.0f64, 0.0f64);
                    for (j, (x, y)) in values.iter().zip(found).enumerate() {
                        let weight = importance.map_or(1.0, |importance| f64::from(importance[j]));
                        let (square, own) = (f64::from(x - y).powi(2), f64::from(*x).powi(2));
                        lost += weight * square;
                        of += weight * own;
                        plain += square;
                    }
                    let all = &mut sums[0];
                    *all = (all.0 + lost, all.1 + of, all.2 + plain);
                }
                row = end;
            }
        });
        let add = |a: (f64, f64, f64), b: &(f64, f64, f64)| (a.0 + b.0, a.1 + b.1, a.2 + b.2);
        sums.iter().fold((0.0, 0.0, 0.0), add)
    }
}
