//! Whole models.

use std::ops::ControlFlow;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_transformers::models::bert::{BertModel, Config as BertConfig};
use candle_transformers::models::llama::{Cache, Llama};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat, in_hf};
use weighbridge::engine::KvKind;
use weighbridge::model::DialectName;
use weighbridge::runtime::BackendKind;
use weighbridge::{Embedder, LayoutKind, Pool, Runtime, RuntimeOptions};
use weighbridge_candle::Weights;

use crate::llama;

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    u32::try_from(best).unwrap()
}

/// Our engine's most likely tokens, by the backend that does what the formulas say, in f32.
fn reference(path: &Path, prompt: &[u32], count: usize) -> Vec<u32> {
    let options = RuntimeOptions {
        backend: BackendKind::Reference,
        context: Some(prompt.len() + count),
        kv: Some(KvKind::F32),
        ..RuntimeOptions::default()
    };
    let mut runtime = Runtime::start(path, &options).unwrap();
    let mut tokens = vec![argmax(runtime.forward(prompt).unwrap())];
    while tokens.len() < count {
        let last = tokens[tokens.len() - 1];
        tokens.push(argmax(runtime.forward(&[last]).unwrap()));
    }
    tokens
}

#[test]
fn a_quantised_gguf_gives_the_tokens_of_our_engine_and_of_llama_cpp() {
    let path = testkit::model("smollm2");
    let facts = std::fs::read(testkit::golden("models/continuations.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
    let ids = |value: &serde_json::Value| serde_json::from_value::<Vec<u32>>(value.clone()).unwrap();
    let prompts = facts["prompts"].as_array().unwrap().iter().filter(|prompt| prompt["model"] == "smollm2");
    for prompt in prompts {
        // Llama.cpp's with the decoded weights in f32.
        let wanted = &ids(&prompt["dequantized"]["ids"])[..24];
        let prompt = ids(&prompt["prompt_ids"]);
        assert_eq!(llama::continued(weighbridge::open(&path).unwrap(), &prompt, 24).unwrap(), wanted);
        assert_eq!(reference(&path, &prompt, 24), wanted);
    }
}

/// The logits of candle's llama after a few tokens.
fn logits(path: &Path) -> Vec<f32> {
    let weights = Weights::open(path).unwrap();
    let config = llama::config(&weights).unwrap();
    let llama = weights.model(DType::F32, &Device::Cpu, |vb| Llama::load(vb, &config)).unwrap();
    let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
    let tokens = Tensor::new(&[[1u32, 17, 60, 5, 99]], &Device::Cpu).unwrap();
    llama.forward(&tokens, 0, &mut cache).unwrap().squeeze(0).unwrap().to_vec1().unwrap()
}

#[test]
fn every_ecosystem_gives_the_same_model() {
    let golden = testkit::golden("models/llama-tiny");
    let folder = tempfile::tempdir().unwrap();
    // The oracle: candle's own reader of the safetensors file.
    let config = llama::config(&Weights::open(&golden).unwrap()).unwrap();
    let file = std::fs::read(golden.join("model.safetensors")).unwrap();
    let own = candle_nn::VarBuilder::from_buffered_safetensors(file, DType::F32, &Device::Cpu).unwrap();
    let own = Llama::load(own, &config).unwrap();
    let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
    let tokens = Tensor::new(&[[1u32, 17, 60, 5, 99]], &Device::Cpu).unwrap();
    let wanted = own.forward(&tokens, 0, &mut cache).unwrap().squeeze(0).unwrap().to_vec1::<f32>().unwrap();

    assert_eq!(logits(&golden), wanted, "safetensors");
    assert_eq!(logits(&golden.join("model.gguf")), wanted, "GGUF");
    let checkpoint = weighbridge::open(&golden).unwrap();
    for (name, layout, format) in [
        ("mlx", LayoutKind::Mlx, OutputFormat::Mlx),
        ("again.gguf", LayoutKind::Named(DialectName::Gguf), OutputFormat::Gguf),
    ] {
        let to = folder.path().join(name);
        let options = ConvertOptions::default();
        let conversion = Conversion::new(&checkpoint, layout, format, &options).unwrap();
        conversion.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(logits(&to), wanted, "{name}");
    }
}

#[test]
fn quantised_checkpoints_of_hugging_face_and_mlx_are_decoded() {
    let golden = testkit::golden("models/llama-tiny");
    let checkpoint = weighbridge::open(&golden).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (name, layout, format, scheme) in [
        ("gptq", LayoutKind::Named(DialectName::Hf), OutputFormat::Hf, "gptq:b4,g32,f16"),
        ("mlx", LayoutKind::Mlx, OutputFormat::Mlx, "mlx-affine:b4,g32,f16"),
    ] {
        let to = folder.path().join(name);
        let rules = vec![format!("*_proj.weight={scheme}").parse().unwrap()];
        let options = ConvertOptions { rules, ..ConvertOptions::default() };
        let conversion = Conversion::new(&checkpoint, layout, format, &options).unwrap();
        conversion.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
        // Our engine multiplies the decoded weights too.
        let tokens = [1, 17, 60, 5, 99];
        let options = RuntimeOptions {
            backend: BackendKind::Reference,
            context: Some(8),
            kv: Some(KvKind::F32),
            ..RuntimeOptions::default()
        };
        let mut runtime = Runtime::start(&to, &options).unwrap();
        let ours = runtime.forward(&tokens).unwrap();
        let theirs = logits(&to);
        let far = theirs.iter().zip(ours).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-4, "{name}: logits are {far} apart");
    }
}

#[test]
fn an_encoder_gives_the_vectors_of_our_engine() {
    let path = testkit::model("minilm");
    let checkpoint = weighbridge::open(&path).unwrap();
    let (files, _) = in_hf(&checkpoint, &[]).unwrap();
    let config: BertConfig = serde_json::from_value(files.config.into()).unwrap();
    let weights = Weights::of(checkpoint).unwrap();
    // Candle's model ends before the pooler.
    let weights = weights.leave("*.pooler.*");
    let bert = weights.model(DType::F32, &Device::Cpu, |vb| BertModel::load(vb, &config)).unwrap();
    let tokens = [101u32, 7592, 2088, 2003, 1037, 3231, 102];
    let input = Tensor::new(&[tokens], &Device::Cpu).unwrap();
    let theirs = bert.forward(&input, &input.zeros_like().unwrap(), None).unwrap();
    let theirs: Vec<f32> = theirs.flatten_all().unwrap().to_vec1().unwrap();
    let options = RuntimeOptions { backend: BackendKind::Reference, ..RuntimeOptions::default() };
    let ours = Embedder::open(&path, &options).unwrap().token_vectors(&tokens).unwrap();
    assert_eq!(theirs.len(), ours.len());
    let far = theirs.iter().zip(&ours).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-4, "vectors are {far} apart");
}

#[test]
fn a_constructor_may_try_one_name_after_the_other() {
    let weights = Weights::open(testkit::golden("models/llama-tiny")).unwrap();
    let weights = weights.leave("*");
    let norm = weights
        .model(DType::F32, &Device::Cpu, |vb| {
            vb.get(64, "transformer.norm.weight").or_else(|_| vb.get(64, "model.norm.weight"))
        })
        .unwrap();
    assert_eq!(norm.dims(), [64]);
}

#[test]
fn tensors_become_the_dtype_that_is_asked_for() {
    let weights = Weights::open(testkit::golden("models/llama-tiny/model.gguf")).unwrap();
    let name = "model.layers.1.self_attn.q_proj.weight";
    let plain = weights.tensor(name, DType::F32, &Device::Cpu).unwrap();
    for dtype in [DType::BF16, DType::F16, DType::F64] {
        let found = weights.tensor(name, dtype, &Device::Cpu).unwrap();
        assert_eq!(found.dtype(), dtype);
        let back = |tensor: &Tensor| -> Vec<f32> {
            tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(back(&found), back(&plain.to_dtype(dtype).unwrap()), "{dtype:?}");
    }
}
