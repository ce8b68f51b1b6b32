//! Schemes: how a logical tensor is stored, as data.
//!
//! A logical tensor is stored as one or more *planes*, each a dense array of equal *cells*. A GGUF block
//! type has one plane of blocks, MLX affine has three (weights, scales, biases). The scheme says how the
//! logical axes map to each plane's axes, so that movement (fusing, sharding, stacking, permuting) is
//! one mechanism for plain and quantised tensors alike: it is done once per plane, in whole cells.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::{Dtype, Lines, Shape};

/// The last logical axis of a weight (input features), as [`PlaneAxis::Cells`] counts axes.
pub const IN: usize = 0;
/// The last but one logical axis of a weight (output features).
pub const OUT: usize = 1;

/// How a cell relates to the elements that it spans along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// It holds them, in order: they can only move together and keep their places.
    Packed,
    /// It applies to each alike (a scale): it may be repeated, and the elements may move within it.
    Shared,
}

/// One axis of a plane, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaneAxis {
    /// One cell for every `per` elements of a logical axis, which is counted from the last one
    /// ([`IN`], [`OUT`]). A shared axis may end with a partial cell, a packed one may not.
    Cells {
        /// The logical axis, counted from the last.
        axis: usize,
        /// Elements along that axis which one cell spans. Never 0.
        per: u64,
        /// Whether the cell packs those elements or is shared by them.
        hold: Hold,
    },
    /// The plane's own axis: a table of this many cells that another plane indexes. It is moved whole.
    Table(u64),
}

/// One plane of a scheme: a dense array of cells of `cell_bytes`.
///
/// A trailing logical axis that `axes` does not name is shared whole; leading axes (expert, layer) come
/// first in storage order, one cell each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlaneSpec {
    /// What the plane is, in the scheme's own words: `data`, `blocks`, `scales`.
    pub role: &'static str,
    /// Bytes of one cell.
    pub cell_bytes: u64,
    /// The plane's axes in storage order.
    pub axes: Cow<'static, [PlaneAxis]>,
    /// A factor of zero weights is still zero, so padding may share this cell with real elements.
    pub spans_padding: bool,
    /// Several sources may feed one cell if their bytes are equal; the plan compares them.
    pub must_agree: bool,
}

impl PlaneSpec {
    /// A plane that nothing may share with padding.
    pub const fn new(role: &'static str, cell_bytes: u64, axes: &'static [PlaneAxis]) -> Self {
        PlaneSpec { role, cell_bytes, axes: Cow::Borrowed(axes), spans_padding: false, must_agree: false }
    }
}

/// How a logical tensor is stored. Two schemes are the same if all of this is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    /// Lower-case name, unique: `f32`, `q4_k`, `q4_1.r16`.
    pub name: Cow<'static, str>,
    /// How many of the last logical axes the planes speak about; the others are leading axes.
    pub trailing: usize,
    /// The planes, in the order of [`crate::TensorEntry::planes`].
    pub planes: Cow<'static, [PlaneSpec]>,
}

/// How the rows, or the columns, of a matrix lie in a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One after the other, this many in a run of cells: a band of whole runs is a range of bytes.
    Bands(u64),
    /// All of them share the plane.
    Whole,
    /// The bytes of one lie among those of others.
    Scattered,
}

/// Why a shape cannot be stored in a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemeError {
    /// The tensor has fewer axes than the scheme speaks about.
    Rank {
        /// Axes the scheme needs.
        wants: usize,
        /// Axes the tensor has.
        found: usize,
    },
    /// A packed axis is not a whole number of cells. Formats reject this; nobody pads.
    Ragged {
        /// The logical axis, counted from the first.
        axis: usize,
        /// Its extent in elements.
        extent: u64,
        /// Elements that one cell packs.
        per: u64,
    },
    /// The size does not fit in a `u64`.
    Overflow,
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemeError::Rank { wants, found } => write!(f, "needs at least {wants} axes, found {found}"),
            SchemeError::Ragged { axis, extent, per } => {
                write!(f, "axis {axis} has {extent} elements, not a multiple of the {per} that a block packs")
            }
            SchemeError::Overflow => write!(f, "the size overflows 64 bits"),
        }
    }
}

