//! GGUF version 3, written: the header, and where each tensor's data goes.

use super::types;
use super::value::Value;
use super::{MAGIC, MAX_DIMS, MAX_NAME};
use crate::error::Error;
use crate::fault::Fault;
use crate::write::{Flat, Outgoing, Refusals};

const VERSION: u32 = 3;
/// gguf.h, `GGUF_DEFAULT_ALIGNMENT`.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The file of `tensors` with `metadata`. As ggml does, data is padded after the last tensor too
/// (ggml/src/gguf.cpp, `gguf_add_tensor`).
pub(crate) fn form(tensors: &[Outgoing], metadata: &[(&str, Value<'_>)]) -> Result<Flat, Error> {
    let alignment = metadata.iter().find(|(key, _)| *key == "general.alignment");
    let alignment = alignment.and_then(|(_, v)| v.as_u64()).filter(|a| a.is_power_of_two());
    let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT);

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
            Ok(bytes) => next = next.saturating_add(bytes.saturating_add(alignment - 1) & !(alignment - 1)),
            Err(Some(fault)) => refused.push(tensor, fault),
            Err(None) => refused.scheme(tensor),
        }
    }
    refused.check("gguf", "a ggml type")?;
    let data =
        if tensors.is_empty() { head.len() as u64 } else { (head.len() as u64).next_multiple_of(alignment) };
    let offsets = starts.into_iter().map(|start| vec![data + start]).collect();
    Ok(Flat { head, offsets, len: data.saturating_add(next) })
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
