//! The memory of a command is what its plan foresaw, and what it says it measured is what the system says.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{model, weighbridge};

/// Beyond what was foreseen: the program's own pages, the tokenizer with its tables, what layers compute with.
const SLACK: u64 = 64 << 20;

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn holmes() -> String {
    path(&testkit::golden("eval").join("holmes.txt")).to_owned()
}

fn number(of: &Value, name: &str) -> u64 {
    of["resident"][name].as_u64().unwrap_or_else(|| panic!("no `{name}`: {}", of["resident"]))
}

/// Runs a command, and holds its peak between `least` and what was foreseen.
fn held(args: &[&str], least: u64) -> Value {
    let output = weighbridge([args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name| number(&found, name);
    let (baseline, peak, delta) = (of("baseline_bytes"), of("peak_bytes"), of("delta_bytes"));
    assert!(baseline > 0 && peak - baseline == delta, "{args:?}: {}", found["resident"]);
    assert_eq!(found["resident"]["peak_of"], "command");
    let most = of("foreseen_bytes") + of("mapped_bytes") + SLACK;
    assert!((least..=most).contains(&delta), "{args:?}: {delta} held, at least {least} and at most {most}");
    // Private pages at the end were part of the peak.
    assert!(of("private_bytes") <= of("foreseen_bytes") + SLACK, "{args:?}: {}", found["resident"]);
    found
}

#[test]
fn what_is_held_is_what_was_foreseen() {
    let dir = TempDir::new().unwrap();
    let (smollm2, text) = (model("smollm2"), holmes());
    let (m, t, bytes) = (path(&smollm2), text.as_str(), std::fs::metadata(&smollm2).unwrap().len());
    let at = |name: &str| path(&dir.path().join(name)).to_owned();

    let loaded = held(&["load", m, "--owned"], bytes / 10 * 9);
    assert!(number(&loaded, "foreseen_bytes") >= loaded["bytes_owned"].as_u64().unwrap());
    let mapped = held(&["load", m, "--layout", "source"], 0);
    assert_eq!(number(&mapped, "mapped_bytes"), mapped["bytes_borrowed"].as_u64().unwrap());
    // Nothing reads what is only mapped.
    assert!(number(&mapped, "delta_bytes") < bytes / 2);

    let weights = bytes / 10 * 8;
    let few = ["--ctx", "256", "--cache", "off"];
    held(&[&["run", m, "-p", "Once", "--raw", "-n", "4"], &few[..]].concat(), weights);
    held(&[&["bench", m, "--prefill", "16", "--decode", "2", "--repeat", "1"], &few[..]].concat(), weights);
    // Keys and values of four times the positions are foreseen, and not touched.
    let short = held(&["run", m, "--ids", "1,2", "-n", "1", "--ctx", "256", "--cache", "off"], weights);
    let long = held(&["run", m, "--ids", "1,2", "-n", "1", "--ctx", "1024", "--cache", "off"], weights);
    let positions = 30 * 2 * 3 * 64 * 2 * (1024 - 256);
    assert_eq!(number(&long, "foreseen_bytes") - number(&short, "foreseen_bytes"), positions);

    let eval = ["eval", m, "-f", t, "--chunks", "1", "--ctx", "128"];
    let alone = held(&eval, weights);
    let both = held(&[&eval[..], &["--against", m]].concat(), 2 * weights);
    assert_eq!(number(&both, "foreseen_bytes"), 2 * number(&alone, "foreseen_bytes"));
    let imatrix = at("im.gguf");
    let calibrate =
        ["calibrate", m, "-f", t, "-o", &imatrix, "--chunks", "1", "--ctx", "64", "--no-sensitivity"];
    held(&calibrate, weights);

    // A tensor at a time: no more than the largest, which is a tenth of the file in this model, in both its forms.
    let small = at("small.gguf");
    let converted = held(&["convert", m, &small, "--preset", "q4_0", "--allow-requantize"], 1 << 20);
    let (peak, foreseen) =
        (converted["peak_memory"].as_u64().unwrap(), converted["foreseen_memory"].as_u64().unwrap());
    assert!(peak <= foreseen && peak > foreseen / 2, "{peak} of {foreseen}");
    assert_eq!(number(&converted, "foreseen_bytes"), foreseen);
    let compressed = at("compressed.gguf");
    let compress =
        ["compress", m, &compressed, "--target", "4.7", "--allow-requantize", "--imatrix", &imatrix];
    held(&compress, 1 << 20);
}
