//! Directories of squish, written: arrays, and the manifest that gives any name a file.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tensor::{Dtype, Shape};

use super::{MANIFEST, PLAIN, READY, SHAPE, TENSORS, WAYS};
use crate::error::Error;
use crate::fault::Fault;
use crate::format::npy::{SUFFIX, header};
use crate::write::{DraftFile, Flat, OutFile, Outgoing, Refusals};

/// Keys are at most this long in bytes, so that with what comes after them they are names on any file system.
const MAX_KEY: usize = 200;

/// One array a tensor, or one for each of its planes and one for its shape, by name and content; and the manifest with the mark that
/// it is complete.
pub(crate) fn form(tensors: &[Outgoing]) -> Result<(Vec<DraftFile>, Vec<OutFile>), Error> {
    let mut refused = Refusals::default();
    let (mut arrays, mut manifest, mut keys) =
        (Vec::with_capacity(tensors.len()), Map::new(), HashSet::new());
    let mut shapes = vec![];
    for (index, tensor) in tensors.iter().enumerate() {
        let Outgoing { name, shape, scheme } = tensor;
        let Some(planes) = planes(tensor) else {
            refused.scheme(tensor);
            continue;
        };
        if let Some(fault) = Fault::of_name(name.as_bytes(), "tensor name") {
            refused.push(tensor, fault);
        }
        if let Err(why) = scheme.byte_len(shape) {
            refused.push(tensor, Fault::geometry(shape, scheme, why));
            continue;
        }
        let key = key(name, &mut keys);
        for ((suffix, head), plane) in planes.into_iter().zip(scheme.planes.iter()) {
            let at = head.len() as u64;
            let data = scheme.plane_bytes(plane, shape).unwrap_or(0);
            let flat = Flat { head, between: vec![], offsets: vec![vec![at]], len: at.saturating_add(data) };
            let file = format!("{TENSORS}/{key}{suffix}{SUFFIX}");
            arrays.push(DraftFile { name: file, tensors: vec![index], flat });
        }
        if scheme.dtype().is_none() {
            shapes.extend(shape_file(&key, shape));
        }
        if manifest.insert(name.clone(), Value::String(key)).is_some() {
            refused.push(tensor, Fault::Twice);
        }
    }
    refused.check("npy-dir", "a numpy dtype or an encoding of squish")?;
    // A map of strings cannot fail to be JSON.
    let manifest = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    let ready = OutFile::whole(format!("{TENSORS}/{READY}"), vec![]);
    shapes.extend([OutFile::whole(MANIFEST, manifest), ready]);
    Ok((arrays, shapes))
}

/// The suffix and the header of the array of each plane: plain values in their own shape, codes and scales as matrices, as squish has
/// them. `None` if squish has no such encoding.
fn planes(tensor: &Outgoing) -> Option<Vec<(&'static str, Vec<u8>)>> {
    let Outgoing { shape, scheme, .. } = tensor;
    if let Some(dtype) = scheme.dtype() {
        return Some(vec![(PLAIN, header::build(dtype, shape)?)]);
    }
    let (family, _) = scheme.name.split_once(':')?;
    let way = WAYS.iter().find(|way| way.scheme == family)?;
    let rows = Shape::from(shape.split_last()?.1.to_vec()).elements()?;
    let parts = quant::codec(&scheme.name)?.parts(shape);
    let array = |(part, suffix): (quant::PlaneTensor, &&'static str)| {
        let columns = part.shape.elements()?.checked_div(rows)?;
        // A scale a row is an array of one axis.
        let by_row = columns == 1 && scheme.name.ends_with(":row");
        let of = if by_row { Shape::from([rows]) } else { Shape::from([rows, columns]) };
        Some((*suffix, header::build(part.dtype, &of)?))
    };
    parts.into_iter().zip(way.planes).map(array).collect()
}

/// The array that says the shape of a tensor.
fn shape_file(key: &str, shape: &Shape) -> Option<OutFile> {
    let mut content = header::build(Dtype::I64, &Shape::from([shape.len() as u64]))?;
    content.extend(shape.iter().flat_map(|n| n.to_le_bytes()));
    Some(OutFile::whole(format!("{TENSORS}/{key}{SHAPE}{SUFFIX}"), content))
}

/// Returns a prefix of file names for `name`, unique even on file systems that ignore case.
///
/// As squish makes it (squish/convert.py, `safe_key`: `__` for `.`), where that is a plain name. Other characters are
/// replaced, and names in use get a number.
fn key(name: &str, taken: &mut HashSet<String>) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_+=@,~".contains(c) { c } else { '_' };
    let mut key: String = name.replace('.', "__").chars().map(plain).collect();
    let longest = (0..=MAX_KEY.min(key.len())).rev().find(|n| key.is_char_boundary(*n));
    key.truncate(longest.unwrap_or(0));
    let mut n = 1u64;
    let mut unique = key.clone();
    while !taken.insert(unique.to_lowercase()) {
        n += 1;
        unique = format!("{key}~{n}");
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_has_a_file() {
        let mut taken = HashSet::new();
        let mut key = |name: &str| key(name, &mut taken);
        assert_eq!(key("model.layers.0.mlp.weight"), "model__layers__0__mlp__weight");
        assert_eq!(key("model__layers.0.mlp.weight"), "model__layers__0__mlp__weight~2");
        assert_eq!(key("Model.layers.0.mlp.weight"), "Model__layers__0__mlp__weight~3");
        assert_eq!(key("../../etc/passwd"), "__________etc_passwd");
        assert_eq!(key("a\\b\0c\n"), "a_b_c_");
        assert_eq!(key(&"ü".repeat(150)), "ü".repeat(100));
        assert_eq!(key(&"ü".repeat(151)), format!("{}~2", "ü".repeat(100)));
        assert_eq!(key("Ü"), "Ü");
        assert_eq!(key("ü"), "ü~2");
    }
}
