//! Every required parameter can be made in both dialects, from names that no other parameter takes amiss.

use std::collections::HashSet;

use serde_json::json;
use tensor::{Dtype, Presence, Scheme};
use weighbridge_model::{DialectName, Layout, Mlx, Model, Named, Param};

use crate::{Gguf, families};

fn models() -> Vec<Model> {
    let read = |(_, config, gguf): &(String, serde_json::Value, Option<Gguf>)| {
        let gguf = gguf.as_ref().map(|gguf| Model::from_facts(gguf).unwrap());
        [Some(Model::from_facts(config).unwrap()), gguf]
    };
    families().iter().flat_map(read).flatten().collect()
}

/// Families have files in all ecosystems, but these.
fn has(model: &Model, dialect: DialectName) -> bool {
    !["whisper", "mpnet"].contains(&model.family.name()) || dialect == DialectName::Hf
}

#[test]
fn every_required_parameter_has_a_rule() {
    for model in models() {
        let bound: HashSet<String> =
            model.bindings(std::iter::empty()).unwrap().bindings.into_iter().map(|b| b.name).collect();
        for spec in model.params() {
            let needed = !matches!(spec.presence, Presence::Optional);
            assert!(
                !needed || bound.contains(&spec.name),
                "{} {}: {}",
                model.family.name(),
                model.dialect,
                spec.name
            );
        }
    }
}

#[test]
fn no_parameter_is_declared_twice() {
    for model in models() {
        let specs: Vec<_> = model.params().collect();
        let names: HashSet<&str> = specs.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names.len(), specs.len(), "{}", model.family.name());
    }
}

/// The prefix that the file uses is found, whichever it is.
#[test]
fn hf_prefixes_come_and_go() {
    let model =
        models().into_iter().find(|m| m.family.name() == "gpt2" && m.dialect == DialectName::Hf).unwrap();
    let source = |names: &[&str]| {
        let bindings = model.bindings(names.iter().copied()).unwrap();
        let binding = bindings.bindings.iter().find(|b| b.name == "token_embedding.weight").unwrap();
        let mut found = String::new();
        binding.expr.for_each_source(&mut |name| found = name.to_owned());
        found
    };
    assert_eq!(source(&["transformer.wte.weight", "transformer.h.0.ln_1.weight"]), "transformer.wte.weight");
    assert_eq!(source(&["wte.weight", "h.0.ln_1.weight"]), "wte.weight");
    assert_eq!(source(&[]), "transformer.wte.weight");
}

/// Scales of activations are dropped with a reason under any prefix; scales of weights are not dropped.
#[test]
fn scales_of_activations_are_not_needed() {
    let model =
        models().into_iter().find(|m| m.family.name() == "gemma3" && m.dialect == DialectName::Hf).unwrap();
    for prefix in ["", "language_model."] {
        let name = |rest: &str| format!("{prefix}model.layers.1.{rest}");
        let names = [name("self_attn.q_proj.weight"), name("mlp.down_proj.weight")];
        let drops = model.bindings(names.iter().map(String::as_str)).unwrap().drops;
        let why = |rest| drops.iter().find(|d| d.pattern.matches(&name(rest))).map(|d| &*d.why);
        assert_eq!(why("mlp.down_proj.input_scale"), Some("for quantised activations; here they are not"));
        assert_eq!(why("self_attn.q_proj.input_global_scale"), why("mlp.down_proj.activation_scale"));
        assert_eq!(why("self_attn.k_proj.k_scale"), Some("for a quantised cache; here it is not"));
        for rest in ["mlp.down_proj.weight_scale", "mlp.down_proj.pre_quant_scale", "mlp.down_proj.scale"] {
            assert_eq!(why(rest), None, "`{rest}`");
        }
    }
}

#[test]
fn what_is_described_is_read_back_as_the_same_model() {
    for model in models() {
        for dialect in [DialectName::Gguf, DialectName::Hf].into_iter().filter(|d| has(&model, *d)) {
            // GGUF has Llama 3's frequencies as a tensor of factors.
            if dialect == DialectName::Gguf && model.config().rope_scaling.name() == "llama3" {
                continue;
            }
            let description = model.describe(dialect, &|_| true);
            assert_eq!(model.unsaid(&description).unwrap(), [], "{} as {dialect}", model.family.name());
        }
    }
}

#[test]
fn the_numbers_that_are_rare_are_described_too() {
    let gemma = json!({
        "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 9, "hidden_size": 64, "vocab_size": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "sliding_window": 8, "sliding_window_pattern": 4,
        "query_pre_attn_scalar": 168, "final_logit_softcapping": 30.5, "rope_theta": 1e6,
        "rope_local_base_freq": 7e3, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    });
    let llama = json!({
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 8,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192},
    });
    for (facts, dialects) in [(gemma, &[DialectName::Gguf, DialectName::Hf][..]), (llama, &[DialectName::Hf])]
    {
        let model = Model::from_facts(&facts).unwrap();
        for dialect in dialects {
            let again = Model::from_facts(&model.describe(*dialect, &|_| false)).unwrap();
            assert_eq!(model.unlike(&again), [], "{} as {dialect}", model.family.name());
        }
    }
}

#[test]
fn every_dialect_has_a_way_back() {
    for model in models() {
        let specs: Vec<_> = model.params().collect();
        let mut names: Vec<String> = specs.iter().map(|s| s.name.clone()).collect();
        let files: [(DialectName, &dyn Layout); 3] = [
            (DialectName::Gguf, &Named(DialectName::Gguf)),
            (DialectName::Hf, &Named(DialectName::Hf)),
            (DialectName::Hf, &Mlx),
        ];
        for (dialect, files) in files {
            if !has(&model, dialect) {
                assert!(files.targets(&model, &[]).is_err());
                continue;
            }
            let params: Vec<Param> = (specs.iter())
                .map(|s| Param {
                    name: s.name.clone(),
                    shape: s.shape(),
                    scheme: Scheme::plain(Dtype::BF16),
                    steps: vec![],
                    tied_to: None,
                })
                .collect();
            let export = files.targets(&model, &params).unwrap();
            // Every parameter is in one entry, or has no name there.
            let mut held = export.nameless.clone();
            for target in &export.targets {
                target.expr.for_each_source(&mut |name| held.push(name.to_owned()));
            }
            held.sort();
            held.dedup();
            names.sort();
            assert_eq!(held, names, "{} as {dialect}", model.family.name());
            let known =
                |name: &String| name.starts_with("rope_factors") || model.left_out(dialect, name).is_some();
            assert!(export.nameless.iter().all(known), "{:?}", export.nameless);
            let entries: HashSet<&str> = export.targets.iter().map(|t| t.name.as_str()).collect();
            assert_eq!(entries.len(), export.targets.len());
        }
    }
}
