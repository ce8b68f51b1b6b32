//! What is wrong is said once, by name, with what was wanted and found, and exit code 1.

use insta::assert_snapshot;

use crate::failure;
use crate::files::{gguf, hf_directory, replace};

/// Plans the directory that `change` makes of `llama-tiny`.
fn hf(change: impl FnOnce(&mut Vec<(String, Vec<u64>, Vec<u8>)>)) -> String {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), change);
    failure(&["plan", dir.path().to_str().unwrap()], dir.path().parent().unwrap())
        .replace(dir.path().file_name().unwrap().to_str().unwrap(), "llama-tiny")
}

/// Runs the GGUF that `change` makes of `llama-tiny`.
fn run_gguf(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    gguf(&path, change);
    failure(&["run", path.to_str().unwrap(), "--raw", "-p", "hello"], dir.path())
}

#[test]
fn a_missing_tensor() {
    assert_snapshot!(hf(|t| t.retain(|t| t.0 != "model.layers.1.mlp.down_proj.weight")), @"
    error: `llama-tiny` does not match its model (llama):
    `model.layers.1.mlp.down_proj.weight` is missing: wanted [64, 96] for `layers.1.ffn.down.weight`
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn missing_tensors_of_many_layers() {
    assert_snapshot!(hf(|t| t.retain(|t| !t.0.ends_with("self_attn.k_proj.weight"))), @"
    error: `llama-tiny` does not match its model (llama):
    `model.layers.{n}.self_attn.k_proj.weight` is missing in 2 layers (0–1): wanted [32, 64] for `layers.{n}.attention.k.weight`
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn a_renamed_tensor() {
    assert_snapshot!(hf(|t| {
        let tensor = t.iter_mut().find(|t| t.0 == "model.norm.weight").unwrap();
        tensor.0 = "model.final_norm.weight".to_owned();
    }), @"
    error: `llama-tiny` does not match its model (llama):
    wanted `model.norm.weight` [64] for `output_norm.weight`, found unused `model.final_norm.weight` of the same shape
    hint: was it renamed?
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn a_misshaped_tensor() {
    assert_snapshot!(hf(|t| {
        let tensor = t.iter_mut().find(|t| t.0 == "model.layers.0.self_attn.q_proj.weight").unwrap();
        tensor.1.reverse();
        tensor.1 = vec![tensor.1[0] / 2, tensor.1[1] * 2];
    }), @"
    error: `llama-tiny` does not match its model (llama):
    `model.layers.0.self_attn.q_proj.weight`: wanted [64, 64] for `layers.0.attention.q.weight`, found [32, 128]
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn an_extra_tensor() {
    assert_snapshot!(hf(|t| t.push(("model.layers.0.adapter.weight".to_owned(), vec![2, 2], vec![0; 16]))), @"
    error: `llama-tiny` does not match its model (llama):
    `model.layers.0.adapter.weight` [2, 2] is in the checkpoint, but no parameter uses it
    hint: the nearest that the model wants is `model.layers.0.mlp.up_proj.weight`
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn all_problems_at_once() {
    assert_snapshot!(hf(|t| {
        t.retain(|t| t.0 != "lm_head.weight");
        t.push(("surprise".to_owned(), vec![1], vec![0; 4]));
        let tensor = t.iter_mut().find(|t| t.0 == "model.layers.1.mlp.up_proj.weight").unwrap();
        tensor.1.reverse();
    }), @"
    error: `llama-tiny` does not match its model (llama):
    `lm_head.weight` is missing: wanted [128, 64] for `output.weight`
    `model.layers.1.mlp.up_proj.weight`: wanted [96, 64] for `layers.1.ffn.up.weight`, found [64, 96]
    hint: the axes are reversed: was it saved transposed?
    `surprise` [1] is in the checkpoint, but no parameter uses it
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn a_renamed_tensor_in_gguf() {
    assert_snapshot!(run_gguf(|bytes| replace(bytes, "blk.0.attn_q.weight", "blk.0.attn_p.weight")), @"
    error: `model.gguf` does not match its model (llama):
    wanted `blk.0.attn_q.weight` [64, 64] for `layers.0.attention.q.weight`, found unused `blk.0.attn_p.weight` of the same shape
    hint: was it renamed?
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn a_truncated_file() {
    assert_snapshot!(run_gguf(|bytes| bytes.truncate(bytes.len() - 1000)), @"
    error: malformed `model.gguf`: the file is cut short: 1000 of 314592 bytes are missing, 2 of 21 tensors are incomplete, the first is `blk.1.attn_v.weight` (at byte 313592)
    hint: the download may be incomplete: download the file again
    exit code 1
    ");
}

#[test]
fn a_wrong_magic() {
    assert_snapshot!(run_gguf(|bytes| bytes[..4].copy_from_slice(b"FUGG")), @"
    error: malformed `model.gguf`: wanted the magic `GGUF`, found `FUGG` (at byte 0)
    hint: this is not a GGUF file, or it is damaged: download it again
    exit code 1
    ");
}

#[test]
fn an_unknown_architecture() {
    assert_snapshot!(run_gguf(|bytes| {
        // The value of `general.architecture`, and so the prefix of no other key.
        let at = bytes.windows(5).position(|w| w == b"llama").unwrap();
        bytes[at..at + 5].copy_from_slice(b"alpac");
    }), @"
    error: `model.gguf`: architecture `alpac` is not supported
    hint: known are `bert`, `deepseek2`, `falcon`, `gemma2`, `gemma3`, `gpt-oss`, `gpt2`, `granite`, `llama`, `modern-bert`, `nomic-bert`, `olmo2`, `phi3`, `qwen2`, `qwen3`, `qwen35`, `qwen3moe`, `starcoder2`
    hint: all tensor names match GGUF llama, granite or 14 others
    hint: without a supported architecture you can still `inspect`, `check` and `diff` it, `plan` and `load` it with `--layout source`, and `convert` it to npz, safetensors or npy-dir with its own tensor names
    exit code 1
    ");
}

#[test]
fn a_directory_without_config() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |_| {});
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    let parent = dir.path().parent().unwrap();
    let message = failure(&["inspect", dir.path().to_str().unwrap()], parent);
    assert_snapshot!(message.replace(dir.path().file_name().unwrap().to_str().unwrap(), "llama-tiny"), @"
    error: mismatch in `llama-tiny`: wanted a `config.json` beside the safetensors file, found `model.safetensors`
    hint: copy the model's `config.json` here, or open `llama-tiny/model.safetensors` itself for its tensors alone
    exit code 1
    ");
}

#[test]
fn a_config_with_wrong_numbers() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |_| {});
    let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
    let config = config
        .replace("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")
        .replace("\"hidden_size\": ", "\"hidden\": ")
        .replace("\"vocab_size\": ", "\"vocab_size\": -");
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let parent = dir.path().parent().unwrap();
    let message = failure(&["plan", dir.path().to_str().unwrap()], parent);
    assert_snapshot!(message.replace(dir.path().file_name().unwrap().to_str().unwrap(), "llama-tiny"), @"
    error: `llama-tiny`: the configuration of `LlamaForCausalLM` is wrong:
      no value for `hidden`: looked for `hidden_size`
      `vocab_size` is -128, wanted an integer from 1 to 4294967296
      `num_key_value_heads` is 3, wanted a divisor of the 4 query heads
    exit code 1
    ");
}

#[test]
fn a_path_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.gguf"), b"GGUF").unwrap();
    let path = dir.path().join("modell.gguf");
    assert_snapshot!(failure(&["inspect", path.to_str().unwrap()], dir.path()), @"
    error: cannot open `modell.gguf`: No such file or directory (os error 2)
    hint: did you mean `model.gguf`?
    exit code 1
    ");
}

#[test]
fn usage_errors_have_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    gguf(&path, |_| {});
    let path = path.to_str().unwrap();
    for args in [
        &["run", path, "--temperature", "-1", "-p", "x"][..],
        &["run", path, "--raw"],
        &["run", path, "--top-p", "0", "-p", "x"],
        &["run"],
        &["fly"],
        &["plan", path, "--explain", "layers.0.attention.w.weight"],
        &["bench", path, "--ctx", "8"],
    ] {
        let said = failure(args, dir.path());
        assert!(said.ends_with("exit code 2"), "{args:?}: {said}");
    }
}
