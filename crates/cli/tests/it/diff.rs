//! `diff`, as a user sees it.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::files::hf_directory;
use crate::{failure, golden, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

/// What was printed, without folders and how long reading took, and the exit code.
fn diff(folder: &Path, args: &[&str]) -> String {
    let output = weighbridge(["diff"].iter().chain(args));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = stdout(&output).replace(&format!("{}/", folder.display()), "");
    let text = text.replace(&format!("{}/", golden().display()), "");
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains(" read in ")).collect();
    format!("{}\nexit code {}", lines.join("\n"), output.status.code().unwrap())
}

#[test]
fn the_same_model_in_two_formats_is_the_same() {
    let (hf, gguf) = (golden().join("gpt2-tiny"), golden().join("gpt2-tiny/model.gguf"));
    assert_snapshot!(diff(&golden(), &[path(&hf), path(&gguf), "--all"]), @"
    A gpt2-tiny
    B gpt2-tiny/model.gguf
      both are `gpt2`: compared by canonical names
      the same: 36 parameters in both; 36 bit-equal
        parameter                         A    B    unequal  max error  relative  cosine
        token_embedding.weight            f32  f32           bit-equal
        position_embedding.weight         f32  f32           bit-equal
        layers.0.attention_norm.weight    f32  f32           bit-equal
        layers.0.attention_norm.bias      f32  f32           bit-equal
        layers.0.attention.q.weight       f32  f32           bit-equal
        layers.0.attention.k.weight       f32  f32           bit-equal
        layers.0.attention.v.weight       f32  f32           bit-equal
        layers.0.attention.q.bias         f32  f32           bit-equal
        layers.0.attention.k.bias         f32  f32           bit-equal
        layers.0.attention.v.bias         f32  f32           bit-equal
        layers.0.attention.output.weight  f32  f32           bit-equal
        layers.0.attention.output.bias    f32  f32           bit-equal
        layers.0.ffn_norm.weight          f32  f32           bit-equal
        layers.0.ffn_norm.bias            f32  f32           bit-equal
        layers.0.ffn.up.weight            f32  f32           bit-equal
        layers.0.ffn.up.bias              f32  f32           bit-equal
        layers.0.ffn.down.weight          f32  f32           bit-equal
        layers.0.ffn.down.bias            f32  f32           bit-equal
        layers.1.attention_norm.weight    f32  f32           bit-equal
        layers.1.attention_norm.bias      f32  f32           bit-equal
        layers.1.attention.q.weight       f32  f32           bit-equal
        layers.1.attention.k.weight       f32  f32           bit-equal
        layers.1.attention.v.weight       f32  f32           bit-equal
        layers.1.attention.q.bias         f32  f32           bit-equal
        layers.1.attention.k.bias         f32  f32           bit-equal
        layers.1.attention.v.bias         f32  f32           bit-equal
        layers.1.attention.output.weight  f32  f32           bit-equal
        layers.1.attention.output.bias    f32  f32           bit-equal
        layers.1.ffn_norm.weight          f32  f32           bit-equal
        layers.1.ffn_norm.bias            f32  f32           bit-equal
        layers.1.ffn.up.weight            f32  f32           bit-equal
        layers.1.ffn.up.bias              f32  f32           bit-equal
        layers.1.ffn.down.weight          f32  f32           bit-equal
        layers.1.ffn.down.bias            f32  f32           bit-equal
        output_norm.weight                f32  f32           bit-equal
        output_norm.bias                  f32  f32           bit-equal
           made in A from                        in B from
           transformer.wte.weight                token_embd.weight
           transformer.wpe.weight                position_embd.weight
      2 ×  transformer.h.{n}.ln_1.weight         blk.{n}.attn_norm.weight
      2 ×  transformer.h.{n}.ln_1.bias           blk.{n}.attn_norm.bias
      6 ×  transformer.h.{n}.attn.c_attn.weight  blk.{n}.attn_qkv.weight
      6 ×  transformer.h.{n}.attn.c_attn.bias    blk.{n}.attn_qkv.bias
      2 ×  transformer.h.{n}.attn.c_proj.weight  blk.{n}.attn_output.weight
      2 ×  transformer.h.{n}.attn.c_proj.bias    blk.{n}.attn_output.bias
      2 ×  transformer.h.{n}.ln_2.weight         blk.{n}.ffn_norm.weight
      2 ×  transformer.h.{n}.ln_2.bias           blk.{n}.ffn_norm.bias
      2 ×  transformer.h.{n}.mlp.c_fc.weight     blk.{n}.ffn_up.weight
      2 ×  transformer.h.{n}.mlp.c_fc.bias       blk.{n}.ffn_up.bias
      2 ×  transformer.h.{n}.mlp.c_proj.weight   blk.{n}.ffn_down.weight
      2 ×  transformer.h.{n}.mlp.c_proj.bias     blk.{n}.ffn_down.bias
           transformer.ln_f.weight               output_norm.weight
           transformer.ln_f.bias                 output_norm.bias
    exit code 0
    ");
}

/// All that can be told apart, the worst first.
#[test]
fn what_differs_is_said_worst_first() {
    let (a, dir) = (golden().join("llama-tiny"), tempfile::tempdir().unwrap());
    let b = dir.path().join("b");
    std::fs::create_dir(&b).unwrap();
    hf_directory(&b, |tensors| {
        tensors.retain(|t| t.0 != "model.layers.1.mlp.up_proj.weight");
        tensors.push(("surprise".into(), vec![1], vec![0; 4]));
        for (name, shape, bytes) in tensors.iter_mut() {
            match name.as_str() {
                "lm_head.weight" => shape.reverse(),
                "model.norm.weight" => bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
                "model.layers.0.self_attn.v_proj.weight" => bytes[3] ^= 0x80,
                _ => {}
            }
        }
    });
    assert_snapshot!(diff(dir.path(), &[path(&a), path(&b)]), @"
    A llama-tiny
    B b
      compared by stored names: `b` does not match its model (llama):
      `model.layers.1.mlp.up_proj.weight` is missing: wanted [96, 64] for `layers.1.ffn.up.weight`
      `lm_head.weight`: wanted [128, 64] for `output.weight`, found [64, 128]
      `surprise` [1] is in the checkpoint, but no parameter uses it
      they differ: 20 parameters in both; 17 bit-equal, 2 of other values, 1 of other shapes, 1 only in A, 1 only in B
      other values: largest error 2.547e-1, relative 1.620e-2, cosine 0.999869
      only in A: model.layers.1.mlp.up_proj.weight [96, 64] f32
      only in B: surprise [1] f32
           parameter                                         A    B      unequal              max error  relative    cosine
           lm_head.weight                                    f32  f32             [128, 64] ≠ [64, 128]
           model.norm.weight                                 f32  f32       1.6%           1 not finite    0.00e0  1.000000
           model.layers.0.self_attn.v_proj.weight            f32  f32  1 of 2048                2.55e-1   1.90e-2  0.999819
           model.embed_tokens.weight                         f32  f32                         bit-equal
      2 ×  model.layers.{n}.input_layernorm.weight           f32  f32                         bit-equal
      2 ×  model.layers.{n}.mlp.down_proj.weight             f32  f32                         bit-equal
      2 ×  model.layers.{n}.mlp.gate_proj.weight             f32  f32                         bit-equal
           model.layers.0.mlp.up_proj.weight                 f32  f32                         bit-equal
      2 ×  model.layers.{n}.post_attention_layernorm.weight  f32  f32                         bit-equal
      2 ×  model.layers.{n}.self_attn.k_proj.weight          f32  f32                         bit-equal
      2 ×  model.layers.{n}.self_attn.o_proj.weight          f32  f32                         bit-equal
      2 ×  model.layers.{n}.self_attn.q_proj.weight          f32  f32                         bit-equal
           model.layers.1.self_attn.v_proj.weight            f32  f32                         bit-equal
    exit code 1
    ");
    let output = weighbridge(["diff", path(&a), path(&b), "--json"]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let param = |name: &str| {
        let params = facts["parameters"].as_array().unwrap();
        params.iter().find(|p| p["name"] == name).unwrap().clone()
    };
    assert_eq!(param("model.norm.weight")["difference"]["finite_in_one_only"], 1);
    assert_eq!(param("model.layers.0.self_attn.v_proj.weight")["difference"]["unequal"], 1);
    assert_eq!((&facts["same"], &facts["only_in_b"][0]["name"]), (&false.into(), &"surprise".into()));
}

/// 2, so that 1 is that they differ.
#[test]
fn what_cannot_be_told_is_trouble() {
    let (llama, gemma) = (golden().join("llama-tiny"), golden().join("gemma3-tiny"));
    let fails = |args: &[&str]| {
        let text = failure(&[&["diff"], args].concat(), &golden());
        text.replace(&format!("{}/", golden().display()), "")
    };
    assert_snapshot!(fails(&[path(&llama), "nowhere"]), @"
    error: cannot open `nowhere`: No such file or directory (os error 2)
    hint: wanted a GGUF, safetensors, PyTorch, .npz or .npy file, or a model directory (Hugging Face, MLX, .npy files)
    exit code 2
    ");
    assert_snapshot!(fails(&[path(&llama), path(&gemma), "--layout", "canonical"]), @"
    error: A is `llama`, B is `gemma3`: they have no canonical names in common
    hint: use the layout `source`
    exit code 2
    ");
    assert_snapshot!(fails(&[path(&llama)]), @"
    error: the following required arguments were not provided:
      <B>

    Usage: weighbridge diff <A> <B>

    For more information, try '--help'.
    exit code 2
    ");
}
