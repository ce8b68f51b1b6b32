//! Small random models: logits at every position equal transformers' logits.

use std::ops::ControlFlow;

use serde_json::Value;
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::engine::KvKind;
use weighbridge::planner::packed_layout;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Pool, Runtime, RuntimeOptions};

use crate::golden;

struct Golden {
    ids: Vec<u32>,
    logits: Vec<f32>,
}

/// Returns the logits of transformers, for the HF directory or for a reader of the GGUF file.
fn expected(model: &str, gguf: bool) -> Golden {
    let dir = golden().join(model);
    let facts: Value = serde_json::from_slice(&std::fs::read(dir.join("expected.json")).unwrap()).unwrap();
    let key = if gguf && facts.get("logits_gguf").is_some() { "logits_gguf" } else { "logits" };
    let bytes = std::fs::read(dir.join(facts[key]["file"].as_str().unwrap())).unwrap();
    let logits = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let ids = facts["input_ids"].as_array().unwrap();
    let ids = ids.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect();
    Golden { ids, logits }
}

/// Largest difference over the largest logit.
fn distance(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0f32, |m, x| m.max(x.abs()));
    got.iter().zip(want).fold(0f32, |m, (g, w)| m.max((g - w).abs())) / largest
}

fn check(model: &str) {
    check_files(model, &[false, true]);
}

