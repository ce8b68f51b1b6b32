//! Architectures that no family claims: refused by name, with what can be done all the same, which works.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{failure, stdout, weighbridge};

/// A directory of one tensor.
fn directory(dir: &Path, config: &Value) -> PathBuf {
    let path = dir.join("model");
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("config.json"), config.to_string()).unwrap();
    let header = r#"{"encoder.a.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}"#;
    let file = testkit::fixture::safetensors_bytes(header, &[0, 0, 128, 63, 0, 0, 0, 64]);
    std::fs::write(path.join("model.safetensors"), file).unwrap();
    path
}

fn said(config: &Value) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = directory(dir.path(), config);
    let text = failure(&["plan", path.to_str().unwrap()], dir.path());
    // All but the hints, which are the same.
    text.lines().filter(|line| !line.starts_with("hint: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn unknown_architectures_are_refused_by_name() {
    let named = |class: &str, kind: &str| json!({"architectures": [class], "model_type": kind});
    assert_snapshot!(said(&named("GlmForCausalLM", "glm")), @"
    error: `model`: architecture `GlmForCausalLM` is not supported
    exit code 1
    ");
    assert_snapshot!(said(&named("MambaForCausalLM", "mamba")), @"
    error: `model`: architecture `MambaForCausalLM` is not supported
    exit code 1
    ");
    assert_snapshot!(said(&json!({"model_type": "clip_vision_model"})), @"
    error: `model`: architecture `clip_vision_model` is not supported
    exit code 1
    ");
    // Of several parts: Llama 4, and what rotates by positions in the image.
    let parts = |class: &str, kind: &str, text: &str| json!({"architectures": [class], "model_type": kind, "text_config": {"model_type": text}});
    assert_snapshot!(said(&parts("Llama4ForConditionalGeneration", "llama4", "llama4_text")), @"
    error: `model`: architecture `Llama4ForConditionalGeneration` is not supported: nor is its text model `llama4_text`
    exit code 1
    ");
    assert_snapshot!(said(&parts("Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_vl_text")), @"
    error: `model`: architecture `Qwen2VLForConditionalGeneration` is not supported: nor is its text model `qwen2_vl_text`
    exit code 1
    ");
    assert_snapshot!(said(&parts("LlavaForConditionalGeneration", "llava", "opt")), @"
    error: `model`: architecture `LlavaForConditionalGeneration` is not supported: its text model is `opt`
    exit code 1
    ");
    assert_snapshot!(said(&parts("StrangeForConditionalGeneration", "strange", "llama")), @"
    error: `model`: architecture `StrangeForConditionalGeneration` is not supported: its text model `llama` is, but this class may run it otherwise
    exit code 1
    ");
    // A class may compute otherwise than its type.
    assert_snapshot!(said(&named("LlamaBidirectionalModel", "llama")), @"
    error: `model`: architecture `LlamaBidirectionalModel` is not supported: its `model_type` `llama` is, but a class of another name may compute otherwise
    exit code 1
    ");
}

#[test]
fn what_can_be_done_with_them_works() {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({"architectures": ["GlmForCausalLM"], "model_type": "glm"});
    let path = directory(dir.path(), &config);
    let model = path.to_str().unwrap();
    for command in ["plan", "load", "run"] {
        let args: &[&str] = if command == "run" { &["run", model, "-p", "x"] } else { &[command, model] };
        let text = failure(args, dir.path());
        assert!(text.contains("architecture `GlmForCausalLM` is not supported"), "{command}: {text}");
        assert!(text.contains("without a supported architecture you can still"), "{command}: {text}");
    }
    let out = dir.path().join("out.gguf");
    let text = failure(&["convert", model, out.to_str().unwrap()], dir.path());
    assert!(text.contains("without a supported architecture you can still"), "{text}");
    let (npz, safetensors) = (dir.path().join("x.npz"), dir.path().join("x.safetensors"));
    for args in [
        &["inspect", model][..],
        &["check", model, "--deep"],
        &["diff", model, model],
        &["plan", model, "--layout", "source"],
        &["load", model, "--layout", "source"],
        &["convert", model, npz.to_str().unwrap()],
        &["convert", model, safetensors.to_str().unwrap()],
    ] {
        let output = weighbridge(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        if args[0] == "inspect" {
            assert!(
                stdout(&output).contains("without a supported architecture you can still"),
                "{}",
                stdout(&output)
            );
        }
    }
}
