//! BERT: an encoder with norms after attention and after the feed-forward network, and heads that a file may have.
//!
//! Source: transformers `BertModel`, `BertForMaskedLM` and `BertForPreTraining`@v4.57; conversion/bert.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/bert.py, v0.33.0.

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Field, Keys, OF_TRANSFORMERS, Reader, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, Rule};
use crate::ecosystem::DialectName;
use crate::module::{LayerNorm, Linear, Module, Score};
use crate::param::Axis;
use crate::{Fact, Origin};

use super::Family;
use super::blocks::{Attention, Bias, Encoder, EncoderBlock, Ffn, Norm, ScoreHead};

/// The unit that stands for the family in the table.
pub(super) struct Bert;

impl Family for Bert {
    fn name(&self) -> &'static str {
        "bert"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["bert"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "bert"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        config(r)
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            return describe_gguf(c, "bert", Activation::Gelu);
        }
        let mut d = describe_hf(c, "Bert", "bert");
        if *c.labels > 0 && !own("score.dense.weight") {
            let what =
                "the file has no layer before the scores, and transformers makes one up: every score differs";
            d.lose("pooler", "", what);
        }
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let head = |outputs: u64| Linear::new(hidden, outputs).with_bias().optional();
        Box::new(BertModel {
            encoder: encoder(c),
            pooler: (*c.labels == 0).then(|| head(*c.hidden)),
            score: score(c, TANH),
            prediction: Prediction::new(c),
            // Whole on every rank: vLLM's is a plain linear.
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
            next_sentence: head(2),
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
            DialectName::Gguf => gguf(),
            _ => Dialect {
                prefix: "bert.",
                drops: DROPS,
                ..Dialect::new(name, vec![HF_EMBEDDINGS, HF, HEADS])
            },
        })
    }
}

/// The number of types of tokens. In GGUF it is the tokenizer's, and the key has no architecture before it.
pub(super) const TYPES: Keys =
    Keys::new("token_types", &["tokenizer.ggml.token_type_count"], &["type_vocab_size"]);

/// Reads what BERT and its like say.
pub(super) fn config(r: &mut Reader) -> Config {
    const POSITIONS: Keys = Keys::new("positions", &[], &["position_embedding_type"]);
    let tied = r.tied(true);
    let common = DecoderKeys {
        norm_eps: Keys::new("norm_eps", &["attention.layer_norm_epsilon"], &["layer_norm_eps"]),
        norm_eps_absent: 1e-12,
        activation_absent: Activation::Gelu,
        causal: false,
        // transformers makes heads of the hidden size, whatever else there is.
        head_dim: Keys::new("head_dim", &["attention.key_length"], &[]),
        kv_heads: Keys::new("kv_heads", &["attention.head_count_kv"], &[]),
        ..DecoderKeys::LLAMA
    };
    let base = common.read(r);
    r.only(POSITIONS, "\"absolute\"", |fact| *fact == Fact::Str("absolute".to_owned()));
    r.only_flag(Keys::new("causal", &["attention.causal"], &["is_decoder"]), false);
    r.only_flag(Keys::new("cross_attention", &[], &["add_cross_attention"]), false);
    let token_types = r.count(TYPES, 1).unwrap_or(Field::default(2, OF_TRANSFORMERS));
    let labels = labels(r, &base);
    Config { tied, token_types, labels, ..base }
}

const LABELS: Keys = Keys::new("labels", &["classifier.output_labels"], &[]);
const POOLING: Keys = Keys::new("labels", &["pooling_type"], &[]);
/// `LLAMA_POOLING_TYPE_RANK`: texts are scored.
const RANK: u64 = 4;

/// The scores of a text. In GGUF they have names, which files of models that make vectors may have too: those say how to pool.
pub(super) fn labels(r: &mut Reader, base: &Config) -> Field<u64> {
    if r.dialect() != DialectName::Gguf {
        return base.labels.clone();
    }
    let pooling = r.count(POOLING, 0);
    match (r.fact(LABELS), pooling) {
        (_, Some(pooling)) if *pooling != RANK && *pooling > 0 => Field::default(0, "the file makes vectors"),
        (Some((key, Fact::List(names))), _) => Field { value: names.len() as u64, origin: Origin::Key(key) },
        (_, Some(Field { value: RANK, origin })) => Field { value: 1, origin },
        _ => Field::default(0, "none"),
    }
}

