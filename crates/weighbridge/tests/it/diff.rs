//! Differences through the library, between checkpoints of different formats and encodings.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, DiffReport, Outcome, OutputFormat, diff};
use weighbridge::{LayoutKind, Pool, open};

use crate::golden;

fn differ(a: &Path, b: &Path, layout: Option<LayoutKind>, threads: usize) -> DiffReport {
    diff(&open(a).unwrap(), &open(b).unwrap(), layout, &mut Pool::new(threads), &mut |_, _, _| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

fn convert(source: &Path, to: &Path, format: OutputFormat, rules: &[&str], preset: Option<&str>) {
    let options = ConvertOptions {
        rules: rules.iter().map(|r| r.parse().unwrap()).collect(),
        preset: preset.map(|name| weighbridge::planner::Preset::named(name).unwrap()),
        ..ConvertOptions::default()
    };
    let source = open(source).unwrap();
    let conversion = Conversion::new(&source, LayoutKind::Source, format, &options).unwrap();
    conversion.run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();
}

/// Rows of q and k lie in another order in GGUF, gemma3's norms are stored as `w - 1` in HF, and GPT-2's q, k and v
/// are one entry there.
#[test]
fn a_model_is_the_same_in_both_dialects() {
    for name in ["llama-tiny", "llama3-rope-tiny", "gpt2-tiny", "gemma3-tiny"] {
        let (hf, gguf) = (golden().join(name), golden().join(name).join("model.gguf"));
        let report = differ(&hf, &gguf, None, 2);
        assert!(report.params.iter().all(|p| p.outcome.is_same()) && report.family.is_some(), "{name}");
        // The factors of Llama 3's RoPE are a tensor in GGUF, and follow from the configuration in HF.
        let implied: &[&str] = if name == "llama3-rope-tiny" { &["rope_factors.weight"] } else { &[] };
        assert_eq!(report.implied, implied, "{name}");
        assert!(report.has_same_parameters(), "{name}");
        // llama.cpp's converter does not carry gemma3's scale of attention: golden/models/README.md.
        let differing: Vec<&str> = report.configuration.iter().map(|(field, ..)| field.as_str()).collect();
        let lost: &[&str] = if name == "gemma3-tiny" { &["attention_scale"] } else { &[] };
        assert_eq!((&differing[..], report.is_same()), (lost, lost.is_empty()), "{name}");
        assert!(!report.params.is_empty() && !report.renamed().is_empty(), "{name}");
        // Nothing is under the same name.
        let stored = differ(&hf, &gguf, Some(LayoutKind::Source), 2);
        let entries = open(&hf).unwrap().entries().len();
        assert_eq!(
            (stored.params.len(), stored.only_a.len(), stored.is_same()),
            (0, entries, false),
            "{name}"
        );
    }
}

/// `diff` reports the same errors of values as the conversion did.
#[test]
fn the_difference_is_what_a_conversion_made() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (golden().join("llama-tiny"), dir.path().join("fp8"));
    let options = ConvertOptions {
        preset: weighbridge::planner::Preset::named("fp8-block"),
        ..ConvertOptions::default()
    };
    let opened = open(&source).unwrap();
    let conversion = Conversion::new(&opened, LayoutKind::Source, OutputFormat::Hf, &options).unwrap();
    let made = conversion.run(&target, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();
    let report = differ(&source, &target, Some(LayoutKind::Source), 3);
    let mut recoded = 0;
    for p in &report.params {
        let tensor = made.tensors.iter().find(|t| t.name == p.name).unwrap();
        assert_eq!((&p.a.scheme, &p.b.scheme), (&tensor.from, &tensor.to), "{}", p.name);
        match (p.outcome, tensor.difference) {
            (Outcome::Identical, None) => {}
            (Outcome::Values { difference, unequal, not_finite: 0 }, Some(wanted)) => {
                recoded += 1;
                assert_eq!(
                    (difference.count, difference.max.to_bits()),
                    (wanted.count, wanted.max.to_bits())
                );
                assert!((difference.rmse() - wanted.rmse()).abs() < 1e-12, "{}", p.name);
                assert!(0 < unequal && unequal <= difference.count, "{}", p.name);
            }
            (outcome, wanted) => panic!("{}: {outcome:?}, {wanted:?}", p.name),
        }
    }
    assert!(recoded > 7);
    // However many threads take part.
    assert_eq!(report.difference(), differ(&source, &target, Some(LayoutKind::Source), 1).difference());
}

/// f32 that bf16 holds: other bytes, the same values, and so the same.
#[test]
fn exact_encodings_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let (half, whole) = (dir.path().join("a.safetensors"), dir.path().join("b.npz"));
    convert(&golden().join("gpt2-tiny"), &half, OutputFormat::Safetensors, &["*=bf16"], None);
    convert(&half, &whole, OutputFormat::Npz, &["*=f32"], None);
    let report = differ(&half, &whole, None, 2);
    assert!(report.is_same() && report.why_stored.is_some());
    assert!(report.params.iter().all(|p| p.outcome == Outcome::SameValues && p.a.scheme != p.b.scheme));
}

/// Whichever side lost its numbers.
#[test]
fn numbers_that_one_side_lost_are_counted() {
    use checkpoint::{Draft, Outgoing};
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, values: [f32; 4]| {
        let scheme = tensor::Scheme::plain(tensor::Dtype::F32);
        let draft = Draft::npz(vec![Outgoing { name: "x".into(), shape: [4].into(), scheme }]).unwrap();
        let path = dir.path().join(name);
        let mut writer = draft.create(&path, false).unwrap();
        writer.tensor(&[&values.map(f32::to_le_bytes).concat()]).unwrap();
        writer.finish().unwrap();
        path
    };
    let (good, bad) =
        (write("good.npz", [1.0, 2.0, 3.0, -0.0]), write("bad.npz", [1.0, f32::NAN, f32::INFINITY, 0.0]));
    for (a, b) in [(&good, &bad), (&bad, &good)] {
        let report = differ(a, b, None, 1);
        let Outcome::Values { unequal, not_finite, .. } = report.params[0].outcome else {
            panic!("{report:?}")
        };
        assert_eq!((unequal, not_finite, report.is_same()), (2, 2, false));
    }
    assert!(differ(&bad, &bad, None, 1).is_same());
}
