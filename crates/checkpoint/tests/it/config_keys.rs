//! Keys of `quantization_config`: each that transformers knows has a verdict, and values that change weights are followed
//! or refused.
#![expect(clippy::unwrap_used, reason = "a test fails so")]

use checkpoint::convention::{KeyUse, config_key};
use serde_json::{Value, json};

/// Classes of transformers (golden/config/fields.json) and their `quant_method`.
const CLASSES: [(&str, &str); 7] = [
    ("GPTQConfig", "gptq"),
    ("AwqConfig", "awq"),
    ("BitsAndBytesConfig", "bitsandbytes"),
    ("CompressedTensorsConfig", "compressed-tensors"),
    ("BitNetQuantConfig", "bitnet"),
    ("FineGrainedFP8Config", "fp8"),
    ("Mxfp4Config", "mxfp4"),
];

fn config(method: &str, more: Value) -> Value {
    let mut said = json!({"quant_method": method, "bits": 4, "group_size": 128, "config_groups": {}});
    said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "quantization_config": said })
}

#[test]
fn every_field_of_transformers_has_a_verdict() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/config/fields.json");
    let fields: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut unknown = vec![];
    for (class, method) in CLASSES {
        let config = config(method, json!({}));
        let of = fields["quantization"][class].as_object().unwrap();
        assert!(!of.is_empty(), "{class}");
        for field in of.keys() {
            if config_key(&config, &format!("quantization_config.{field}")) == Some(KeyUse::Unknown) {
                unknown.push(format!("{class}.{field}"));
            }
        }
        let unheard = config_key(&config, "quantization_config.unheard_of");
        assert_eq!(unheard, Some(KeyUse::Unknown), "{class}");
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_method_that_nobody_reads_has_no_known_keys() {
    let found = config_key(&config("aqlm", json!({})), "quantization_config.bits");
    assert_eq!(found, Some(KeyUse::Unknown));
    assert_eq!(config_key(&json!({}), "hidden_size"), None);
}

#[test]
fn inner_keys_are_found_and_a_copy_is_one() {
    let config = config("compressed-tensors", json!({}));
    let of = |key: &str| config_key(&config, &format!("quantization_config.config_groups.group_0.{key}"));
    assert_eq!(of("weights.num_bits"), Some(KeyUse::Read));
    assert!(matches!(of("input_activations.num_bits"), Some(KeyUse::WithoutEffect(_))));
    assert_eq!(of("weights.unheard_of"), Some(KeyUse::Unknown));
    let said = json!({"bits": 4, "group_size": 64, "model.layers.0.mlp.down_proj": {"bits": 8}, "lm_head": false,
        "unheard_of": 3});
    let mut mlx = json!({"quantization": said, "quantization_config": said});
    for key in ["bits", "lm_head", "model.layers.0.mlp.down_proj.bits"] {
        assert_eq!(config_key(&mlx, &format!("quantization.{key}")), Some(KeyUse::Read), "{key}");
    }
    assert_eq!(config_key(&mlx, "quantization.unheard_of"), Some(KeyUse::Unknown));
    let copy = |mlx: &Value| config_key(mlx, "quantization_config.bits");
    assert_eq!(copy(&mlx), Some(KeyUse::WithoutEffect("a copy of `quantization`")));
    mlx["quantization_config"]["bits"] = 8.into();
    assert_eq!(copy(&mlx), Some(KeyUse::Unknown));
}

/// Returns the problem of a configuration without any weights.
fn problem(config: &Value) -> Option<String> {
    let wrong = checkpoint::convention::gather(config, vec![], &|_| unreachable!()).err()?;
    Some(wrong[0].what.clone())
}

/// Source: transformers utils/quantization_config.py@v5.23 (`AwqConfig`, `GPTQConfig`, where the older key wins) and
/// integrations/bitnet.py (`AutoBitLinear`).
#[test]
fn values_that_change_weights_are_refused_by_name() {
    for (method, more, wanted) in [
        ("awq", json!({"format": "gemv"}), "`format` of awq: wanted \"gemm\", found \"gemv\""),
        ("awq", json!({"version": "GEMV"}), "`version` of awq: wanted \"gemm\", found \"GEMV\""),
        ("awq", json!({"backend": "llm-awq"}), "`backend` of awq: wanted another than llm-awq"),
        ("gptq", json!({"format": "marlin"}), "`format`: wanted `gptq` or `gptq_v2`, found `marlin`"),
        (
            "bitnet",
            json!({"quantization_mode": "online"}),
            "`quantization_config.quantization_mode` is \"online\"",
        ),
        ("bitnet", json!({"use_rms_norm": true}), "`quantization_config.use_rms_norm` is true, wanted false"),
    ] {
        let found = problem(&config(method, more.clone()));
        assert!(found.as_ref().is_some_and(|f| f.contains(wanted)), "{method} {more}: {found:?}");
    }
    for (method, more) in [
        ("awq", json!({"format": "gemv", "version": "gemm"})),
        ("gptq", json!({"format": "marlin", "checkpoint_format": "gptq_v2"})),
        ("bitnet", json!({"quantization_mode": "offline", "use_rms_norm": false})),
    ] {
        assert_eq!(problem(&config(method, more.clone())), None, "{method} {more}");
    }
}

/// Typical configurations of each method.
#[test]
fn keys_of_typical_configurations_are_known() {
    for said in [
        json!({"bits": 4, "damp_percent": 0.01, "desc_act": false, "group_size": 128, "modules_in_block_to_quantize": null,
            "quant_method": "gptq", "sym": true, "true_sequential": true, "static_groups": false,
            "model_name_or_path": null, "model_file_base_name": "model"}),
        json!({"bits": 4, "group_size": 128, "modules_to_not_convert": null, "quant_method": "awq", "version": "gemm",
            "zero_point": true}),
        json!({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}),
        json!({"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}),
        json!({"config_groups": {"group_0": {"input_activations": {"actorder": null, "dynamic": true, "num_bits": 8,
            "type": "float"}, "output_activations": null, "targets": ["Linear"], "weights": {"actorder": null,
            "block_structure": null, "dynamic": false, "group_size": null, "num_bits": 8, "observer": "minmax",
            "observer_kwargs": {}, "strategy": "channel", "symmetric": true, "type": "float"}}},
            "format": "float-quantized", "global_compression_ratio": 1.2, "ignore": ["lm_head"], "kv_cache_scheme": null,
            "quant_method": "compressed-tensors", "quantization_status": "compressed"}),
        json!({"linear_class": "autobitlinear", "modules_to_not_convert": null, "quant_method": "bitnet",
            "quantization_mode": "offline"}),
    ] {
        let config = json!({ "quantization_config": said });
        for key in paths("quantization_config", &said) {
            assert_ne!(config_key(&config, &key), Some(KeyUse::Unknown), "{key} of {}", said["quant_method"]);
        }
    }
}

/// Paths of all values that are no objects, or empty ones.
fn paths(at: &str, value: &Value) -> Vec<String> {
    match value.as_object().filter(|object| !object.is_empty()) {
        Some(object) => object.iter().flat_map(|(key, value)| paths(&format!("{at}.{key}"), value)).collect(),
        None => vec![at.to_owned()],
    }
}
