//! Directories whose weights lie in several tensors run, and every kernel computes what the values say.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::engine::KvKind;
use weighbridge::planner::Preset;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Pool, Runtime, RuntimeOptions, open};

use crate::golden;

/// The logits of a short text at its last position.
fn logits(path: &Path, backend: BackendKind) -> Vec<f32> {
    let options =
        RuntimeOptions { backend, threads: Some(2), kv: Some(KvKind::F32), ..RuntimeOptions::default() };
    let mut logits = vec![];
    Runtime::start(path, &options)
        .unwrap()
        .forward_each(&[1, 2, 3, 4, 5], |row| logits = row.to_vec())
        .unwrap();
    logits
}

/// The largest distance of two logits, of the range of them.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    most / (b.iter().copied().fold(f32::MIN, f32::max) - b.iter().copied().fold(f32::MAX, f32::min))
}

fn run(format: OutputFormat, options: &ConvertOptions<'_>, exact: bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model");
    let source = golden().join("llama-tiny");
    let checkpoint = open(&source).unwrap();
    let what: Vec<String> = options.rules.iter().map(ToString::to_string).collect();
    Conversion::new(&checkpoint, LayoutKind::Source, format, options)
        .unwrap()
        .run(&path, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let (reference, cpu) = (logits(&path, BackendKind::Reference), logits(&path, BackendKind::Cpu));
    // Kernels with integers round the activations to eight bits; the others take them as they are.
    let limit = if exact { 1e-5 } else { 0.02 };
    let apart = distance(&cpu, &reference);
    assert!(apart < limit, "{what:?}: cpu is {apart} of the range from the values");
    // The weights are the model's, a little changed.
    let lost = distance(&reference, &logits(&source, BackendKind::Reference));
    assert!(lost > 0.0 && lost < 0.5, "{what:?}: encoding changed logits by {lost} of their range");
}

fn rules(texts: &[&str]) -> ConvertOptions<'static> {
    let rules = texts.iter().map(|t| t.parse().unwrap()).collect();
    ConvertOptions { rules, ..ConvertOptions::default() }
}

fn preset(name: &str) -> ConvertOptions<'static> {
    ConvertOptions { preset: Preset::named(name), ..ConvertOptions::default() }
}

#[test]
fn mlx_of_four_and_eight_bits_has_kernels() {
    for bits in [4, 8] {
        run(OutputFormat::Mlx, &rules(&[&format!("*proj.weight=mlx-affine:b{bits},g32,f16")]), false);
    }
}

#[test]
fn mlx_of_other_widths_is_multiplied_by_way_of_floats() {
    for bits in [3, 5, 6] {
        run(OutputFormat::Mlx, &rules(&[&format!("*proj.weight=mlx-affine:b{bits},g32,bf16")]), true);
    }
}

#[test]
fn integers_with_a_scale_a_row_have_kernels() {
    run(OutputFormat::Hf, &preset("int8"), false);
}

/// Its blocks of 128 rows are wider than a head: parts that could be fused are not.
#[test]
fn blocks_of_eight_bit_floats_run_unfused() {
    run(OutputFormat::Hf, &preset("fp8-block"), true);
}

/// Rows of 96 columns are no whole groups of 64, which mlx wants: they stay as they are, and the rest is encoded.
#[test]
fn a_preset_of_mlx_leaves_what_it_has_no_groups_for() {
    let dir = tempfile::tempdir().unwrap();
    let (checkpoint, path) = (open(golden().join("llama-tiny")).unwrap(), dir.path().join("model"));
    let report = Conversion::new(&checkpoint, LayoutKind::Source, OutputFormat::Mlx, &preset("mlx-4bit"))
        .unwrap()
        .run(&path, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))
        .unwrap();
    for tensor in report.tensors.iter().filter(|t| t.shape.len() == 2) {
        let whole = tensor.shape[1] % 64 == 0;
        assert_eq!(tensor.to.starts_with("mlx-affine:b4,g64"), whole, "{} is {}", tensor.name, tensor.to);
    }
    assert!(logits(&path, BackendKind::Cpu).iter().all(|x| x.is_finite()));
    let told = |options: &ConvertOptions<'_>| {
        let made = Conversion::new(&checkpoint, LayoutKind::Source, OutputFormat::Mlx, options);
        made.map(|_| ()).unwrap_err().to_string()
    };
    let text = told(&rules(&["*down_proj.weight=mlx-affine:b4,g64,f32"]));
    assert!(text.contains("its 96 columns are no whole groups of 64"), "{text}");
}
