//! `load`, as a user sees it.

use serde_json::Value;

use crate::files::hf_directory;
use crate::{failure, golden, stdout, weighbridge};

/// What `load --json` says.
fn load(args: &[&str]) -> Value {
    let output = weighbridge(["load", "--json"].iter().chain(args));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn number(facts: &Value, key: &str) -> u64 {
    facts[key].as_u64().unwrap_or_else(|| panic!("no {key} in {facts}"))
}

#[test]
fn what_is_loaded_is_counted() {
    let file = golden().join("llama-tiny/model.gguf");
    let path = file.to_str().unwrap();
    for io in ["auto", "mmap", "read", "direct"] {
        for layout in ["source", "canonical", "in-place", "packed"] {
            let facts = load(&[path, "--layout", layout, "--io", io, "--owned", "--threads", "2"]);
            let all = number(&facts, "bytes_owned");
            assert_eq!(number(&facts, "bytes_copied") + number(&facts, "bytes_encoded"), all, "{facts}");
            assert_eq!(number(&facts, "bytes_borrowed"), 0);
            assert!(number(&facts, "bytes_read") > 0 && facts["seconds"].as_f64().unwrap() > 0.0);
            assert!(number(&facts, "scratch_bytes") <= number(&facts, "scratch_bytes_expected"), "{facts}");
        }
    }
    let facts = load(&[path, "--layout", "source", "--io", "mmap"]);
    assert_eq!((number(&facts, "bytes_owned"), number(&facts, "bytes_read")), (0, 0));
    assert_eq!(number(&facts, "bytes_borrowed"), 312_576);
    let read = load(&[path, "--layout", "source", "--io", "read"]);
    assert_eq!((number(&read, "bytes_owned"), number(&read, "bytes_borrowed")), (312_576, 0));
}

#[test]
fn memory_is_bounded_or_the_least_is_named() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |_| ());
    let path = dir.path().to_str().unwrap();
    let facts = load(&[path, "--layout", "packed", "--memory", "1MiB"]);
    assert!(number(&facts, "scratch_bytes") <= 1 << 20, "{facts}");
    assert_eq!(failure(&["load", path, "--memory", "no"], dir.path()).lines().last(), Some("exit code 2"));
    // The text says the same.
    let output = weighbridge(["load", path, "--owned"]);
    let text = stdout(&output);
    for said in ["to open", "to plan", "on ", "0 B mapped", "of buffers", "peak"] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn a_manifest_is_verified_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |_| ());
    let path = dir.path().to_str().unwrap();
    assert!(weighbridge(["check", path, "--write-manifest"]).status.success());
    for io in ["mmap", "read", "direct"] {
        for args in [&["--layout", "source"][..], &["--owned", "--layout", "source"], &["--layout", "packed"]]
        {
            let facts = load(&[&[path, "--verify", "--io", io], args].concat());
            assert_eq!(
                (number(&facts, "verified"), &facts["not_verified"]),
                (21, &serde_json::json!([])),
                "{args:?}"
            );
        }
    }
    hf_directory(dir.path(), |tensors| {
        for (name, _, bytes) in tensors.iter_mut() {
            match name.as_str() {
                "model.norm.weight" => bytes[5] ^= 1,
                "model.layers.1.self_attn.v_proj.weight" => bytes[77] ^= 1,
                _ => {}
            }
        }
    });
    let said = failure(&["load", path, "--verify"], dir.path().parent().unwrap());
    for name in ["model.norm.weight", "model.layers.1.self_attn.v_proj.weight"] {
        assert!(said.contains(&format!("`{name}`: different bytes: wanted blake3 ")), "{said}");
    }
    assert!(said.contains("does not match the manifest:\n") && said.ends_with("exit code 1"), "{said}");
}
