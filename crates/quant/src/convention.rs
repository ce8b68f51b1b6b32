//! How ecosystems say in `config.json` that weights are quantised: one file and one registry line each.

mod bitnet;
mod fp8;
mod mlx;
mod mxfp4;

pub(crate) use bitnet::BitNet;
pub(crate) use fp8::Fp8;
pub(crate) use mlx::Mlx;
pub(crate) use mxfp4::Mxfp4;

use serde_json::{Map, Value};

/// `quantization_config`, if its `quant_method` is `name`.
fn method<'a>(config: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    let quantization = config.get("quantization_config")?.as_object()?;
    (quantization.get("quant_method")?.as_str()? == name).then_some(quantization)
}

/// The number `key` of `object`, if it is there.
///
/// # Errors
/// If it is something else than a whole number. `path` says where `object` stands.
fn number(path: &str, object: &Map<String, Value>, key: &str) -> Result<Option<u64>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(n) => Ok(Some(n)),
            None => Err(format!("`{path}.{key}` is `{value}`, wanted a whole number")),
        },
    }
}

/// The string `key` of `object`, if it is there.
///
/// # Errors
/// If it is something else. `path` says where `object` stands.
fn text<'a>(path: &str, object: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(format!("`{path}.{key}` is `{value}`, wanted a string")),
    }
}

/// Numbers as a sentence lists them: `2, 3 or 4`.
fn any_of(numbers: &[u64]) -> String {
    match numbers {
        [] => String::new(),
        [one] => one.to_string(),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(u64::to_string).collect();
            format!("{} or {last}", most.join(", "))
        }
    }
}
