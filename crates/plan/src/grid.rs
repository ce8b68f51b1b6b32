//! A plane laid out for one shape: which cell holds an element, and how far the next one is.

use tensor::{Hold, PlaneAxis, PlaneSpec, Scheme, Shape, TensorEntry};

use crate::view::{Factor, Side};
use crate::why::{WHOLE, Why};

/// How cells lie along one logical axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AxisGrid {
    /// Elements that a cell spans; [`WHOLE`] if the plane does not have the axis.
    pub(crate) per: u64,
    /// Cells from one to the next; 0 with [`WHOLE`].
    pub(crate) stride: u64,
}

/// A plane's table axis: how many cells, and how far apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) cells: u64,
    pub(crate) stride: u64,
}

/// A plane at a shape.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// One for each logical axis.
    pub(crate) axes: Vec<AxisGrid>,
    pub(crate) tables: Vec<Table>,
    /// All cells of the plane.
    pub(crate) cells: u64,
}

impl Grid {
    /// Lays `plane` of `scheme` out for a tensor of `shape`.
    ///
    /// # Errors
    /// [`Why::Rank`], [`Why::Ragged`] or [`Why::Overflow`].
    pub(crate) fn new(scheme: &Scheme, plane: &PlaneSpec, shape: &Shape) -> Result<Grid, Why> {
        let rank = shape.len();
        let short = Why::Rank { wants: scheme.trailing, found: rank };
        let lead = rank.checked_sub(scheme.trailing).ok_or_else(|| short.clone())?;
        let mut axes = vec![AxisGrid { per: WHOLE, stride: 0 }; rank];
        let (mut tables, mut cells) = (vec![], 1u64);
        let mut take = |n: u64| {
            let stride = cells;
            cells = stride.checked_mul(n).ok_or(Why::Overflow)?;
            Ok(stride)
        };
        for axis in plane.axes.iter().rev() {
            match *axis {
                PlaneAxis::Table(n) => tables.push(Table { cells: n, stride: take(n)? }),
                PlaneAxis::Cells { axis, per, hold } => {
                    let at = rank.checked_sub(axis + 1).ok_or_else(|| short.clone())?;
                    if hold == Hold::Packed && !shape[at].is_multiple_of(per) {
                        return Err(Why::Ragged { axis: at, extent: shape[at], per });
                    }
                    axes[at] = AxisGrid { per, stride: take(shape[at].div_ceil(per))? };
                }
            }
        }
        for at in (0..lead).rev() {
            axes[at] = AxisGrid { per: 1, stride: take(shape[at])? };
        }
        cells.checked_mul(plane.cell_bytes).ok_or(Why::Overflow)?;
        Ok(Grid { axes, tables, cells })
    }

    /// Lays `plane` of `entry` out as it lies in the file.
    ///
    /// # Errors
    /// As [`Grid::new`], and [`Why::Shape`] for strides that are not one for each axis of a plain tensor.
    pub(crate) fn of_entry(entry: &TensorEntry, plane: &PlaneSpec) -> Result<Grid, Why> {
        let mut grid = Grid::new(&entry.scheme, plane, &entry.shape)?;
        let Some(strides) = &entry.strides else { return Ok(grid) };
        if strides.len() != entry.shape.len() || entry.scheme.trailing > 0 || !plane.axes.is_empty() {
            return Err(Why::Shape(format!("`{}` has strides that are not its axes'", entry.name)));
        }
        // Checked by the reader, but nothing may overflow here: the offset of the last element in bytes.
        let last = entry.shape.iter().zip(strides).try_fold(0u64, |at, (n, stride)| {
            n.saturating_sub(1).checked_mul(*stride).and_then(|far| at.checked_add(far))
        });
        last.and_then(|at| at.checked_add(1)?.checked_mul(plane.cell_bytes)).ok_or(Why::Overflow)?;
        for (axis, stride) in grid.axes.iter_mut().zip(strides) {
            axis.stride = *stride;
        }
        Ok(grid)
    }

    /// Cells that one step of `f` moves, or `None` if it stays inside a cell. `f` must be aligned.
    pub(crate) fn step(&self, f: &Factor, side: Side) -> Option<u64> {
        let a = &self.axes[f.axis[side]];
        f.stride[side].is_multiple_of(a.per).then(|| f.stride[side] / a.per * a.stride)
    }

    /// The cell that holds the element `at`.
    pub(crate) fn cell(&self, at: &[u64]) -> u64 {
        self.axes.iter().zip(at).map(|(a, x)| x / a.per * a.stride).sum()
    }

    /// Elements along axis `a` in the cell that holds coordinate `x`: fewer at a partial edge.
    pub(crate) fn extent(&self, a: usize, x: u64, shape: &Shape) -> u64 {
        let per = self.axes[a].per;
        if per == WHOLE { shape[a] } else { per.min(shape[a] - x / per * per) }
    }

    /// Elements in the cell that holds the element `at`.
    pub(crate) fn elements_at(&self, at: &[u64], shape: &Shape) -> u64 {
        (0..shape.len()).map(|a| self.extent(a, at[a], shape)).product()
    }

    /// Elements in the cell with this linear index.
    pub(crate) fn elements(&self, cell: u64, shape: &Shape) -> u64 {
        let along = |a: usize| match self.axes[a] {
            AxisGrid { per: WHOLE, .. } => shape[a],
            AxisGrid { per, stride } => self.extent(a, cell / stride % shape[a].div_ceil(per) * per, shape),
        };
        (0..shape.len()).map(along).product()
    }
}
