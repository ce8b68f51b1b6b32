//! Tensors of a second checkpoint, by `--also`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::files::hf_directory;
use crate::{failure, golden, stdout, weighbridge};

/// In `dir`: `m`, the model without its second layer, and `layer.safetensors`, that layer with names that begin after
/// `model.`.
fn split(dir: &Path) {
    let second = |name: &str| name.starts_with("model.layers.1.");
    for folder in ["m", "n"] {
        fs::create_dir(dir.join(folder)).unwrap();
    }
    hf_directory(&dir.join("m"), |tensors| tensors.retain(|(name, ..)| !second(name)));
    hf_directory(&dir.join("n"), |tensors| {
        tensors.retain(|(name, ..)| second(name));
        for (name, ..) in tensors {
            *name = name.strip_prefix("model.").unwrap().to_owned();
        }
    });
    fs::rename(dir.join("n/model.safetensors"), dir.join("layer.safetensors")).unwrap();
}

fn json(args: &[&str]) -> Value {
    let output = weighbridge(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn a_second_checkpoint_completes_the_first() {
    let dir = tempfile::tempdir().unwrap();
    split(dir.path());
    let (model, also) =
        (dir.path().join("m"), format!("model.={}", dir.path().join("layer.safetensors").display()));
    let (model, whole) = (model.to_str().unwrap(), golden().join("llama-tiny"));
    let whole = whole.to_str().unwrap();
    let missing = failure(&["plan", model], dir.path());
    assert!(missing.contains("`model.layers.1.mlp.up_proj.weight` is missing"), "{missing}");

    let planned = json(&["plan", model, "--also", &also, "--json"]);
    assert_eq!(planned["params"], json(&["plan", whole, "--json"])["params"]);
    let names = |facts: Value| -> BTreeSet<String> {
        let tensors = facts["tensors"].as_array().unwrap().clone();
        tensors.iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names(json(&["inspect", model, "--also", &also, "--tensors", "--json"])),
        names(json(&["inspect", whole, "--tensors", "--json"]))
    );
    let loaded = json(&["load", model, "--also", &also, "--owned", "--json"]);
    assert_eq!(loaded["bytes_owned"], json(&["load", whole, "--owned", "--json"])["bytes_owned"]);
    assert!(weighbridge(["check", model, "--also", &also, "--deep"]).status.success());

    // What is written holds both, value by value; and what runs computes the same.
    let joined = dir.path().join("joined.gguf");
    let joined = joined.to_str().unwrap();
    let converted = weighbridge(["convert", model, joined, "--also", &also]);
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    assert!(weighbridge(["diff", whole, joined]).status.success());
    let run = |args: &[&str]| {
        let output =
            weighbridge(["run", "--ids", "1,2,3", "-n", "4", "--temperature", "0"].iter().chain(args));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    };
    assert_eq!(run(&[model, "--also", &also]), run(&[whole]));
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    split(dir.path());
    let (model, more) = (dir.path().join("m"), dir.path().join("layer.safetensors"));
    let (model, more) = (model.to_str().unwrap(), more.to_str().unwrap());
    let own = format!("{model}/model.safetensors");
    let twice = failure(&["inspect", model, "--also", &own], dir.path());
    let start = "error: mismatch in `m`: 12 problems\n  tensor `lm_head.weight`: is in `m/model.safetensors` and in \
                 `m/model.safetensors`\n";
    assert!(twice.starts_with(start), "{twice}");
    assert!(
        twice.ends_with("\nhint: give the names of the second checkpoint a prefix\nexit code 1"),
        "{twice}"
    );
    let unlike = failure(&["plan", model, "--also", more], dir.path());
    assert!(unlike.contains("two models are in it: "), "{unlike}");
    let missing = failure(&["inspect", model, "--also", "none.gguf"], dir.path());
    assert!(missing.starts_with("error: cannot open `none.gguf`"), "{missing}");
    assert!(failure(&["inspect", model, "--also", "x="], dir.path()).ends_with("exit code 2"));
}
