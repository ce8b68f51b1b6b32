//! From parts on logical axes to pieces of bytes, once for each plane.

use std::collections::BTreeMap;
use std::fmt;

use tensor::{Expr, Hold, PlaneAxis, PlaneSpec, Scheme, Shape, TensorEntry};

use crate::budget::{Budget, PARAM_STEPS, PLANE_PIECES};
use crate::grid::Grid;
use crate::piece::{Dim, Piece, PieceSource, PlannedPlane, join};
use crate::shapes;
use crate::sources::Sources;
use crate::view::{Factor, Part, SOURCE, Side, TARGET, View, view};
use crate::why::Why;

/// Why an expression cannot be moved into a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Role of the plane that cannot be made; empty if no plane in particular.
    pub plane: &'static str,
    /// The rule that it breaks.
    pub why: Why,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plane `{}`: {:?}", self.plane, self.why)
    }
}

impl std::error::Error for Refusal {}

/// Lowers `expr`, movement over the names of entries, to pieces for each plane of `scheme`.
///
/// Entries stored in another scheme are taken if planes of the same role have equal cells: whether these
/// also *mean* the same is for the caller to know ([`crate::Codecs::same_cells`]).
///
/// # Errors
/// The rule that is broken. Expressions that are cut too finely exceed a limit on pieces and work.
pub fn lower(expr: &Expr, sources: &Sources, scheme: &Scheme) -> Result<Vec<PlannedPlane>, Refusal> {
    lower_within(expr, sources, scheme, &mut Budget::new(PARAM_STEPS))
}

pub(crate) fn lower_within(
    expr: &Expr,
    sources: &Sources,
    scheme: &Scheme,
    budget: &mut Budget,
) -> Result<Vec<PlannedPlane>, Refusal> {
    let nowhere = |why| Refusal { plane: "", why };
    shapes::shallow(expr).map_err(nowhere)?;
    let v = view(expr, sources, budget).map_err(nowhere)?;
    let entries = sources.entries();
    let used = v.parts.iter().filter_map(|p| p.source).map(|s| &entries[s].scheme);
    if let Some(other) = used.into_iter().find(|s| s.planes.len() != scheme.planes.len()) {
        return Err(nowhere(Why::Planes { from: other.name.to_string() }));
    }
    let lower_plane = |spec: &PlaneSpec| {
        Lowering { view: &v, entries, scheme, spec }
            .run(budget)
            .map_err(|why| Refusal { plane: spec.role, why })
    };
    scheme.planes.iter().map(lower_plane).collect()
}

/// A source plane, laid out.
struct From {
    plane: PieceSource,
    grid: Grid,
}

/// Elements that a partly covered target cell has received.
#[derive(Default)]
struct Fill {
    from: Option<(PieceSource, u64)>,
    real: u64,
    zero: u64,
}

struct Lowering<'a> {
    view: &'a View,
    entries: &'a [TensorEntry],
    scheme: &'a Scheme,
    spec: &'a PlaneSpec,
}

impl Lowering<'_> {
    fn run(&self, budget: &mut Budget) -> Result<PlannedPlane, Why> {
        let (spec, shape) = (self.spec, &self.view.shape);
        let grid = Grid::new(self.scheme, spec, shape)?;
        let (mut copy, mut equal, mut partial) = (vec![], vec![], BTreeMap::<u64, Fill>::new());
        for part in &self.view.parts {
            let from = part.source.map(|s| self.from(s)).transpose()?;
            let mut work = cut(vec![part.clone()], TARGET, &grid, budget)?;
            if let Some(from) = &from {
                work = cut(work, SOURCE, &from.grid, budget)?;
            }
            while let Some(p) = work.pop() {
                budget.spend(1)?;
                if let Some(from) = &from {
                    keeps_places(&p, spec, &grid, &from.grid)?;
                    // One target cell, several source cells.
                    if let Some(i) = p
                        .factors
                        .iter()
                        .position(|f| grid.step(f, TARGET).is_none() && from.grid.step(f, SOURCE).is_some())
                    {
                        let axis = p.factors[i].axis[TARGET];
                        if !spec.must_agree {
                            return Err(Why::Mixed { axis, per: grid.axes[axis].per });
                        }
                        budget.spend(p.factors[i].extent)?;
                        work.extend((0..p.factors[i].extent).map(|x| p.take(i, x, 1)));
                        continue;
                    }
                }
                let (mut dims, mut inside) = (vec![], 1);
                for f in &p.factors {
                    let source_stride = from.as_ref().and_then(|g| g.grid.step(f, SOURCE)).unwrap_or(0);
                    match grid.step(f, TARGET) {
                        Some(target_stride) => {
                            dims.push(Dim { extent: f.extent, source_stride, target_stride });
                        }
                        None => inside *= f.extent,
                    }
                }
                let at = grid.cell(&p.origin[TARGET]);
                let origin = from.as_ref().map(|g| (g.plane, g.grid.cell(&p.origin[SOURCE])));
                // A part has the same number of elements in each cell that it touches: if that fills the
                // first, it fills all.
                if inside == grid.elements_at(&p.origin[TARGET], shape) {
                    dims.extend(tables(&grid, from.as_ref().map(|g| &g.grid)));
                    push(&mut copy, Piece::from_cells(origin, at, dims, spec.cell_bytes))?;
                    continue;
                }
                let mut fill = |s: u64, t: u64| {
                    budget.spend(1)?;
                    let fill = partial.entry(t).or_default();
                    let Some((plane, _)) = origin else {
                        fill.zero += inside;
                        return Ok(());
                    };
                    fill.real += inside;
                    match fill.from {
                        None => fill.from = Some((plane, s)),
                        Some(other) if other == (plane, s) => {}
                        Some(_) if spec.must_agree => {
                            let dims = tables(&grid, from.as_ref().map(|g| &g.grid));
                            let source = Some((plane, s));
                            push(&mut equal, Piece::from_cells(source, t, dims, spec.cell_bytes))?;
                        }
                        Some(_) => return Err(mixed(&p, &grid, shape)),
                    }
                    Ok(())
                };
                for_each(&dims, origin.map_or(0, |o| o.1), at, &mut fill)?;
            }
        }
        for (cell, fill) in partial {
            if fill.real > 0 && fill.zero > 0 && !spec.spans_padding {
                return Err(Why::Padding);
            }
            if fill.real + fill.zero != grid.elements(cell, shape) {
                return Err(Why::Hole { cell });
            }
            let from = fill.from.map(|(plane, _)| self.from(plane.entry)).transpose()?;
            let dims = tables(&grid, from.as_ref().map(|g| &g.grid));
            push(&mut copy, Piece::from_cells(fill.from, cell, dims, spec.cell_bytes))?;
        }
        let bytes = grid.cells * spec.cell_bytes;
        if shape.contains(&0) && bytes > 0 {
            // Nothing feeds the factor of no elements.
            copy.push(Piece::zeros(bytes));
        }
        Ok(PlannedPlane { role: spec.role, bytes, copy: join(copy), equal: join(equal) })
    }

    /// The plane of entry `s` that feeds this one: shared cells may differ in size between the two, packed
    /// ones and tables may not.
    fn from(&self, s: usize) -> Result<From, Why> {
        let entry = &self.entries[s];
        let other = || Why::Planes { from: entry.scheme.name.to_string() };
        let plane = entry.scheme.planes.iter().position(|p| p.role == self.spec.role).ok_or_else(other)?;
        let spec = &entry.scheme.planes[plane];
        if spec.cell_bytes != self.spec.cell_bytes || fixed(spec) != fixed(self.spec) {
            return Err(other());
        }
        let grid = Grid::of_entry(entry, spec)?;
        Ok(From { plane: PieceSource { entry: s, plane }, grid })
    }
}

