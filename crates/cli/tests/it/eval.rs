//! Texts are predicted as llama.cpp's llama-perplexity finds it (golden/eval.py).

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::door::fed;
use super::{golden, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn holmes() -> String {
    path(&testkit::golden("eval").join("holmes.txt")).to_owned()
}

/// The document that `eval` prints, with the exit code that is wanted.
fn eval(code: i32, args: &[&str]) -> Value {
    let output = weighbridge([&["eval"], args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn value(of: &Value) -> f64 {
    of["value"].as_f64().unwrap()
}

/// Kernels round otherwise than llama.cpp's, so the figures are near, not equal.
fn near(name: &str, found: &Value, wanted: &Value, share: f64) {
    let (found, wanted) = (value(found), wanted[0].as_f64().unwrap());
    assert!((found / wanted - 1.0).abs() < share, "{name}: wanted {wanted}, found {found}");
}

#[test]
fn smollm2_is_as_llama_perplexity_finds_it() {
    let dir = TempDir::new().unwrap();
    let (source, small) = (model("smollm2"), dir.path().join("small.gguf"));
    let args = ["convert", path(&source), path(&small), "--preset", "q4_0", "--allow-requantize"];
    assert!(weighbridge(args).status.success());
    let text = holmes();
    let wanted = fs::read(testkit::golden("eval").join("llama-perplexity.json")).unwrap();
    let wanted: Value = serde_json::from_slice(&wanted).unwrap();
    let found = eval(0, &[path(&small), "-f", &text, "--chunks", "8", "--against", path(&source)]);
    assert_eq!((&found["chunks"], &found["chunk_tokens"]), (&8.into(), &512.into()));
    assert_eq!(found["tokens"], 8 * 255);
    let against = &found["against"];
    near("perplexity of the source", &against["perplexity"], &wanted["perplexity"], 0.005);
    let error = against["perplexity"]["standard_error"].as_f64().unwrap();
    assert!((error / wanted["perplexity"][1].as_f64().unwrap() - 1.0).abs() < 0.01, "{error}");
    let wanted = &wanted["q4_0"];
    near("perplexity", &found["perplexity"], &wanted["perplexity"], 0.005);
    near("ratio", &against["ratio"], &wanted["ratio"], 0.005);
    near("top 1", &against["top1"], &wanted["top1"], 0.03);
    near("divergence", &against["kl"], &wanted["kl"], 0.03);
    for (name, share) in [("kl_median", 0.05), ("kl_99", 0.15)] {
        let (found, wanted) = (against[name].as_f64().unwrap(), wanted[name][0].as_f64().unwrap());
        assert!((found / wanted - 1.0).abs() < share, "{name}: wanted {wanted}, found {found}");
    }
}

#[test]
fn a_model_is_as_near_to_itself_as_can_be() {
    let (smollm2, text) = (model("smollm2"), holmes());
    let args = [path(&smollm2), "-f", &text, "--chunks", "1", "--ctx", "64", "--against", path(&smollm2)];
    let found = eval(0, &args);
    let against = &found["against"];
    assert_eq!(found["perplexity"], against["perplexity"]);
    assert_eq!((value(&against["ratio"]), value(&against["kl"])), (1.0, 0.0));
    assert_eq!((value(&against["top1"]), value(&against["top5"])), (1.0, 1.0));
    assert_eq!(found["passed"], true);
    assert_eq!(found["tokens"], 31);
    // Another number of threads, and another backend.
    let other = eval(0, &[&args[..7], &["-t", "1"]].concat());
    assert_eq!(found["perplexity"], other["perplexity"]);
    let reference = eval(0, &[&args[..7], &["--backend", "reference"]].concat());
    let (found, reference) = (value(&found["perplexity"]), value(&reference["perplexity"]));
    assert!((found / reference - 1.0).abs() < 0.02, "{found}, {reference}");
}

#[test]
fn gates_are_kept_or_missed() {
    let dir = TempDir::new().unwrap();
    let (gates, smollm2) = (dir.path().join("gates.toml"), model("smollm2"));
    let text = holmes();
    let args = [path(&smollm2), "-f", &text, "--chunks", "1", "--ctx", "64", "--gate", path(&gates)];
    fs::write(&gates, "perplexity = 1000").unwrap();
    assert_eq!(eval(0, &args)["gates"][0]["passed"], true);
    fs::write(&gates, "perplexity = 1.5").unwrap();
    let missed = eval(1, &args);
    assert_eq!((&missed["passed"], &missed["gates"][0]["limit"]), (&false.into(), &1.5.into()));
    let shown = weighbridge([&["eval"], &args[..]].concat());
    assert_eq!(shown.status.code(), Some(1));
    assert!(stdout(&shown).contains("gate perplexity: MISSED"), "{}", stdout(&shown));
    fs::write(&gates, "kl = 0.1").unwrap();
    let refused = eval(1, &args);
    assert_eq!(refused["hint"], "add `--against MODEL`");
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let dir = TempDir::new().unwrap();
    let (short, binary) = (dir.path().join("short.txt"), dir.path().join("binary"));
    fs::write(&short, "It was a dark and stormy night.").unwrap();
    fs::write(&binary, [0xFF, 0xFE]).unwrap();
    let (smollm2, tiny) = (model("smollm2"), golden().join("llama-tiny"));
    let text = holmes();
    for (code, says, args) in [
        (2, "and 1024 are needed", &[path(&smollm2), "-f", path(&short)][..]),
        (1, "is not UTF-8", &[path(&smollm2), "-f", path(&binary)]),
        (1, "cannot read", &[path(&smollm2), "-f", "/nowhere/text"]),
        (2, "at least 16 tokens", &[path(&smollm2), "-f", &text, "--ctx", "8"]),
        (1, "has no tokenizer", &[path(&tiny), "-f", &text]),
        (1, "has no tokenizer", &[path(&smollm2), "-f", &text, "--against", path(&tiny)]),
    ] {
        let error = eval(code, args);
        assert!(error["error"].as_str().unwrap().contains(says), "{args:?}: {error}");
    }
    // The text comes through a pipe, too.
    let args = ["--chunks", "1", "--ctx", "16", "-f", "-"];
    assert!(
        fed(&[&["eval", path(&smollm2)], &args[..]].concat(), &fs::read_to_string(&text).unwrap())
            .status
            .success()
    );
}
