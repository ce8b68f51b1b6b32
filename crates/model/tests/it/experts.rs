//! Mixtures of experts: many names, hostile numbers, rare ones carried.

use serde_json::json;
use tensor::Expr;
use weighbridge_model::{DialectName, Fact, Model};

use crate::families;

fn deepseek() -> serde_json::Value {
    families().into_iter().find(|f| f.0 == "deepseek_v3").unwrap().1
}

/// As Kimi K2 has them.
#[test]
fn the_names_of_many_experts_are_made_at_once() {
    let mut config = deepseek();
    config["num_hidden_layers"] = json!(61);
    config["n_routed_experts"] = json!(384);
    let model = Model::from_facts(&config).unwrap();
    let names: Vec<String> = (1..61)
        .flat_map(|n| (0..384).map(move |e| format!("model.layers.{n}.mlp.experts.{e}.up_proj.weight")))
        .collect();
    let start = std::time::Instant::now();
    let bindings = model.bindings(names.iter().map(String::as_str)).unwrap().bindings;
    let time = start.elapsed();
    let mut sources = 0;
    for binding in &bindings {
        binding.expr.for_each_source(&mut |_| sources += 1);
    }
    assert!(sources > 60 * 384 * 3);
    let stack = &bindings.iter().find(|b| b.name == "layers.60.ffn.experts.down.weight").unwrap().expr;
    let Expr::Stack(parts) = stack else { panic!("{stack:?}") };
    assert_eq!(parts[383], Expr::source("model.layers.60.mlp.experts.383.down_proj.weight"));
    // A tenth of this in an optimised build; quadratic work would take minutes.
    assert!(time.as_millis() < 2000, "{time:?}");
}

#[test]
fn hostile_numbers_of_experts_are_refused() {
    for (key, n, said) in [
        ("n_routed_experts", 1_000_000_000u64, "at most 262144 experts in all 2 layers"),
        ("n_routed_experts", 1 << 40, "wanted an integer"),
        ("num_experts_per_tok", 5, "at most all 4 experts"),
        ("n_shared_experts", 1 << 20, "at most 1024"),
        ("first_k_dense_replace", 3, "at most all 2 layers"),
        ("qk_nope_head_dim", 1 << 31, "less than 4096"),
        ("moe_layer_freq", 2, "experts in every layer"),
    ] {
        let mut config = deepseek();
        config[key] = json!(n);
        let message = format!("{:?}", Model::from_facts(&config).err().unwrap());
        assert!(message.contains(said) && message.contains(key), "{said}: {message}");
    }
}

/// YaRN as DeepSeek and gpt-oss have it, LongRoPE as Phi 3: nothing of it is lost.
#[test]
fn stretched_frequencies_are_carried() {
    let of = |name: &str| families().into_iter().find(|f| f.0 == name).unwrap().1;
    let mut v3 = of("deepseek_v3");
    v3["rope_parameters"] = json!({"rope_theta": 1e4});
    v3["rope_scaling"] = json!({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707});
    let mut phi = of("phi3");
    phi["rope_parameters"] = json!({"rope_theta": 1e4});
    phi["original_max_position_embeddings"] = json!(64);
    phi["rope_scaling"] =
        json!({"type": "longrope", "short_factor": vec![1.0; 8], "long_factor": [1.5, 2, 3, 4, 5, 6, 7, 8]});
    for (config, dialects) in [
        (v3, &[DialectName::Hf, DialectName::Gguf][..]),
        (of("gpt-oss"), &[DialectName::Hf, DialectName::Gguf]),
        // GGUF has the factors as tensors.
        (phi.clone(), &[DialectName::Hf]),
    ] {
        let model = Model::from_facts(&config).unwrap();
        for dialect in dialects {
            let again = Model::from_facts(&model.describe(*dialect, &|_| true)).unwrap();
            assert_eq!(model.unlike(&again), [], "{} as {dialect}", model.family.name());
        }
    }
    let model = Model::from_facts(&phi).unwrap();
    assert_eq!(
        model.config().rope_scaling.to_string(),
        "longrope of 64, 8 factors that sum up to 8 and 36.5"
    );
    let gguf = model.describe(DialectName::Gguf, &|_| true);
    let factor = gguf.pairs.iter().find(|(key, _)| key == "phi3.rope.scaling.attn_factor");
    // sqrt(1 + ln(256 / 64) / ln(64))
    assert!(matches!(factor, Some((_, Fact::Number(x))) if (x - (4f64 / 3.0).sqrt()).abs() < 1e-9));
}
