//! Names of another family or ecosystem than a checkpoint claims: whose they are is said.

use insta::assert_snapshot;

use crate::files::{gguf, hf_directory, replace};
use crate::{failure, golden};

/// The last lines of a plan: its outcome.
fn ends(said: &str, lines: usize) -> String {
    let all: Vec<&str> = said.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[test]
fn a_config_of_another_architecture() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |_| {});
    std::fs::copy(golden().join("gpt2-tiny/config.json"), dir.path().join("config.json")).unwrap();
    let said = failure(&["plan", dir.path().to_str().unwrap()], dir.path().parent().unwrap());
    assert!(said.contains("does not match its model (gpt2)"), "{said}");
    assert_snapshot!(ends(&said, 3), @"
    hint: all tensor names match Hugging Face llama, qwen2 or 12 others; set the right `model_type` in config.json
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

#[test]
fn a_directory_of_hf_with_names_of_gguf() {
    let dir = tempfile::tempdir().unwrap();
    hf_directory(dir.path(), |tensors| {
        for (name, ..) in tensors {
            for (hf, gguf) in [
                ("model.layers.", "blk."),
                ("model.embed_tokens", "token_embd"),
                ("model.norm", "output_norm"),
                ("lm_head", "output"),
                ("self_attn.q_proj", "attn_q"),
                ("self_attn.k_proj", "attn_k"),
                ("self_attn.v_proj", "attn_v"),
                ("self_attn.o_proj", "attn_output"),
                ("mlp.gate_proj", "ffn_gate"),
                ("mlp.down_proj", "ffn_down"),
                ("mlp.up_proj", "ffn_up"),
                ("post_attention_layernorm", "ffn_norm"),
            ] {
                *name = name.replace(hf, gguf);
            }
        }
    });
    let said = failure(&["plan", dir.path().to_str().unwrap()], dir.path().parent().unwrap());
    assert_snapshot!(ends(&said, 3), @"
    hint: 90 % of the tensor names match GGUF llama, granite or 14 others
    hint: `weighbridge inspect --tensors` lists what the checkpoint holds
    exit code 1
    ");
}

/// Some names of its own are no reason to think of another family.
#[test]
fn a_few_strange_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    gguf(&file, |bytes| replace(bytes, "blk.0.attn_q.weight", "blk.0.attn_p.weight"));
    let said = failure(&["plan", file.to_str().unwrap()], dir.path());
    assert!(!said.contains("tensor names match"), "{said}");
}
