//! The operation to blame for a refusal, and the nearest legal choice.

use std::ops::Range;

use tensor::{Expr, Hold, PlaneAxis, Scheme, counted};

use crate::budget::Budget;
use crate::lower::{Refusal, lower_within};
use crate::problem::Problem;
use crate::sources::Sources;
use crate::view::{gcd, view};
use crate::why::Why;

/// Blames the innermost operation that fails by itself, and offers only choices that were tried and do lower.
pub(crate) fn diagnose(
    param: &str,
    expr: &Expr,
    sources: &Sources,
    scheme: &Scheme,
    refusal: Refusal,
    steps: u64,
) -> Problem {
    if let Why::TooFine { limit } = refusal.why {
        return Problem::TooFine { param: param.into(), limit };
    }
    let mut tries = Tries { sources, scheme, budget: Budget::new(steps) };
    let (guilty, refusal) = tries.culprit(expr).unwrap_or((expr, refusal));
    let (operation, nearest) = match guilty {
        Expr::Slice { axis, range, of } => {
            let near = tries.slice(*axis, range, of);
            (format!("slice {}..{} of axis {axis}", range.start, range.end), near.into_iter().collect())
        }
        Expr::Concat { axis, parts } => (
            format!("concat of {} along axis {axis}", counted(parts.len(), "part")),
            tries.concat(*axis, parts, guilty),
        ),
        Expr::Permute { axes, .. } if axes[..] == [1, 0] => ("the transposition".into(), vec![]),
        Expr::Permute { axes, .. } => (format!("permute {axes:?}"), vec![]),
        Expr::Stack(parts) => {
            (format!("stack of {}", counted(parts.len(), "part")), vec!["keep the parts apart".into()])
        }
        Expr::Split { axis, inner, .. } => (format!("split of axis {axis} by {inner}"), vec![]),
        Expr::Merge { axis, .. } => (format!("merge of axes {axis} and {}", axis + 1), vec![]),
        Expr::Zero(shape) => (format!("padding {shape}"), vec![]),
        Expr::Source(_) | Expr::Encode { .. } => ("the tensor as stored".into(), vec![]),
    };
    Problem::Movement {
        param: param.into(),
        scheme: scheme.name.to_string(),
        plane: refusal.plane,
        operation,
        why: refusal.why,
        nearest,
    }
}

/// Lowers variations of an expression until the budget is gone; then none is known to be legal.
pub(crate) struct Tries<'a> {
    sources: &'a Sources<'a>,
    scheme: &'a Scheme,
    budget: Budget,
}

impl Tries<'_> {
    /// Steps that all the tries for one problem may take together.
    pub(crate) const STEPS: u64 = 1 << 19;

    fn refusal(&mut self, expr: &Expr) -> Option<Refusal> {
        lower_within(expr, self.sources, self.scheme, &mut self.budget).err()
    }

    fn culprit<'e>(&mut self, expr: &'e Expr) -> Option<(&'e Expr, Refusal)> {
        // An intermediate of another rank does not say where `out` and `in` are: it proves nothing.
        let own = self.refusal(expr).filter(|r| !matches!(r.why, Why::Rank { .. } | Why::TooFine { .. }));
        let inner = match expr {
            Expr::Source(_) | Expr::Zero(_) => None,
            Expr::Concat { parts, .. } | Expr::Stack(parts) => parts.iter().find_map(|p| self.culprit(p)),
            Expr::Slice { of, .. }
            | Expr::Split { of, .. }
            | Expr::Merge { of, .. }
            | Expr::Permute { of, .. }
            | Expr::Encode { of, .. } => self.culprit(of),
        };
        // A reshape alone is never to blame: its axes only mean something once the whole is put together.
        inner.or_else(|| {
            own.filter(|_| !matches!(expr, Expr::Split { .. } | Expr::Merge { .. })).map(|why| (expr, why))
        })
    }

    /// The nearest slice that starts and ends between cells.
    fn slice(&mut self, axis: usize, range: &Range<u64>, of: &Expr) -> Option<String> {
        let shape = view(of, self.sources, &mut self.budget).ok()?.shape;
        let n = *shape.get(axis)?;
        let role = shape.len() - 1 - axis;
        let unit = self.scheme.planes.iter().flat_map(|p| p.axes.iter()).fold(1u64, |unit, a| match *a {
            PlaneAxis::Cells { axis, per, .. } if axis == role => (unit / gcd(unit, per)).saturating_mul(per),
            _ => unit,
        });
        let around = |x: u64| [x / unit * unit, x.div_ceil(unit).saturating_mul(unit)];
        let mut ways: Vec<Range<u64>> = around(range.start)
            .iter()
            .flat_map(|&s| around(range.end).into_iter().chain([n]).map(move |e| s..e.min(n)))
            .filter(|r| r.start < r.end && *r != *range)
            .collect();
        let apart = |a: u64, b: u64| u128::from(a.abs_diff(b));
        ways.sort_unstable_by_key(|r| (apart(r.start, range.start) + apart(r.end, range.end), r.start));
        ways.dedup();
        let legal = ways.into_iter().find(|r| {
            let tried = Expr::Slice { axis, range: r.clone(), of: Box::new(of.clone()) };
            self.refusal(&tried).is_none()
        })?;
        Some(format!("the nearest slice is {}..{} (multiples of {unit})", legal.start, legal.end))
    }

    fn concat(&mut self, axis: usize, parts: &[Expr], concat: &Expr) -> Vec<String> {
        let mut nearest = vec![];
        for last in 0..parts.len().min(16) {
            let mut order: Vec<Expr> = parts.to_vec();
            let moved = order.remove(last);
            order.push(moved);
            if self.refusal(&Expr::concat(axis, order)).is_none() {
                nearest.push(format!("part {last} can stand last"));
                break;
            }
        }
        if let Some(fine) = self.finer(axis, concat) {
            nearest.push(format!(
                "a target with one such cell for every {fine} elements of axis {axis} is exact: cells are repeated"
            ));
        }
        if self.refusal(&Expr::Stack(parts.to_vec())).is_none() {
            nearest.push("the parts can be stacked".into());
        }
        nearest.push("keep the parts apart".into());
        nearest
    }

    /// A shared cell may be repeated: the coarsest power of two per cell that makes `concat` legal.
    fn finer(&mut self, axis: usize, concat: &Expr) -> Option<u64> {
        let rank = view(concat, self.sources, &mut self.budget).ok()?.shape.len();
        let role = rank.checked_sub(1 + axis)?;
        (1..12).rev().map(|k| 1u64 << k).find(|&fine| {
            let (mut scheme, mut changed) = (self.scheme.clone(), false);
            for plane in scheme.planes.to_mut() {
                for a in plane.axes.to_mut() {
                    if let PlaneAxis::Cells { axis, per, hold: Hold::Shared } = a
                        && *axis == role
                        && *per > fine
                    {
                        (*per, changed) = (fine, true);
                    }
                }
            }
            changed && lower_within(concat, self.sources, &scheme, &mut self.budget).is_ok()
        })
    }
}
