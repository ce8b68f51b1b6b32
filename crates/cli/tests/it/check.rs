//! `check`, as a user sees it.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::files::hf_directory;
use crate::{failure, golden, stdout, weighbridge};

/// What was printed, without the folder and how long reading took, and the exit code.
fn check(folder: &Path, args: &[&str]) -> String {
    let output = weighbridge(["check"].iter().chain(args));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = stdout(&output).replace(&format!("{}/", folder.display()), "");
    let lines = text.lines().filter(|line| !(line.contains(" read in ") && line.ends_with(" GB/s")));
    let lines: Vec<&str> = lines.collect();
    format!("{}\nexit code {}", lines.join("\n"), output.status.code().unwrap())
}

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

#[test]
fn a_sound_file_is_good_and_its_bytes_are_accounted_for() {
    let file = golden().join("llama-tiny/model.gguf");
    assert_snapshot!(check(file.parent().unwrap(), &[path(&file), "--deep"]), @"
    model.gguf
      gguf, 21 tensors, 305 KiB: the structure is sound
      78.1k values read: all finite
      file         length  tensors   before  between  after
      model.gguf  307 KiB  305 KiB  2.0 KiB      0 B    0 B
    exit code 0
    ");
}

#[test]
fn values_that_are_no_numbers_are_counted_by_name() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |tensors| {
        let put = |bytes: &mut [u8], i: usize, x: f32| bytes[4 * i..][..4].copy_from_slice(&x.to_le_bytes());
        let (_, _, norm) = tensors.iter_mut().find(|t| t.0 == "model.norm.weight").unwrap();
        put(norm, 63, f32::INFINITY);
        let (_, _, up) = tensors.iter_mut().find(|t| t.0 == "model.layers.1.mlp.up_proj.weight").unwrap();
        put(up, 64 * 7 + 5, f32::NAN);
        put(up, 64 * 90, f32::NAN);
        put(up, 64 * 95 + 63, f32::NEG_INFINITY);
    });
    // Headers do not show it.
    assert!(weighbridge(["check", path(dir.path())]).status.success());
    assert_snapshot!(check(dir.path().parent().unwrap(), &[path(dir.path()), "--deep"])
        .replace(dir.path().file_name().unwrap().to_str().unwrap(), "model"), @"
    model
      hf, 21 tensors, 305 KiB: the structure is sound
      78.1k values read: wrong in 2 tensors
      file                length  tensors   before  between  after
      model.safetensors  307 KiB  305 KiB  2.1 KiB      0 B    0 B
    `model.layers.1.mlp.up_proj.weight`: 2 of 6144 values are NaN, 1 infinite, the first at [7, 5]
    `model.norm.weight`: 1 of 64 values are infinite, the first at [63]
    exit code 1
    ");
}

