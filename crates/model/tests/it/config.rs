//! Numbers, where they come from, and what is wrong with them.

use serde_json::json;
use weighbridge_model::{
    Architecture, Computes, Fact, Facts, Model, Module, Norm, Origin, RopeScaling, Tree, module,
};

use crate::{Gguf, llama};

fn model(facts: &dyn Facts) -> Model {
    Model::from_facts(facts).unwrap()
}

fn wrong(facts: &dyn Facts) -> String {
    format!("{:?}", Model::from_facts(facts).err().unwrap())
}

#[test]
fn every_field_says_where_it_comes_from() {
    let config = model(&llama()).config().clone();
    assert_eq!(config.hidden.origin, Origin::Key("llama.embedding_length".to_owned()));
    assert_eq!(
        (*config.vocab, &config.vocab.origin),
        (320, &Origin::Key("tokenizer.ggml.tokens".to_owned()))
    );
    assert_eq!((*config.head_dim, &config.head_dim.origin), (16, &Origin::Default("hidden / heads")));
    assert_eq!(
        (*config.rope_theta, &config.rope_theta.origin),
        (10_000.0, &Origin::Default("as RoPE was published"))
    );
    let no_kv = model(&llama().without("llama.attention.head_count_kv")).config().clone();
    assert_eq!((*no_kv.kv_heads, &no_kv.kv_heads.origin), (4, &Origin::Default("as many as query heads")));
}

#[test]
fn the_prefixed_key_comes_before_the_bare_one() {
    let bare = llama().without("llama.context_length").with("context_length", Fact::Count(77));
    assert_eq!(model(&bare).config().context.origin, Origin::Key("context_length".to_owned()));
    let both = llama().with("context_length", Fact::Count(77));
    assert_eq!(*model(&both).config().context, 128);
}

