//! What `config.json` says of quantisation, in keys that several ecosystems share.

use serde_json::Value;

/// The quantisation that a `config.json` describes, if its method is `method`.
pub(super) fn quantization<'c>(config: &'c Value, method: &str) -> Option<&'c Value> {
    // Models of several parts may keep it with the text's.
    let places = [&config["quantization_config"], &config["text_config"]["quantization_config"]];
    places.into_iter().find(|c| c["quant_method"].as_str() == Some(method))
}

/// `group_size`: inputs that share a scale, `None` for -1, all of them.
///
/// # Errors
/// If it is anything else.
pub(super) fn group_size(config: &Value) -> Result<Option<u64>, String> {
    let found = &config["group_size"];
    match found.as_i64() {
        Some(-1) => Ok(None),
        Some(n @ 1..) => Ok(Some(n as u64)),
        _ => Err(format!("`group_size`: wanted a positive number or -1, found {found}")),
    }
}
