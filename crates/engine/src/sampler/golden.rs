//! Each stage does what llama.cpp's sampler and transformers' processor do; golden/sampling.py made the files.

use std::collections::BTreeMap;

use serde_json::Value;

use super::candidates::Candidates;
use super::mirostat::Mirostat;
use super::{Dry, MirostatOptions, Penalties, SamplerOptions, dry, penalties};

const ORDER: [&str; 9] =
    ["bias", "penalties", "dry", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"];

fn file(name: &str) -> Value {
    let path = format!("{}/../../golden/sampling/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn real(value: &Value) -> f32 {
    // The files have null for −∞.
    value.as_f64().map_or(f32::NEG_INFINITY, |x| x as f32)
}

fn whole(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn list<T>(value: &Value, of: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(of).collect()
}

fn candidates(logits: &[f32]) -> Candidates {
    let mut candidates = Candidates::with_capacity(logits.len());
    candidates.fill(logits);
    candidates
}

/// Applies one stage with its parameters `p`, after the tokens of `history`.
fn apply(stage: &str, p: &Value, history: &[u32], candidates: &mut Candidates) {
    let vocab = candidates.all.len();
    match stage {
        "bias" => {
            for bias in p["bias"].as_array().unwrap() {
                candidates.add(whole(&bias[0]), real(&bias[1]));
            }
        }
        "penalties" => {
            let options = Penalties {
                repeat: real(&p["repeat"]),
                presence: real(&p["presence"]),
                frequency: real(&p["frequency"]),
                last: whole(&p["last"]) as usize,
            };
            let mut counts = penalties::Counts::new(&options, vocab);
            (1..=history.len()).for_each(|n| counts.add(&options, &history[..n]));
            counts.apply(&options, candidates);
        }
        "dry" => {
            let options = Dry {
                multiplier: real(&p["multiplier"]),
                base: real(&p["base"]),
                allowed_length: whole(&p["allowed_length"]) as usize,
                last: whole(&p["last"]) as usize,
                breakers: list(&p["breakers"], |b| list(b, whole)),
            };
            let mut state = dry::State::new(&options, vocab);
            for n in 0..=history.len() {
                // Nothing of one step is left for the next.
                let logits: Vec<f32> = candidates.logits().collect();
                let mut scratch = self::candidates(&logits);
                let last = n == history.len();
                state.apply(&options, &history[..n], if last { &mut *candidates } else { &mut scratch });
            }
        }
        "top_k" => candidates.top_k(whole(&p["top_k"]) as usize),
        "typical_p" => candidates.typical_p(real(&p["typical_p"])),
        "top_p" => candidates.top_p(real(&p["top_p"])),
        "min_p" => candidates.min_p(real(&p["min_p"])),
        "xtc" if p["probability"] == 1.0 => candidates.exclude_top(real(&p["threshold"])),
        "xtc" => assert_eq!(p["probability"], 0.0),
        "temperature" => candidates.heat(real(&p["temperature"])),
        _ => panic!("no stage `{stage}`"),
    }
}

/// The candidates of a case after its stages, and the case's own.
fn both(case: &Value, wanted: BTreeMap<u32, f32>) {
    let stages = case["samplers"].as_object().unwrap();
    let known = ORDER.into_iter().filter(|stage| stages.contains_key(*stage));
    assert!(known.eq(stages.keys().map(String::as_str)), "in the order of the stages");
    let mut candidates = candidates(&list(&case["logits"], real));
    let history = list(&case["tokens"], whole);
    for (stage, p) in stages {
        apply(stage, p, &history, &mut candidates);
    }
    let found: BTreeMap<u32, f32> = candidates.all.iter().map(|c| (c.id, c.logit)).collect();
    let what = &case["samplers"];
    assert!(found.keys().eq(wanted.keys()), "{what}: kept {found:?}\nwanted {wanted:?}");
    for ((id, found), wanted) in found.iter().zip(wanted.values()) {
        let bound = wanted.abs().max(1.0) * 2e-6;
        assert!(
            found.total_cmp(wanted).is_eq() || (found - wanted).abs() <= bound,
            "{what}: {id}: {found}, wanted {wanted}"
        );
    }
}

#[test]
fn each_stage_does_what_the_sampler_of_llama_cpp_does() {
    let file = file("llama.json");
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        both(case, list(&case["kept"], |kept| (whole(&kept[0]), real(&kept[1]))).into_iter().collect());
    }
    assert!(cases.len() > 100);
}

#[test]
fn each_stage_does_what_the_processor_of_transformers_does() {
    let file = file("transformers.json");
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let left = case["left"].as_array().unwrap();
        // Removed tokens have −∞ there; so has a token that a bias keeps from coming, which is a candidate here.
        let stays = |(_, left): &(u32, &Value)| !left.is_null() || case["samplers"].get("bias").is_some();
        both(case, (0..).zip(left).filter(stays).map(|(id, left)| (id, real(left))).collect());
    }
    assert!(cases.len() > 50);
}

#[test]
fn mirostat_follows_the_limit_of_llama_cpp() {
    for case in file("llama.json")["mirostat"].as_array().unwrap() {
        let options = MirostatOptions {
            entropy: real(&case["mirostat"]["entropy"]),
            rate: real(&case["mirostat"]["rate"]),
        };
        let mut mirostat = Mirostat::new(options);
        for step in case["steps"].as_array().unwrap() {
            let mut candidates = candidates(&list(&step["logits"], real));
            mirostat.remove(&mut candidates);
            let mut kept: Vec<u32> = candidates.all.iter().map(|c| c.id).collect();
            kept.sort_unstable();
            assert_eq!(kept, list(&step["kept"], whole), "{options:?}");
            // The draw is random there: it is given here.
            mirostat.observe(&mut candidates, whole(&step["drawn"]));
        }
    }
}

#[test]
fn the_defaults_of_the_stages_that_are_off_change_nothing() {
    let options = SamplerOptions::default();
    assert!(!options.penalties.are_on() && !options.dry.is_on() && !options.xtc.is_on());
    let logits: Vec<f32> = (0..50).map(|i| ((i * 37) % 50) as f32 / 5.0).collect();
    let mut all = candidates(&logits);
    all.typical_p(options.typical_p);
    all.exclude_top(0.6);
    all.top_k(0);
    all.top_p(1.0);
    all.min_p(0.0);
    assert!(all.logits().eq(logits));
}
