//! Our listings of files compared with the reference readers': `golden/gguf` and `golden/safetensors` have the scripts
//! that wrote the listings.

use std::path::Path;

use checkpoint::{Array, Checkpoint, Value};
use serde_json::{Value as Json, json};

use testkit::golden;

use crate::open_both;
use testkit::model;

pub(crate) fn listing(name: &str) -> Json {
    let text = std::fs::read(golden(name)).expect("the listing is in git");
    serde_json::from_slice(&text).expect("the listing is JSON")
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The entries as the listings have them: name, scheme, shape, first byte in the file, bytes.
pub(crate) fn tensors(checkpoint: &Checkpoint) -> Json {
    let line = |e: &tensor::TensorEntry| {
        json!([e.name, e.scheme.name, e.shape.to_vec(), e.planes[0].bytes.start, e.byte_len()])
    };
    checkpoint.entries().iter().map(line).collect()
}

pub(crate) fn pair(key: &str, value: Value<'_>) -> Json {
    let listed = match value {
        Value::Bool(v) => json!(v),
        Value::F32(v) => json!(f64::from(v)),
        Value::F64(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::Str(v) => json!(std::str::from_utf8(v).expect("UTF-8")),
        Value::U8(_) | Value::U16(_) | Value::U32(_) => json!(value.as_u64().expect("unsigned")),
        Value::I8(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::Array(array) => {
            return json!([key, "arr", array.element().name(), array.len(), elements(&array)]);
        }
    };
    json!([key, value.kind().name(), listed])
}

/// The digest of an array's elements, put together from what the iterators give.
fn elements(array: &Array<'_>) -> String {
    match array.strings() {
        None => fnv(array.bytes()),
        Some(strings) => {
            let parts: Vec<u8> =
                strings.flat_map(|s| [&(s.len() as u64).to_le_bytes()[..], s].concat()).collect();
            fnv(&parts)
        }
    }
}

fn agrees_with_gguf_py(path: &Path, listed: &str) {
    let checkpoint = open_both(path).expect("sound");
    let metadata = checkpoint.metadata().gguf().expect("gguf");
    let listing = listing(listed);
    let pairs: Json = metadata.iter().map(|(key, value)| pair(key, value)).collect();
    assert_eq!(pairs, listing["pairs"]);
    assert_eq!(tensors(&checkpoint), listing["tensors"]);
    assert_eq!(metadata.version(), listing["version"]);
    assert_eq!(metadata.alignment(), listing["alignment"]);
    assert_eq!(metadata.data_start(), listing["data_offset"]);
}

#[test]
fn smollm2() {
    agrees_with_gguf_py(&model("smollm2"), "gguf/smollm2.json");
}

#[test]
fn gemma3() {
    agrees_with_gguf_py(&model("gemma3"), "gguf/gemma3.json");
}

#[test]
fn a_tensor_of_every_type_and_a_value_of_every_type() {
    agrees_with_gguf_py(&golden("gguf/every-type.gguf"), "gguf/every-type.json");
    let listing = listing("gguf/every-type.json");
    assert_eq!(listing["tensors"].as_array().expect("an array").len(), 35, "43 ids less 8 removed");
}

#[test]
fn a_tensor_of_every_dtype() {
    let checkpoint = open_both(&golden("safetensors/every-dtype.safetensors")).expect("sound");
    let listing = listing("safetensors/every-dtype.json");
    let found: Json = checkpoint
        .entries()
        .iter()
        .map(|entry| {
            let plane = &entry.planes[0];
            let mut bytes = vec![0; usize::try_from(entry.byte_len()).expect("small")];
            checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).expect("inside");
            json!([entry.name, entry.scheme.name, entry.shape.to_vec(), fnv(&bytes)])
        })
        .collect();
    assert_eq!(found, listing["tensors"]);
    let metadata = checkpoint.metadata().hf().expect("hf").safetensors();
    let pairs: Json = metadata.iter().map(|(k, v)| json!([k, v])).collect();
    assert_eq!(pairs, listing["metadata"]);
}
