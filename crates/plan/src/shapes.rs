//! The shape of an expression, with every way in which one may not fit together.

use std::ops::Range;

use tensor::{Expr, Shape};

use crate::budget::DEPTH;
use crate::why::Why;

/// The shape of `expr`, where `find` gives the shapes of its sources. Cheap: it makes no parts.
///
/// # Errors
/// [`Why::Shape`] or [`Why::Overflow`].
pub fn shape_of(expr: &Expr, find: &dyn Fn(&str) -> Option<Shape>) -> Result<Shape, Why> {
    bounded(expr, find, DEPTH)
}

/// # Errors
/// [`Why::Shape`] if `expr` nests so deep that walking it could end the stack.
pub(crate) fn shallow(expr: &Expr) -> Result<(), Why> {
    fn walk(expr: &Expr, left: usize) -> bool {
        left > 0
            && match expr {
                Expr::Source(_) | Expr::Zero(_) => true,
                Expr::Concat { parts, .. } | Expr::Stack(parts) => parts.iter().all(|p| walk(p, left - 1)),
                Expr::Slice { of, .. }
                | Expr::Split { of, .. }
                | Expr::Merge { of, .. }
                | Expr::Permute { of, .. }
                | Expr::Encode { of, .. } => walk(of, left - 1),
            }
    }
    if walk(expr, DEPTH) { Ok(()) } else { Err(too_deep()) }
}

fn too_deep() -> Why {
    Why::Shape(format!("the expression nests deeper than {DEPTH} operations"))
}

fn bounded(expr: &Expr, find: &dyn Fn(&str) -> Option<Shape>, left: usize) -> Result<Shape, Why> {
    let left = left.checked_sub(1).ok_or_else(too_deep)?;
    let shape = match expr {
        Expr::Source(name) => find(name).ok_or_else(|| Why::Shape(format!("there is no `{name}`")))?,
        Expr::Zero(shape) => shape.clone(),
        Expr::Concat { axis, parts } => {
            let mut all: Option<Shape> = None;
            for part in parts {
                let next = bounded(part, find, left)?;
                all = Some(match all {
                    None => concat_first(next, *axis)?,
                    Some(all) => concat(&all, &next, *axis)?,
                });
            }
            all.ok_or_else(|| Why::Shape("concat of nothing".into()))?
        }
        Expr::Stack(parts) => {
            let mut first: Option<Shape> = None;
            for part in parts {
                let next = bounded(part, find, left)?;
                stackable(first.get_or_insert_with(|| next.clone()), &next)?;
            }
            stack(first, parts.len())?
        }
        Expr::Slice { axis, range, of } => slice(&bounded(of, find, left)?, *axis, range)?,
        Expr::Split { axis, inner, of } => split(&bounded(of, find, left)?, *axis, *inner)?,
        Expr::Merge { axis, of } => merge(&bounded(of, find, left)?, *axis)?,
        Expr::Permute { axes, of } => permute(&bounded(of, find, left)?, axes)?,
        Expr::Encode { of, .. } => bounded(of, find, left)?,
    };
    fits(shape)
}

/// # Errors
/// [`Why::Overflow`] if the elements cannot be counted, which everything after relies on.
pub(crate) fn fits(shape: Shape) -> Result<Shape, Why> {
    shape.elements().map(|_| shape).ok_or(Why::Overflow)
}

pub(crate) fn concat_first(shape: Shape, axis: usize) -> Result<Shape, Why> {
    if axis < shape.len() {
        Ok(shape)
    } else {
        Err(Why::Shape(format!("concat of {shape} along axis {axis}")))
    }
}

pub(crate) fn concat(a: &Shape, b: &Shape, axis: usize) -> Result<Shape, Why> {
    let fits = a.len() == b.len()
        && axis < a.len()
        && a.iter().zip(b.iter()).enumerate().all(|(i, (x, y))| i == axis || x == y);
    if !fits {
        return Err(Why::Shape(format!("concat of {a} and {b} along axis {axis}")));
    }
    let mut all = a.to_vec();
    all[axis] = all[axis].checked_add(b[axis]).ok_or(Why::Overflow)?;
    Ok(all.into())
}

pub(crate) fn stackable(first: &Shape, next: &Shape) -> Result<(), Why> {
    if first == next { Ok(()) } else { Err(Why::Shape(format!("stack of {first} and {next}"))) }
}

pub(crate) fn stack(first: Option<Shape>, parts: usize) -> Result<Shape, Why> {
    let first = first.ok_or_else(|| Why::Shape("stack of nothing".into()))?;
    let mut shape = first.into_vec();
    shape.insert(0, parts as u64);
    Ok(shape.into())
}

