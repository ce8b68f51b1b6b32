//! Models that are larger than the memory that they are given: layers are read again for each pass, and nothing else changes.

use std::ops::ControlFlow;

use weighbridge::engine::calibrate::{CalibrateOptions, calibrate};
use weighbridge::{LayoutKind, Runtime, RuntimeOptions};

use crate::{golden, model};

fn start(path: &std::path::Path, memory: Option<u64>) -> Result<Runtime, weighbridge::Error> {
    let (layout, threads) = (Some(LayoutKind::InPlace), Some(2));
    let options = RuntimeOptions { layout, threads, memory, context: Some(400), ..RuntimeOptions::default() };
    Runtime::start(path, &options)
}

/// Bits of all logits of a prompt that takes two passes, of some tokens after it, and of a shorter prompt instead.
fn bits(runtime: &mut Runtime) -> Vec<u32> {
    let prompt: Vec<u32> = (0..300).map(|i| 7 + i * 13 % 101).collect();
    let mut bits = vec![];
    let mut keep = |logits: &[f32]| bits.extend(logits.iter().map(|logit| logit.to_bits()));
    keep(runtime.forward(&prompt).unwrap());
    for token in 20..24 {
        keep(runtime.forward(&[token]).unwrap());
    }
    runtime.truncate(3);
    runtime.forward_each(&prompt[..20], keep).unwrap();
    bits
}

#[test]
fn a_streamed_model_computes_the_same() {
    for name in ["smollm2", "gpt2-124m"] {
        let path = model(name);
        let mut whole = start(&path, None).unwrap();
        assert!(whole.streaming().is_none());
        let wanted = bits(&mut whole);
        let (weights, state) = (whole.reads(), whole.session().bytes() as u64);
        for share in [1, 2, 6, 9] {
            let mut runtime =
                start(&path, Some(whole.report().owned_bytes + state + weights * share / 10)).unwrap();
            let streaming = runtime.streaming().unwrap();
            assert!(streaming.kept <= weights * share / 10 && streaming.kept + streaming.read == weights);
            assert!(streaming.kept > 0 || share < 6, "{name}: {streaming:?}");
            assert!(bits(&mut runtime) == wanted, "{name} in {share} tenths");
        }
    }
}

#[test]
fn a_layer_must_fit() {
    let path = golden().join("llama-tiny/model.gguf");
    let whole = start(&path, None).unwrap();
    let state = whole.session().bytes() as u64;
    let refused = start(&path, Some(whole.report().owned_bytes + state + 1000)).err().unwrap();
    assert!(refused.to_string().contains("one layer has "), "{refused}");
}

/// A model in memory runs only what comes after a disturbed matrix; one that is streamed runs everything.
#[test]
fn what_comes_before_a_disturbed_matrix_need_not_run() {
    let tokens: Vec<u32> = (0..96).map(|i| 3 + i * 7 % 61).collect();
    // Two chunks, the second half of each compared.
    let options = CalibrateOptions { length: 24, chunks: None, begin: None, disturbed: Some(64), threads: 2 };
    let found = |runtime: &mut Runtime| {
        calibrate(&mut runtime.predictor(), &tokens, &options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    for name in
        ["llama-tiny", "falcon-tiny", "gemma2-tiny", "mixtral-tiny", "gpt-oss-tiny", "qwen35-equal-tiny"]
    {
        let path = golden().join(name).join("model.gguf");
        let mut whole = start(&path, None).unwrap();
        let (weights, state) = (whole.reads(), whole.session().bytes() as u64);
        let room = whole.report().owned_bytes + state + weights * 7 / 10;
        let mut streamed = start(&path, Some(room)).unwrap();
        assert!(whole.streaming().is_none() && streamed.streaming().is_some(), "{name}");
        let (here, there) = (found(&mut whole), found(&mut streamed));
        assert!(here.matrices.iter().all(|inputs| inputs.sensitivity.is_some()), "{name}");
        assert!(here.lookup.sensitivity.is_some(), "{name}");
        for (here, there) in here.matrices.iter().zip(&there.matrices) {
            assert_eq!((&here.name, here.sensitivity), (&there.name, there.sensitivity), "{name}");
        }
        assert_eq!(here.lookup, there.lookup, "{name}");
    }
}