/// The head that scores texts, if there is one. In GGUF the file decides what of it there is.
pub(super) fn score(c: &Config, score: Score) -> Option<ScoreHead> {
    let head = ScoreHead::new(c, score)?;
    let of_gguf =
        |key: &str| [LABELS, POOLING].iter().any(|keys| keys.gguf.iter().any(|end| key.ends_with(end)));
    Some(match &c.labels.origin {
        Origin::Key(key) if of_gguf(key) => head.as_stored(),
        _ => head,
    })
}

/// The same as GGUF has it for `architecture`, which llama.cpp runs with `activation`.
///
/// Source: conversion/bert.py@0c1e57098, `BertModel`.
pub(super) fn describe_gguf(c: &Config, architecture: &str, activation: Activation) -> Description {
    let mut d = describe::gguf(c, architecture, "attention.layer_norm_epsilon", activation);
    d.flag(&format!("{architecture}.attention.causal"), false);
    // llama.cpp rejects a file without types of tokens, but not one without their vectors.
    d.count(TYPES.gguf[0], (*c.token_types).max(1));
    if *c.labels > 0 {
        let names = (0..*c.labels).map(|label| Fact::Str(format!("LABEL_{label}"))).collect();
        d.put(&format!("{architecture}.{}", LABELS.gguf[0]), Fact::List(names));
        d.count(&format!("{architecture}.{}", POOLING.gguf[0]), RANK);
        if *c.token_types > 1 {
            let what = "llama.cpp takes all tokens for the first type: every score of two texts differs";
            d.lose("type_vocab_size", "", what);
        }
    }
    d
}

/// The same as config.json of this class has it.
pub(super) fn describe_hf(c: &Config, class: &str, model_type: &str) -> Description {
    let mut d = Description::new(DialectName::Hf);
    describe::classifier(&mut d, c, class, model_type);
    d.text("hidden_act", c.activation.name());
    d.text("position_embedding_type", "absolute");
    d.count("hidden_size", *c.hidden);
    d.count("intermediate_size", *c.ffn);
    d.count("num_hidden_layers", *c.layers);
    d.count("num_attention_heads", *c.heads);
    d.count("vocab_size", *c.vocab);
    d.count("type_vocab_size", *c.token_types);
    d.count("max_position_embeddings", *c.context);
    d.number("layer_norm_eps", *c.norm_eps);
    d
}

/// Scores by the first token, as BERT and its like have it.
pub(super) const TANH: Score = Score { labels: 0, mean: false, activation: None };

#[derive(Module)]
struct BertModel {
    #[module(flatten)]
    encoder: Encoder,
    /// The layer that classifies by the first token, where nothing uses it.
    pooler: Option<Linear>,
    /// What does.
    score: Option<ScoreHead>,
    /// The layers before the output matrix.
    prediction: Prediction,
    output: Linear,
    next_sentence: Linear,
}

/// The layers of BERT.
pub(super) fn encoder(c: &Config) -> Encoder {
    typed(c, Encoder::new(c, Norm::layer, |n| block(c, attention(c, n))))
}

/// An encoder that does without vectors of types where a file in GGUF gives their number: llama.cpp takes none for zeros.
pub(super) fn typed(c: &Config, encoder: Encoder) -> Encoder {
    match &c.token_types.origin {
        Origin::Key(key) if TYPES.gguf.contains(&&**key) => encoder.with_optional_types(),
        _ => encoder,
    }
}

/// The attention of layer `n`.
pub(super) fn attention(c: &Config, n: u64) -> Attention {
    Attention::new(c, n, Bias::Yes, Bias::Yes)
}

/// A layer with this attention.
pub(super) fn block(c: &Config, attention: Attention) -> EncoderBlock {
    EncoderBlock::new(c, attention, Ffn::new(c, Bias::Yes))
}

/// The layers before the output matrix, in the head that predicts tokens.
#[derive(Module)]
pub(super) struct Prediction {
    dense: Linear,
    norm: LayerNorm,
}

impl Prediction {
    pub(super) fn new(c: &Config) -> Prediction {
        let hidden = Axis::Hidden.of(*c.hidden);
        let dense = Linear::new(hidden, *c.hidden).with_bias().optional();
        Prediction { dense, norm: LayerNorm::new(hidden).optional() }
    }
}

const HEAD: &str = "of a head, which llama.cpp's files of BERT are without";

