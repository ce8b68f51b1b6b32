//! Weights of a directory, written: one file, or several and their index.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};

use crate::error::Error;
use crate::format::safetensors;
use crate::write::{DraftFile, Flavour, Outgoing, shards};

/// The index of weights in several files.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The files with the weights.
pub(crate) struct Shards {
    /// Each of them.
    pub(crate) parts: Vec<DraftFile>,
    /// The index, if there is to be one.
    pub(crate) index: Option<Vec<u8>>,
}

/// Cuts `tensors` as the flavour's own writer does, into files that hold at most `most` bytes of them. The planes
/// of one are always in one file.
///
/// Sources: `save_pretrained` of transformers 5.23 (modeling_utils.py: 50 GB; an index only of several files, with
/// sorted keys) with huggingface_hub 2.4; `save_model` of mlx-lm 0.32 (utils.py: 5 GiB; always an index).
pub(crate) fn shards(
    tensors: &[Outgoing],
    pairs: &[(String, String)],
    flavour: Flavour,
    most: Option<u64>,
) -> Result<Shards, Error> {
    // All that is refused, before any of it is cut.
    let whole = safetensors::form(tensors, pairs, true, safetensors::AS_REFERENCE)?;
    let bytes = |t: &Outgoing| t.scheme.byte_len(&t.shape).unwrap_or(u64::MAX);
    let sizes: Vec<u64> = tensors.iter().map(bytes).collect();
    let cut: Vec<Vec<usize>> = match flavour {
        Flavour::Hf => shards::set_apart(&sizes, most.unwrap_or(50_000_000_000)),
        Flavour::Mlx => {
            let cut = shards::in_order(&sizes, most.unwrap_or(5 << 30));
            cut.into_iter().map(Iterator::collect).collect()
        }
    };
    let count = cut.len();
    let name = |i: usize| match count {
        1 => "model.safetensors".to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    let mut map = BTreeMap::new();
    for (i, members) in cut.iter().enumerate() {
        let held = members.iter().filter_map(|t| tensors.get(*t)).flat_map(safetensors::names);
        map.extend(held.map(|tensor| (tensor, name(i))));
    }
    let index = (count > 1 || flavour == Flavour::Mlx).then(|| {
        let size = sizes.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let parameters = tensors.iter().filter_map(|t| t.shape.elements());
        let parameters = parameters.fold(0u64, u64::saturating_add);
        index(flavour, size, parameters, &map)
    });
    if count == 1 {
        let parts = vec![DraftFile { name: name(0), tensors: (0..tensors.len()).collect(), flat: whole }];
        return Ok(Shards { parts, index });
    }
    let part = |(i, members): (usize, Vec<usize>)| {
        let held: Vec<Outgoing> = members.iter().filter_map(|t| tensors.get(*t)).cloned().collect();
        let flat = safetensors::form(&held, pairs, true, safetensors::AS_REFERENCE)?;
        Ok(DraftFile { name: name(i), tensors: members, flat })
    };
    let parts = cut.into_iter().enumerate().map(part).collect::<Result<_, Error>>()?;
    Ok(Shards { parts, index })
}

/// The index as the flavour's own writer has it, byte for byte: transformers with sorted keys and an indent of two,
/// mlx-lm with an indent of four and without an end of line.
fn index(flavour: Flavour, size: u64, parameters: u64, map: &BTreeMap<String, String>) -> Vec<u8> {
    let (metadata, indent, end): (Value, &[u8], &[u8]) = match flavour {
        Flavour::Hf => (json!({"total_parameters": parameters, "total_size": size}), b"  ", b"\n"),
        Flavour::Mlx => (json!({"total_size": size, "total_parameters": parameters}), b"    ", b""),
    };
    let mut out = vec![];
    let mut serializer = Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(indent));
    // Maps of strings and numbers cannot fail to be JSON, nor a `Vec` to be written to.
    let _ = json!({"metadata": metadata, "weight_map": map}).serialize(&mut serializer);
    out.extend(end);
    out
}
