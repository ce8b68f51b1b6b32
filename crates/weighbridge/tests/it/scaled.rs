//! Columns that are multiplied, and norms that are divided: the model is the same.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::compress::{Compression, Policy, Target};
use weighbridge::convert::{Conversion, ConvertOptions, Imatrix, OutputFormat};
use weighbridge::engine::calibrate::{CalibrateOptions, calibrate};
use weighbridge::{Pool, Runtime, RuntimeOptions, open};

use crate::golden;

fn tokens() -> Vec<u32> {
    (0..48).map(|i| 3 + i * 7 % 61).collect()
}

fn start(path: &Path) -> Runtime {
    let options = RuntimeOptions { threads: Some(2), context: Some(64), ..RuntimeOptions::default() };
    Runtime::start(path, &options).unwrap()
}

fn logits(path: &Path) -> Vec<f32> {
    start(path).forward(&tokens()).unwrap().to_vec()
}

/// The root of the mean square of a distance, as a share.
fn apart(found: &[f32], wanted: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let lost = squares(&mut found.iter().zip(wanted).map(|(a, b)| a - b));
    (lost / squares(&mut wanted.iter().copied())).sqrt()
}

#[test]
fn scaled_models_compute_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Gemma's norms are stored as `w` and multiplied as `1 + w`; GPT-2's have biases; llama's are plain.
    for (name, format, ends) in [
        ("llama-tiny", OutputFormat::Mlx, "d"),
        ("llama-tiny", OutputFormat::Gguf, "gguf"),
        ("llama-tiny/model.gguf", OutputFormat::Gguf, "gguf"),
        ("gemma3-tiny", OutputFormat::Hf, "d"),
        ("gemma3-tiny/model.gguf", OutputFormat::Hf, "d"),
        ("gpt2-tiny", OutputFormat::Gguf, "gguf"),
    ] {
        let path = golden().join(name);
        let source = open(&path).unwrap();
        let options = CalibrateOptions { length: 24, chunks: None, begin: None, disturbed: None, threads: 2 };
        let found =
            calibrate(&mut start(&path).predictor(), &tokens(), &options, &mut |_| ControlFlow::Continue(()));
        // Inputs of very different strength: something is gained.
        let mut found = found.unwrap();
        for inputs in &mut found.matrices {
            for (column, square) in inputs.squares.iter_mut().enumerate() {
                *square *= 3f64.powi(i32::try_from(column % 5).unwrap());
            }
        }
        let imatrix = Imatrix::of(&source, &found, "numbers").unwrap();
        let options = ConvertOptions { imatrix: Some(&imatrix), ..ConvertOptions::default() };
        let mut pool = Pool::new(2);
        let mut each = |_: &weighbridge::convert::compress::Measuring<'_>| ControlFlow::Continue(());
        let (target, policy) = (Target::Like(8), Policy::default());
        let compression =
            Compression::new(&source, format, target, &policy, &options, &mut pool, &mut each).unwrap();
        let scaling = compression.scaling(&source, format, &options, &mut pool, &mut each).unwrap();
        let scaled = scaling.norm_results.iter().filter(|norm| norm.power > 0.0).count();
        assert!(scaled > 0, "{name}: {:?}", scaling.norm_results);
        let (rules, preset) = compression.encoding();
        let wanted = logits(&path);
        let mut distance = |scaling| {
            let options =
                ConvertOptions { rules: rules.clone(), preset, scaling, overwrite: true, ..options.clone() };
            let to = folder.path().join(format!("{}.{}.{ends}", name.replace('/', "."), format.name()));
            let conversion = Conversion::new(&source, format.compressed_layout(), format, &options).unwrap();
            conversion.run(&to, &mut pool, &mut |_| ControlFlow::Continue(())).unwrap();
            apart(&logits(&to), &wanted)
        };
        let (alone, found) = (distance(None), distance(Some(&scaling)));
        // Strengths were made up: rounding may lose more by them, but no more than a few times.
        assert!(found < 3.0 * alone && found < 0.25, "{name} as {}: {found} and {alone}", format.name());
        assert!(found.to_bits() != alone.to_bits(), "{name}");
    }
}
