//! Operations of a scheme on values: decode, encode, check.

use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, PlaneAxis, Scheme, Shape};

use crate::assemble::Assembler;
use crate::packing::Packing;

/// A plain tensor that holds one plane of a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneTensor {
    /// The part of its name after the module's name: `.scales`, `.weight`, `_blocks`.
    pub suffix: &'static str,
    /// Its elements.
    pub dtype: Dtype,
    /// Its shape. Axes of one element may be there or not.
    pub shape: Shape,
}

/// A plain tensor that says what a scheme says already, and that readers of its ecosystem want beside the planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name, dtype and shape.
    pub tensor: PlaneTensor,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A matrix `[rows, k]` as its scheme stores it.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// One for each plane of the scheme, in its order, as long as [`Scheme::plane_bytes`] says.
    pub planes: &'a [&'a [u8]],
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub k: usize,
}

impl<'a> Matrix<'a> {
    /// Returns the planes, which must be the scheme's `N`.
    ///
    /// # Panics
    /// If there are not `N`: a scheme and its planes go together.
    pub fn planes<const N: usize>(&self) -> [&'a [u8]; N] {
        self.planes.try_into().unwrap_or_else(|_| panic!("wanted {N} planes, found {}", self.planes.len()))
    }
}

/// An error in data that the shape does not show: a group index past the groups, a scale that is not a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plane `{role}`: {what} at cell {at}, wanted {wants}, found {found}")]
pub struct BadData {
    /// The plane.
    pub role: &'static str,
    /// The bad value: "a group index".
    pub what: &'static str,
    /// The cell's position in the plane of one matrix.
    pub at: usize,
    /// The values allowed.
    pub wants: String,
    /// The value found.
    pub found: String,
}

/// How a scheme's planes become floats, and floats its planes.
///
/// `decode` is the reference: plain scalar Rust, equal bit for bit to what the format's own implementation
/// gives (see `golden/`). Everything faster in this crate is tested against it.
pub trait Codec: Send + Sync {
    /// The name of the scheme: `q4_k`, `mlx-affine:b4,g64,bf16`.
    fn name(&self) -> &str;

    /// Its geometry.
    fn scheme(&self) -> Arc<Scheme>;

    /// Writes the values of rows `rows` of `matrix` to `out`, row-major, `rows.len() * k` of them.
    ///
    /// # Panics
    /// If a length does not fit another, or a row is not there: a plan has checked all of that. Data that
    /// [`Codec::check`] rejects never causes a panic; the values are then meaningless.
    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]);

    /// Incremented whenever the bytes written for the same values change, by the encoder or by interleaving. It shows
    /// that a stored copy is of an earlier revision (golden/revisions.tsv pins all of them).
    fn revision(&self) -> u32 {
        1
    }

    /// Refuses data that cannot be meant: called once for each matrix before it is decoded.
    ///
    /// # Errors
    /// The first [`BadData`].
    fn check(&self, _matrix: Matrix<'_>) -> Result<(), BadData> {
        Ok(())
    }

    /// How to encode, if it can.
    fn encoder(&self) -> Option<&dyn Encoder> {
        None
    }

    /// How to replace codes in what is encoded, if each stands for a value of its own.
    fn recoder(&self) -> Option<&dyn Recoder> {
        None
    }

    /// How to assemble planes of integers that were chosen elsewhere, if it can.
    fn assembler(&self) -> Option<&dyn Assembler> {
        None
    }

    /// How rows with a scale each get one in common, if this is a scheme of matrices with one scale.
    fn merger(&self) -> Option<&dyn Merger> {
        None
    }

    /// The plain tensors that hold the planes of a weight of `shape` in the files of its own ecosystem, one for
    /// each plane, in order. Empty if it is one tensor, called as it is itself.
    fn parts(&self, _shape: &Shape) -> Vec<PlaneTensor> {
        vec![]
    }

    /// The tensors beside the planes of a weight of `shape` that say again what the scheme says.
    fn facts(&self, _shape: &Shape) -> Vec<Fact> {
        vec![]
    }

    /// How it is interleaved and multiplied, if it can be.
    fn packing(&self) -> Option<Packing> {
        None
    }

    /// Elements that one cell of the first plane spans: 1 for a plain dtype, 32 or 256 for a block type.
    fn per(&self) -> usize {
        let per = |axis: &PlaneAxis| match axis {
            PlaneAxis::Cells { per, .. } => *per,
            PlaneAxis::Table(_) => 1,
        };
        self.scheme().planes[0].axes.iter().map(per).product::<u64>() as usize
    }

    /// Bytes of one cell of the first plane.
    fn cell_bytes(&self) -> usize {
        self.scheme().planes[0].cell_bytes as usize
    }

    /// Decodes a run of whole blocks of a scheme of one plane.
    ///
    /// # Panics
    /// As [`Codec::decode`].
    fn decode_blocks(&self, blocks: &[u8], out: &mut [f32]) {
        self.decode(Matrix { planes: &[blocks], rows: 1, k: out.len() }, 0..1, out);
    }
}

