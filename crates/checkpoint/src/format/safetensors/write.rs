//! safetensors, written: the header, and where each plane goes.

use serde_json::{Map, Value, json};
use tensor::{Dtype, Shape};

use super::header::HeaderDtype;
use crate::error::Error;
use crate::fault::Fault;
use crate::write::{Flat, Outgoing, Refusals};

/// Where bytes of a file begin.
#[derive(Clone, Copy)]
pub(crate) struct Aligned {
    /// The first byte of all tensors, counted from the beginning of the file, is at a multiple of this.
    data: u64,
    /// The first byte of each tensor, counted from that of all.
    tensor: u64,
}

/// As the reference aligns (safetensors/src/tensor.rs, `prepare`).
pub(crate) const AS_REFERENCE: Aligned = Aligned { data: 8, tensor: 1 };

/// For a file that is mapped: data begin on a page of 4 KiB, tensors on a cache line. The reference refuses gaps, so that what is
/// between tensors is a tensor too, of bytes, named by [`PADDING`] and a number.
pub(crate) const IN_PAGES: Aligned = Aligned { data: 4096, tensor: 64 };

/// How the names of tensors begin that only fill gaps.
const PADDING: &str = "__padding__.";

/// The subject of refusals.
const WHAT: &str = "safetensors";

/// One tensor of the file: a plane of one that is to be written.
struct Plane {
    name: String,
    dtype: Dtype,
    shape: Shape,
    bytes: u64,
    /// Which tensor, and which of its planes.
    of: (usize, usize),
}

/// Lays out the file of `tensors` with `pairs` as its `__metadata__`. Weights of several planes, which need a
/// configuration beside the file, are accepted if `quantised`.
///
/// As in the reference, tensors are sorted by the size of their elements, the largest first, so that each is aligned
/// without gaps.
pub(crate) fn form(
    tensors: &[Outgoing],
    pairs: &[(String, String)],
    quantised: bool,
    aligned: Aligned,
) -> Result<Flat, Error> {
    let mut refused = Refusals::default();
    let mut planes = Vec::with_capacity(tensors.len());
    for (index, tensor) in tensors.iter().enumerate() {
        match split(index, tensor) {
            Ok(more) if more.len() == 1 || quantised => planes.extend(more),
            Ok(_) | Err(None) => refused.scheme(tensor),
            Err(Some(fault)) => refused.push(tensor, fault),
        }
    }
    let wants =
        if quantised { "a plain dtype or a scheme that config.json can describe" } else { "a plain dtype" };
    std::mem::take(&mut refused).check(WHAT, wants)?;
    planes.sort_by_key(|p| std::cmp::Reverse(p.dtype.bytes()));

    let mut header = Map::new();
    if !pairs.is_empty() {
        let pairs: Map<String, Value> = pairs.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        header.insert("__metadata__".to_owned(), Value::Object(pairs));
    }
    let info = |dtype: Dtype, shape: &[u64], start: u64, end: u64| json!({ "dtype": HeaderDtype::name(dtype), "shape": shape, "data_offsets": [start, end] });
    let mut starts = Vec::with_capacity(planes.len());
    let (mut next, mut gaps) = (0u64, 0);
    for plane in &planes {
        let start = next.div_ceil(aligned.tensor).saturating_mul(aligned.tensor);
        let end = start.saturating_add(plane.bytes);
        let mut twice = false;
        if start > next {
            let gap = info(Dtype::U8, &[start - next], next, start);
            twice |= header.insert(format!("{PADDING}{gaps}"), gap).is_some();
            gaps += 1;
        }
        twice |= header.insert(plane.name.clone(), info(plane.dtype, &plane.shape, start, end)).is_some();
        if let Some(tensor) = tensors.get(plane.of.0).filter(|_| twice) {
            refused.push(tensor, Fault::Twice);
        }
        starts.push(start);
        next = end;
    }
    refused.check(WHAT, wants)?;
    // A map of strings and numbers cannot fail to be JSON.
    let mut json = serde_json::to_vec(&header).unwrap_or_default();
    // Its own length stands before it, in 8 bytes.
    let data = (json.len() as u64 + 8).next_multiple_of(aligned.data);
    json.resize(usize::try_from(data - 8).unwrap_or(json.len()), b' ');
    let head = [&(json.len() as u64).to_le_bytes()[..], &json].concat();
    let mut offsets: Vec<Vec<u64>> = tensors.iter().map(|t| vec![0; t.scheme.planes.len()]).collect();
    for (plane, start) in planes.iter().zip(starts) {
        if let Some(offset) = offsets.get_mut(plane.of.0).and_then(|o| o.get_mut(plane.of.1)) {
            *offset = data.saturating_add(start);
        }
    }
    Ok(Flat { head, between: vec![], offsets, len: data.saturating_add(next) })
}

impl Outgoing {
    /// The plain tensors by which safetensors files hold it, one for each plane of its scheme, with their dtypes and shapes. `None` if
    /// its scheme has no such form.
    pub fn plain_tensors(&self) -> Option<Vec<(String, Dtype, Shape)>> {
        let planes = split(0, self).ok()?;
        Some(planes.into_iter().map(|plane| (plane.name, plane.dtype, plane.shape)).collect())
    }
}

/// The names under which a file holds `tensor`, which [`form`] has taken.
pub(crate) fn names(tensor: &Outgoing) -> Vec<String> {
    split(0, tensor).unwrap_or_default().into_iter().map(|plane| plane.name).collect()
}

/// The tensors of the file that hold `tensor`, or what is wrong: with the scheme if nothing else.
fn split(index: usize, tensor: &Outgoing) -> Result<Vec<Plane>, Option<Fault>> {
    let Outgoing { name, shape, scheme } = tensor;
    let wrong = |why| Some(Fault::geometry(shape, scheme, why));
    if let Some(dtype) = scheme.dtype() {
        let bytes = scheme.byte_len(shape).map_err(wrong)?;
        let of = (index, 0);
        return Ok(vec![Plane { name: name.clone(), dtype, shape: shape.clone(), bytes, of }]);
    }
    let parts = quant::codec(&scheme.name).map(|c| c.parts(shape)).filter(|p| !p.is_empty()).ok_or(None)?;
    // `q_proj.weight` has `q_proj.scales` beside it, and vLLM's `w13_weight` has `w13_scales`.
    let beside = |suffix: &str| match name.strip_suffix("_weight") {
        Some(module) => format!("{module}_{}", suffix.trim_start_matches('.')),
        None => format!("{}{suffix}", name.strip_suffix(".weight").unwrap_or(name)),
    };
    let planes = parts.into_iter().zip(scheme.planes.iter()).enumerate().map(|(i, (part, plane))| {
        let bytes = scheme.plane_bytes(plane, shape).map_err(wrong)?;
        let name = beside(part.suffix);
        Ok(Plane { name, dtype: part.dtype, shape: part.shape, bytes, of: (index, i) })
    });
    planes.collect()
}