/// The geometry that two planes must share for cells to move between them.
fn fixed(plane: &PlaneSpec) -> Vec<(usize, u64)> {
    let mut v: Vec<_> = plane
        .axes
        .iter()
        .filter_map(|a| match *a {
            PlaneAxis::Cells { axis, per, hold: Hold::Packed } if per > 1 => Some((axis, per)),
            PlaneAxis::Table(n) => Some((usize::MAX, n)),
            PlaneAxis::Cells { .. } => None,
        })
        .collect();
    v.sort_unstable();
    v
}

/// A table is moved whole with each cell.
fn tables(target: &Grid, source: Option<&Grid>) -> Vec<Dim> {
    let dim = |(i, t): (usize, &crate::grid::Table)| Dim {
        extent: t.cells,
        source_stride: source.map_or(t.stride, |g| g.tables[i].stride),
        target_stride: t.stride,
    };
    target.tables.iter().enumerate().map(dim).collect()
}

fn push(pieces: &mut Vec<Piece>, piece: Piece) -> Result<(), Why> {
    // Pieces with dimensions wait for `join`, which knows what a longer run does to them.
    if piece.dims.is_empty() && pieces.last_mut().is_some_and(|last| last.extend(&piece)) {
        return Ok(());
    }
    if pieces.len() >= PLANE_PIECES {
        return Err(Why::TooFine { limit: PLANE_PIECES as u64 });
    }
    pieces.push(piece);
    Ok(())
}

/// Blames the axis along which `p` covers only some of a cell.
fn mixed(p: &Part, grid: &Grid, shape: &Shape) -> Why {
    let within = |a: usize| {
        let on = |f: &&Factor| f.axis[TARGET] == a && grid.step(f, TARGET).is_none();
        p.factors.iter().filter(on).map(|f| f.extent).product::<u64>()
    };
    let whole = |a: usize| grid.extent(a, p.origin[TARGET][a], shape);
    let axis = (0..shape.len()).find(|&a| within(a) < whole(a)).unwrap_or(0);
    Why::Mixed { axis, per: grid.axes[axis].per }
}

fn cut(mut parts: Vec<Part>, side: Side, grid: &Grid, budget: &mut Budget) -> Result<Vec<Part>, Why> {
    for (a, g) in grid.axes.iter().enumerate() {
        for p in std::mem::take(&mut parts) {
            p.align(side, a, g.per, budget, &mut parts)?;
        }
    }
    Ok(parts)
}

/// Along a packed axis, an element must have the same place in the target cell as in the source cell.
fn keeps_places(p: &Part, spec: &PlaneSpec, target: &Grid, source: &Grid) -> Result<(), Why> {
    for axis in spec.axes.iter() {
        let PlaneAxis::Cells { axis, per, hold: Hold::Packed } = *axis else { continue };
        let at = [source.axes.len() - 1 - axis, target.axes.len() - 1 - axis];
        let place = |f: &Factor, side: Side| if f.axis[side] == at[side] { f.stride[side] % per } else { 0 };
        let start = |side: Side| p.origin[side][at[side]] % per;
        if start(SOURCE) != start(TARGET) || p.factors.iter().any(|f| place(f, SOURCE) != place(f, TARGET)) {
            return Err(Why::Cut { axis: at[TARGET], per });
        }
    }
    Ok(())
}

fn for_each(dims: &[Dim], s: u64, t: u64, f: &mut dyn FnMut(u64, u64) -> Result<(), Why>) -> Result<(), Why> {
    match dims {
        [] => f(s, t),
        [d, rest @ ..] => (0..d.extent)
            .try_for_each(|i| for_each(rest, s + i * d.source_stride, t + i * d.target_stride, f)),
    }
}