/// How floats become a scheme's planes.
pub trait Encoder: Send + Sync {
    /// Encodes `values`, `[rows, k]` with `rows = values.len() / k`, all finite, to `planes`, one for each
    /// plane of the scheme, as long as [`Scheme::plane_bytes`] says for `[rows, k]`.
    ///
    /// `importance`, `[k]`, weighs the errors of the columns, where the scheme's search can use that.
    ///
    /// Values whose scale is past the largest binary16 decode to infinities or no numbers, as in ggml:
    /// [`Difference::overflowed`] counts them.
    ///
    /// # Panics
    /// If a length does not fit another.
    fn encode(&self, values: &[f32], k: usize, importance: Option<&[f32]>, planes: &mut [&mut [u8]]);

    /// Encodes a tensor of one axis, for schemes that encode it differently from a row of a matrix.
    ///
    /// # Panics
    /// As [`encode`](Self::encode).
    fn encode_vector(&self, values: &[f32], importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        self.encode(values, values.len(), importance, planes);
    }
}

/// The places of a scheme's codes between the values of the lowest and of the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// This many codes, equally far apart.
    Even(u32),
    /// Codes at these places, which rise.
    Listed(&'static [i8]),
}

/// How codes are replaced in rows that are encoded, where scales and minima stay: for a choice of codes that heeds more than the value
/// of each.
pub trait Recoder: Send + Sync {
    /// The codes, from 0 up.
    fn levels(&self) -> Levels;

    /// Columns of a row of `k` that share nothing with the columns after them. Encoded alone they have the bytes that they have
    /// in the row: whole cells in each plane.
    fn columns(&self, k: usize) -> usize;

    /// Replaces all codes of `planes`, which hold `[rows, k]` encoded, by `codes`, `[rows, k]`, a byte each.
    ///
    /// # Panics
    /// If a length does not fit another.
    fn put(&self, codes: &[u8], k: usize, planes: &mut [&mut [u8]]);
}

/// How matrices with a scale each are fused to one that has one scale: in a form with a scale for each row, into which they
/// move as they are, and which becomes the other when all is there.
pub trait Merger: Send + Sync {
    /// The scheme with the same cells, but a scale for each row.
    fn by_row(&self) -> Arc<Scheme>;

    /// Rows stored so, of [`by_row`](Self::by_row), to `planes` with the largest of their scales: rows that have it stay as
    /// they are, the codes of the others become the nearest ones. Says what that loses.
    ///
    /// # Panics
    /// If a length does not fit another.
    fn merge(&self, rows: Matrix<'_>, planes: &mut [&mut [u8]]) -> Difference;

    /// The way back: a matrix to rows that all have its scale. Loses nothing.
    ///
    /// # Panics
    /// If a length does not fit another.
    fn spread(&self, whole: Matrix<'_>, planes: &mut [&mut [u8]]);
}

/// Schemes that come in many sizes, told apart by parameters after a colon: `mlx-affine:b4,g64,bf16`.
///
/// A name is canonical: one spelling for each scheme, so that equal names are equal schemes.
pub trait SchemeFamily: Sync {
    /// The part of the name before the colon.
    fn name(&self) -> &'static str;

    /// Returns the scheme with these parameters; `None` if there is none, or they are not in canonical spelling.
    fn parse(&self, params: &str) -> Option<Box<dyn Codec>>;

    /// Parameters of the members that occur in practice: those that `weighbridge quants` lists and tests cover.
    fn usual(&self) -> &'static [&'static str];
}

/// How far `found` is from `wanted`, value by value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Values compared.
    pub count: u64,
    /// Largest distance of two finite values.
    pub max: f32,
    /// Finite values that became infinite or no number.
    pub overflowed: u64,
    /// Values that became zero.
    pub underflowed: u64,
    /// `Σ (found - wanted)²`.
    pub squares: f64,
    /// `Σ wanted²`.
    pub wanted: f64,
    /// `Σ found²`.
    pub found: f64,
    /// `Σ found · wanted`.
    pub product: f64,
}

