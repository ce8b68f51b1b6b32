//! ModernBERT: an encoder with norms before attention and before the feed-forward network, rotary positions, and layers that see a
//! window by turns.
//!
//! Source: transformers `ModernBertModel`, `ModernBertForMaskedLM` and configuration_modernbert.py@v5.23; conversion/bert.py and
//! src/models/modern-bert.cpp@0c1e57098.

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{
    Config, DecoderKeys, Field, Keys, OF_TRANSFORMERS, Reader, Rotary, WithoutEffect, windows,
};
use crate::dialect::{Dialect, GGUF_DECODER, Rule, rows_gate, rows_k, rows_q, rows_up, rows_v};
use crate::ecosystem::DialectName;
use crate::module::{LayerNorm, Linear, Module, Score};
use crate::param::Axis;
use crate::rope::RopeScaling;
use crate::{Fact, Origin};

use super::Family;
use super::bert::{self, Prediction};
use super::blocks::{Attention, Bias, Block, Encoder, GatedFfn, Norm, ScoreHead};

/// The unit that stands for the family in the table.
pub(super) struct ModernBert;

/// The first of every three layers sees all positions, where nothing says otherwise.
const EVERY: u64 = 3;

/// Whether norms have biases, in [`Config::own`].
const NORM_BIAS: &str = "norm_bias";
/// Whether texts are scored by the mean of all tokens, there too.
const MEAN: &str = "classifier_mean";

const CLASSIFIER_POOLING: Keys = Keys::new("classifier_pooling", &["classifier.pooling_type"], &[]);

/// Rotary parameters of no kind of layer, which the reference rejects.
const FLAT: Keys = Keys::new(
    "rope_parameters",
    &[],
    &["rope_parameters.rope_type", "rope_parameters.rope_theta", "rope_parameters.factor"],
);
const KINDS: [Keys; 2] = [
    Keys::new("rope_parameters", &[], &["rope_parameters.full_attention"]),
    Keys::new("rope_parameters", &[], &["rope_parameters.sliding_attention"]),
];

