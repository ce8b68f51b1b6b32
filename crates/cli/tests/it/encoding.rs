//! `--encode` and `--preset` of `plan`, `load` and `run`, as a user sees them.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::files::hf_directory;
use crate::{failure, golden, model, stdout, weighbridge};

fn told(args: &[&str]) -> String {
    let output = weighbridge(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const RULES: [&str; 4] = ["--encode", "layers.*.weight=q8_0", "--encode", "output.weight=f16"];

#[test]
fn a_plan_says_what_is_encoded_and_what_that_loses() {
    let source = golden().join("llama-tiny");
    let args = |more: &[&'static str]| {
        told(&[&["plan", path(&source), "--layout", "canonical"], &RULES[..], more].concat())
    };
    let text = args(&[]);
    for said in
        ["f32 -> q8_0 in ", "lossy: f32 is rounded to q8_0", "f32 -> f16 in 1 parameter", "q8_0 -> f32 in "]
    {
        assert!(text.contains(said), "{text}");
    }
    assert_snapshot!(args(&["--explain", "layers.1.ffn.up.weight"]), @"
    layers.1.ffn.up.weight [96, 64] q8_0
      all <- model.layers.1.mlp.up_proj.weight
      then f32 -> q8_0 (lossy: f32 is rounded to q8_0)
      data: 24.0 KiB, one run of model.layers.1.mlp.up_proj.weight at byte 0
    ");
    let facts: Value = serde_json::from_str(&args(&["--json"])).unwrap();
    let param =
        facts["params"].as_array().unwrap().iter().find(|p| p["name"] == "layers.1.ffn.up.weight").unwrap();
    assert_eq!((&param["scheme"], &param["moved_as"]), (&"q8_0".into(), &"f32".into()));
    assert_eq!(param["borrowable"], false);
    // All ranks, and the proof that they have everything.
    let ranks = told(&["plan", path(&source), "--tp", "2", "--verify", "--encode", "*ffn.gate.weight=q8_0"]);
    assert!(ranks.contains("2 ranks use every byte"), "{ranks}");
}

#[test]
fn loading_encodes_in_bounded_memory() {
    let source = golden().join("llama-tiny");
    let load = |more: &[&str]| -> Value {
        serde_json::from_str(&told(&[&["load", path(&source), "--json"], more].concat())).unwrap()
    };
    let number = |facts: &Value, key: &str| facts[key].as_u64().unwrap();
    for layout in ["source", "canonical", "packed"] {
        let plain = load(&["--layout", layout]);
        let encoded =
            load(&["--layout", layout, "--encode", "*=q8_0", "--memory", "64KiB", "--threads", "2"]);
        assert!(number(&encoded, "scratch_bytes") <= 64 << 10, "{encoded}");
        let bytes = |facts: &Value| number(facts, "bytes_owned") + number(facts, "bytes_borrowed");
        assert!(bytes(&encoded) < bytes(&plain) / 3, "{encoded}");
        assert_eq!(number(&encoded, "bytes_encoded"), bytes(&encoded), "{layout}");
    }
}

/// Rules for names go before: what they make is what is encoded.
#[test]
fn loading_takes_rules_and_what_may_be_absent() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("model");
    std::fs::create_dir(&source).unwrap();
    hf_directory(&source, |tensors| {
        tensors.retain(|(name, ..)| name != "model.norm.weight");
        for (name, ..) in tensors {
            *name = name.replace("self_attn", "attn");
        }
    });
    let rules = dir.path().join("rules.toml");
    std::fs::write(
        &rules,
        "[[rule]]\nfrom = \"model.layers.{n}.attn.{which}.weight\"\nto = \"model.layers.{n}.self_attn.{which}.weight\"\n",
    )
    .unwrap();
    let args = ["load", path(&source), "--layout", "canonical", "--encode", "*attention.q.weight=q8_0"];
    let failed = failure(&args, dir.path());
    assert!(failed.contains("wanted `model.layers.{n}.self_attn.q_proj.weight`"), "{failed}");
    let ruled = [&args[..], &["--rules", path(&rules)]].concat();
    let failed = failure(&ruled, dir.path());
    assert!(failed.contains("`model.norm.weight` is missing"), "{failed}");
    let facts: Value = serde_json::from_str(&told(
        &[&ruled[..], &["--allow-missing", "output_norm.weight", "--json"]].concat(),
    ))
    .unwrap();
    assert_eq!(facts["parameters"], 20);
    let (q, vectors) = (2 * 64 * 64 / 32 * 34, 0);
    assert_eq!(facts["bytes_encoded"], q + vectors);
}

/// Both backends, by rule and by preset: the ids that the converted file gives.
#[test]
fn running_encodes_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let source = golden().join("llama-tiny");
    let run = |model: &Path, more: &[&str]| {
        told(&[&["run", path(model), "--ids", "1,2,3", "-n", "12", "--temperature", "0"], more].concat())
    };
    let ways = [&["--encode", "*=q4_0"][..], &["--preset", "q8_0"]];
    for (i, way) in ways.iter().enumerate() {
        let to = dir.path().join(format!("{i}.gguf"));
        told(&[&["convert", path(&source), path(&to)], *way].concat());
        for backend in ["reference", "cpu"] {
            assert_eq!(
                run(&source, &[&["--backend", backend], *way].concat()),
                run(&to, &["--backend", backend])
            );
        }
    }
}

/// A model that speaks, re-encoded from blocks to other blocks: it still makes sense.
#[test]
fn text_is_right_after_encoding() {
    let args =
        ["--raw", "-n", "8", "--temperature", "0", "--preset", "q8_0", "-p", "The capital of France is"];
    let file = model("smollm2");
    for backend in ["reference", "cpu"] {
        let text = told(&[&["run", path(&file), "--backend", backend], &args[..]].concat());
        assert!(text.contains("Paris"), "{backend}: {text}");
    }
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    let source = golden().join("llama-tiny");
    let fails =
        |command: &str, more: &[&str]| failure(&[&[command, path(&source)], more].concat(), &golden());
    assert_snapshot!(fails("load", &["--encode", "layers.*.ffn.upp.weight=q8_0"]), @"
    error: rule `layers.*.ffn.upp.weight=q8_0`: no parameter matches
    hint: the nearest is `layers.0.ffn.up.weight`
    exit code 2
    ");
    assert_snapshot!(fails("plan", &["--encode", "layers.*.ffn.*.weight=q4_k"]), @"
    error: `layers.{n}.ffn.down.weight` (2 of them) [64, 96] cannot be `q4_k`: axis 1 has 96 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    `layers.{n}.ffn.gate.weight` (2 of them) [96, 64] cannot be `q4_k`: axis 1 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    `layers.{n}.ffn.up.weight` (2 of them) [96, 64] cannot be `q4_k`: axis 1 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    exit code 2
    ");
    assert_snapshot!(fails("plan", &["--tp", "2", "--encode", "layers.*.ffn.*.weight=q8_0"]), @"
    error: `layers.{n}.ffn.down.weight` (2 of them) [64, 48], a rank's share of [64, 96], cannot be `q8_0`: axis 1 has 48 elements, not a multiple of the 32 that a block packs
    hint: `bnb-int8` would fit
    exit code 2
    ");
    assert_snapshot!(fails("run", &["-p", "x", "--encode", "*=q4_kk"]), @"
    error: invalid value '*=q4_kk' for '--encode <PATTERN=SCHEME>': no scheme is called `q4_kk`
    hint: the nearest is `q4_k`; `weighbridge quants` lists them

    For more information, try '--help'.
    exit code 2
    ");
}
