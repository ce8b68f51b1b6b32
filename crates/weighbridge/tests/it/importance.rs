//! An importance matrix guides how experts are quantised.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, Imatrix, OutputFormat};
use weighbridge::quant::{Feedback, Gram};
use weighbridge::{LayoutKind, PlanBuilder, Pool, load, open};

use crate::convert::imatrix;
use crate::golden;

/// llama-imatrix lists the experts of a layer one after the other; each expert gets its own part
/// (llama_tensor_quantize_impl of llama-quant.cpp@0c1e57098: `imatrix_03`).
#[test]
fn each_expert_has_its_own_importance() {
    const NAME: &str = "blk.1.ffn_gate_exps.weight";
    let (experts, rows, k) = (4, 64, 128);
    let dir = tempfile::tempdir().unwrap();
    let floats = dir.path().join("f32.gguf");
    let mut random = testkit::Rng(4);
    let values: Vec<f32> = (0..experts * rows * k).map(|_| random.float()).collect();
    let outgoing = checkpoint::Outgoing {
        name: NAME.to_owned(),
        shape: [experts as u64, rows as u64, k as u64].into(),
        scheme: tensor::Scheme::plain(tensor::Dtype::F32),
    };
    let mut writer = checkpoint::Draft::gguf(vec![outgoing], &[]).unwrap().create(&floats, false).unwrap();
    writer.tensor(&[&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()]).unwrap();
    writer.finish().unwrap();
    let source = open(&floats).unwrap();
    // Each column matters otherwise for each expert; the last expert was never asked.
    let sums: Vec<f32> = (0..experts * k).map(|i| ((i * 37 + i / k * 11) % 101) as f32).collect();
    let counts: Vec<f32> = (0..experts).map(|e| ((e + 1) % experts) as f32).collect();
    let path = dir.path().join("imatrix.gguf");
    imatrix(&path, NAME, &sums, &counts);
    let guide = Imatrix::open(&path).unwrap();
    let rules = vec![format!("{NAME}=q4_0").parse().unwrap()];
    let options = ConvertOptions { rules, imatrix: Some(&guide), ..ConvertOptions::default() };
    let to = dir.path().join("q4_0.gguf");
    let conversion = Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options).unwrap();
    conversion.run(&to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();

    let bytes = |path: &Path| {
        let checkpoint = open(path).unwrap();
        let plane = checkpoint.entries().iter().find(|e| e.name == NAME).unwrap().planes[0].clone();
        let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).unwrap()];
        checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).unwrap();
        bytes
    };
    let found = bytes(&to);
    let encoder = quant::codec("q4_0").unwrap().encoder().unwrap();
    let each = found.len() / experts;
    let mut guided = 0;
    for e in 0..experts {
        let own = |x: f32| if counts[e] > 0.0 { x / counts[e] } else { 1.0 };
        let importance: Vec<f32> = sums[e * k..][..k].iter().map(|x| own(*x)).collect();
        let encoded = |importance: Option<&[f32]>| {
            let mut wanted = vec![0; each];
            encoder.encode(&values[e * rows * k..][..rows * k], k, importance, &mut [&mut wanted]);
            wanted
        };
        let wanted = encoded(Some(&importance));
        assert!(found[e * each..][..each] == wanted, "expert {e}");
        guided += usize::from(wanted != encoded(None));
    }
    assert!(guided > 1, "importance changes nothing");

    let one: Vec<f32> = sums[..k].to_vec();
    imatrix(&path, NAME, &one, &[1.0]);
    let one = Imatrix::open(&path).unwrap();
    let options = ConvertOptions { imatrix: Some(&one), rules: options.rules, ..ConvertOptions::default() };
    let refused = Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options);
    let message = refused.map(|_| ()).unwrap_err().to_string();
    let wanted = format!("has {experts} × {k} columns, but the importance matrix {k} for it");
    assert!(message.contains(&wanted), "{message}");
}

/// Feedback takes buffers, which a limit covers, and gives the same bytes however rows are cut.
#[test]
fn feedback_fits_into_the_memory_of_a_load() {
    const UP: &str = "layers.0.ffn.up.weight";
    let source = open(golden().join("llama-tiny")).unwrap();
    let plan = PlanBuilder::new(&source).layout(LayoutKind::Canonical);
    let plan = plan.encode(["layers.0.ffn.up.weight=q4_0".parse().unwrap()]).build().unwrap();
    let plan = plan.retain(|param| param.name == UP);
    let mut random = testkit::Rng(9);
    let mut gram = Gram::new(64).unwrap();
    gram.add(&(0..64 * 200).map(|_| random.float()).collect::<Vec<f32>>(), 1);
    let feedback = Feedback::of(&gram, 0.01, 0.0, 1).unwrap();
    let guide = |_: &str| load::Guide { feedback: Some(&feedback), ..load::Guide::default() };
    let (plain, guided) =
        (load::Options::default(), load::Options { guide: Some(&guide), ..load::Options::default() });
    let (without, with) = (plan.needs(plain, 1).unwrap(), plan.needs(guided, 1).unwrap());
    assert!(with.least_scratch > without.least_scratch && with.scratch > without.scratch);
    let bytes = |options| {
        let loaded = plan.load_with(&mut Pool::new(1), options).unwrap();
        loaded.get(UP).unwrap().bytes().to_vec()
    };
    let whole = bytes(guided);
    assert_ne!(whole, bytes(plain));
    assert_eq!(whole, bytes(load::Options { memory: Some(with.least_scratch), ..guided }));
    let short = load::Options { memory: Some(with.least_scratch - 1), ..guided };
    assert!(plan.load_with(&mut Pool::new(1), short).is_err());
}