#[test]
fn a_manifest_tells_all_that_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |_| ());
    let folder = path(dir.path());
    let shown = |args: &[&str]| {
        let text = check(dir.path(), args);
        text.replace(folder, "model")
    };
    assert_snapshot!(shown(&[folder, "--write-manifest"]), @"
    model
      hf, 21 tensors, 305 KiB: the structure is sound
      manifest written to `weighbridge-manifest.json`
      file                length  tensors   before  between  after
      model.safetensors  307 KiB  305 KiB  2.1 KiB      0 B    0 B
    exit code 0
    ");
    let manifest = dir.path().join("weighbridge-manifest.json");
    let written = std::fs::read_to_string(&manifest).unwrap();
    assert_snapshot!(written.lines().take(5).collect::<Vec<_>>().join("\n"), @r#"
    {
    "format": "weighbridge-manifest",
    "version": 1,
    "tensors": [
    {"name":"lm_head.weight","shape":[128,64],"scheme":"f32","blake3":"b425c0ec8b5ae7a779a6a12d04c66131d8b57972640711c3a14c9104342c7c6c"},
    "#);
    assert_snapshot!(shown(&[folder, "--verify"]), @"
    model
      hf, 21 tensors, 305 KiB: the structure is sound
      compared with `weighbridge-manifest.json`: 21 tensors equal; 26 keys equal
      file                length  tensors   before  between  after
      model.safetensors  307 KiB  305 KiB  2.1 KiB      0 B    0 B
    exit code 0
    ");

    hf_directory(dir.path(), |tensors| {
        tensors.retain(|t| t.0 != "model.layers.0.mlp.up_proj.weight");
        for (name, shape, bytes) in tensors.iter_mut() {
            match name.as_str() {
                "model.norm.weight" => *name = "model.norm.bias".into(),
                "lm_head.weight" => shape.reverse(),
                "model.layers.1.self_attn.v_proj.weight" => bytes[77] ^= 1,
                _ => {}
            }
        }
    });
    assert_snapshot!(shown(&[folder, "--verify"]), @"
    model
      hf, 20 tensors, 281 KiB: the structure is sound
      compared with `weighbridge-manifest.json`: 5 differences in tensors; 26 keys equal
      file                length  tensors   before  between  after
      model.safetensors  283 KiB  281 KiB  2.0 KiB      0 B    0 B
    `model.layers.0.mlp.up_proj.weight`: missing: in the manifest, not in the checkpoint
    `model.norm.weight`: missing: in the manifest, not in the checkpoint
    `lm_head.weight`: shape: wanted [128, 64], found [64, 128]
    `model.layers.1.self_attn.v_proj.weight`: different bytes: wanted blake3 75651a5cb7d0ead7…, found 153cef991febba86…
    `model.norm.bias`: extra: in the checkpoint, not in the manifest
    exit code 1
    ");
    // Nor is it written over, but for one that says the same.
    let write = ["check", folder, "--write-manifest"];
    assert_snapshot!(failure(&write, dir.path()), @"
    error: `weighbridge-manifest.json` already exists and differs
    hint: `--verify` shows what has changed; `--force` replaces it
    exit code 2
    ");
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), written);
    assert!(weighbridge(write.iter().chain(&["--force"])).status.success());
    assert!(weighbridge(write).status.success());
    assert!(weighbridge(["check", folder, "--verify"]).status.success());
    let names = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(names.filter(|n| n.to_str().unwrap().ends_with(".tmp")).count(), 0);
}

#[test]
fn a_manifest_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden().join("llama-tiny/model.gguf");
    let file = dir.path().join("m.json");
    let refused = |text: &str| {
        std::fs::write(&file, text).unwrap();
        failure(&["check", path(&model), &format!("--verify={}", path(&file))], dir.path())
    };
    assert_snapshot!(refused("{"), @"
    error: `m.json`: it is no JSON: EOF while parsing an object at line 1 column 1
    hint: `weighbridge check --write-manifest` makes one
    exit code 1
    ");
    assert_snapshot!(refused(r#"{"format": "weighbridge-manifest", "version": 2}"#), @"
    error: `m.json`: wanted version 1, found 2
    hint: `weighbridge check --write-manifest` makes one
    exit code 1
    ");
    let listed =
        r#"{"format": "weighbridge-manifest", "version": 1, "tensors": [{"name": "a", "shape": [1]}]}"#;
    assert_snapshot!(refused(listed), @r#"
    error: `m.json`: tensor 0 lacks a name, shape, scheme or blake3: {"name":"a","shape":[1]}
    hint: `weighbridge check --write-manifest` makes one
    exit code 1
    "#);
    std::fs::remove_file(&file).unwrap();
    assert_snapshot!(failure(&["check", path(&model), &format!("--verify={}", path(&file))], dir.path()), @"
    error: cannot read the manifest `m.json`: No such file or directory (os error 2)
    hint: `weighbridge check --write-manifest` makes one
    exit code 1
    ");
}

#[test]
fn check_json_has_all() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |tensors| tensors[0].2[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    let output = weighbridge(["check", path(dir.path()), "--deep", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |of: &Value| of.as_u64().unwrap();
    let file = &facts["files"][0];
    let parts = ["tensors", "before", "between", "after"].map(|part| number(&file[part]));
    assert_eq!(parts.iter().sum::<u64>(), number(&file["bytes"]));
    assert_eq!((facts["good"].as_bool(), facts["values_read"] == facts["parameters"]), (Some(false), true));
    let finding = &facts["findings"][0];
    assert_eq!((&finding["kind"], &finding["not_finite"]["nan"]), (&"not_finite".into(), &1.into()));
}