impl std::error::Error for SchemeError {}

impl Scheme {
    /// The scheme of a plain dtype: one plane, one cell an element.
    pub fn plain(dtype: Dtype) -> Arc<Scheme> {
        Arc::new(Scheme {
            name: Cow::Borrowed(dtype.name()),
            trailing: 0,
            planes: Cow::Owned(vec![PlaneSpec::new("data", dtype.bytes(), &[])]),
        })
    }

    /// A block type: along the last axis, every `per` elements are one block of `bytes`.
    pub fn blocks(name: &'static str, per: u64, bytes: u64) -> Arc<Scheme> {
        let axes = vec![PlaneAxis::Cells { axis: IN, per, hold: Hold::Packed }];
        let plane = PlaneSpec { axes: Cow::Owned(axes), ..PlaneSpec::new("blocks", bytes, &[]) };
        Arc::new(Scheme { name: Cow::Borrowed(name), trailing: 1, planes: Cow::Owned(vec![plane]) })
    }

    /// The dtype, if this is a plain scheme.
    pub fn dtype(&self) -> Option<Dtype> {
        Dtype::ALL.iter().copied().find(|d| self.trailing == 0 && d.name() == self.name)
    }

    /// How the rows of a matrix, `[out, in]`, lie in `plane`.
    pub fn rows_in(&self, plane: &PlaneSpec) -> Rows {
        self.lines_in(plane, Lines::Rows)
    }

    /// How the rows or the columns of a matrix, `[out, in]`, lie in `plane`.
    pub fn lines_in(&self, plane: &PlaneSpec, lines: Lines) -> Rows {
        let wanted = if lines == Lines::Rows { OUT } else { IN };
        let along = |axis: &PlaneAxis| match axis {
            PlaneAxis::Cells { axis, per, .. } if *axis == wanted => Some(*per),
            _ => None,
        };
        match plane.axes.iter().position(|axis| along(axis).is_some()) {
            // A leading axis, to the scheme, comes before those that it speaks about.
            Some(0) if lines == Lines::Rows || self.trailing > OUT => {
                Rows::Bands(along(&plane.axes[0]).unwrap_or(1))
            }
            Some(_) => Rows::Scattered,
            None if self.trailing <= OUT && lines == Lines::Rows => Rows::Bands(1),
            None if self.trailing == 0 => Rows::Scattered,
            None => Rows::Whole,
        }
    }

    /// Whether matrices with these numbers of rows, stacked, are one matrix of the same cells.
    pub fn stacks(&self, rows: &[u64]) -> bool {
        let ends = rows.split_last().map_or(rows, |(_, above)| above);
        self.planes.iter().all(|plane| {
            let runs = plane.axes.iter().find_map(|axis| match axis {
                PlaneAxis::Cells { axis: OUT, per, .. } => Some(*per),
                _ => None,
            });
            match runs {
                Some(per) => ends.iter().all(|n| n.is_multiple_of(per)),
                None => self.trailing <= OUT || ends.is_empty(),
            }
        })
    }

    /// The number of cells of `plane` for a tensor of `shape`.
    ///
    /// # Errors
    /// If the shape has too few axes, cuts a packed cell, or is too large.
    pub fn cells(&self, plane: &PlaneSpec, shape: &Shape) -> Result<u64, SchemeError> {
        let found = shape.len();
        let lead =
            found.checked_sub(self.trailing).ok_or(SchemeError::Rank { wants: self.trailing, found })?;
        let mut cells = if self.trailing == 0 {
            shape.elements()
        } else {
            Shape::from(shape[..lead].to_vec()).elements()
        };
        for axis in plane.axes.iter() {
            let n = match *axis {
                PlaneAxis::Table(n) => n,
                PlaneAxis::Cells { axis, per, hold } => {
                    let at = found - 1 - axis;
                    if hold == Hold::Packed && !shape[at].is_multiple_of(per) {
                        return Err(SchemeError::Ragged { axis: at, extent: shape[at], per });
                    }
                    shape[at].div_ceil(per)
                }
            };
            cells = cells.and_then(|c| c.checked_mul(n));
        }
        cells.ok_or(SchemeError::Overflow)
    }