impl Family for ModernBert {
    fn name(&self) -> &'static str {
        "modernbert"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["modern-bert"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification", "modernbert"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            kv_heads: Keys::new("kv_heads", &["attention.head_count_kv"], &[]),
            head_dim: Keys::new("head_dim", &["attention.key_length"], &[]),
            norm_eps: Keys::new("norm_eps", &["attention.layer_norm_epsilon"], &["norm_eps"]),
            norm_eps_absent: 1e-5,
            activation: Keys::new("activation", &[], &["hidden_activation"]),
            activation_absent: Activation::Gelu,
            rotary: Rotary {
                theta: 160_000.0,
                theta_beside: Keys::new("rope_theta", &[], &["global_rope_theta"]),
                local_theta: Some(10_000.0),
                local_theta_beside: Keys::new("rope_local_theta", &[], &["local_rope_theta"]),
                scaling_everywhere: true,
                ..Rotary::PLAIN
            },
            causal: false,
            ..DecoderKeys::LLAMA
        };
        let kinds = "an object for each kind of layer";
        r.only(FLAT, kinds, |_| false);
        for kind in KINDS.into_iter().filter(|kind| r.is_null(*kind)).collect::<Vec<_>>() {
            r.does_not_follow(kind.hf[0], &Fact::Null, kinds);
        }
        let base = common.read(r);
        let mut c = windows::both_ways(r, base, 128, EVERY);
        r.only_flag(Keys::new("causal", &["attention.causal"], &[]), false);
        if r.dialect() == DialectName::Gguf {
            c.activation = gguf_activation(r);
        }
        let norm_bias = r.flag(Keys::new(NORM_BIAS, &[], &["norm_bias"]));
        let norm_bias = norm_bias.unwrap_or(Field::default(false, OF_TRANSFORMERS));
        let tied = r.tied(true);
        let (attention_bias, ffn_bias) = (r.attention_bias(false), r.ffn_bias(false));
        c.labels = bert::labels(r, &c);
        if *c.labels > 0 && r.dialect() == DialectName::Gguf {
            c.own.insert(MEAN, gguf_mean(r));
        } else if *c.labels > 0 {
            let pooling = r.word(Keys::new(MEAN, &[], &["classifier_pooling"]));
            let pooling = pooling.unwrap_or(Field::default("cls".to_owned(), OF_TRANSFORMERS));
            if let Origin::Key(key) = &pooling.origin
                && !["cls", "mean"].contains(&&**pooling)
            {
                r.does_not_follow(key, &Fact::Str(pooling.value.clone()), "`cls` or `mean`");
            }
            let mean = f64::from(*pooling == "mean");
            c.own.insert(MEAN, Field { value: mean, origin: pooling.origin });
            let gelu = |fact: &Fact| *fact == Fact::Str("gelu".to_owned());
            r.only(Keys::new("classifier_activation", &[], &["classifier_activation"]), "`gelu`", gelu);
        }
        c.own.insert(NORM_BIAS, Field { value: f64::from(*norm_bias), origin: norm_bias.origin });
        Config { attention_bias, ffn_bias, tied, ..c }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            return describe_gguf(c, own);
        }
        let mut d = Description::new(DialectName::Hf);
        describe::classifier(&mut d, c, "ModernBert", "modernbert");
        if *c.labels > 0 {
            d.text("classifier_pooling", if pools_all(c) { "mean" } else { "cls" });
        }
        d.text("hidden_activation", c.activation.name());
        d.count("hidden_size", *c.hidden);
        d.count("intermediate_size", *c.ffn);
        d.count("num_hidden_layers", *c.layers);
        d.count("num_attention_heads", *c.heads);
        d.count("vocab_size", *c.vocab);
        d.count("max_position_embeddings", *c.context);
        d.number("norm_eps", *c.norm_eps);
        d.flag("norm_bias", has_norm_bias(c));
        d.flag("attention_bias", c.attention_bias.unwrap_or(false));
        d.flag("mlp_bias", c.ffn_bias.unwrap_or(false));
        d.count("local_attention", 2 * c.window.saturating_sub(1));
        describe::layer_types(&mut d, c);
        d.number("global_rope_theta", *c.rope_theta);
        d.number("local_rope_theta", *c.rope_local_theta);
        describe::rope_scaling(&mut d, c);
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n).bidirectional();
            let block = Block::new(c, norm, attention, GatedFfn::new(c, *c.ffn, Bias::from(*c.ffn_bias)));
            if n == 0 { block.without_attention_norm() } else { block }
        };
        let score = Score { labels: 0, mean: pools_all(c), activation: Some(Activation::Gelu) };
        Box::new(ModernBertModel {
            encoder: Encoder::new(c, norm, block).without_positions().with_output_norm(norm(c)),
            prediction: (*c.labels == 0).then(|| Prediction::new(c)),
            score: bert::score(c, score).map(|head| head.normed(c, norm(c))),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
        })
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect {
                without: bert::WITHOUT,
                ..Dialect::new(name, vec![GGUF, bert::GGUF_SCORE, GGUF_DECODER])
            },
            _ => Dialect { prefix: "model.", ..Dialect::new(name, vec![HF]) },
        })
    }
}

/// The activation by the names that llama.cpp has for it.
fn gguf_activation(r: &mut Reader) -> Field<Activation> {
    const ACTIVATION: Keys = Keys::new("activation", &["hidden_activation"], &[]);
    let Some(Field { value: name, origin: Origin::Key(key) }) = r.word(ACTIVATION) else {
        return Field::default(Activation::Gelu, "the family's");
    };
    let value = match name.as_str() {
        "gelu" | "geglu" => Activation::Gelu,
        "silu" | "swish" | "swiglu" => Activation::Silu,
        _ => {
            r.does_not_follow(&key, &Fact::Str(name), "`gelu`, `geglu`, `silu`, `swish` or `swiglu`");
            Activation::Gelu
        }
    };
    Field { value, origin: Origin::Key(key) }
}

/// Whether texts are scored by the mean of all tokens, which llama.cpp does where nothing says otherwise.
fn gguf_mean(r: &mut Reader) -> Field<f64> {
    match r.count(CLASSIFIER_POOLING, 1) {
        None => Field::default(1.0, "of llama.cpp"),
        Some(Field { value, origin: Origin::Key(key) }) if value > 2 => {
            r.does_not_follow(&key, &Fact::Count(value), "1 (mean) or 2 (cls)");
            Field::default(1.0, "not followed")
        }
        Some(Field { value, origin }) => Field { value: f64::from(value == 1), origin },
    }
}

