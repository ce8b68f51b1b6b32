//! Tensors that cannot be moved as stored are decoded first: parts of several encodings fused, blocks transposed or
//! cut.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::planner::{EncodeRule, Preset};
use weighbridge::{Checkpoint, LayoutKind, Loaded, Mesh, Plan, PlanBuilder, Pool, load, open};

use crate::golden;

fn convert(
    source: &Checkpoint,
    layout: LayoutKind,
    format: OutputFormat,
    mesh: Mesh,
    rules: &[&str],
    to: &Path,
) {
    let rules: Vec<EncodeRule> = rules.iter().map(|r| r.parse().unwrap()).collect();
    let options = ConvertOptions { rules, mesh, ..ConvertOptions::default() };
    Conversion::new(source, layout, format, &options)
        .unwrap()
        .run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
}

/// Canonical parameters, or what a file holds under its own names.
fn values(path: &Path, layout: LayoutKind) -> Loaded {
    let checkpoint = open(path).unwrap();
    let plan = PlanBuilder::new(&checkpoint).layout(layout).build().unwrap();
    plan.load(&mut Pool::new(2)).unwrap()
}

fn floats(loaded: &Loaded, name: &str) -> Vec<f32> {
    let tensor = loaded.get(name).unwrap_or_else(|| panic!("there is no {name}"));
    let mut out = vec![0.0; tensor.rows() * tensor.width()];
    out.chunks_mut(tensor.width()).enumerate().for_each(|(row, out)| tensor.decode_row(row, out));
    out
}

/// GPT-2 in blocks, whose matrices HF has transposed.
#[test]
fn blocks_are_transposed_by_way_of_floats() {
    let folder = tempfile::tempdir().unwrap();
    let (gguf, hf) = (folder.path().join("q.gguf"), folder.path().join("hf"));
    let one = Mesh::default();
    let source = open(golden().join("gpt2-tiny/model.gguf")).unwrap();
    convert(
        &source,
        LayoutKind::Source,
        OutputFormat::Gguf,
        one,
        &["blk.*_qkv.weight=q8_0", "blk.*ffn*.weight=q8_0", "*=f32"],
        &gguf,
    );
    convert(&open(&gguf).unwrap(), LayoutKind::Source, OutputFormat::Hf, one, &[], &hf);
    let (blocks, plain) = (values(&gguf, LayoutKind::Canonical), values(&hf, LayoutKind::Canonical));
    assert_eq!(&*blocks.get("layers.0.ffn.up.weight").unwrap().scheme().name, "q8_0");
    for name in blocks.names() {
        assert_eq!(floats(&blocks, name), floats(&plain, name), "{name}");
    }
}

/// Scales of what was in blocks are not f32, to which these are decoded on the way: config.json says the same.
#[test]
fn scales_are_of_the_dtype_that_the_model_has() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    for (rules, floats, said) in [
        (&["*_norm.weight=f32", "*=q8_0"][..], "bf16", "bfloat16"),
        (&["*_norm.weight=f32", "token_embd.weight=f16", "*=q8_0"], "f16", "float16"),
        (&["*=f16"], "f16", "float16"),
        (&["*=f32"], "f32", "float32"),
    ] {
        let (gguf, to) = (folder.path().join(format!("{said}.gguf")), folder.path().join(rules.join(" ")));
        let _ = std::fs::remove_file(&gguf);
        convert(&source, LayoutKind::Source, OutputFormat::Gguf, Mesh::default(), rules, &gguf);
        let blocks = open(&gguf).unwrap();
        let preset = Preset::named("mlx-4bit");
        let options = ConvertOptions { preset, allow_requantize: true, ..ConvertOptions::default() };
        let report = Conversion::new(&blocks, LayoutKind::Source, OutputFormat::Mlx, &options)
            .unwrap()
            .run(&to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let encoded = report.tensors.iter().filter(|t| t.to.starts_with("mlx-"));
        let others: Vec<&str> =
            encoded.clone().map(|t| &*t.to).filter(|to| !to.ends_with(&format!(",{floats}"))).collect();
        assert!(encoded.count() > 10 && others.is_empty(), "{rules:?}: {others:?}");
        let config = std::fs::read_to_string(to.join("config.json")).unwrap();
        assert!(config.contains(&format!("\"torch_dtype\": \"{said}\"")), "{rules:?}: {config}");
    }
}