pub(super) static WITHOUT: &[(&str, &str)] = &[
    ("pooler.{kind}", HEAD),
    ("prediction.{part}.{kind}", HEAD),
    ("output.bias", HEAD),
    ("next_sentence.{kind}", HEAD),
];

/// The dialect of `bert` in GGUF, which other families share.
pub(super) fn gguf() -> Dialect {
    let rules = vec![POSITIONS, GGUF, GGUF_SCORE, GGUF_DECODER, GGUF_QKV];
    Dialect { without: WITHOUT, ..Dialect::new(DialectName::Gguf, rules) }
}

static POSITIONS: &[Rule] = &[Rule::same("position_embedding.weight", "position_embd.weight")];

/// The head that scores texts.
pub(super) static GGUF_SCORE: &[Rule] = &[
    Rule::same("score.dense.weight", "cls.weight"),
    Rule::same("score.dense.bias", "cls.bias"),
    Rule::same("score.norm.weight", "cls.norm.weight"),
    Rule::same("score.norm.bias", "cls.norm.bias"),
    Rule::same("score.output.weight", "cls.output.weight"),
    Rule::same("score.output.bias", "cls.output.bias"),
];

/// The embeddings and norms, as llama.cpp has them for several architectures.
pub(super) static GGUF: &[Rule] = &[
    Rule::same("token_type_embedding.weight", "token_types.weight"),
    Rule::same("embedding_norm.weight", "token_embd_norm.weight"),
    Rule::same("embedding_norm.bias", "token_embd_norm.bias"),
    Rule::same("layers.{n}.attention_output_norm.weight", "blk.{n}.attn_output_norm.weight"),
    Rule::same("layers.{n}.attention_output_norm.bias", "blk.{n}.attn_output_norm.bias"),
    Rule::same("layers.{n}.output_norm.weight", "blk.{n}.layer_output_norm.weight"),
    Rule::same("layers.{n}.output_norm.bias", "blk.{n}.layer_output_norm.bias"),
];

pub(super) static DROPS: &[(&str, &str)] =
    &[("embeddings.position_ids", "the numbers from 0 on, a constant")];

/// The embeddings. The first files have TensorFlow's names of norms: `gamma` and `beta`.
pub(super) static HF_EMBEDDINGS: &[Rule] = &[
    Rule::same("token_embedding.weight", "embeddings.word_embeddings.weight"),
    Rule::same("position_embedding.weight", "embeddings.position_embeddings.weight"),
    Rule::same("token_type_embedding.weight", "embeddings.token_type_embeddings.weight"),
    Rule::same("embedding_norm.weight", "embeddings.LayerNorm.weight"),
    Rule::same("embedding_norm.weight", "embeddings.LayerNorm.gamma"),
    Rule::same("embedding_norm.bias", "embeddings.LayerNorm.bias"),
    Rule::same("embedding_norm.bias", "embeddings.LayerNorm.beta"),
];

/// The layers, with the same names of norms.
pub(super) static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention.q.weight", "encoder.layer.{n}.attention.self.query.weight"),
    Rule::same("layers.{n}.attention.q.bias", "encoder.layer.{n}.attention.self.query.bias"),
    Rule::same("layers.{n}.attention.k.weight", "encoder.layer.{n}.attention.self.key.weight"),
    Rule::same("layers.{n}.attention.k.bias", "encoder.layer.{n}.attention.self.key.bias"),
    Rule::same("layers.{n}.attention.v.weight", "encoder.layer.{n}.attention.self.value.weight"),
    Rule::same("layers.{n}.attention.v.bias", "encoder.layer.{n}.attention.self.value.bias"),
    Rule::same("layers.{n}.attention.output.weight", "encoder.layer.{n}.attention.output.dense.weight"),
    Rule::same("layers.{n}.attention.output.bias", "encoder.layer.{n}.attention.output.dense.bias"),
    Rule::same(
        "layers.{n}.attention_output_norm.weight",
        "encoder.layer.{n}.attention.output.LayerNorm.weight",
    ),
    Rule::same(
        "layers.{n}.attention_output_norm.weight",
        "encoder.layer.{n}.attention.output.LayerNorm.gamma",
    ),
    Rule::same("layers.{n}.attention_output_norm.bias", "encoder.layer.{n}.attention.output.LayerNorm.bias"),
    Rule::same("layers.{n}.attention_output_norm.bias", "encoder.layer.{n}.attention.output.LayerNorm.beta"),
    Rule::same("layers.{n}.ffn.up.weight", "encoder.layer.{n}.intermediate.dense.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "encoder.layer.{n}.intermediate.dense.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "encoder.layer.{n}.output.dense.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "encoder.layer.{n}.output.dense.bias"),
    Rule::same("layers.{n}.output_norm.weight", "encoder.layer.{n}.output.LayerNorm.weight"),
    Rule::same("layers.{n}.output_norm.weight", "encoder.layer.{n}.output.LayerNorm.gamma"),
    Rule::same("layers.{n}.output_norm.bias", "encoder.layer.{n}.output.LayerNorm.bias"),
    Rule::same("layers.{n}.output_norm.bias", "encoder.layer.{n}.output.LayerNorm.beta"),
    Rule::same("pooler.weight", "pooler.dense.weight"),
    Rule::same("pooler.bias", "pooler.dense.bias"),
];

