//! A loaded parameter.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use quant::Matrix;
use tensor::{Bands, PlaneSpec, Scheme, Shape};

use crate::memory::slot::Slot;

/// A loaded parameter: its logical shape, its scheme, and one slot a plane. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tensor {
    shape: Shape,
    scheme: Arc<Scheme>,
    slots: Vec<Slot>,
}

impl Tensor {
    pub(crate) fn new(shape: Shape, scheme: Arc<Scheme>, slots: Vec<Slot>) -> Tensor {
        Tensor { shape, scheme, slots }
    }

    /// Logical shape, slowest axis first; rows that pad to whole groups are counted.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How the bytes are stored.
    pub fn scheme(&self) -> &Arc<Scheme> {
        &self.scheme
    }

    /// The planes.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The bytes of the first plane.
    pub fn bytes(&self) -> &[u8] {
        self.slots.first().map_or(&[], Slot::bytes)
    }

    /// The bytes of the planes.
    pub fn planes(&self) -> Planes<'_> {
        let mut all = [&[][..]; MAX_PLANES];
        for (plane, slot) in all.iter_mut().zip(&self.slots) {
            *plane = slot.bytes();
        }
        Planes { all, count: self.slots.len() }
    }

    /// Elements of the last axis (1 for a scalar).
    pub fn width(&self) -> usize {
        self.shape.last().map_or(1, |n| usize::try_from(*n).unwrap_or(usize::MAX))
    }

    /// Elements of the other axes: rows of a matrix.
    pub fn rows(&self) -> usize {
        let rows = self.shape.iter().rev().skip(1).product::<u64>();
        usize::try_from(rows).unwrap_or(usize::MAX)
    }

    /// A matrix as matrices of some of its rows each, which lie where they lay: about `bytes` in each, in order. One alone if its rows
    /// cannot be told apart.
    pub fn bands(&self, bytes: u64) -> Vec<Tensor> {
        let whole = || vec![self.clone()];
        let ([rows, k], Some(bands)) = (&self.shape[..], Bands::of(&self.scheme, &self.shape)) else {
            return whole();
        };
        // Each value of a plain tensor is a row to its scheme.
        let each = if self.scheme.trailing == 0 { *k } else { 1 };
        let cut: Vec<Range<u64>> = if each == 1 {
            bands.cut(bytes).collect()
        } else {
            let row = self.slots.iter().map(|slot| slot.bytes().len() as u64).sum::<u64>() / rows;
            let step = (bytes / row.max(1)).max(1);
            (0..rows.div_ceil(step)).map(|i| i * step..((i + 1) * step).min(*rows)).collect()
        };
        let band = |rows: Range<u64>| {
            let part = |(plane, slot): (usize, &Slot)| {
                let bytes = bands.bytes(plane, 0, &(rows.start * each..rows.end * each));
                slot.part(usize::try_from(bytes.start).ok()?..usize::try_from(bytes.end).ok()?)
            };
            let slots = self.slots.iter().enumerate().map(part).collect::<Option<_>>()?;
            let shape = Shape::from([rows.end - rows.start, *k]);
            Some(Tensor { shape, scheme: Arc::clone(&self.scheme), slots })
        };
        cut.into_iter().map(band).collect::<Option<_>>().unwrap_or_else(whole)
    }

    /// Matrix `n` of a stack, or vector `n` of a matrix, where it lies: what is at `n` along the slowest axis. `None` if there
    /// is no such one, or its bytes are not alone.
    pub fn at(&self, n: usize) -> Option<Tensor> {
        let (count, rest) = self.shape.split_first()?;
        let count = usize::try_from(*count).ok().filter(|count| n < *count)?;
        let shape = Shape::from(rest.to_vec());
        // What all have in common is not for one: a scale of the whole, or blocks that several vectors share.
        let part = |(plane, slot): (&PlaneSpec, &Slot)| {
            let each = usize::try_from(self.scheme.plane_bytes(plane, &shape).ok()?).ok()?;
            (each.checked_mul(count)? == slot.bytes().len()).then(|| slot.part(n * each..(n + 1) * each))?
        };
        let slots = self.scheme.planes.iter().zip(&self.slots).map(part).collect::<Option<_>>()?;
        Some(Tensor { shape, scheme: Arc::clone(&self.scheme), slots })
    }

    /// The same bytes as a matrix: all axes but the slowest are one. A tensor of a scheme that has other cells than values is left as it is.
    #[must_use]
    pub fn flattened(&self) -> Tensor {
        match &self.shape[..] {
            [rows, rest @ ..] if self.scheme.trailing == 0 => {
                let shape = Shape::from([*rows, rest.iter().product()]);
                Tensor { shape, ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// The values of an f32 tensor.
    ///
    /// # Panics
    /// If it is not f32, which the layouts of the engine rule out.
    pub fn as_f32(&self) -> &[f32] {
        assert_eq!(self.scheme.name, "f32", "wanted f32");
        bytemuck::cast_slice(self.bytes())
    }

    /// Writes the values of row `row` to `out`, of the last axis' length.
    ///
    /// # Panics
    /// If the row is not there, or the scheme has no codec, which the layouts of the engine rule out.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        let matrix = Matrix { planes: &self.planes(), rows: self.rows(), k: self.width() };
        quant::decode_row(&self.scheme, matrix, row, out);
    }
}

/// Planes of the scheme that has most of them.
const MAX_PLANES: usize = 8;

/// The bytes of a tensor's planes, as a slice of them.
pub struct Planes<'a> {
    all: [&'a [u8]; MAX_PLANES],
    count: usize,
}

impl fmt::Debug for Planes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planes")
            .field("bytes", &self.iter().map(|plane| plane.len()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<'a> std::ops::Deref for Planes<'a> {
    type Target = [&'a [u8]];

    fn deref(&self) -> &[&'a [u8]] {
        &self.all[..self.count]
    }
}
