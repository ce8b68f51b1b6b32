//! `convert` and `quants`, as a user sees them.

use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::files::{gguf, replace};
use crate::{failure, golden, model, stdout, weighbridge};

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

/// Converts, and gives what was printed, without the folder and what time and memory it took.
fn convert(folder: &Path, args: &[&str]) -> String {
    let output = weighbridge(["convert"].iter().chain(args));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = stdout(&output).replace(&format!("{}/", folder.display()), "");
    let lines = text.lines().filter(|line| !line.starts_with("  memory: "));
    let timed = |line: &str| match line.split_once(" bits a weight) in ") {
        Some((before, _)) => format!("{before} bits a weight)"),
        None => line.to_owned(),
    };
    lines.map(timed).collect::<Vec<_>>().join("\n")
}

fn facts(args: &[&str]) -> Value {
    let output = weighbridge(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The tensors of a file: name, shape and encoding.
fn tensors(file: &Path) -> Vec<(String, Value, String)> {
    let facts = facts(&["inspect", path(file), "--json"]);
    let row = |t: &Value| {
        (t["name"].as_str().unwrap().into(), t["shape"].clone(), t["encoding"].as_str().unwrap().into())
    };
    facts["tensors"].as_array().unwrap().iter().map(row).collect()
}

/// Names stay, so nothing needs to be known about the architecture.
#[test]
fn any_file_is_decoded_whatever_its_architecture() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("alien.gguf"), dir.path().join("plain.npz"));
    gguf(&source, |bytes| replace(bytes, "\u{5}\0\0\0\0\0\0\0llama", "\u{5}\0\0\0\0\0\0\0alien"));
    let inspected = weighbridge(["inspect", path(&source)]);
    assert!(stdout(&inspected).contains("architecture `alien` is not supported"));
    assert_snapshot!(convert(dir.path(), &[path(&source), path(&target), "--encode", "*=f32"]), @"
    alien.gguf → plain.npz
      21 tensors, 305 KiB → 305 KiB (32.00 bits a weight)
           tensor                      from  to    bits   rmse  max error  cosine  by
           output.weight               f32   f32  32.00  exact                     *=f32
           token_embd.weight           f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.attn_norm.weight    f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.ffn_down.weight     f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.ffn_gate.weight     f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.ffn_up.weight       f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.ffn_norm.weight     f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.attn_k.weight       f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.attn_output.weight  f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.attn_q.weight       f32   f32  32.00  exact                     *=f32
      2 ×  blk.{n}.attn_v.weight       f32   f32  32.00  exact                     *=f32
           output_norm.weight          f32   f32  32.00  exact                     *=f32
    ");
    assert_eq!(tensors(&target), tensors(&source));
}

#[test]
fn canonical_names_can_be_written_and_ties_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let source = golden().join("gpt2-tiny");
    let target = dir.path().join("canonical.safetensors");
    let args = [path(&source), path(&target), "--layout", "canonical", "--encode", "*.bias=bf16"];
    let text = convert(&golden(), &args);
    assert_snapshot!(text.replace(&format!("{}/", dir.path().display()), ""), @"
    gpt2-tiny → canonical.safetensors
      36 tensors, 447 KiB → 444 KiB (31.79 bits a weight)
      changed values: rmse 3.460e-4, largest error 1.899e-3, cosine 0.999999
           tensor                              from  to     bits     rmse  max error  cosine    by
           token_embedding.weight              f32   f32   32.00    exact                       as stored
           position_embedding.weight           f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.attention_norm.weight    f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.attention_norm.bias      f32   bf16  16.00  2.74e-4    8.91e-4  0.999999  *.bias=bf16
      2 ×  layers.{n}.attention.q.weight       f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.attention.k.weight       f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.attention.v.weight       f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.attention.q.bias         f32   bf16  16.00  3.64e-4    1.80e-3  0.999999  *.bias=bf16
      2 ×  layers.{n}.attention.k.bias         f32   bf16  16.00  3.59e-4    1.42e-3  0.999998  *.bias=bf16
      2 ×  layers.{n}.attention.v.bias         f32   bf16  16.00  3.22e-4    9.76e-4  0.999999  *.bias=bf16
      2 ×  layers.{n}.attention.output.weight  f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.attention.output.bias    f32   bf16  16.00  3.29e-4    9.61e-4  0.999999  *.bias=bf16
      2 ×  layers.{n}.ffn_norm.weight          f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.ffn_norm.bias            f32   bf16  16.00  3.58e-4    1.73e-3  0.999999  *.bias=bf16
      2 ×  layers.{n}.ffn.up.weight            f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.ffn.up.bias              f32   bf16  16.00  3.65e-4    1.90e-3  0.999999  *.bias=bf16
      2 ×  layers.{n}.ffn.down.weight          f32   f32   32.00    exact                       as stored
      2 ×  layers.{n}.ffn.down.bias            f32   bf16  16.00  3.04e-4    1.08e-3  0.999999  *.bias=bf16
           output_norm.weight                  f32   f32   32.00    exact                       as stored
           output_norm.bias                    f32   bf16  16.00  3.86e-4    9.46e-4  0.999998  *.bias=bf16
      output.weight is the same as token_embedding.weight and is not written again
    ");
    assert!(tensors(&target).iter().all(|t| t.0.starts_with("layers.") || !t.0.contains("h.")));
}

/// ONNX has room for the weights and the configuration: what else there is, is said.
#[test]
fn onnx_is_weights_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (golden().join("llama-tiny/model.gguf"), dir.path().join("m.onnx"));
    let text = convert(&golden(), &[path(&source), path(&target), "--encode", "*=f16"]);
    assert_snapshot!(text.replace(&format!("{}/", dir.path().display()), ""), @"
    llama-tiny/model.gguf → m.onnx
      21 tensors, 305 KiB → 153 KiB (16.00 bits a weight)
      note: the graph has weights and no nodes: it computes nothing
      changed values: rmse 6.334e-5, largest error 4.841e-4, cosine 1.000000
           tensor                      from  to    bits     rmse  max error  cosine    by
           output.weight               f32   f16  16.00  6.32e-5    4.69e-4  1.000000  *=f16
           token_embd.weight           f32   f16  16.00  6.30e-5    3.04e-4  1.000000  *=f16
      2 ×  blk.{n}.attn_norm.weight    f32   f16  16.00  1.99e-4    4.84e-4  1.000000  *=f16
      2 ×  blk.{n}.ffn_down.weight     f32   f16  16.00  6.23e-5    4.60e-4  1.000000  *=f16
      2 ×  blk.{n}.ffn_gate.weight     f32   f16  16.00  6.13e-5    3.94e-4  1.000000  *=f16
      2 ×  blk.{n}.ffn_up.weight       f32   f16  16.00  6.24e-5    4.61e-4  1.000000  *=f16
      2 ×  blk.{n}.ffn_norm.weight     f32   f16  16.00  2.07e-4    4.74e-4  1.000000  *=f16
      2 ×  blk.{n}.attn_k.weight       f32   f16  16.00  6.17e-5    4.19e-4  1.000000  *=f16
      2 ×  blk.{n}.attn_output.weight  f32   f16  16.00  6.12e-5    4.59e-4  1.000000  *=f16
      2 ×  blk.{n}.attn_q.weight       f32   f16  16.00  6.12e-5    3.25e-4  1.000000  *=f16
      2 ×  blk.{n}.attn_v.weight       f32   f16  16.00  6.07e-5    3.32e-4  1.000000  *=f16
           output_norm.weight          f32   f16  16.00  2.42e-4    4.65e-4  1.000000  *=f16
      not carried from metadata: general.file_type, general.quantization_version (it is about the GGUF file)
      not carried from metadata: tokenizer.ggml.model (ONNX has no place for it)
    ");
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["m.onnx", "m.onnx.data"]);
    let again = failure(&["convert", path(&source), path(&target), "--encode", "*=f16"], dir.path());
    assert_snapshot!(again, @"
    error: `m.onnx`: already exists
    hint: remove it, or name another destination; `--force` overwrites it
    exit code 2
    ");
    let quantised = dir.path().join("q.gguf");
    convert(dir.path(), &[path(&source), path(&quantised), "--encode", "*attn_q*=q8_0"]);
    let other = dir.path().join("q.onnx");
    assert_snapshot!(failure(&["convert", path(&quantised), path(&other)], dir.path()), @"
    error: `onnx`: tensor `blk.0.attn_q.weight`: cannot store q8_0 (as in 1 more), wanted a plain dtype
    hint: write another format, or encode them as f32, f16 or bf16 (`--encode '*=f16'`)
    exit code 2
    ");
    assert_snapshot!(failure(&["convert", path(&quantised), path(&other), "--preset", "q8_0"], dir.path()), @"
    error: the preset `q8_0` makes `q8_0`, which onnx cannot store (16 tensors)
    hint: presets for onnx: `f16`, the nearest; also `bf16`, `f32`
    exit code 2
    ");
    convert(dir.path(), &[path(&quantised), path(&other), "--encode", "*=f16"]);
}

/// The result is a model like any other.
#[test]
fn a_converted_model_runs() {
    let dir = tempfile::tempdir().unwrap();
    let source = model("smollm2");
    let target = dir.path().join("half.gguf");
    let args =
        ["convert", path(&source), path(&target), "--encode", "*norm*=f32", "--encode", "*=f16", "--json"];
    let facts = facts(&args);
    // As much as the largest parameter and what is read for it, not the 257 MiB of all.
    let largest = 49152 * 576 * 2;
    let peak = facts["peak_memory"].as_u64().unwrap();
    assert!((largest..largest + (48 << 20)).contains(&peak), "{peak}");
    assert_eq!(facts["file_bytes"].as_u64(), Some(target.metadata().unwrap().len()));
    let metadata =
        |file: &Path| crate::convert::facts(&["inspect", path(file), "--json"])["metadata"].clone();
    let (before, after) = (metadata(&model("smollm2")), metadata(&target));
    assert_eq!(after["general.file_type"], 1);
    let others = |m: &Value| {
        let mut m = m.as_object().unwrap().clone();
        m.remove("general.file_type");
        m
    };
    assert_eq!(others(&before), others(&after));
    let args = ["-p", "What is the capital of France?", "--temperature", "0", "-n", "12", "--threads", "2"];
    let answer = |file: &Path| stdout(&weighbridge(["run", path(file)].iter().chain(&args)));
    // f16 weights meet f32 activations; the 8-bit ones that q4_1 meets answer otherwise.
    assert_eq!(answer(&target), "The capital of France is Paris.");
}

/// Whatever is wrong is said before a byte is read, and nothing is written.
#[test]
fn what_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = golden().join("llama-tiny/model.gguf");
    let (from, tiny) = (path(&file), golden().join("llama-tiny"));
    let target = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let fails = |args: &[&str]| {
        let text = failure(&[&["convert"], args].concat(), dir.path());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        text.replace(&format!("{}/", golden().display()), "")
    };
    assert_snapshot!(fails(&[from, &target("x")]), @"
    error: the name of `x` does not say its format
    hint: add `--to` npz, safetensors, onnx, gguf, hf, mlx, npy-dir, ctranslate2 or ggml
    exit code 2
    ");
    assert_snapshot!(fails(&[from, &target("x.npz"), "--encode", "blk.*=f16", "--encode", "blk.0.*=f32", "--encode", "blk.0.attn_qq.weight=f32"]), @"
    error: rule `blk.0.*=f32`: earlier rules match all of its parameters, such as `blk.0.attn_norm.weight`
    rule `blk.0.attn_qq.weight=f32`: no parameter matches
    hint: the nearest is `blk.0.attn_q.weight`
    exit code 2
    ");
    let bare = golden().join("../npz/arrays.npz");
    assert_snapshot!(fails(&[path(&bare), &target("x"), "--to", "hf"]), @"
    error: hf files name their model, and `../npz/arrays.npz` is npz, which does not
    hint: npz and safetensors take any tensors under any names
    exit code 2
    ");
    assert_snapshot!(fails(&[path(&tiny), &target("x.gguf"), "--layout", "hf"]), @"
    error: gguf has its own tensor names, so the layout `hf` cannot be written to it
    hint: name no layout; npz and safetensors take any tensors under any names
    exit code 2
    ");
    assert_snapshot!(fails(&[from, &target("x.gguf"), "--layout", "canonical"]), @"
    error: gguf has its own tensor names, so the layout `canonical` cannot be written to it
    hint: name no layout; npz and safetensors take any tensors under any names
    exit code 2
    ");
    assert_snapshot!(fails(&[from, &target("x.npz"), "--layout", "packed"]), @"
    error: the layout `packed` is only for this machine: no other program reads it
    hint: source, canonical, hf or gguf
    exit code 2
    ");
    assert_snapshot!(fails(&[from, &target("x.gguf"), "--preset", "q4_k_x"]), @"
    error: invalid value 'q4_k_x' for '--preset <NAME>': no preset is called `q4_k_x`
      gguf: q2_k_s, q2_k, q3_k_s, q3_k_m, q3_k_l, mxfp4_moe, iq4_xs, q4_0, q4_k_s, iq4_nl, q4_k_m, q4_1, q5_0, q5_k_s, q5_k_m, q5_1, q6_k, q8_0
      mlx: mixed_2_6, mlx-3bit, mixed_3_4, mixed_3_6, mlx-4bit, mixed_4_6, mlx-5bit, mlx-6bit, mlx-8bit
      hf: gptq-4bit, awq-4bit, fp8-block, int8
      npy-dir: squish-4bit, squish-int8
      ctranslate2: ct2-int8
      any format: f16, bf16, f32
    hint: the nearest is `q4_k_m`

    For more information, try '--help'.
    exit code 2
    ");
    assert_snapshot!(fails(&[from, &target("x.gguf"), "--encode", "*=q4_kk"]), @"
    error: invalid value '*=q4_kk' for '--encode <PATTERN=SCHEME>': no scheme is called `q4_kk`
    hint: the nearest is `q4_k`; `weighbridge quants` lists them

    For more information, try '--help'.
    exit code 2
    ");
    assert_snapshot!(fails(&[from, &target("x.gguf"), "--imatrix", from]), @"
    error: `llama-tiny/model.gguf`: it has no tensors
    hint: llama.cpp's llama-imatrix makes them
    exit code 1
    ");
}

#[test]
fn what_is_there_stays_unless_told() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("x.npz");
    std::fs::write(&target, "precious").unwrap();
    let source = golden().join("llama-tiny");
    let args = ["convert", path(&source), path(&target)];
    assert_snapshot!(failure(&args, dir.path()), @"
    error: `x.npz`: already exists
    hint: remove it, or name another destination; `--force` overwrites it
    exit code 2
    ");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    assert!(weighbridge(args.iter().chain(&["--force"])).status.success());
    assert_eq!(tensors(&target).len(), 21);
}

#[test]
fn quants_lists_every_scheme_with_its_size() {
    let facts = facts(&["quants", "--json"]);
    let bits = |name: &str| {
        let row = facts["quants"].as_array().unwrap().iter().find(|q| q["name"] == name);
        row.unwrap_or_else(|| panic!("`{name}` is listed"))["bits"].as_f64().unwrap()
    };
    let found = ["f32", "q8_0", "q4_k", "q6_k"].map(|name| format!("{:.4}", bits(name)));
    assert_eq!(found, ["32.0000", "8.5000", "4.5000", "6.5625"]);
    let q4 = facts["quants"].as_array().unwrap().iter().find(|q| q["name"] == "q4_0").unwrap();
    assert_eq!(q4["interleaved"], serde_json::json!(["q4_0.r8", "q4_0.r16"]));
    assert_eq!(q4["runs_on"][0], "scalar");
    let text = stdout(&weighbridge(["quants"]));
    assert_eq!(text.lines().count(), facts["quants"].as_array().unwrap().len() + 1);
}

/// Names, numbers cut out, and encodings of a file, with the layers that have them.
fn table(file: &Path) -> String {
    let mut groups: Vec<(String, String, Vec<u64>)> = vec![];
    for (name, _, encoding) in tensors(file) {
        let layer = name.split('.').nth(1).and_then(|n| n.parse::<u64>().ok());
        let pattern = name.split('.').map(|s| if s.parse::<u64>().is_ok() { "*" } else { s });
        let pattern = pattern.collect::<Vec<_>>().join(".");
        match groups.iter_mut().find(|(p, e, _)| *p == pattern && *e == encoding) {
            Some((_, _, layers)) => layers.extend(layer),
            None => groups.push((pattern, encoding, layer.into_iter().collect())),
        }
    }
    groups.sort();
    let row = |(pattern, encoding, mut layers): (String, String, Vec<u64>)| {
        layers.sort_unstable();
        let text: Vec<String> = layers.iter().map(u64::to_string).collect();
        format!("{pattern} {encoding} {}", text.join(" ")).trim_end().to_owned()
    };
    groups.into_iter().map(row).collect::<Vec<_>>().join("\n")
}

/// The same table as `llama-quantize --allow-requantize smollm2.gguf out.gguf Q4_K_M` of llama.cpp@0c1e57098 gives.
#[test]
fn q4_k_m_is_what_llama_quantize_makes_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("q4_k_m.gguf");
    let source = model("smollm2");
    let args = ["convert", path(&source), path(&target), "--preset", "q4_k_m"];
    // As llama-quantize does, it quantises again only if that is meant.
    assert_snapshot!(failure(&args, dir.path()), @"
    error: these weights are already quantised and would be quantised again:
      14 × `blk.{n}.ffn_down.weight` from q4_1 to q6_k
      30 × `blk.{n}.ffn_gate.weight` from q4_1 to q5_0
      30 × `blk.{n}.ffn_up.weight` from q4_1 to q5_0
      30 × `blk.{n}.attn_k.weight` from q4_1 to q5_0
      30 × `blk.{n}.attn_output.weight` from q4_1 to q5_0
      30 × `blk.{n}.attn_q.weight` from q4_1 to q5_0
      14 × `blk.{n}.attn_v.weight` from q4_1 to q8_0
      16 × `blk.{n}.ffn_down.weight` from q4_1 to q4_k
      16 × `blk.{n}.attn_v.weight` from q4_1 to q5_0
    hint: quantise the original floats, or allow it with `--allow-requantize`
    exit code 2
    ");
    assert!(!target.exists());
    let facts = facts(&[&args[..], &["--allow-requantize", "--json"]].concat());
    assert_snapshot!(table(&target), @"
    blk.*.attn_k.weight q5_0 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    blk.*.attn_norm.weight f32 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    blk.*.attn_output.weight q5_0 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    blk.*.attn_q.weight q5_0 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    blk.*.attn_v.weight q5_0 3 4 6 7 9 10 12 13 15 16 18 19 21 22 24 25
    blk.*.attn_v.weight q8_0 0 1 2 5 8 11 14 17 20 23 26 27 28 29
    blk.*.ffn_down.weight q4_k 3 4 6 7 9 10 12 13 15 16 18 19 21 22 24 25
    blk.*.ffn_down.weight q6_k 0 1 2 5 8 11 14 17 20 23 26 27 28 29
    blk.*.ffn_gate.weight q5_0 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    blk.*.ffn_norm.weight f32 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    blk.*.ffn_up.weight q5_0 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    output_norm.weight f32
    token_embd.weight q8_0
    ");
    assert!(facts["difference"]["cosine"].as_f64().unwrap() > 0.998, "{}", facts["difference"]);
    let inspected = crate::convert::facts(&["inspect", path(&target), "--json"]);
    assert_eq!((&inspected["metadata"]["general.file_type"], &inspected["fits"]), (&15.into(), &true.into()));
    let args = ["-p", "The capital of France is", "--raw", "--temperature", "0", "-n", "4", "--threads", "2"];
    let output = weighbridge(["run", path(&target)].iter().chain(&args));
    assert_eq!(stdout(&output).trim_end(), " Paris.", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Fused queries, keys and values count as values; positions and biases stay.
#[test]
fn presets_go_by_what_a_tensor_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = golden().join("gpt2-tiny/model.gguf");
    let target = dir.path().join("x.gguf");
    convert(dir.path(), &[path(&tiny), path(&target), "--preset", "q8_0"]);
    assert_snapshot!(table(&target), @"
    blk.*.attn_norm.bias f32 0 1
    blk.*.attn_norm.weight f32 0 1
    blk.*.attn_output.bias f32 0 1
    blk.*.attn_output.weight q8_0 0 1
    blk.*.attn_qkv.bias f32 0 1
    blk.*.attn_qkv.weight q8_0 0 1
    blk.*.ffn_down.bias f32 0 1
    blk.*.ffn_down.weight q8_0 0 1
    blk.*.ffn_norm.bias f32 0 1
    blk.*.ffn_norm.weight f32 0 1
    blk.*.ffn_up.bias f32 0 1
    blk.*.ffn_up.weight q8_0 0 1
    output_norm.bias f32
    output_norm.weight f32
    position_embd.weight f32
    token_embd.weight q8_0
    ");
    let text = convert(
        &golden(),
        &[path(&tiny), path(&target), "--force", "--preset", "q4_k_m", "--encode", "token_embd.*=q4_0"],
    );
    assert_snapshot!(text.replace(&format!("{}/", dir.path().display()), ""), @"
    gpt2-tiny/model.gguf → x.gguf
      28 tensors, 447 KiB → 99.2 KiB (7.11 bits a weight)
      changed values: rmse 9.684e-3, largest error 6.291e-2, cosine 0.998821
           tensor                      from  to     bits     rmse  max error  cosine    by
      2 ×  blk.{n}.attn_qkv.bias       f32   f32   32.00    exact                       q4_k_m: norms and vectors
           blk.0.attn_qkv.weight       f32   q5_0   5.50  8.31e-3    2.64e-2  0.999128  q4_k_m: attention values, as q4_k does not fit
      2 ×  blk.{n}.attn_output.bias    f32   f32   32.00    exact                       q4_k_m: norms and vectors
      2 ×  blk.{n}.attn_output.weight  f32   q5_0   5.50  8.45e-3    2.91e-2  0.999092  q4_k_m: attention output, as q4_k does not fit
      2 ×  blk.{n}.attn_norm.bias      f32   f32   32.00    exact                       q4_k_m: norms and vectors
      2 ×  blk.{n}.attn_norm.weight    f32   f32   32.00    exact                       q4_k_m: norms and vectors
      2 ×  blk.{n}.ffn_norm.bias       f32   f32   32.00    exact                       q4_k_m: norms and vectors
      2 ×  blk.{n}.ffn_norm.weight     f32   f32   32.00    exact                       q4_k_m: norms and vectors
      2 ×  blk.{n}.ffn_up.bias         f32   f32   32.00    exact                       q4_k_m: norms and vectors
      2 ×  blk.{n}.ffn_up.weight       f32   q5_0   5.50  8.55e-3    3.87e-2  0.999087  q4_k_m: matrices, as q4_k does not fit
      2 ×  blk.{n}.ffn_down.bias       f32   f32   32.00    exact                       q4_k_m: norms and vectors
           blk.0.ffn_down.weight       f32   q4_k   4.50  1.39e-2    6.02e-2  0.997593  q4_k_m: ffn down
           blk.1.attn_qkv.weight       f32   q8_0   8.50  1.05e-3    2.86e-3  0.999986  q4_k_m: attention values, more bits, as q6_k does not fit
           blk.1.ffn_down.weight       f32   q6_k   6.56  3.36e-3    1.29e-2  0.999857  q4_k_m: ffn down, more bits
           output_norm.bias            f32   f32   32.00    exact                       q4_k_m: norms and vectors
           output_norm.weight          f32   f32   32.00    exact                       q4_k_m: norms and vectors
           position_embd.weight        f32   f32   32.00    exact                       q4_k_m: position embeddings
           token_embd.weight           f32   q4_0   4.50  1.71e-2    6.29e-2  0.996361  token_embd.*=q4_0
    ");
}

/// What a preset or a rule cannot do is said with what would do.
#[test]
fn a_shape_that_does_not_fit_is_refused_with_what_would() {
    let dir = tempfile::tempdir().unwrap();
    let (alien, target) = (dir.path().join("alien.gguf"), dir.path().join("x.gguf"));
    gguf(&alien, |bytes| replace(bytes, "\u{5}\0\0\0\0\0\0\0llama", "\u{5}\0\0\0\0\0\0\0alien"));
    let fails =
        |args: &[&str]| failure(&[&["convert", path(&alien), path(&target)], args].concat(), dir.path());
    assert_snapshot!(fails(&["--preset", "q4_k_m"]), @"
    error: the preset `q4_k_m` depends on the role of each tensor, which is unknown: `alien.gguf`: architecture `alien` is not supported
    hint: known are `bert`, `deepseek2`, `falcon`, `gemma2`, `gemma3`, `gpt-oss`, `gpt2`, `granite`, `llama`, `modern-bert`, `nomic-bert`, `olmo2`, `phi3`, `qwen2`, `qwen3`, `qwen35`, `qwen3moe`, `starcoder2`
    hint: all tensor names match GGUF llama, granite or 14 others
    hint: name the tensors in encoding rules
    exit code 2
    ");
    assert_snapshot!(fails(&["--encode", "blk.*.attn_*=q4_k"]), @"
    error: `blk.{n}.attn_k.weight` (2 of them) [32, 64] cannot be `q4_k`: axis 1 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    `blk.{n}.attn_norm.weight` (2 of them) [64] cannot be `q4_k`: axis 0 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    `blk.{n}.attn_output.weight` (2 of them) [64, 64] cannot be `q4_k`: axis 1 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    `blk.{n}.attn_q.weight` (2 of them) [64, 64] cannot be `q4_k`: axis 1 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    `blk.{n}.attn_v.weight` (2 of them) [32, 64] cannot be `q4_k`: axis 1 has 64 elements, not a multiple of the 256 that a block packs
    hint: `q4_0` would fit
    exit code 2
    ");
}