/// Queries and values in different encodings, as llama-quantize mixes them, fused for vLLM on four ranks.
#[test]
fn parts_of_several_encodings_are_fused() {
    let folder = tempfile::tempdir().unwrap();
    let (gguf, to) = (folder.path().join("q.gguf"), folder.path().join("vllm"));
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let rules = ["*attn_q.weight=q4_0", "*attn_k.weight=q4_0", "*attn_v.weight=q8_0", "*=f32"];
    convert(&source, LayoutKind::Source, OutputFormat::Gguf, Mesh::default(), &rules, &gguf);
    let source = open(&gguf).unwrap();
    let refused =
        PlanBuilder::new(&source).layout(weighbridge::vllm::LAYOUT).build().err().unwrap().to_string();
    assert!(refused.contains("wanted parts in one encoding"), "{refused}");
    let mesh = Mesh { tp: 4, ..Mesh::default() };
    convert(&source, weighbridge::vllm::LAYOUT, OutputFormat::Hf, mesh, &[], &to);
    let canonical = values(&gguf, LayoutKind::Canonical);
    let part = |name: &str| floats(&canonical, &format!("layers.0.attention.{name}.weight"));
    let (q, k, v) = (part("q"), part("k"), part("v"));
    for rank in 0..4 {
        let held = values(&to.join(format!("model-rank-{rank}-part-0.safetensors")), LayoutKind::Source);
        // One head of queries, one of keys and values that two ranks have.
        let half = |x: &[f32]| x[rank / 2 * x.len() / 2..(rank / 2 + 1) * x.len() / 2].to_vec();
        let wanted = [q[rank * q.len() / 4..(rank + 1) * q.len() / 4].to_vec(), half(&k), half(&v)].concat();
        assert_eq!(floats(&held, "model.layers.0.self_attn.qkv_proj.weight"), wanted, "rank {rank}");
    }
}

/// A share that begins within a block.
#[test]
fn shares_within_blocks_are_had_by_way_of_floats() {
    let folder = tempfile::tempdir().unwrap();
    let (gguf, to) = (folder.path().join("q.gguf"), folder.path().join("vllm"));
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let rules = ["*attn_output.weight=q8_0", "*=f32"];
    convert(&source, LayoutKind::Source, OutputFormat::Gguf, Mesh::default(), &rules, &gguf);
    let source = open(&gguf).unwrap();
    let mesh = Mesh { tp: 4, ..Mesh::default() };
    let refused = PlanBuilder::new(&source).layout(weighbridge::vllm::LAYOUT).mesh(mesh).rank(1).build();
    let refused = refused.err().unwrap();
    assert!(refused.hints()[0].starts_with("the nearest slice"), "{refused}");
    convert(&source, weighbridge::vllm::LAYOUT, OutputFormat::Hf, mesh, &["*=f32"], &to);
    let canonical = values(&gguf, LayoutKind::Canonical);
    let output = canonical.get("layers.1.attention.output.weight").unwrap();
    let (all, width) = (floats(&canonical, "layers.1.attention.output.weight"), output.width());
    for rank in 0..4 {
        let held = values(&to.join(format!("model-rank-{rank}-part-0.safetensors")), LayoutKind::Source);
        let wanted: Vec<f32> = all
            .chunks(width)
            .flat_map(|row| row[rank * width / 4..(rank + 1) * width / 4].to_vec())
            .collect();
        assert_eq!(floats(&held, "model.layers.1.self_attn.o_proj.weight"), wanted, "rank {rank}");
    }
}

