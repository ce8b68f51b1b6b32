//! Broken files, made from good ones.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::golden;

/// `llama-tiny` as an HF directory, its tensors changed by `change`: name to (shape, bytes), in order.
pub(crate) fn hf_directory(dir: &Path, change: impl FnOnce(&mut Vec<(String, Vec<u64>, Vec<u8>)>)) {
    let source = golden().join("llama-tiny");
    std::fs::copy(source.join("config.json"), dir.join("config.json")).unwrap();
    let file = std::fs::read(source.join("model.safetensors")).unwrap();
    let (len, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*len)).unwrap());
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let number = |v: &Value| v.as_u64().unwrap();
    let mut tensors: Vec<(String, Vec<u64>, Vec<u8>)> = header
        .iter()
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, info)| {
            assert_eq!(info["dtype"], "F32");
            let shape = info["shape"].as_array().unwrap().iter().map(number).collect();
            let at = |i: usize| usize::try_from(number(&info["data_offsets"][i])).unwrap();
            (name.clone(), shape, data[at(0)..at(1)].to_vec())
        })
        .collect();
    change(&mut tensors);
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": offsets}));
        data.extend(bytes);
    }
    let file = testkit::fixture::safetensors_bytes(&Value::Object(header).to_string(), &data);
    std::fs::write(dir.join("model.safetensors"), file).unwrap();
}

/// `llama-tiny` as GGUF, its bytes changed.
pub(crate) fn gguf(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(golden().join("llama-tiny/model.gguf")).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Replaces `from` by `to`, of equal length, once.
pub(crate) fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}