    /// Bytes of `plane` for a tensor of `shape`.
    ///
    /// # Errors
    /// As [`Scheme::cells`].
    pub fn plane_bytes(&self, plane: &PlaneSpec, shape: &Shape) -> Result<u64, SchemeError> {
        self.cells(plane, shape)?.checked_mul(plane.cell_bytes).ok_or(SchemeError::Overflow)
    }

    /// Bytes of all planes together for a tensor of `shape`.
    ///
    /// # Errors
    /// As [`Scheme::cells`].
    pub fn byte_len(&self, shape: &Shape) -> Result<u64, SchemeError> {
        self.planes.iter().try_fold(0u64, |sum, p| {
            sum.checked_add(self.plane_bytes(p, shape)?).ok_or(SchemeError::Overflow)
        })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_scheme_counts_blocks_and_refuses_to_cut_one() {
        let q4k = Scheme::blocks("q4_k", 256, 144);
        assert_eq!(q4k.byte_len(&Shape::from([3, 512])), Ok(3 * 2 * 144));
        assert_eq!(
            q4k.byte_len(&Shape::from([3, 100])),
            Err(SchemeError::Ragged { axis: 1, extent: 100, per: 256 })
        );
        assert_eq!(q4k.byte_len(&Shape::from([])), Err(SchemeError::Rank { wants: 1, found: 0 }));
    }

    #[test]
    fn a_plane_says_how_rows_lie_in_it() {
        const fn cells(axis: usize, per: u64) -> PlaneAxis {
            PlaneAxis::Cells { axis, per, hold: Hold::Shared }
        }
        const FP8: &[PlaneAxis] = &[cells(OUT, 128), cells(IN, 128)];
        const GPTQ: &[PlaneAxis] = &[cells(IN, 8), cells(OUT, 1)];
        const INDEX: &[PlaneAxis] = &[cells(IN, 1)];
        const ROW: &[PlaneAxis] = &[cells(OUT, 1)];
        let two = Scheme { name: "two".into(), trailing: 2, planes: Cow::Borrowed(&[]) };
        let rows = |axes| two.rows_in(&PlaneSpec::new("plane", 4, axes));
        assert_eq!([rows(FP8), rows(GPTQ), rows(INDEX)], [Rows::Bands(128), Rows::Scattered, Rows::Whole]);
        let columns = |axes| two.lines_in(&PlaneSpec::new("plane", 4, axes), Lines::Columns);
        assert_eq!(
            [columns(FP8), columns(GPTQ), columns(INDEX), columns(ROW)],
            [Rows::Scattered, Rows::Bands(8), Rows::Bands(1), Rows::Whole]
        );
        for scheme in [Scheme::plain(Dtype::F32), Scheme::blocks("q4_k", 256, 144)] {
            assert_eq!(scheme.lines_in(&scheme.planes[0], Lines::Columns), Rows::Scattered);
        }
        let q4k = Scheme::blocks("q4_k", 256, 144);
        assert_eq!(q4k.rows_in(&q4k.planes[0]), Rows::Bands(1));
        let of = |axes| Scheme { planes: vec![PlaneSpec::new("plane", 4, axes)].into(), ..two.clone() };
        assert!(of(FP8).stacks(&[256, 128, 5]) && !of(FP8).stacks(&[64, 128]));
        assert!(of(GPTQ).stacks(&[3, 5]) && q4k.stacks(&[3, 5]));
        assert!(!of(INDEX).stacks(&[8, 8]) && of(INDEX).stacks(&[8]));
        let f32 = Scheme::plain(Dtype::F32);
        assert_eq!(f32.rows_in(&f32.planes[0]), Rows::Bands(1));
    }

    #[test]
    fn a_plain_scheme_takes_any_shape_that_fits() {
        let f32 = Scheme::plain(Dtype::F32);
        assert_eq!(f32.byte_len(&Shape::from([])), Ok(4));
        assert_eq!(f32.byte_len(&Shape::from([7, 3])), Ok(84));
        assert_eq!(f32.byte_len(&Shape::from([u64::MAX, 1])), Err(SchemeError::Overflow));
        assert_eq!(f32.dtype(), Some(Dtype::F32));
    }
}
