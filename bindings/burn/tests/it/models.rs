//! Whole models.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::engine::KvKind;
use weighbridge::model::DialectName;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Pool, Runtime, RuntimeOptions};

use crate::llama;

/// Our engine, by the backend that does what the formulas say, in f32.
fn engine(path: &Path, positions: usize) -> Runtime {
    let options = RuntimeOptions {
        backend: BackendKind::Reference,
        context: Some(positions),
        kv: Some(KvKind::F32),
        ..RuntimeOptions::default()
    };
    Runtime::start(path, &options).unwrap()
}

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    u32::try_from(best).unwrap()
}

#[test]
fn a_quantised_gguf_gives_the_tokens_of_our_engine_and_of_llama_cpp() {
    let path = testkit::model("smollm2");
    let facts = std::fs::read(testkit::golden("models/continuations.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
    let ids = |value: &serde_json::Value| serde_json::from_value::<Vec<u32>>(value.clone()).unwrap();
    let llama = llama::load(&weighbridge::open(&path).unwrap(), &Device::default()).unwrap();
    let prompts = facts["prompts"].as_array().unwrap().iter().filter(|prompt| prompt["model"] == "smollm2");
    for prompt in prompts {
        // Llama.cpp's with the decoded weights in f32.
        let wanted = &ids(&prompt["dequantized"]["ids"])[..16];
        let prompt = ids(&prompt["prompt_ids"]);
        assert_eq!(llama.continued(&prompt, 16).unwrap(), wanted);
        let mut runtime = engine(&path, prompt.len() + 16);
        let mut ours = vec![argmax(runtime.forward(&prompt).unwrap())];
        while ours.len() < 16 {
            let last = ours[ours.len() - 1];
            ours.push(argmax(runtime.forward(&[last]).unwrap()));
        }
        assert_eq!(ours, wanted);
    }
}

#[test]
fn every_ecosystem_gives_the_logits_of_our_engine() {
    let golden = testkit::golden("models/llama-tiny");
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = weighbridge::open(&golden).unwrap();
    let mut paths = vec![golden.clone(), golden.join("model.gguf")];
    for (name, layout, format, scheme) in [
        ("gptq", LayoutKind::Named(DialectName::Hf), OutputFormat::Hf, "gptq:b4,g32,f16"),
        ("mlx", LayoutKind::Mlx, OutputFormat::Mlx, "mlx-affine:b4,g32,f16"),
    ] {
        let to = folder.path().join(name);
        let rules = vec![format!("*_proj.weight={scheme}").parse().unwrap()];
        let options = ConvertOptions { rules, ..ConvertOptions::default() };
        let conversion = Conversion::new(&checkpoint, layout, format, &options).unwrap();
        conversion.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
        paths.push(to);
    }
    let tokens = [1, 17, 60, 5, 99];
    for path in paths {
        let llama = llama::load(&weighbridge::open(&path).unwrap(), &Device::default()).unwrap();
        let theirs = llama.logits(&tokens).try_into_vec_as::<f32>().unwrap();
        let mut runtime = engine(&path, tokens.len());
        let ours = runtime.forward(&tokens).unwrap();
        assert_eq!(theirs.len(), ours.len());
        let far = theirs.iter().zip(ours).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-4, "{}: logits are {far} apart", path.display());
    }
}