impl Difference {
    /// The difference of `count` values, one or more, that were all `wanted` and became `found`.
    pub(crate) fn repeated(count: u64, wanted: f32, found: f32) -> Difference {
        let one = Difference::of(&[wanted], &[found]);
        let n = count as f64;
        Difference {
            count,
            max: one.max,
            overflowed: count * one.overflowed,
            underflowed: count * one.underflowed,
            squares: n * one.squares,
            wanted: n * one.wanted,
            found: n * one.found,
            product: n * one.product,
        }
    }

    /// The difference of two slices of one length.
    ///
    /// # Panics
    /// If their lengths differ.
    pub fn of(wanted: &[f32], found: &[f32]) -> Difference {
        assert_eq!(wanted.len(), found.len(), "values to compare");
        let mut d = Difference { count: wanted.len() as u64, ..Difference::default() };
        for (&w, &f) in wanted.iter().zip(found) {
            d.overflowed += u64::from(w.is_finite() && !f.is_finite());
            d.underflowed += u64::from(w != 0.0 && f == 0.0);
            if w.is_finite() && f.is_finite() {
                let (w, f) = (f64::from(w), f64::from(f));
                d.max = d.max.max((f - w).abs() as f32);
                d.squares += (f - w) * (f - w);
                d.wanted += w * w;
                d.found += f * f;
                d.product += f * w;
            }
        }
        d
    }

    /// Of both together.
    #[must_use]
    pub fn and(self, other: Difference) -> Difference {
        Difference {
            count: self.count + other.count,
            max: self.max.max(other.max),
            overflowed: self.overflowed + other.overflowed,
            underflowed: self.underflowed + other.underflowed,
            squares: self.squares + other.squares,
            wanted: self.wanted + other.wanted,
            found: self.found + other.found,
            product: self.product + other.product,
        }
    }

    /// Root of the mean square of the distances.
    pub fn rmse(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }

    /// Returns the length of the difference divided by the length of `wanted`, both seen as vectors: 0 if there is no
    /// difference, infinite if `wanted` is zero.
    pub fn relative(&self) -> f64 {
        if self.squares > 0.0 { (self.squares / self.wanted).sqrt() } else { 0.0 }
    }

    /// Cosine of the angle between both, seen as vectors; 1 if both are zero.
    pub fn cosine(&self) -> f64 {
        let norm = (self.wanted * self.found).sqrt();
        if norm > 0.0 {
            self.product / norm
        } else if self.wanted > 0.0 || self.found > 0.0 {
            0.0
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_what_a_cast_loses() {
        let cast: Vec<f32> =
            [1.0, 1e-9, 70000.0, -0.0].iter().map(|&x| half::f16::from_f32(x).to_f32()).collect();
        let d = Difference::of(&[1.0, 1e-9, 70000.0, -0.0], &cast);
        assert_eq!((d.count, d.overflowed, d.underflowed), (4, 1, 1));
        assert!((d.cosine() - 1.0).abs() < 1e-12);
        assert_eq!(d.max.to_bits(), 1e-9f32.to_bits());
        let parts =
            Difference::of(&[1.0, 1e-9], &cast[..2]).and(Difference::of(&[70000.0, -0.0], &cast[2..]));
        assert_eq!(parts, d);
        assert!((Difference::of(&[3.0, 4.0], &[3.0, 3.5]).relative() - 0.1).abs() < 1e-12);
        assert!(Difference::of(&[0.0], &[1.0]).relative().is_infinite());
        assert!((Difference::of(&[0.0], &[0.0]).cosine() - 1.0).abs() < f64::EPSILON);
    }
}