/// Of the HF directory, or of the GGUF file.
fn check_files(model: &str, ggufs: &[bool]) {
    for gguf in ggufs.iter().copied() {
        let want = expected(model, gguf);
        let dir = golden().join(model);
        let path = if gguf { dir.join("model.gguf") } else { dir };
        let layouts = [LayoutKind::Canonical, LayoutKind::InPlace, packed_layout().unwrap()];
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            for layout in layouts {
                for (threads, kv) in [(1, KvKind::F32), (2, KvKind::F32), (3, KvKind::F32), (3, KvKind::F16)]
                {
                    // All at once, one by one as in decoding, and in uneven batches.
                    for batch in [want.ids.len(), 1, 7] {
                        let options = RuntimeOptions {
                            backend,
                            layout: Some(layout),
                            threads: Some(threads),
                            kv: Some(kv),
                            context: Some(want.ids.len()),
                            ..RuntimeOptions::default()
                        };
                        let mut runtime = Runtime::start(&path, &options).unwrap();
                        let mut got = Vec::new();
                        for ids in want.ids.chunks(batch) {
                            runtime.forward_each(ids, |logits| got.extend_from_slice(logits)).unwrap();
                        }
                        let distance = distance(&got, &want.logits);
                        assert!(
                            distance < if kv == KvKind::F32 { 1e-4 } else { 1e-2 },
                            "{model}, gguf {gguf}, {}, {}, {threads} threads, {kv}, batch {batch}: {distance:e}",
                            runtime.backend(),
                            layout.name(),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn gpt2() {
    check("gpt2-tiny");
}

#[test]
fn llama_with_grouped_queries() {
    check("llama-tiny");
}

#[test]
fn llama3_rope_beyond_its_first_context() {
    check("llama3-rope-tiny");
}

#[test]
fn gemma3_across_its_window() {
    check("gemma3-tiny");
}

#[test]
fn mistral_across_its_window() {
    check("mistral-tiny");
}

#[test]
fn qwen2_with_biases() {
    check("qwen2-tiny");
}

#[test]
fn qwen3_with_norms_of_heads() {
    check("qwen3-tiny");
}

#[test]
fn qwen35_with_linear_attention() {
    check_files("qwen35-tiny", &[false]);
    // llama.cpp has another epsilon for queries and keys, which this one does not show.
    check("qwen35-equal-tiny");
}

/// The norms in directories of mlx-lm are not less one, and convolutions are turned: those tell them apart.
#[test]
fn qwen35_as_mlx_has_it_is_refused() {
    let (from, to) = (golden().join("qwen35-tiny"), tempfile::tempdir().unwrap());
    std::fs::copy(from.join("config.json"), to.path().join("config.json")).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let mut header: Value = serde_json::from_slice(header).unwrap();
    for (name, entry) in header.as_object_mut().unwrap() {
        if name.ends_with("conv1d.weight") {
            entry["shape"].as_array_mut().unwrap().swap(1, 2);
        }
    }
    let file = testkit::fixture::safetensors_bytes(&header.to_string(), data);
    std::fs::write(to.path().join("model.safetensors"), file).unwrap();
    let error = Runtime::start(to.path(), &RuntimeOptions::default()).unwrap_err().to_string();
    assert!(error.contains("linear_attn.conv1d.weight"), "{error}");
}

/// transformers' files have the logarithm of a rate below 0, and of another there is none.
#[test]
fn a_rate_that_grows_has_no_logarithm() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    std::fs::copy(golden().join("qwen35-equal-tiny/model.gguf"), &file).unwrap();
    let range = weighbridge::open(&file).unwrap().entry("blk.0.ssm_a").unwrap().planes[0].bytes.clone();
    let mut bytes = std::fs::read(&file).unwrap();
    let at = usize::try_from(range.start).unwrap();
    bytes[at..at + 4].copy_from_slice(&0.5f32.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
    let source = weighbridge::open(&file).unwrap();
    let to = dir.path().join("hf");
    let options = ConvertOptions::default();
    let conversion = Conversion::new(&source, LayoutKind::Source, OutputFormat::Hf, &options).unwrap();
    let error = conversion.run(&to, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap_err();
    let wanted = "`model.layers.0.linear_attn.A_log`: 1 of its values have no `ln-`";
    assert!(error.to_string().contains(wanted), "{error}");
    assert!(!to.exists());
}

#[test]
fn phi3_out_of_fused_matrices() {
    check("phi3-tiny");
}

#[test]
fn mixtral_with_two_of_six_experts() {
    check("mixtral-tiny");
}

#[test]
fn qwen3moe_with_norms_of_heads() {
    check("qwen3moe-tiny");
}

#[test]
fn gpt_oss_with_sinks_across_its_window() {
    check("gpt-oss-tiny");
}

#[test]
fn deepseek3_through_latent_vectors() {
    check("deepseek3-tiny");
}

#[test]
fn phi3_beyond_its_first_context() {
    check("phi3-long-tiny");
}

#[test]
fn starcoder2_with_biases_and_no_gate() {
    check("starcoder2-tiny");
}

#[test]
fn granite_with_factors_of_the_residual_stream() {
    check("granite-tiny");
}

#[test]
fn olmo2_with_norms_after_layers_alone() {
    check("olmo2-tiny");
}

#[test]
fn gemma2_with_soft_caps_across_its_window() {
    check("gemma2-tiny");
}

#[test]
fn falcon_with_branches_beside_each_other() {
    check("falcon-tiny");
}

/// transformers 4 writes other keys than 5 does.
#[test]
fn configs_of_transformers_4_and_5_say_the_same() {
    let models = ["gpt2-tiny", "llama-tiny", "llama3-rope-tiny", "gemma3-tiny"];
    let models = models.into_iter().chain(["mistral-tiny", "qwen2-tiny", "qwen3-tiny", "phi3-tiny"]);
    for model in models.chain(["starcoder2-tiny", "granite-tiny", "olmo2-tiny", "gemma2-tiny", "falcon-tiny"])
    {
        let read = |file: &str| -> Value {
            serde_json::from_slice(&std::fs::read(golden().join(model).join(file)).unwrap()).unwrap()
        };
        let [old, new] = ["config.v4.json", "config.json"].map(|file| {
            let model = model::Model::from_facts(&read(file)).unwrap();
            model.architecture().unwrap()
        });
        assert_eq!(old, new, "{model}");
    }
}