/// The head that RoBERTa and MPNet have.
pub(super) static LM_HEAD: &[Rule] = &[
    Rule::unprefixed("prediction.dense.weight", "lm_head.dense.weight"),
    Rule::unprefixed("prediction.dense.bias", "lm_head.dense.bias"),
    Rule::unprefixed("prediction.norm.weight", "lm_head.layer_norm.weight"),
    Rule::unprefixed("prediction.norm.bias", "lm_head.layer_norm.bias"),
    Rule::unprefixed("output.weight", "lm_head.decoder.weight"),
    Rule::unprefixed("output.bias", "lm_head.bias"),
];

/// The head that scores texts, of RoBERTa and MPNet.
pub(super) static SCORE: &[Rule] = &[
    Rule::unprefixed("score.dense.weight", "classifier.dense.weight"),
    Rule::unprefixed("score.dense.bias", "classifier.dense.bias"),
    Rule::unprefixed("score.output.weight", "classifier.out_proj.weight"),
    Rule::unprefixed("score.output.bias", "classifier.out_proj.bias"),
];

static HEADS: &[Rule] = &[
    Rule::same("score.dense.weight", "pooler.dense.weight"),
    Rule::same("score.dense.bias", "pooler.dense.bias"),
    Rule::unprefixed("score.output.weight", "classifier.weight"),
    Rule::unprefixed("score.output.bias", "classifier.bias"),
    Rule::unprefixed("prediction.dense.weight", "cls.predictions.transform.dense.weight"),
    Rule::unprefixed("prediction.dense.bias", "cls.predictions.transform.dense.bias"),
    Rule::unprefixed("prediction.norm.weight", "cls.predictions.transform.LayerNorm.weight"),
    Rule::unprefixed("prediction.norm.weight", "cls.predictions.transform.LayerNorm.gamma"),
    Rule::unprefixed("prediction.norm.bias", "cls.predictions.transform.LayerNorm.bias"),
    Rule::unprefixed("prediction.norm.bias", "cls.predictions.transform.LayerNorm.beta"),
    Rule::unprefixed("output.weight", "cls.predictions.decoder.weight"),
    Rule::unprefixed("output.bias", "cls.predictions.bias"),
    Rule::unprefixed("next_sentence.weight", "cls.seq_relationship.weight"),
    Rule::unprefixed("next_sentence.bias", "cls.seq_relationship.bias"),
];

pub(super) static WITHOUT_EFFECT: &WithoutEffect = &[
    ("hidden_dropout_prob", "for training"),
    ("attention_probs_dropout_prob", "for training"),
    ("gradient_checkpointing", "for training"),
    ("pooler_*", "for another head"),
    ("directionality", "for another head"),
    ("rope_parameters*", "positions are learned"),
    ("rope_theta", "positions are learned"),
    ("partial_rotary_factor", "positions are learned"),
    ("pruned_heads*", "the shapes say it"),
    ("head_dim", "heads are parts of the hidden size"),
    ("num_key_value_heads", "each query head has a key head"),
];

pub(super) static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.pooling_type", "for the program that runs it"),
    ("*.classifier.output_labels", "for another head"),
    ("*.vocab_size", "the tokens say it"),
    ("tokenizer.ggml.token_type_count", "the shapes say it"),
    ("*.attention.key_length", "the shapes say it"),
    ("*.attention.value_length", "the shapes say it"),
];
