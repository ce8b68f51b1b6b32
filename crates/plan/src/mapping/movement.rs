//! The effect of single steps on tensors: the expression and the shape, together.

use std::ops::Range;

use tensor::{Expr, Shape};

use crate::shapes;
use crate::why::Why;

/// A tensor on its way.
#[derive(Clone)]
pub(super) struct Tensor {
    pub(super) expr: Expr,
    pub(super) shape: Shape,
}

pub(super) fn permuted(t: Tensor, axes: &[usize]) -> Result<Tensor, Why> {
    Ok(Tensor { shape: shapes::permute(&t.shape, axes)?, expr: t.expr.permute(axes) })
}

pub(super) fn sliced(t: &Tensor, axis: usize, range: Range<u64>) -> Result<Tensor, Why> {
    Ok(Tensor { shape: shapes::slice(&t.shape, axis, &range)?, expr: t.expr.clone().slice(axis, range) })
}

pub(super) fn unflattened(mut t: Tensor, axis: usize, wanted: &[Option<u64>]) -> Result<Tensor, Why> {
    let known = wanted.iter().flatten().try_fold(1u64, |n, size| n.checked_mul(*size)).filter(|n| *n > 0);
    let left = t
        .shape
        .get(axis)
        .zip(known)
        .filter(|(n, known)| n.is_multiple_of(*known))
        .map(|(n, known)| n / known);
    let sizes: Option<Vec<u64>> = wanted.iter().map(|size| size.or(left)).collect();
    let whole = |sizes: &Vec<u64>| sizes.iter().product::<u64>() == t.shape[axis];
    let Some(sizes) = sizes.filter(|sizes| left.is_some() && whole(sizes)) else {
        let size = |size: &Option<u64>| size.map_or("-1".to_owned(), |n| n.to_string());
        let sizes = wanted.iter().map(size).collect::<Vec<_>>().join(", ");
        return Err(Why::Shape(format!("unflatten of axis {axis} of {} to [{sizes}]", t.shape)));
    };
    for at in 1..sizes.len() {
        let (axis, inner) = (axis + at - 1, sizes[at..].iter().product());
        t = Tensor { shape: shapes::split(&t.shape, axis, inner)?, expr: t.expr.split(axis, inner) };
    }
    Ok(t)
}

pub(super) fn padded(t: Tensor, axis: usize, to: u64) -> Result<Tensor, Why> {
    let extent = t.shape.get(axis).copied();
    let Some(more) = extent.and_then(|n| to.checked_sub(n)) else {
        return Err(Why::Shape(format!("padding to {to} of axis {axis} of {}", t.shape)));
    };
    if more == 0 {
        return Ok(t);
    }
    let mut zeros = t.shape.to_vec();
    zeros[axis] = more;
    let zeros = Shape::from(zeros);
    let shape = shapes::fits(shapes::concat(&t.shape, &zeros, axis)?)?;
    Ok(Tensor { shape, expr: Expr::concat(axis, vec![t.expr, Expr::Zero(zeros)]) })
}

pub(super) fn split(
    t: &Tensor,
    axis: usize,
    sizes: Option<&[u64]>,
    names: usize,
) -> Result<Vec<Tensor>, Why> {
    let extent = t.shape.get(axis).copied();
    let equal = |n: u64| n.is_multiple_of(names as u64).then(|| vec![n / names as u64; names]);
    let sizes = match (extent, sizes) {
        (Some(_), Some(sizes)) => Some(sizes.to_vec()),
        (Some(n), None) => equal(n),
        (None, _) => None,
    };
    let whole = |sizes: &Vec<u64>| sizes.iter().try_fold(0u64, |n, size| n.checked_add(*size)) == extent;
    let Some(sizes) = sizes.clone().filter(whole) else {
        let parts = sizes.map_or(format!("{names} equal parts"), |sizes| format!("{sizes:?}"));
        return Err(Why::Shape(format!("split of axis {axis} of {} to {parts}", t.shape)));
    };
    let mut start = 0;
    let part = |size: u64| {
        let range = start..start + size;
        start = range.end;
        sliced(t, axis, range)
    };
    sizes.into_iter().map(part).collect()
}

pub(super) fn joined(parts: Vec<Tensor>, axis: usize) -> Result<Tensor, Why> {
    let mut parts = parts.into_iter();
    let first = parts.next().ok_or_else(|| Why::Shape("merge of nothing".into()))?;
    let mut shape = shapes::concat_first(first.shape, axis)?;
    let mut exprs = vec![first.expr];
    for part in parts {
        shape = shapes::concat(&shape, &part.shape, axis)?;
        exprs.push(part.expr);
    }
    Ok(Tensor { shape: shapes::fits(shape)?, expr: Expr::concat(axis, exprs) })
}

pub(super) fn stacked(parts: Vec<Tensor>) -> Result<Tensor, Why> {
    let first = parts.first().map(|t| t.shape.clone());
    for part in &parts {
        shapes::stackable(first.as_ref().unwrap_or(&part.shape), &part.shape)?;
    }
    let shape = shapes::fits(shapes::stack(first, parts.len())?)?;
    Ok(Tensor { shape, expr: Expr::Stack(parts.into_iter().map(|t| t.expr).collect()) })
}
