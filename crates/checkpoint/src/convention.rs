//! How ecosystems say in `config.json` that weights are quantised, and which of a module's tensors are one weight: one file
//! and one line of [`CONVENTIONS`] each.

mod awq;
mod bitnet;
mod bitsandbytes;
mod compressed_tensors;
mod fp8;
mod gather;
mod gptq;
mod mlx;
mod modelopt;
mod mxfp4;

use awq::Awq;
use bitnet::BitNet;
use bitsandbytes::BitsAndBytes;
use compressed_tensors::CompressedTensors;
use fp8::Fp8;
use gptq::Gptq;
use mlx::Mlx;
use modelopt::Modelopt;
use mxfp4::Mxfp4;

use serde_json::Value;
use tensor::Dtype;

pub(crate) use gather::describe;
pub use gather::{Convention, QuantisedModule};
pub use gather::{ConventionReader, Inconsistent, KeyUse, Keys, Weight, config_key, gather};
use quant::spelling::Scope;

/// Every convention. The first that reads a configuration is the one.
const CONVENTIONS: &[&dyn Convention] =
    &[&Mlx, &Fp8, &Mxfp4, &BitNet, &Gptq, &Awq, &BitsAndBytes, &CompressedTensors, &Modelopt];

const BY_NAME: Option<&str> = Some("the names of the tensors say it");
const BY_TENSORS: Option<&str> = Some("the tensors say it");
const MAKING: Option<&str> = Some("how it was made");
const RUNNING: Option<&str> = Some("for the program that runs it");
const WRITER: Option<&str> = Some("of the program that wrote it");
const ACTIVATIONS: Option<&str> = Some("for quantised activations; here they are not");
const CACHE: Option<&str> = Some("for a quantised cache; here it is not");

/// `quantization_config`, if its `quant_method` is `name`. Models of several parts may keep it with the text's.
fn method<'a>(config: &'a Value, name: &str) -> Option<&'a Value> {
    let places = [&config["quantization_config"], &config["text_config"]["quantization_config"]];
    places.into_iter().find(|found| found["quant_method"].as_str() == Some(name))
}

/// `group_size`: a number of inputs, or -1 for a whole row; 128 if it is absent, as in transformers.
///
/// # Errors
/// If it is anything else.
fn group_size(config: &Value) -> Result<Scope, String> {
    let Some(found) = config.get("group_size") else { return Ok(Scope::Group(128)) };
    match found.as_i64() {
        Some(-1) => Ok(Scope::Row),
        Some(n @ 1..) => Ok(Scope::Group(n.unsigned_abs())),
        _ => Err(format!("`group_size`: wanted a positive number or -1, found {found}")),
    }
}

/// Whether the tensor `mark`, a group for each of the inputs, gives each the one that `scope` does.
///
/// # Errors
/// If it is not one number an input.
fn in_order(module: &QuantisedModule<'_>, mark: &str, inputs: u64, scope: Scope) -> Result<bool, String> {
    module.dtype(mark, &[Dtype::I32])?;
    let [found] = module.shape(mark)?;
    let g_idx = module.bytes(mark)?;
    let (g_idx, rest) = g_idx.as_chunks::<4>();
    if found != inputs || g_idx.len() as u64 != inputs || !rest.is_empty() {
        let short = mark.trim_start_matches('.');
        return Err(format!("`{short}` has {found} entries, wanted one for each of {inputs} inputs"));
    }
    let (_, per) = scope.size();
    Ok(g_idx.iter().enumerate().all(|(i, g)| usize::try_from(i32::from_le_bytes(*g)) == Ok(i / per)))
}

/// The number `key` of `object`, if it is there.
///
/// # Errors
/// If it is something else than a whole number. `path` says where `object` stands.
fn number(path: &str, object: &Value, key: &str) -> Result<Option<u64>, String> {
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
fn text<'a>(path: &str, object: &'a Value, key: &str) -> Result<Option<&'a str>, String> {
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
