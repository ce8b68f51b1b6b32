//! How planes are written down, in few words.

use std::sync::Arc;

use tensor::{Dtype, Hold, PlaneAxis, PlaneSpec, Scheme, Shape};

use crate::codec::PlaneTensor;

/// One cell for every `per` elements, which it holds.
pub(super) fn packed(axis: usize, per: u64) -> PlaneAxis {
    PlaneAxis::Cells { axis, per, hold: Hold::Packed }
}

/// One cell for every `per` elements, which share it.
pub(super) fn shared(axis: usize, per: u64) -> PlaneAxis {
    PlaneAxis::Cells { axis, per, hold: Hold::Shared }
}

/// One cell an element.
pub(super) fn each(axis: usize) -> PlaneAxis {
    packed(axis, 1)
}

/// A plane that nothing may share with padding.
pub(super) fn plane(role: &'static str, cell_bytes: u64, axes: &[PlaneAxis]) -> PlaneSpec {
    PlaneSpec { axes: axes.to_vec().into(), ..PlaneSpec::new(role, cell_bytes, &[]) }
}

/// A plane that only multiplies: zeros stay zeros for any of its values.
pub(super) fn factor(role: &'static str, cell_bytes: u64, axes: &[PlaneAxis]) -> PlaneSpec {
    PlaneSpec { spans_padding: true, ..plane(role, cell_bytes, axes) }
}

/// A scheme of matrices, `[out, in]`.
pub(super) fn matrix(name: &str, planes: Vec<PlaneSpec>) -> Arc<Scheme> {
    Arc::new(Scheme { name: name.to_owned().into(), trailing: 2, planes: planes.into() })
}

/// `name` as a parameter spells a number: digits alone, no leading zero.
pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}

/// `[out, in]` of a shape.
pub(super) fn out_in(shape: &Shape) -> [u64; 2] {
    shape.last_chunk::<2>().copied().unwrap_or([1, 1])
}

/// The shape with its last two axes replaced.
pub(super) fn beneath(shape: &Shape, last: &[u64]) -> Shape {
    let lead = &shape[..shape.len().saturating_sub(2)];
    [lead, last].concat().into()
}

/// The tensor that holds a plane of a weight of `shape`, with its last two axes replaced by `last`.
pub(super) fn part(suffix: &'static str, dtype: Dtype, shape: &Shape, last: &[u64]) -> PlaneTensor {
    PlaneTensor { suffix, dtype, shape: beneath(shape, last) }
}