fn describe_gguf(c: &Config, own: &dyn Fn(&str) -> bool) -> Description {
    const ARCHITECTURE: &str = "modern-bert";
    let key = |rest: &str| format!("{ARCHITECTURE}.{rest}");
    let is_named = [Activation::Gelu, Activation::Silu].contains(&c.activation);
    let activation = if is_named { *c.activation } else { Activation::Gelu };
    let mut d = bert::describe_gguf(c, ARCHITECTURE, activation);
    d.pairs.retain(|(key, _)| key != bert::TYPES.gguf[0]);
    d.text(&key("hidden_activation"), activation.name());
    if *c.labels > 0 {
        d.count(&key(CLASSIFIER_POOLING.gguf[0]), if pools_all(c) { 1 } else { 2 });
    }
    describe::gguf_rotary(&mut d, c, ARCHITECTURE);
    if c.has_windows() {
        // A window of the token alone is 1 there: 0 is none.
        d.count(&key("attention.sliding_window"), (2 * (*c.window - 1)).max(1));
        d.number(&key("rope.freq_base_swa"), *c.rope_local_theta);
        if *c.rope_local_scaling != RopeScaling::None {
            let what = "llama.cpp stretches no frequencies of layers with a window: every result differs";
            d.lose("rope_parameters.sliding_attention", "rope_local_scaling", what);
        }
        if (0..*c.layers).any(|n| c.is_windowed(n) != windows::but_first(n, EVERY)) {
            let flags = c.windowed.iter().map(|windowed| Fact::Bool(*windowed)).collect();
            d.put(&key("attention.sliding_window_pattern"), Fact::List(flags));
        }
    } else {
        d.count(&key("attention.sliding_window"), 0);
    }
    let biases = [
        ("norm_bias", NORM_BIAS, "embedding_norm.bias"),
        ("attention_bias", "", "layers.0.attention.q.bias"),
        ("mlp_bias", "", "layers.0.ffn.up.bias"),
        ("classifier_bias", "", "score.dense.bias"),
    ];
    for (key, field, _) in biases.into_iter().filter(|(.., name)| own(name)) {
        d.lose(key, field, "llama.cpp has no such biases here, and refuses the file");
    }
    d
}

/// Whether texts are scored by the mean of all tokens.
fn pools_all(c: &Config) -> bool {
    c.own.get(MEAN).is_some_and(|said| **said > 0.0)
}

fn has_norm_bias(c: &Config) -> bool {
    c.own.get(NORM_BIAS).is_some_and(|said| **said > 0.0)
}

fn norm(c: &Config) -> Norm {
    let norm = LayerNorm::new(Axis::Hidden.of(*c.hidden)).with_eps(*c.norm_eps as f32);
    Norm::Layer(if has_norm_bias(c) { norm } else { norm.without_bias() })
}

#[derive(Module)]
struct ModernBertModel {
    #[module(flatten)]
    encoder: Encoder,
    prediction: Option<Prediction>,
    score: Option<ScoreHead>,
    output: Linear,
}

/// llama.cpp has no biases here: they are for files that are made all the same.
static GGUF: &[Rule] = &[
    Rule::same("embedding_norm.weight", "token_embd_norm.weight"),
    Rule::same("embedding_norm.bias", "token_embd_norm.bias"),
    Rule::same("layers.{n}.attention_norm.bias", "blk.{n}.attn_norm.bias"),
    Rule::same("layers.{n}.ffn_norm.bias", "blk.{n}.ffn_norm.bias"),
    Rule::same("output_norm.bias", "output_norm.bias"),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_qkv.bias", rows_q),
    Rule::with("layers.{n}.attention.k.bias", "blk.{n}.attn_qkv.bias", rows_k),
    Rule::with("layers.{n}.attention.v.bias", "blk.{n}.attn_qkv.bias", rows_v),
    Rule::with("layers.{n}.ffn.gate.bias", "blk.{n}.ffn_up.bias", rows_gate),
    Rule::with("layers.{n}.ffn.up.bias", "blk.{n}.ffn_up.bias", rows_up),
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_qkv.weight", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_qkv.weight", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "blk.{n}.attn_qkv.weight", rows_v),
    Rule::with("layers.{n}.ffn.gate.weight", "blk.{n}.ffn_up.weight", rows_gate),
    Rule::with("layers.{n}.ffn.up.weight", "blk.{n}.ffn_up.weight", rows_up),
];

