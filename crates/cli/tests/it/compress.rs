//! Models are calibrated as llama.cpp's llama-imatrix does it (golden/imatrix.py), and made small with the least loss.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use weighbridge::convert::Imatrix;

use super::{failure, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn holmes() -> String {
    path(&testkit::golden("eval").join("holmes.txt")).to_owned()
}

fn json(args: &[&str]) -> Value {
    let output = weighbridge([args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn smollm2_is_calibrated_as_by_llama_imatrix() {
    let dir = TempDir::new().unwrap();
    let (source, text, made) = (model("smollm2"), holmes(), dir.path().join("imatrix.gguf"));
    let args =
        ["calibrate", path(&source), "-f", &text, "-o", path(&made), "--chunks", "2", "--no-sensitivity"];
    let found = json(&args);
    assert_eq!(
        (&found["chunks"], &found["tokens"], &found["lookup"]),
        (&2.into(), &1024.into(), &Value::Null)
    );
    let wanted = fs::read(testkit::golden("imatrix").join("llama-imatrix.json")).unwrap();
    let wanted: serde_json::Map<String, Value> = serde_json::from_slice(&wanted).unwrap();
    let imatrix = Imatrix::open(&made).unwrap();
    // llama-imatrix leaves out an output matrix that is the table of tokens.
    assert_eq!(imatrix.len(), wanted.len() + 1);
    assert_eq!(imatrix.get("token_embd.weight").map(<[f32]>::len), Some(576));
    let near = |name: &str, found: f64, wanted: f64, share: f64| {
        assert!((found / wanted - 1.0).abs() < share, "{name}: wanted {wanted}, found {found}");
    };
    for (name, wanted) in &wanted {
        let columns = imatrix.get(name).unwrap_or_else(|| panic!("no `{name}`"));
        assert_eq!(columns.len() as u64, wanted["columns"], "{name}");
        let rows = wanted["rows"].as_f64().unwrap();
        let sum: f64 = columns.iter().map(|x| f64::from(*x) * rows).sum();
        near(name, sum, wanted["sum"].as_f64().unwrap(), 0.01);
        // Kernels round activations otherwise.
        for (column, wanted) in columns.iter().step_by(97).zip(wanted["every_97th"].as_array().unwrap()) {
            near(name, f64::from(*column) * rows, wanted.as_f64().unwrap(), 0.1);
        }
    }
    let again = failure(&args, dir.path());
    assert!(again.contains("exists") && again.contains("--force"), "{again}");
}

/// The document of `eval --against` on two chunks that nothing was calibrated with.
fn divergence(small: &Path, source: &Path, text: &Path) -> f64 {
    let args = ["eval", path(small), "-f", path(text), "--chunks", "2", "--against", path(source)];
    json(&args)["text"]["against"]["kl"]["value"].as_f64().unwrap()
}

#[test]
fn what_is_compressed_fits_and_loses_less_than_any_preset_of_its_size() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let stories = fs::read_to_string(holmes()).unwrap();
    let cut = stories.floor_char_boundary(stories.len() / 2);
    fs::write(at("first.txt"), &stories[..cut]).unwrap();
    fs::write(at("second.txt"), &stories[cut..]).unwrap();
    let (source, imatrix) = (model("smollm2"), at("imatrix.gguf"));
    let first = at("first.txt");
    let mut args = vec!["calibrate", path(&source), "-f", path(&first), "-o", path(&imatrix)];
    args.extend(["--chunks", "4", "--sensitivity-tokens", "48"]);
    let calibrated = json(&args);
    for matrix in calibrated["matrices"].as_array().unwrap() {
        let (sensitivity, moved) = (matrix["sensitivity"].as_f64(), matrix["divergence"].as_f64());
        assert!(sensitivity > Some(0.0) && moved > Some(0.0), "{matrix}");
    }
    assert!(calibrated["lookup"].as_f64() > Some(0.0));

    // Every preset of llama.cpp is larger, but Q2_K: few rows of this model are whole blocks of 256.
    let preset = at("q4_0.gguf");
    let convert = ["convert", path(&source), path(&preset), "--preset", "q4_0", "--allow-requantize"];
    json(&[&convert[..], &["--imatrix", path(&imatrix)]].concat());
    let limit = fs::metadata(&preset).unwrap().len() / 10 * 9;
    let (small, text) = (at("small.gguf"), limit.to_string());
    let args = ["compress", path(&source), path(&small), "--target", &text, "--allow-requantize"];
    let args = [&args[..], &["--imatrix", path(&imatrix)]].concat();
    let planned = json(&[&args[..], &["--plan"]].concat());
    assert!(!small.exists() && planned["written"] == false);
    let found = json(&args);
    let bytes = fs::metadata(&small).unwrap().len();
    assert_eq!(found["bytes"], bytes);
    assert!(bytes <= limit && bytes > limit / 100 * 99, "{bytes} of {limit}");
    assert_eq!(found["matrices"], planned["matrices"]);
    let (ours, theirs) =
        (divergence(&small, &source, &at("second.txt")), divergence(&preset, &source, &at("second.txt")));
    assert!(ours < 0.7 * theirs, "{ours}, and {theirs} of the preset");
    let expected = found["expected_kl"].as_f64().unwrap();
    assert!((0.4..2.5).contains(&(ours / expected)), "{ours} measured, {expected} expected");

    // Without knowing which matrix matters, it still fits.
    let blind = at("blind.gguf");
    let found = json(&["compress", path(&source), path(&blind), "--target", "4.7", "--allow-requantize"]);
    assert_eq!((&found["expected_kl"], &found["written"]), (&Value::Null, &Value::Bool(true)));
    assert!(found["bytes"].as_u64() <= found["limit"].as_u64());

    // What cannot be is said with what can.
    let none = failure(&[&args[..4], &["1MB", "--allow-requantize", "--force"]].concat(), dir.path());
    assert!(none.contains("the smallest that there is has") && none.contains("allow at least"), "{none}");
    let short = at("short.txt");
    fs::write(&short, &stories[..5000]).unwrap();
    let short = failure(
        &[&args[..4], &["80MB", "--allow-requantize", "--force", "--text", path(&short)]].concat(),
        dir.path(),
    );
    assert!(short.contains("tokens, and at least 4096 are needed"), "{short}");
    let nowhere =
        failure(&["compress", path(&source), "/nowhere/at/all.gguf", "--target", "80MB"], dir.path());
    assert!(nowhere.contains("there is no directory `/nowhere/at`"), "{nowhere}");
    let quantised = failure(&[&args[..4], &["80MB", "--force"]].concat(), dir.path());
    assert!(quantised.contains("already quantised"), "{quantised}");
}

#[test]
fn a_policy_is_followed_and_mlx_has_bits_of_its_own() {
    let dir = TempDir::new().unwrap();
    let (source, policy) = (model("smollm2"), dir.path().join("policy.toml"));
    let default = stdout(&weighbridge(["compress", "--print-policy"]));
    assert!(default.contains("[outliers]"), "{default}");
    let rule = "[[rule]]\nmatch = 'model.embed_tokens.weight'\nleast_bits = 6\n\
                [[rule]]\nmatch = '*.v_proj.weight'\nmost_bits = 3.5\n";
    fs::write(&policy, rule).unwrap();
    let made = dir.path().join("made");
    let args =
        ["compress", path(&source), path(&made), "--to", "mlx", "--target", "4bit", "--allow-requantize"];
    let found = json(&[&args[..], &["--policy", path(&policy)]].concat());
    let mut schemes = std::collections::BTreeSet::new();
    for matrix in found["matrices"].as_array().unwrap() {
        let (name, bits) = (matrix["name"].as_str().unwrap(), matrix["bits"].as_f64().unwrap());
        schemes.insert(matrix["to"].as_str().unwrap().to_owned());
        if name == "model.embed_tokens.weight" {
            assert!(
                bits >= 6.0 && matrix["policy"].as_str().unwrap().contains("at least 6 bits"),
                "{matrix}"
            );
        } else if name.ends_with("v_proj.weight") {
            assert!(bits <= 3.5, "{matrix}");
        }
    }
    assert!(schemes.len() > 2 && schemes.iter().all(|s| s.starts_with("mlx-affine:b")), "{schemes:?}");
    // The directory says the bits of each layer, and is read by them.
    let config: Value = serde_json::from_slice(&fs::read(made.join("config.json")).unwrap()).unwrap();
    let quantization = config["quantization"].as_object().unwrap();
    assert!(quantization.values().filter(|v| v.is_object()).count() > 50, "{quantization:?}");
    assert_eq!(weighbridge(["check", path(&made)]).status.code(), Some(0));
    let ran = weighbridge(["run", path(&made), "-p", "The capital of France is", "-n", "4"]);
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));

    fs::write(&policy, "[[rule]]\nmatch = 'nothing'\nkeep = true\n").unwrap();
    let unused = failure(&[&args[..], &["--force", "--policy", path(&policy)]].concat(), dir.path());
    assert!(unused.contains("`nothing` matches no matrix"), "{unused}");
    fs::write(&policy, "[[rule]]\nkeep = 3\n").unwrap();
    let wrong = failure(&[&args[..], &["--force", "--policy", path(&policy)]].concat(), dir.path());
    assert!(wrong.contains("policy.toml"), "{wrong}");
}

/// A small model of its own in `dir`: floats, with files beside the weights.
fn own(dir: &Path) -> std::path::PathBuf {
    let (from, to) = (testkit::golden("models").join("llama-tiny"), dir.join("model"));
    fs::create_dir(&to).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    fs::write(to.join("notes.txt"), "mine").unwrap();
    to
}

#[test]
fn the_source_is_deleted_once_the_result_was_compared() {
    let dir = TempDir::new().unwrap();
    let source = own(dir.path());
    let (weights, made) = (source.join("model.safetensors"), dir.path().join("small.gguf"));
    let args = ["compress", path(&source), path(&made), "--target", "4bit", "--delete-source"];
    // Whatever cannot be done leaves all as it was.
    fs::write(&made, "mine").unwrap();
    assert_eq!(weighbridge(args).status.code(), Some(2));
    fs::remove_file(&made).unwrap();
    let too_small = ["compress", path(&source), path(&made), "--target", "1", "--delete-source"];
    assert_eq!(weighbridge(too_small).status.code(), Some(2));
    assert!(weights.exists() && !made.exists());
    let report = json(&args);
    assert_eq!(report["deleted"], serde_json::json!([path(&weights)]));
    assert!(!weights.exists());
    assert!(source.join("config.json").exists() && source.join("notes.txt").exists());
    assert_eq!(weighbridge(["check", path(&made), "--deep"]).status.code(), Some(0));
}

/// A text of `bytes` bytes of the stories.
fn some(dir: &Path, bytes: usize) -> std::path::PathBuf {
    let (stories, to) = (fs::read_to_string(holmes()).unwrap(), dir.join("text.txt"));
    fs::write(&to, &stories[..stories.floor_char_boundary(bytes)]).unwrap();
    to
}

#[test]
fn errors_that_make_each_other_good_cost_less() {
    let dir = TempDir::new().unwrap();
    let (source, imatrix, text) = (model("smollm2"), dir.path().join("im.gguf"), some(dir.path(), 18_000));
    let args = ["calibrate", path(&source), "-f", path(&text), "-o", path(&imatrix), "--chunks", "2"];
    json(&[&args[..], &["--sensitivity-tokens", "16"]].concat());
    let made = dir.path().join("mlx");
    let compressed = |more: &[&str]| {
        let args = ["compress", path(&source), path(&made), "--to", "mlx", "--target", "5", "--imatrix"];
        let args =
            [&args[..], &[path(&imatrix), "--text", path(&text), "--allow-requantize", "--force"], more];
        let report = json(&args.concat());
        assert_eq!(report["gptq"], more.contains(&"--gptq"));
        if more.contains(&"--awq") {
            // Two norms a layer, and two matrices that none feeds.
            let (norms, without) = (&report["awq"]["norms"], &report["awq"]["without_norm"]);
            assert_eq!((norms.as_array().unwrap().len(), without.as_array().unwrap().len()), (60, 60));
            assert!(norms.as_array().unwrap().iter().any(|norm| norm["power"].as_f64() > Some(0.0)));
        } else {
            assert_eq!(report["awq"], Value::Null);
        }
        (report["measured"]["kl"]["value"].as_f64().unwrap(), report["bytes"].as_u64().unwrap())
    };
    let (alone, bytes) = compressed(&[]);
    for (more, most) in [(&["--awq"][..], 0.95), (&["--gptq"], 0.8), (&["--awq", "--gptq"], 0.8)] {
        let (found, of) = compressed(more);
        assert_eq!(of, bytes, "{more:?}");
        assert!(found < most * alone, "{more:?}: {found} and {alone}");
    }
    for (what, missing) in [("--gptq", "--text"), ("--awq", "--imatrix FILE")] {
        let without = ["compress", path(&source), "y.gguf", "--target", "76MB", "--allow-requantize", what];
        assert!(failure(&without, dir.path()).contains(missing));
    }
    let mut little = vec!["compress", path(&source), "y.gguf", "--target", "76MB", "--allow-requantize"];
    little.extend(["--imatrix", path(&imatrix), "--text", path(&text), "--gptq", "--memory", "30MB"]);
    let refused = failure(&little, dir.path());
    // Four tables of 1536 × 1536 floats.
    assert!(
        refused.contains("of 1536 columns, need 36.0 MiB to be made good; 28.6 MiB are available"),
        "{refused}"
    );
}

/// However many runs of the text it takes, the bytes are the same.
#[cfg(unix)]
#[test]
fn sums_that_do_not_fit_are_made_in_several_runs_of_the_text() {
    let (small, dir) = (crate::killed::Small::get(), TempDir::new().unwrap());
    let made = |name: &str, memory: &str| {
        let (to, text, from) = (dir.path().join(name), small.text(), small.gguf());
        let (args, imatrix) = (["compress", path(&from), path(&to), "--target", "5"], small.imatrix());
        let text = ["--text", path(&text), "--imatrix", path(&imatrix), "--gptq", "--awq"];
        let report = json(&[&args[..], &text, &["--memory", memory]].concat());
        (fs::read(&to).unwrap(), report["gptq_passes"].as_u64().unwrap())
    };
    let (whole, once) = made("once.gguf", "100MB");
    assert_eq!(once, 1);
    // Three tables of 256 × 256 floats to factor one, and one with three of 64 × 64 for each of the six layers, of which five fit.
    let (in_parts, passes) = made("parts.gguf", "2400KB");
    assert!((2..20).contains(&passes), "{passes}");
    assert!(in_parts == whole);
}
