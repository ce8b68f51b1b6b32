//! GGUF version 3, written: the header, and where each tensor's data goes.

use std::path::Path;

use super::value::Value;
use super::{MAGIC, MAX_DIMS, MAX_NAME};
use super::{split, types};
use crate::error::Error;
use crate::fault::Fault;
use crate::write::shards::{self, Split};
use crate::write::{DraftFile, Flat, Outgoing, Refusals};

const VERSION: u32 = 3;
/// gguf.h, `GGUF_DEFAULT_ALIGNMENT`.
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENT: &str = "general.alignment";

/// The file of `tensors` with `metadata`. As ggml does, data is padded after the last tensor too
/// (ggml/src/gguf.cpp, `gguf_add_tensor`).
pub(crate) fn form(tensors: &[Outgoing], metadata: &[(&str, Value<'_>)]) -> Result<Flat, Error> {
    let alignment = alignment(metadata);
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        string(&mut head, key.as_bytes());
        head.extend(value.kind().id().to_le_bytes());
        put(&mut head, value);
    }
    let mut refused = Refusals::default();
    let mut starts = Vec::with_capacity(tensors.len());
    let mut next = 0u64;
    for tensor in tensors {
        starts.push(next);
        match info(&mut head, tensor, next) {
            Ok(bytes) => next = next.saturating_add(padded(bytes, alignment)),
            Err(Some(fault)) => refused.push(tensor, fault),
            Err(None) => refused.scheme(tensor),
        }
    }
    refused.check("gguf", "a ggml type")?;
    let data =
        if tensors.is_empty() { head.len() as u64 } else { (head.len() as u64).next_multiple_of(alignment) };
    let offsets = starts.into_iter().map(|start| vec![data + start]).collect();
    Ok(Flat { head, between: vec![], offsets, len: data.saturating_add(next) })
}

/// Returns the files of `tensors`, with the suffixes of their names and the tensors in each. The first has all of
/// `metadata`, the others only their part number, and their alignment if it is not the default.
///
/// Source of the cuts and the order of keys: tools/gguf-split/gguf-split.cpp of llama.cpp@0c1e57098 (`split_strategy`).
/// As gguf-py has it (gguf_writer.py, `format_shard_names`), a model that fits in one file is not split.
pub(crate) fn parts(
    tensors: &[Outgoing],
    metadata: &[(&str, Value<'_>)],
    cut: Split,
) -> Result<Vec<DraftFile>, Error> {
    // All that is refused, before any of it is cut.
    let whole = form(tensors, metadata)?;
    let ranges = match cut {
        Split::Bytes(most) => {
            let size = |t: &Outgoing| t.scheme.byte_len(&t.shape).unwrap_or(u64::MAX);
            let sizes: Vec<u64> = tensors.iter().map(|t| padded(size(t), alignment(metadata))).collect();
            shards::in_order(&sizes, most)
        }
        Split::Tensors(most) => shards::in_order(&vec![1; tensors.len()], most),
    };
    if ranges.len() == 1 {
        return Ok(vec![DraftFile {
            name: String::new(),
            tensors: (0..tensors.len()).collect(),
            flat: whole,
        }]);
    }
    let limit = |what, found: usize, limit| {
        let fault = Fault::Limit { what, found: found as u64, limit };
        Error::whole(Path::new("gguf"), fault).with_hint("let the files be longer")
    };
    let count =
        u16::try_from(ranges.len()).map_err(|_| limit("number of files", ranges.len(), u16::MAX.into()))?;
    let total = i32::try_from(tensors.len())
        .map_err(|_| limit("number of tensors in several files", tensors.len(), i32::MAX as u64))?;
    let part = |(no, range): (u16, std::ops::Range<usize>)| {
        let all = |(key, _): &&(&str, Value<'_>)| no == 0 || *key == ALIGNMENT;
        let mut pairs: Vec<(&str, Value<'_>)> =
            metadata.iter().filter(|(key, _)| !key.starts_with("split.")).filter(all).copied().collect();
        pairs.push((split::NO, Value::U16(no)));
        pairs.push((split::TENSORS, Value::I32(total)));
        pairs.push((split::COUNT, Value::U16(count)));
        let name = format!("-{:05}-of-{count:05}", u32::from(no) + 1);
        let held = tensors.get(range.clone()).unwrap_or_default();
        Ok(DraftFile { name, tensors: range.collect(), flat: form(held, &pairs)? })
    };
    (0..).zip(ranges).map(part).collect()
}

fn alignment(metadata: &[(&str, Value<'_>)]) -> u64 {
    let alignment = metadata.iter().find(|(key, _)| *key == ALIGNMENT);
    let alignment = alignment.and_then(|(_, v)| v.as_u64()).filter(|a| a.is_power_of_two());
    alignment.unwrap_or(DEFAULT_ALIGNMENT)
}

fn padded(bytes: u64, alignment: u64) -> u64 {
    bytes.saturating_add(alignment - 1) & !(alignment - 1)
}

/// Writes a tensor info; gives the tensor's bytes, or what is wrong: with the scheme if nothing else.
fn info(head: &mut Vec<u8>, tensor: &Outgoing, offset: u64) -> Result<u64, Option<Fault>> {
    let Outgoing { name, shape, scheme } = tensor;
    let id = types::id(&scheme.name).ok_or(None)?;
    let limit = |what, found, limit| Err(Some(Fault::Limit { what, found, limit }));
    if name.len() as u64 > MAX_NAME {
        return limit("name length in bytes", name.len() as u64, MAX_NAME);
    }
    let dims = u32::try_from(shape.len()).unwrap_or(u32::MAX);
    if dims > MAX_DIMS {
        return limit("number of dimensions", dims.into(), MAX_DIMS.into());
    }
    let bytes = scheme.byte_len(shape).map_err(|why| Some(Fault::geometry(shape, scheme, why)))?;
    string(head, name.as_bytes());
    head.extend(dims.to_le_bytes());
    // The file has the fastest axis first.
    shape.iter().rev().for_each(|n| head.extend(n.to_le_bytes()));
    head.extend(id.to_le_bytes());
    head.extend(offset.to_le_bytes());
    Ok(bytes)
}

/// A length and bytes.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

fn put(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Str(v) => string(out, v),
        Value::Array(array) => {
            out.extend(array.element().id().to_le_bytes());
            out.extend(array.len().to_le_bytes());
            if array.is_usual() {
                out.extend(array.bytes());
            } else {
                array.values().for_each(|value| put(out, &value));
            }
        }
    }
}
