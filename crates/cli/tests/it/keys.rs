//! Keys that are unknown, that nothing follows, or that a format cannot say: listed, refused, allowed.

use std::path::Path;

use serde_json::Value;

use crate::files::hf_directory;
use crate::{failure, golden, stdout, weighbridge};

/// `llama-tiny` with other keys in its config.json.
fn directory(dir: &Path, change: impl FnOnce(&mut Value)) {
    hf_directory(dir, |_| {});
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

#[test]
fn an_unknown_key_is_listed_and_refused_if_asked() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path(), |config| config["unheard_of"] = 3.into());
    let path = dir.path().to_str().unwrap();
    let line = "unknown key in config.json: `unheard_of` = 3";
    for command in ["inspect", "plan"] {
        let output = weighbridge([command, path]);
        assert!(output.status.success() && stdout(&output).contains(line), "{command}");
        let message = failure(&[command, path, "--strict"], dir.path());
        assert!(message.contains(line) && message.ends_with("exit code 1"), "{message}");
    }
    let run = weighbridge(["run", path, "--ids", "1,2", "-n", "1", "--temperature", "0"]);
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && stderr.contains(line), "{stderr}");
    let json: Value = serde_json::from_str(&stdout(&weighbridge(["inspect", path, "--json"]))).unwrap();
    let of = |key: &str| {
        json["keys"].as_array().unwrap().iter().find(|k| k["key"] == key).unwrap()["verdict"].clone()
    };
    assert_eq!(
        (of("unheard_of"), of("hidden_size"), of("use_cache")),
        ("unknown".into(), "used".into(), "without_effect".into())
    );
}

#[test]
fn a_value_that_nothing_follows_is_loaded_and_not_run() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path(), |config| config["hidden_act"] = "mish".into());
    let path = dir.path().to_str().unwrap();
    let plan = weighbridge(["plan", path]);
    let line = "not followed, in config.json: `hidden_act` is \"mish\"";
    assert!(plan.status.success() && stdout(&plan).contains(line), "{}", stdout(&plan));
    let message = failure(&["run", path, "--ids", "1"], dir.path());
    assert!(message.contains("`hidden_act` is \"mish\", wanted `silu`"), "{message}");
}

/// The hint is followed, and then the report says what was lost; a key that loses nothing is a mistake.
#[test]
fn what_gguf_cannot_say_stops_a_conversion_until_it_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (source, to) = (golden().join("gemma3-tiny"), dir.path().join("x.gguf"));
    let (source, to) = (source.to_str().unwrap(), to.to_str().unwrap());
    let message = failure(&["convert", source, to], dir.path());
    assert!(message.contains("`query_pre_attn_scalar` is lost: llama.cpp reads no key for it"), "{message}");
    assert!(message.contains("hint: `--allow-loss query_pre_attn_scalar` converts it anyway"), "{message}");
    assert!(!Path::new(to).exists());
    let wrong =
        failure(&["convert", source, to, "--allow-loss", "query_pre_attn_scalar,hidden_size"], dir.path());
    assert!(wrong.contains("nothing is lost under `hidden_size`, which was allowed"), "{wrong}");
    let done = weighbridge(["convert", source, to, "--allow-loss", "query_pre_attn_scalar"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(stdout(&done).contains("lost, as allowed: query_pre_attn_scalar: "), "{}", stdout(&done));
}

/// NFC has no key in GGUF; a tokenizer that GGUF has no words for is not left out unseen, either.
#[test]
fn a_tokenizer_that_gguf_cannot_say_stops_a_conversion_until_it_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (hf, to) = (dir.path().join("hf"), dir.path().join("x.gguf"));
    std::fs::create_dir(&hf).unwrap();
    hf_directory(&hf, |_| {});
    let tokenizer = |normalizer: &str| {
        let json = serde_json::json!({
            "added_tokens": [],
            "normalizer": {"type": normalizer},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true, "trim_offsets": true},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true, "trim_offsets": true},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
        });
        std::fs::write(hf.join("tokenizer.json"), json.to_string()).unwrap();
    };
    let (source, to) = (hf.to_str().unwrap(), to.to_str().unwrap());
    for (normalizer, key, effect) in [
        ("NFC", "tokenizer.normalizer", "text that is not in NFC gets other tokens"),
        ("Lowercase", "tokenizer", "the file has no tokenizer: `tokenizer.json` cannot be followed exactly"),
    ] {
        tokenizer(normalizer);
        let message = failure(&["convert", source, to], dir.path());
        assert!(message.contains(&format!("`{key}` is lost: {effect}")), "{message}");
        assert!(message.contains(&format!("hint: `--allow-loss {key}` converts it anyway")), "{message}");
        let done = weighbridge(["convert", source, to, "--allow-loss", key, "--force"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(stdout(&done).contains(&format!("lost, as allowed: {key}: {effect}")), "{}", stdout(&done));
    }
}

#[test]
fn the_penalty_of_a_checkpoint_is_followed_in_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path(), |_| ());
    let path = dir.path().to_str().unwrap();
    let ids = |path: &str, more: &[&str]| {
        let run = ["run", path, "--ids", "1,2,3", "-n", "12", "--temperature", "0"];
        let output = weighbridge([&run[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).trim().to_owned()
    };
    let plain = ids(path, &[]);
    std::fs::write(dir.path().join("generation_config.json"), r#"{"repetition_penalty": 1.7}"#).unwrap();
    let gguf = dir.path().join("x.gguf");
    let gguf = gguf.to_str().unwrap();
    assert!(weighbridge(["convert", path, gguf]).status.success());
    let penalised = ids(path, &[]);
    assert_ne!(penalised, plain);
    assert_eq!(ids(path, &["--repeat-penalty", "1"]), plain);
    // The text is shorter than the window of GGUF.
    assert_eq!(ids(gguf, &[]), penalised);
    for (path, key) in [(path, "repetition_penalty"), (gguf, "general.sampling.penalty_repeat")] {
        let json: Value = serde_json::from_str(&stdout(&weighbridge(["inspect", path, "--json"]))).unwrap();
        let verdict = json["keys"].as_array().unwrap().iter().find(|k| k["key"] == key).unwrap();
        assert_eq!(verdict["verdict"], "used", "{key}");
    }
}
