//! Directories of squish, written: plain arrays, and the manifest that gives any name a file.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{MANIFEST, PLAIN, READY, TENSORS};
use crate::error::Error;
use crate::fault::Fault;
use crate::format::npy::{SUFFIX, header};
use crate::write::{DraftFile, Flat, OutFile, Outgoing, Refusals};

/// Keys are at most this long in bytes, so that with what comes after them they are names on any file system.
const MAX_KEY: usize = 200;

/// One array a tensor, by name and content, and the manifest with the mark that it is complete.
pub(crate) fn form(tensors: &[Outgoing]) -> Result<(Vec<DraftFile>, Vec<OutFile>), Error> {
    let mut refused = Refusals::default();
    let (mut arrays, mut manifest, mut keys) =
        (Vec::with_capacity(tensors.len()), Map::new(), HashSet::new());
    for (index, tensor) in tensors.iter().enumerate() {
        let Outgoing { name, shape, scheme } = tensor;
        let Some(head) = scheme.dtype().and_then(|dtype| header::build(dtype, shape)) else {
            refused.scheme(tensor);
            continue;
        };
        if let Some(fault) = Fault::of_name(name.as_bytes(), "tensor name") {
            refused.push(tensor, fault);
        }
        match scheme.byte_len(shape) {
            Ok(data) => {
                let at = head.len() as u64;
                let key = key(name, &mut keys);
                let flat = Flat { head, offsets: vec![vec![at]], len: at.saturating_add(data) };
                let file = format!("{TENSORS}/{key}{PLAIN}{SUFFIX}");
                arrays.push(DraftFile { name: file, tensors: vec![index], flat });
                if manifest.insert(name.clone(), Value::String(key)).is_some() {
                    refused.push(tensor, Fault::Twice);
                }
            }
            Err(why) => refused.push(tensor, Fault::geometry(shape, scheme, why)),
        }
    }
    refused.check("npy-dir", "a numpy dtype")?;
    // A map of strings cannot fail to be JSON.
    let manifest = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    let ready = OutFile::whole(format!("{TENSORS}/{READY}"), vec![]);
    Ok((arrays, vec![OutFile::whole(MANIFEST, manifest), ready]))
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