/// Parts of which some are stored in what the others are encoded to: the same values as each has that is encoded alone.
#[test]
fn parts_of_which_some_are_encoded_already_are_fused() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let layouts = [weighbridge::vllm::LAYOUT, LayoutKind::Modules];
    let affine = "mlx-affine:b4,g32,f32";
    for (number, (encoding, stored, format)) in [
        ("q8_0", ["*attn_q.weight=q4_0", "*attn_k.weight=q4_0", "*attn_v.weight=q8_0"], OutputFormat::Gguf),
        ("f32", ["*attn_q.weight=q4_0", "*attn_k.weight=f16", "*attn_v.weight=f32"], OutputFormat::Gguf),
        // Of several planes.
        (
            affine,
            ["*q_proj.weight=f32", "*k_proj.weight=f16", &format!("*v_proj.weight={affine}")],
            OutputFormat::Mlx,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let from = folder.path().join(format!("mixed-{number}"));
        convert(
            &source,
            LayoutKind::Source,
            format,
            Mesh::default(),
            &[&stored[..], &["*=f32"]].concat(),
            &from,
        );
        let mixed = open(&from).unwrap();
        let rule = |p| format!("layers.*.attention.{p}.weight={encoding}").parse().unwrap();
        let rules: Vec<EncodeRule> = ["q", "k", "v"].into_iter().map(rule).collect();
        let on = |l: &LayoutKind| [(*l, 1, 0), (*l, 2, 0), (*l, 2, 1)];
        for (layout, tp, rank) in layouts.iter().flat_map(on) {
            let mesh = Mesh { tp, ..Mesh::default() };
            let plan = |layout| {
                let plan = PlanBuilder::new(&mixed).layout(layout).mesh(mesh).rank(rank);
                plan.encode(rules.clone()).build().unwrap()
            };
            let (fused, apart) = (plan(layout), plan(LayoutKind::Canonical));
            let (found, parts) =
                (fused.load(&mut Pool::new(2)).unwrap(), apart.load(&mut Pool::new(2)).unwrap());
            let is_fused = |name: &&str| name.contains("layers.0.") && name.contains("qkv");
            let name = found.names().find(is_fused).unwrap_or_else(|| panic!("{layout:?}: nothing is fused"));
            let part = |p| floats(&parts, &format!("layers.0.attention.{p}.weight"));
            let what = format!("{encoding} {layout:?} {name} on {tp}");
            assert!(floats(&found, name) == [part("q"), part("k"), part("v")].concat(), "{what}");
            let planned = fused.find(name).unwrap();
            assert_eq!(planned.fidelity == plan::Fidelity::Exact, encoding == "f32", "{what}");
            // Its loss is the sum of its parts' losses.
            let lost = found.report().differences.get(name).map(|d| d.squares);
            let parts = ["q", "k", "v"].map(|p| format!("layers.0.attention.{p}.weight"));
            let apart = parts.iter().filter_map(|p| Some(apart_of(&apart, p)?.squares)).sum::<f64>();
            assert!((lost.unwrap_or(0.0) - apart).abs() <= 1e-9 * apart, "{what}: {lost:?} {apart}");
            // The guide is asked for by the name of the parameter.
            let asked = std::sync::Mutex::new(std::collections::BTreeSet::new());
            let guide = |name: &str| {
                asked.lock().unwrap().insert(name.to_owned());
                load::Guide::default()
            };
            let options = load::Options { guide: Some(&guide), ..load::Options::default() };
            fused.load_with(&mut Pool::new(2), options).unwrap();
            assert!(asked.lock().unwrap().iter().all(|name| fused.find(name).is_some()), "{what}: {asked:?}");
            let needs = fused.needs(load::Options::default(), 2).unwrap();
            assert_eq!(needs.read, found.report().bytes_read, "{what}");
        }
    }
}

/// Returns the loss of the parameter called `name` when it is loaded.
fn apart_of(plan: &Plan, name: &str) -> Option<weighbridge::quant::Difference> {
    plan.load(&mut Pool::new(1)).unwrap().report().differences.get(name).copied()
}
