//! `--lora`: adapters are merged by every command that loads.

use std::path::Path;

use serde_json::{Map, Value, json};
use testkit::model;

use crate::{failure, golden, stdout, weighbridge};

/// Writes an adapter of rank 8 for queries and values of a model of the shape of SmolLM2 135M.
fn real_shape(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    let config =
        json!({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]});
    std::fs::write(dir.join("adapter_config.json"), config.to_string()).unwrap();
    let (mut header, mut data) = (Map::new(), vec![]);
    let mut random = testkit::Rng(7);
    for (layer, (part, rows)) in
        (0..30).flat_map(|n| [("q_proj", 576u64), ("v_proj", 192)].map(|part| (n, part)))
    {
        for (half, shape) in [("A", [8, 576]), ("B", [rows, 8])] {
            let start = data.len();
            let values = (0..shape[0] * shape[1]).map(|_| 0.01 * random.float());
            data.extend(values.flat_map(f32::to_le_bytes));
            let name = format!("base_model.model.model.layers.{layer}.self_attn.{part}.lora_{half}.weight");
            header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
        }
    }
    let file = testkit::fixture::safetensors_bytes(&Value::Object(header).to_string(), &data);
    std::fs::write(dir.join("adapter_model.safetensors"), file).unwrap();
}

#[test]
fn a_quantised_model_of_real_shape_runs_with_an_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("adapter");
    real_shape(&dir);
    let (path, dir) = (model("smollm2"), dir.display().to_string());
    let path = path.to_str().unwrap();
    let args = ["run", path, "--lora", &dir, "--ids", "1,2,3", "-n", "3", "--temperature", "0", "--json"];
    let ran = weighbridge(args);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(answer["tokens"], 3);
    // Queries and values of each layer are decoded, changed, and encoded as they are stored.
    let of = |lora: bool| {
        let mut args = vec!["plan", path, "--layout", "in-place", "--json"];
        if lora {
            args.extend(["--lora", &dir]);
        }
        let plan: Value = serde_json::from_slice(&weighbridge(args).stdout).unwrap();
        plan["params"].as_array().unwrap().clone()
    };
    let (plain, merged) = (of(false), of(true));
    let changed = plain.iter().zip(&merged).filter(|(a, b)| a != b);
    assert_eq!(changed.clone().count(), 60);
    for (before, after) in changed {
        assert_eq!(before["scheme"], after["scheme"], "{after}");
        assert!(before["borrowable"] == true && after["borrowable"] == false, "{after}");
    }
    let name = "layers.7.attention.v.weight";
    let explained = weighbridge(["plan", path, "--layout", "in-place", "--lora", &dir, "--explain", name]);
    let explained = stdout(&explained);
    assert!(explained.contains("by lora (lossy: the adapter `"), "{explained}");
}

#[test]
fn commands_that_load_take_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let (base, adapter) = (golden().join("llama-tiny"), testkit::golden("lora").join("llama"));
    let gguf = base.join("model.gguf");
    let (base, gguf) = (base.to_str().unwrap(), gguf.to_str().unwrap());
    let adapter = adapter.to_str().unwrap();
    let ok = |args: &[&str]| {
        let output = weighbridge(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    };
    let ids = |base: &str, loras: &[&str]| {
        let loras = loras.iter().flat_map(|lora| ["--lora", lora]);
        let args = ["run", base, "--ids", "1,2,3", "-n", "8", "--temperature", "0", "--json"];
        let output: Value =
            serde_json::from_str(&ok(&args.into_iter().chain(loras).collect::<Vec<_>>())).unwrap();
        output["ids"].clone()
    };
    let merged = folder.path().join("merged");
    let merged = merged.to_str().unwrap();
    ok(&["convert", base, merged, "--to", "hf", "--lora", adapter]);
    let wanted = ids(merged, &[]);
    assert_ne!(wanted, ids(base, &[]));
    assert_eq!(wanted, ids(base, &[adapter]));
    assert_eq!(wanted, ids(gguf, &[adapter]));
    assert_eq!(ids(base, &[&format!("{adapter}=0")]), ids(base, &[]));
    // Half of it twice.
    let half = format!("{adapter}=0.5");
    assert_eq!(wanted, ids(base, &[&half, &half]));
    ok(&["load", base, "--lora", adapter]);
    ok(&["bench", base, "--lora", adapter, "--prefill", "4", "--decode", "2", "--repeat", "1"]);
    let explained =
        ok(&["plan", base, "--lora", adapter, "--layout", "canonical", "--explain", "output.weight"]);
    assert!(explained.contains("by lora (lossy: the adapter `"), "{explained}");
}

#[test]
fn what_is_wrong_with_an_adapter_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let base = golden().join("llama-tiny");
    let base = base.to_str().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let missing = failure(&["plan", base, "--lora", &at("adapter")], folder.path());
    assert!(missing.contains("adapter") && missing.ends_with("exit code 1"), "{missing}");
    let source = testkit::golden("lora").join("llama");
    std::fs::create_dir(at("odd")).unwrap();
    std::fs::copy(source.join("adapter_model.safetensors"), at("odd/adapter_model.safetensors")).unwrap();
    let config = std::fs::read_to_string(source.join("adapter_config.json")).unwrap();
    std::fs::write(at("odd/adapter_config.json"), config.replacen('{', "{\"secret_sauce\": 7,", 1)).unwrap();
    let listed = stdout(&weighbridge(["plan", base, "--lora", &at("odd")]));
    assert!(
        listed.contains("unknown key in the adapter ") && listed.contains("`secret_sauce` = 7"),
        "{listed}"
    );
    let strict = failure(&["plan", base, "--lora", &at("odd"), "--strict"], folder.path());
    assert!(strict.contains("unknown key in the adapter odd: `secret_sauce` = 7"), "{strict}");
    let dora = config.replace("\"use_dora\": false", "\"use_dora\": true");
    std::fs::write(at("odd/adapter_config.json"), dora).unwrap();
    let refused = failure(&["run", base, "--ids", "1", "--lora", &at("odd")], folder.path());
    assert!(
        refused.contains("the adapter `odd` cannot be used:\n  `use_dora` is true, wanted no value\nhint: "),
        "{refused}"
    );
}
