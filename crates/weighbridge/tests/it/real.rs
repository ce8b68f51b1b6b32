//! Real models: the text that llama.cpp gives at temperature 0, or a near tie where it differs.

use serde_json::Value;
use weighbridge::engine::KvKind;
use weighbridge::engine::text::EncodeOptions;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Runtime, RuntimeOptions};

use crate::{argmax, golden, model};

fn prompts(name: &str) -> Vec<Value> {
    let facts = std::fs::read(golden().join("continuations.json")).unwrap();
    let facts: Value = serde_json::from_slice(&facts).unwrap();
    let prompts: Vec<Value> =
        facts["prompts"].as_array().unwrap().iter().filter(|p| p["model"] == name).cloned().collect();
    assert_eq!(prompts.len(), 2, "golden prompts of {name}");
    prompts
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn start(name: &str, backend: BackendKind, layout: Option<LayoutKind>) -> Runtime {
    let options = RuntimeOptions {
        backend,
        layout,
        context: Some(128),
        threads: Some(2),
        kv: Some(KvKind::F32),
        ..RuntimeOptions::default()
    };
    Runtime::start(model(name), &options).unwrap()
}

/// Runs the prompt's tokens and then `ids`, regardless of the logits, and passes the logits after each to `each`.
fn along(runtime: &mut Runtime, prompt: &Value, ids: &[u32], mut each: impl FnMut(usize, &[f32])) {
    let text = prompt["prompt"].as_str().unwrap();
    let options = EncodeOptions { add_special: true, parse_special: false };
    let tokens = runtime.tokenizer().unwrap().encode(text, options).unwrap();
    assert_eq!(tokens, self::ids(&prompt["prompt_ids"]), "tokens of {text:?}");
    runtime.truncate(0);
    each(0, runtime.forward(&tokens).unwrap());
    for (i, id) in ids[..ids.len() - 1].iter().enumerate() {
        each(i + 1, runtime.forward(&[*id]).unwrap());
    }
}

/// The naive backend gives the tokens that llama.cpp gives when it runs the decoded weights in f32.
fn reference(name: &str) {
    let mut runtime = start(name, BackendKind::Reference, None);
    for prompt in prompts(name) {
        let want = ids(&prompt["dequantized"]["ids"]);
        along(&mut runtime, &prompt, &want, |step, logits| {
            let top = &prompt["dequantized"]["top"][step];
            for entry in top.as_array().unwrap() {
                let (id, logit) = (entry[0].as_u64().unwrap(), entry[1].as_f64().unwrap());
                let ours = f64::from(logits[usize::try_from(id).unwrap()]);
                assert!((ours - logit).abs() < 0.01, "{name} step {step}: token {id} {ours} for {logit}");
            }
            assert_eq!(argmax(logits), want[step], "{name} {} step {step}", prompt["prompt"]);
        });
    }
}

/// The SIMD backend gives llama.cpp's tokens, or a near tie: both round activations to 8 bits, each in its
/// own way, so where the decoded weights (`dequantized_along_native`) put two tokens within that rounding,
/// either may come first.
fn cpu(name: &str, layout: Option<LayoutKind>) {
    let mut runtime = start(name, BackendKind::Cpu, layout);
    for prompt in prompts(name) {
        let want = ids(&prompt["native"]["ids"]);
        let mut ties = 0;
        along(&mut runtime, &prompt, &want, |step, logits| {
            let ours = argmax(logits);
            if ours == want[step] {
                return;
            }
            ties += 1;
            let top = prompt["dequantized_along_native"]["top"][step].as_array().unwrap();
            let exact = |id: u32| {
                let entry = top.iter().find(|e| e[0].as_u64() == Some(id.into()));
                entry.and_then(|e| e[1].as_f64()).unwrap_or(f64::NEG_INFINITY)
            };
            let gap = (exact(ours) - exact(want[step])).abs();
            // Shown with `--nocapture`.
            eprintln!("{name}, {}, step {step}: {ours} for {}, {gap:.3} apart", prompt["prompt"], want[step]);
            assert!(
                gap < 0.5,
                "{name} {} step {step}: {ours} for {}, {gap} apart",
                prompt["prompt"],
                want[step]
            );
        });
        assert!(ties <= 3, "{name} {}: {ties} ties in {} tokens", prompt["prompt"], want.len());
    }
}

#[test]
fn smollm2_reference() {
    reference("smollm2");
}

#[test]
fn gemma3_reference() {
    reference("gemma3");
}

#[test]
fn smollm2_cpu() {
    cpu("smollm2", None);
    cpu("smollm2", Some(LayoutKind::InPlace));
}

#[test]
fn gemma3_cpu() {
    cpu("gemma3", None);
    cpu("gemma3", Some(LayoutKind::InPlace));
}

/// A GPT-2 whose weights are a zip pickle, with tied storage and matrices stored `[in, out]`, and no tokenizer.
#[test]
fn microformer_computes_what_transformers_computes() {
    let facts: Value =
        serde_json::from_slice(&std::fs::read(golden().join("microformer.json")).unwrap()).unwrap();
    let logits = std::fs::read(golden().join("microformer.bin")).unwrap();
    let want: Vec<f32> = logits.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    for backend in [BackendKind::Reference, BackendKind::Cpu] {
        let mut runtime = start("gpt2-microformer", backend, None);
        let found = runtime.forward(&ids(&facts["prompt"])).unwrap();
        assert_eq!(found.len(), want.len());
        let apart = found.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{backend:?}: {apart}");
        let mut next = argmax(found);
        for id in ids(&facts["ids"]) {
            assert_eq!(next, id, "{backend:?}");
            next = argmax(runtime.forward(&[id]).unwrap());
        }
    }
}