#[test]
fn all_problems_are_told_at_once() {
    let facts = llama()
        .without("llama.embedding_length")
        .with("llama.block_count", Fact::Str("two".to_owned()))
        .with("llama.attention.head_count_kv", Fact::Count(3))
        .with("llama.feed_forward_length", Fact::Count(0))
        .with("llama.rope.freq_base", Fact::Number(f64::NAN));
    insta::assert_snapshot!(wrong(&facts), @r#"
    the configuration of `llama` is wrong:
      no value for `hidden`: looked for `llama.embedding_length`, `embedding_length`
      `llama.feed_forward_length` is 0, wanted an integer from 1 to 4294967296
      `llama.rope.freq_base` is NaN, wanted a positive number
      `llama.block_count` is "two", wanted an integer from 1 to 4294967296
      `llama.attention.head_count_kv` is 3, wanted a divisor of the 4 query heads
    "#);
}

#[test]
fn what_cannot_be_is_refused() {
    for (key, fact, said) in [
        ("llama.rope.dimension_count", Fact::Count(80), "at most the 16 of a head"),
        ("llama.rope.scaling.type", Fact::Str("twisted".to_owned()), "`twisted`"),
        ("llama.block_count", Fact::Count(1 << 40), "wanted an integer"),
        ("llama.block_count", Fact::Count(1 << 20), "at most 4096 layers"),
        ("llama.attention.head_count", Fact::List(vec![Fact::Count(4), Fact::Count(2)]), "a list of 2"),
    ] {
        let message = wrong(&llama().with(key, fact));
        assert!(message.contains(said), "{said}: {message}");
    }
    let message = wrong(&Gguf::new(&[("general.architecture", Fact::Str("mamba".to_owned()))]));
    assert!(message.contains("`mamba` is not supported") && message.contains("`llama`"), "{message}");
    let message = wrong(&Gguf::new(&[]));
    assert!(message.contains("does not name its architecture"), "{message}");
}

/// The number is the file's, with the layers that predict further tokens.
#[test]
fn blocks_are_counted_as_the_file_counts_them() {
    let message = wrong(&Gguf::new(&[
        ("general.architecture", Fact::Str("qwen35".to_owned())),
        ("qwen35.block_count", Fact::Count(1 << 32)),
        ("qwen35.nextn_predict_layers", Fact::Count(1)),
    ]));
    assert!(message.contains("`qwen35.block_count` is 4294967296, wanted at most 4096 layers"), "{message}");
}

/// It is loaded and converted, but the engine is not asked to run what it would run wrongly.
#[test]
fn what_is_not_run_says_why() {
    let part = llama().with("llama.rope.dimension_count", Fact::Count(8));
    let why = "8 of 16 elements of a head are rotated (`llama.rope.dimension_count`)";
    assert_eq!(model(&part).architecture().unwrap_err().why, why);
}

#[test]
fn equal_counts_in_a_list_are_one_count() {
    let list = Fact::List(vec![Fact::Count(2), Fact::Count(2)]);
    assert_eq!(*model(&llama().with("llama.attention.head_count_kv", list)).config().kv_heads, 2);
}

#[test]
fn rope_scaling_by_any_of_its_keys() {
    let linear = llama()
        .with("llama.rope.scaling.type", Fact::Str("linear".to_owned()))
        .with("llama.rope.scaling.factor", Fact::Number(8.0));
    assert_eq!(*model(&linear).config().rope_scaling, RopeScaling::Linear { factor: 8.0 });
    let base = json!({
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 8,
        "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    });
    let llama3 = json!({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32, "rope_theta": 5e5});
    for key in ["rope_scaling", "rope_parameters"] {
        let mut config = base.clone();
        config[key] = llama3.clone();
        let scaling = model(&config).config().rope_scaling.value.clone();
        assert!(matches!(scaling, RopeScaling::Llama3 { factor: 4.0, original_context: 32.0, .. }), "{key}");
    }
    let mut config = base;
    config["rope_scaling"] = json!({"type": "dynamic", "factor": 2.0});
    assert_eq!(*model(&config).config().rope_scaling, RopeScaling::Dynamic { factor: 2.0 });
    config["rope_scaling"] = json!({"type": "twisted"});
    assert!(wrong(&config).contains("\"twisted\""));
}

/// Every sixth layer of Gemma 3 is global, with its own rotary base.
#[test]
fn gemma3_alternates_local_and_global_layers() {
    let mut config = json!({
        "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 13, "hidden_size": 64, "vocab_size": 8,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "sliding_window": 512, "rope_theta": 1e6,
        "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 256,
    });
    let check = |config: &serde_json::Value| {
        let arch = model(config).architecture().unwrap();
        for n in 0..13 {
            let global = (n + 1) % 6 == 0;
            let Some(Computes::Attention(attention)) = arch.get(&format!("layers.{n}.attention")) else {
                panic!("layer {n}")
            };
            assert_eq!(attention.window, (!global).then_some(512), "layer {n}");
            let theta = attention.rope.as_ref().unwrap().theta;
            assert!((theta - if global { 1e6 } else { 1e4 }).abs() < 1e-9, "layer {n}");
            assert!((attention.scale - 1.0 / 16.0).abs() < 1e-9);
            assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (4, 1, 32));
        }
        assert_eq!(arch.get("token_embedding"), Some(&Computes::Embedding { scale: 8.0 }));
    };
    check(&config);
    let types: Vec<&str> =
        (1..=13).map(|n| if n % 6 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    config["layer_types"] = json!(types);
    check(&config);
    config["layer_types"] = json!(["full_attention", "sliding_attention"]);
    assert!(wrong(&config).contains("for each of 13 layers"));
}

/// The modules give all that the engine needs: the place of each branch, the norm before it, and the parts of its
/// matrices.
#[test]
fn modules_say_what_they_compute() {
    let arch = model(&llama()).architecture().unwrap();
    assert_eq!(arch.layers(), 2);
    let Some(Computes::Residual(branches)) = arch.get("layers.1") else { panic!("a block") };
    let names: Vec<_> = branches.iter().map(|b| (b.norm, b.layer, b.post_norm)).collect();
    assert_eq!(names, [(Some("attention_norm"), "attention", None), (Some("ffn_norm"), "ffn", None)]);
    assert!(matches!(arch.get("layers.1.ffn_norm"), Some(Computes::Norm(Norm::Rms { .. }))));
    assert!(matches!(arch.get("layers.1.ffn"), Some(Computes::FeedForward(ffn)) if ffn.gated));
    assert_eq!(arch.get("layers.1.attention.q_norm"), None);
    let qkv = arch.matrix("layers.1.attention.qkv").unwrap();
    let stems: Vec<_> = qkv.parts.iter().map(|(stem, _)| &**stem).collect();
    assert_eq!(stems, ["layers.1.attention.q", "layers.1.attention.k", "layers.1.attention.v"]);
    let whole = arch.matrix("layers.1.attention.output").unwrap();
    assert_eq!(whole.parts[0].0, "layers.1.attention.output");
}

/// A model of one's own runs if it says what it computes, and says what is missing if it does not.
#[test]
fn a_module_that_says_nothing_is_not_run() {
    struct Half(bool);
    impl Module for Half {
        fn declare(&self, tree: &mut Tree) {
            if self.0 {
                let (vocab, hidden, context, layers) = (8, 4, 16, 1);
                tree.computes(Ok(Computes::Decoder(module::Decoder {
                    vocab,
                    hidden,
                    context,
                    layers,
                    logit_divisor: None,
                    logit_soft_cap: None,
                })));
            }
            tree.child("token_embedding", &module::Embedding::new(8, 4));
            tree.child("layers", &module::Layers(vec![module::RmsNorm::new(4)]));
        }
    }
    let why = |module: &dyn Module| Architecture::of(&Tree::of(module).unwrap()).unwrap_err().why;
    assert_eq!(why(&Half(false)), "its modules do not say what they compute");
    assert_eq!(why(&Half(true)), "`layers.0` does not say what it computes");
}
