//! No key of the reference ends without a verdict (golden/config/fields.json, gguf_keys.json).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weighbridge_model::{Fact, Facts, Model, Verdict};

use crate::{Gguf, families};

fn golden(name: &str) -> Value {
    let path = testkit::golden("config").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Classes, and the architecture by which a family claims them. Of several parts, the text model's is one of these.
const CLASSES: &[(&str, &str)] = &[
    ("LlamaConfig", "LlamaForCausalLM"),
    ("MistralConfig", "MistralForCausalLM"),
    ("Gemma3TextConfig", "Gemma3ForCausalLM"),
    ("GPT2Config", "GPT2LMHeadModel"),
    ("Qwen2Config", "Qwen2ForCausalLM"),
    ("Qwen3Config", "Qwen3ForCausalLM"),
    ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    ("Phi3Config", "Phi3ForCausalLM"),
    ("MixtralConfig", "MixtralForCausalLM"),
    ("DeepseekV2Config", "DeepseekV2ForCausalLM"),
    ("DeepseekV3Config", "DeepseekV3ForCausalLM"),
    ("GptOssConfig", "GptOssForCausalLM"),
    ("BertConfig", "BertModel"),
    ("RobertaConfig", "RobertaModel"),
    ("XLMRobertaConfig", "XLMRobertaModel"),
    ("CamembertConfig", "CamembertModel"),
    ("DistilBertConfig", "DistilBertModel"),
    ("MPNetConfig", "MPNetModel"),
    ("ModernBertConfig", "ModernBertModel"),
    ("NomicBertConfig", "NomicBertModel"),
    ("WhisperConfig", "WhisperForConditionalGeneration"),
    ("Starcoder2Config", "Starcoder2ForCausalLM"),
    ("GraniteConfig", "GraniteForCausalLM"),
    ("Olmo2Config", "Olmo2ForCausalLM"),
    ("Gemma2Config", "Gemma2ForCausalLM"),
    ("FalconConfig", "FalconForCausalLM"),
];

/// A value for a field whose default is none.
fn some_value(kind: &str) -> Value {
    match kind {
        k if k.contains("list[str]") => json!(["a"]),
        k if k.contains("list[int]") => json!([1]),
        k if k.contains("dict") || k.contains("RopeParameters") => json!({"rope_type": "default"}),
        k if k.contains("bool") => json!(true),
        k if k.contains("float") => json!(0.5),
        k if k.contains("int") => json!(1),
        _ => json!("a"),
    }
}

/// A config.json of a class with every field at its default.
fn full(class: &Value, architecture: &str) -> Value {
    let mut config = class["effective"].clone();
    config["architectures"] = json!([architecture]);
    // Transformers has no default of it for DeepSeek 2, and does without only until it runs.
    if config["num_experts_per_tok"].is_null() {
        config["num_experts_per_tok"] = json!(2);
    }
    config
}

/// The verdict on `key` in `config`; a refusal that names it counts as checked.
fn verdict(config: &Value, key: &str) -> Option<Verdict> {
    match Model::from_facts(config) {
        Ok(model) => {
            let mut keys = model.verdicts(config).into_iter();
            let under = format!("{key}.");
            keys.find(|k| k.key == key || k.key.starts_with(&under)).map(|k| k.verdict)
        }
        Err(error) => {
            assert!(error.to_string().contains(key), "`{key}` is not named: {error}");
            Some(Verdict::Checked)
        }
    }
}

#[test]
fn every_field_of_transformers_has_a_verdict() {
    let fields = golden("fields.json");
    let (mut tried, mut unknown) = (0, vec![]);
    for (class, architecture) in CLASSES {
        let of = &fields["classes"][class];
        let mut base = full(of, architecture);
        let own = of["fields"].as_object().unwrap();
        let common = fields["PreTrainedConfig"]["fields"].as_object().unwrap();
        let aliases = of["attribute_map"].as_object().into_iter().flatten().map(|(key, _)| (key, "int"));
        let taken = [&of["taken"], &fields["PreTrainedConfig"]["taken"]];
        let taken = taken.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
        let taken: Vec<String> = taken.map(|key| key.as_str().unwrap().to_owned()).collect();
        let typed = own.iter().chain(common).map(|(key, field)| (key, field["type"].as_str().unwrap_or("")));
        let all = typed.chain(aliases).chain(taken.iter().map(|key| (key, "")));
        for (key, kind) in all {
            if matches!(key.as_str(), "architectures" | "model_type") {
                continue;
            }
            let mut config = base.clone();
            if config[key].is_null() || config[key] == json!({}) || config[key] == json!([]) {
                let alias = of["attribute_map"][key].as_str();
                config[key] = alias.map_or_else(|| some_value(kind), |target| base[target].clone());
            }
            tried += 1;
            let found = verdict(&config, key);
            let known = found.as_ref().is_some_and(|v| *v != Verdict::Unknown);
            if !known {
                unknown.push(format!("{class}: `{key}` = {} ends as {found:?}", config[key]));
            }
        }
        let unheard = json!("of");
        base["unheard_of"] = unheard;
        assert_eq!(verdict(&base, "unheard_of"), Some(Verdict::Unknown), "{class}");
    }
    assert!(tried > 500, "{tried}");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Keys that the model reads in the reference, and that change nothing when it runs.
const OF_TRAINING: &[&str] = &[
    "activation_dropout",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "apply_spec_augment",
    "attn_pdrop",
    "decoder_layerdrop",
    "dropout",
    "embd_pdrop",
    "encoder_layerdrop",
    "hidden_dropout_prob",
    "init_std",
    "initializer_range",
    "output_router_logits",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
];

/// Values that the reference computes with are read or checked, except in training.
#[test]
fn what_the_reference_computes_with_is_not_without_effect() {
    let fields = golden("fields.json");
    let mut wrong = vec![];
    for (class, architecture) in CLASSES {
        let of = &fields["classes"][class];
        let base = full(of, architecture);
        for key in of["read_by_model"].as_array().unwrap() {
            let key = key.as_str().unwrap();
            if OF_TRAINING.contains(&key) || base[key].is_null() {
                continue;
            }
            // Read where frequencies are stretched.
            let stretched = key == "original_max_position_embeddings";
            if let (false, Some(Verdict::WithoutEffect(why))) = (stretched, verdict(&base, key)) {
                let said_elsewhere = why.contains("say")
                    || why.contains("names the family")
                    || why.contains("begins")
                    || why.contains("fills")
                    || why.contains("end");
                let for_others = why.starts_with("for ") || why.starts_with("it splits");
                let same = why.starts_with("it computes the same") || why.contains("every head");
                if !(said_elsewhere || for_others || same) {
                    wrong.push(format!("{class}: `{key}`: {why}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// gguf-py knows every GGUF key that a family reads or writes, and every key that llama.cpp reads has a verdict.
#[test]
fn every_key_of_gguf_is_known_to_both() {
    let keys = golden("gguf_keys.json");
    let known: BTreeSet<&str> = (keys["gguf_py"].as_object().unwrap().values())
        .chain(keys["llama_cpp"].as_object().unwrap().values())
        .filter_map(Value::as_str)
        .collect();
    let read = |architecture: &str| -> Vec<String> {
        let own = keys["architectures"][architecture].as_object();
        let common = keys["common"].as_object().unwrap();
        own.into_iter().flatten().chain(common).map(|(key, _)| key.replace("{arch}", architecture)).collect()
    };
    let (mut tried, mut written, mut unknown) = (0, 0, vec![]);
    for (name, _, gguf) in families() {
        let Some(facts) = gguf else { continue };
        let model = Model::from_facts(&facts).unwrap();
        let Some(Fact::Str(architecture)) = facts.lookup("general.architecture") else { panic!("{name}") };
        for (key, _) in model.describe(model.dialect, &|_| true).pairs {
            let general = key.replace(&format!("{architecture}."), "{arch}.");
            if !known.contains(general.as_str()) {
                unknown.push(format!("{name}: gguf-py does not know `{key}`"));
            }
            written += 1;
        }
        for key in read(&architecture) {
            let there = facts.lookup(&key).is_some();
            let with = if there { clone(&facts) } else { clone(&facts).with(&key, Fact::Count(1)) };
            tried += 1;
            let Ok(model) = Model::from_facts(&with) else { continue };
            let found = model.verdicts(&with).into_iter().find(|k| k.key == key).unwrap();
            if found.verdict == Verdict::Unknown {
                unknown.push(format!("{name}: `{key}` has no verdict"));
            }
        }
    }
    assert!(tried > 300 && written > 100, "{tried} {written}");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

fn clone(facts: &Gguf) -> Gguf {
    Gguf(facts.0.clone())
}