pub(crate) fn slice(of: &Shape, axis: usize, range: &Range<u64>) -> Result<Shape, Why> {
    if axis >= of.len() || range.start > range.end || range.end > of[axis] {
        return Err(Why::Shape(format!("slice {}..{} of axis {axis} of {of}", range.start, range.end)));
    }
    let mut shape = of.to_vec();
    shape[axis] = range.end - range.start;
    Ok(shape.into())
}

pub(crate) fn split(of: &Shape, axis: usize, inner: u64) -> Result<Shape, Why> {
    if axis >= of.len() || inner == 0 || !of[axis].is_multiple_of(inner) {
        return Err(Why::Shape(format!("split of axis {axis} of {of} by {inner}")));
    }
    let mut shape = of.to_vec();
    shape[axis] /= inner;
    shape.insert(axis + 1, inner);
    Ok(shape.into())
}

pub(crate) fn merge(of: &Shape, axis: usize) -> Result<Shape, Why> {
    if axis.checked_add(1).is_none_or(|next| next >= of.len()) {
        return Err(Why::Shape(format!("merge of axis {axis} of {of} with the next")));
    }
    let mut shape = of.to_vec();
    let inner = shape.remove(axis + 1);
    shape[axis] = shape[axis].checked_mul(inner).ok_or(Why::Overflow)?;
    Ok(shape.into())
}

pub(crate) fn permute(of: &Shape, axes: &[usize]) -> Result<Shape, Why> {
    let mut seen = vec![false; of.len()];
    for &axis in axes {
        if let Some(s) = seen.get_mut(axis) {
            *s = true;
        }
    }
    if axes.len() != of.len() || seen.contains(&false) {
        return Err(Why::Shape(format!("permute of {of} by {axes:?}")));
    }
    Ok(axes.iter().map(|&a| of[a]).collect::<Vec<_>>().into())
}

/// Whether some of a source may be left out, so that its shape does not follow from the result's.
pub(crate) fn sliced(expr: &Expr) -> bool {
    match expr {
        Expr::Source(_) | Expr::Zero(_) => false,
        Expr::Slice { .. } => true,
        Expr::Concat { parts, .. } | Expr::Stack(parts) => parts.iter().any(sliced),
        Expr::Split { of, .. }
        | Expr::Merge { of, .. }
        | Expr::Permute { of, .. }
        | Expr::Encode { of, .. } => sliced(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(expr: &Expr) -> Result<Shape, Why> {
        shape_of(expr, &|name| (name == "w").then(|| Shape::from([8, 6])))
    }

    #[test]
    fn shapes_follow_the_operations() {
        let w = || Expr::source("w");
        assert_eq!(of(&w().slice(0, 2..6).transpose()), Ok(Shape::from([6, 4])));
        assert_eq!(of(&w().split(0, 2).merge(1)), Ok(Shape::from([4, 12])));
        assert_eq!(of(&Expr::Stack(vec![w(), w(), w()])), Ok(Shape::from([3, 8, 6])));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let w = || Expr::source("w");
        let text = |e: &Expr| match of(e) {
            Err(Why::Shape(text)) => text,
            other => format!("{other:?}"),
        };
        assert_eq!(text(&w().slice(0, 2..9)), "slice 2..9 of axis 0 of [8, 6]");
        assert_eq!(text(&w().split(1, 4)), "split of axis 1 of [8, 6] by 4");
        assert_eq!(text(&w().merge(1)), "merge of axis 1 of [8, 6] with the next");
        assert_eq!(text(&w().permute(&[0, 0])), "permute of [8, 6] by [0, 0]");
        assert_eq!(text(&w().permute(&[0, 7])), "permute of [8, 6] by [0, 7]");
        assert_eq!(text(&Expr::concat(0, vec![])), "concat of nothing");
        assert_eq!(
            text(&Expr::concat(1, vec![w(), w().slice(0, 0..4)])),
            "concat of [8, 6] and [4, 6] along axis 1"
        );
        assert_eq!(text(&Expr::concat(5, vec![w()])), "concat of [8, 6] along axis 5");
        assert_eq!(text(&Expr::source("v")), "there is no `v`");
    }

    #[test]
    fn huge_shapes_and_deep_expressions_are_refused() {
        let huge = || Expr::Zero(Shape::from([u64::MAX / 2 + 1, 0]));
        assert_eq!(of(&Expr::concat(0, vec![huge(), huge()])), Err(Why::Overflow));
        assert_eq!(of(&Expr::Zero(Shape::from([0, u64::MAX, 2]))), Err(Why::Overflow));
        assert_eq!(of(&Expr::Zero(Shape::from([0])).split(0, u64::MAX).split(0, 2)), Err(Why::Overflow));
        let deep = (0..1000).fold(Expr::source("w"), |e, _| e.transpose());
        assert!(matches!(of(&deep), Err(Why::Shape(t)) if t.contains("deeper")));
        assert!(shallow(&deep).is_err());
    }
}