static HF: &[Rule] = &[
    Rule::same("token_embedding.weight", "embeddings.tok_embeddings.weight"),
    Rule::same("embedding_norm.weight", "embeddings.norm.weight"),
    Rule::same("embedding_norm.bias", "embeddings.norm.bias"),
    Rule::same("layers.{n}.attention_norm.weight", "layers.{n}.attn_norm.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "layers.{n}.attn_norm.bias"),
    Rule::with("layers.{n}.attention.q.weight", "layers.{n}.attn.Wqkv.weight", rows_q),
    Rule::with("layers.{n}.attention.q.bias", "layers.{n}.attn.Wqkv.bias", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "layers.{n}.attn.Wqkv.weight", rows_k),
    Rule::with("layers.{n}.attention.k.bias", "layers.{n}.attn.Wqkv.bias", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "layers.{n}.attn.Wqkv.weight", rows_v),
    Rule::with("layers.{n}.attention.v.bias", "layers.{n}.attn.Wqkv.bias", rows_v),
    Rule::same("layers.{n}.attention.output.weight", "layers.{n}.attn.Wo.weight"),
    Rule::same("layers.{n}.attention.output.bias", "layers.{n}.attn.Wo.bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "layers.{n}.mlp_norm.weight"),
    Rule::same("layers.{n}.ffn_norm.bias", "layers.{n}.mlp_norm.bias"),
    Rule::with("layers.{n}.ffn.gate.weight", "layers.{n}.mlp.Wi.weight", rows_gate),
    Rule::with("layers.{n}.ffn.gate.bias", "layers.{n}.mlp.Wi.bias", rows_gate),
    Rule::with("layers.{n}.ffn.up.weight", "layers.{n}.mlp.Wi.weight", rows_up),
    Rule::with("layers.{n}.ffn.up.bias", "layers.{n}.mlp.Wi.bias", rows_up),
    Rule::same("layers.{n}.ffn.down.weight", "layers.{n}.mlp.Wo.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "layers.{n}.mlp.Wo.bias"),
    Rule::same("output_norm.weight", "final_norm.weight"),
    Rule::same("output_norm.bias", "final_norm.bias"),
    Rule::unprefixed("score.dense.weight", "head.dense.weight"),
    Rule::unprefixed("score.dense.bias", "head.dense.bias"),
    Rule::unprefixed("score.norm.weight", "head.norm.weight"),
    Rule::unprefixed("score.norm.bias", "head.norm.bias"),
    Rule::unprefixed("score.output.weight", "classifier.weight"),
    Rule::unprefixed("score.output.bias", "classifier.bias"),
    Rule::unprefixed("prediction.dense.weight", "head.dense.weight"),
    Rule::unprefixed("prediction.dense.bias", "head.dense.bias"),
    Rule::unprefixed("prediction.norm.weight", "head.norm.weight"),
    Rule::unprefixed("prediction.norm.bias", "head.norm.bias"),
    Rule::unprefixed("output.weight", "decoder.weight"),
    Rule::unprefixed("output.bias", "decoder.bias"),
];

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.pooling_type", "for the program that runs it"),
    ("*.classifier.pooling_type", "for another head"),
    ("*.classifier.output_labels", "for another head"),
    ("*.vocab_size", "the tokens say it"),
    ("*.attention.value_length", "the shapes say it"),
    ("*.attention.layer_norm_rms_epsilon", "llama.cpp reads `attention.layer_norm_epsilon`"),
];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("embedding_dropout", "for training"),
    ("mlp_dropout", "for training"),
    ("initializer_cutoff_factor", "for training"),
    ("gradient_checkpointing", "for training"),
    ("sparse_pred*", "for training"),
    ("classifier_*", "for another head"),
    ("decoder_bias", "for another head"),
    ("deterministic_flash_attn", "for the program that runs it"),
    ("reference_compile", "for the program that runs it"),
    ("repad_logits_with_grad", "for training"),
    ("cls_token_id", "the tokenizer says it"),
    ("layer_norm_eps", "`norm_eps` says it"),
    ("rope_theta", "keys for each kind of layer say it"),
    ("position_embedding_type", "positions are rotary"),
    ("head_dim", "heads are parts of the hidden size"),
    ("num_key_value_heads", "each query head has a key head"),
    ("partial_rotary_factor", "whole heads are rotated"),
];
