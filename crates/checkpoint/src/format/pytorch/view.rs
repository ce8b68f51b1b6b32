//! A tensor as a view of its storage: which of its bytes, in which order.

use std::ops::Range;

use tensor::{Dtype, Scheme, Shape};

use super::value::{Storage, Tensor};
use crate::fault::Fault;

/// Bytes of values that may stand for fewer bytes of a file: broadcasts of small things are common, of large
/// ones a few bytes could ask for any amount of memory.
const MOST_REPEATED: u64 = 1 << 30;

/// Where a tensor lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) dtype: Dtype,
    pub(super) shape: Shape,
    /// Bytes from the first element to the end of the last, in the storage.
    pub(super) bytes: Range<u64>,
    /// As in [`tensor::TensorEntry::strides`].
    pub(super) strides: Option<Vec<u64>>,
}

/// Bytes of the whole record that `storage` is, or is a part of; at most its declared length.
pub(super) fn storage_bytes(storage: &Storage) -> Result<u64, Fault> {
    let unknown = |name: &str| Fault::TypeUnsupported { name: name.to_owned() };
    let bytes =
        storage.kind.bytes().ok_or_else(|| unknown(storage.kind.dtype().err().unwrap_or_default()))?;
    let overflow = || Fault::Overflow { shape: Shape::from([storage.elements]) };
    storage.elements.checked_mul(bytes).ok_or_else(overflow)
}

/// The view that `tensor` is of `storage`.
pub(super) fn view(tensor: &Tensor, storage: &Storage) -> Result<View, Fault> {
    let unknown = |name: &str| Fault::TypeUnsupported { name: name.to_owned() };
    let dtype = tensor.kind.dtype().map_err(unknown)?;
    let (shape, size) = (Shape::from(tensor.shape.clone()), dtype.bytes());
    let overflow = || Fault::Overflow { shape: shape.clone() };
    let scheme = Scheme::plain(dtype);
    let logical = scheme.byte_len(&shape).map_err(|why| Fault::geometry(&shape, &scheme, why))?;
    let held = storage_bytes(storage)?;
    if logical == 0 {
        return Ok(View { dtype, shape, bytes: 0..0, strides: None });
    }
    // The last element, counted from the first of the storage.
    let steps = shape
        .iter()
        .zip(&tensor.strides)
        .try_fold(0u64, |at, (n, stride)| (n - 1).checked_mul(*stride).and_then(|far| at.checked_add(far)));
    let first = tensor.offset.checked_mul(size).ok_or_else(overflow)?;
    let span = steps.and_then(|s| s.checked_add(1)?.checked_mul(size)).ok_or_else(overflow)?;
    let end = first.checked_add(span).ok_or_else(overflow)?;
    if end > held {
        return Err(Fault::Leaves { shape, dtype, offset: tensor.offset, wants: end, found: held });
    }
    if logical > span.max(MOST_REPEATED) {
        let what = "length in bytes of a tensor that repeats its elements";
        return Err(Fault::Limit { what, found: logical, limit: MOST_REPEATED });
    }
    Ok(View { dtype, bytes: first..end, strides: strides(&shape, &tensor.strides), shape })
}

/// Returns the strides of a view that is not dense in row-major order; axes of one element get stride 0.
fn strides(shape: &Shape, strides: &[u64]) -> Option<Vec<u64>> {
    let mut dense = 1;
    let mut same = true;
    for (n, stride) in shape.iter().zip(strides).rev().filter(|(n, _)| **n > 1) {
        same &= *stride == dense;
        // The number of elements fits.
        dense = dense.saturating_mul(*n);
    }
    let plain = |(n, stride): (&u64, &u64)| if *n > 1 { *stride } else { 0 };
    (!same).then(|| shape.iter().zip(strides).map(plain).collect())
}
