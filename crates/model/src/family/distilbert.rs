//! DistilBERT: BERT without types of tokens, with names of its own.
//!
//! Source: transformers `DistilBertModel` and `DistilBertForMaskedLM`@v5.23; conversion/bert.py@0c1e57098. llama.cpp has it as
//! `bert` without vectors of types: a file of that is read as BERT.

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Keys, Reader, WithoutEffect};
use crate::dialect::{Dialect, Rule};
use crate::ecosystem::DialectName;
use crate::module::{Linear, Module, Score};
use crate::param::Axis;

use super::Family;
use super::bert::{self, Prediction};
use super::blocks::{Encoder, ScoreHead};

/// The unit that stands for the family in the table.
pub(super) struct DistilBert;

impl Family for DistilBert {
    fn name(&self) -> &'static str {
        "distilbert"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &[]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification", "distilbert"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            layers: Keys::new("layers", &[], &["num_hidden_layers", "n_layers"]),
            hidden: Keys::new("hidden", &[], &["hidden_size", "dim"]),
            heads: Keys::new("heads", &[], &["num_attention_heads", "n_heads"]),
            kv_heads: Keys::new("kv_heads", &[], &[]),
            head_dim: Keys::new("head_dim", &[], &[]),
            ffn: Keys::new("ffn", &[], &["hidden_dim"]),
            activation: Keys::new("activation", &[], &["activation"]),
            activation_absent: Activation::Gelu,
            // No key gives it.
            norm_eps: Keys::new("norm_eps", &[], &[]),
            norm_eps_absent: 1e-12,
            causal: false,
            ..DecoderKeys::LLAMA
        };
        let tied = r.tied(true);
        Config { tied, ..common.read(r) }
    }

    fn describe(&self, c: &Config, dialect: DialectName, _: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = bert::describe_gguf(c, "bert", Activation::Gelu);
            if *c.labels > 0 {
                let what = "llama.cpp runs `tanh` after it, not `relu`: every score differs";
                d.lose("pre_classifier", "", what);
            }
            for field in ["family", "token_types"] {
                d.take_as_said(field);
            }
            return d;
        }
        let mut d = Description::new(DialectName::Hf);
        describe::classifier(&mut d, c, "DistilBert", "distilbert");
        d.text("activation", c.activation.name());
        d.count("dim", *c.hidden);
        d.count("hidden_dim", *c.ffn);
        d.count("n_layers", *c.layers);
        d.count("n_heads", *c.heads);
        d.count("vocab_size", *c.vocab);
        d.count("max_position_embeddings", *c.context);
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        Box::new(DistilBertModel {
            encoder: bert::encoder(c),
            score: ScoreHead::new(c, Score { activation: Some(Activation::Relu), ..bert::TANH }),
            prediction: Prediction::new(c),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
        })
    }

    fn without_effect(&self, _: DialectName) -> &'static WithoutEffect {
        WITHOUT_EFFECT
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => bert::gguf(),
            _ => Dialect {
                prefix: "distilbert.",
                drops: bert::DROPS,
                ..Dialect::new(name, vec![bert::HF_EMBEDDINGS, HF])
            },
        })
    }
}

#[derive(Module)]
struct DistilBertModel {
    #[module(flatten)]
    encoder: Encoder,
    score: Option<ScoreHead>,
    prediction: Prediction,
    output: Linear,
}

static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention.q.weight", "transformer.layer.{n}.attention.q_lin.weight"),
    Rule::same("layers.{n}.attention.q.bias", "transformer.layer.{n}.attention.q_lin.bias"),
    Rule::same("layers.{n}.attention.k.weight", "transformer.layer.{n}.attention.k_lin.weight"),
    Rule::same("layers.{n}.attention.k.bias", "transformer.layer.{n}.attention.k_lin.bias"),
    Rule::same("layers.{n}.attention.v.weight", "transformer.layer.{n}.attention.v_lin.weight"),
    Rule::same("layers.{n}.attention.v.bias", "transformer.layer.{n}.attention.v_lin.bias"),
    Rule::same("layers.{n}.attention.output.weight", "transformer.layer.{n}.attention.out_lin.weight"),
    Rule::same("layers.{n}.attention.output.bias", "transformer.layer.{n}.attention.out_lin.bias"),
    Rule::same("layers.{n}.attention_output_norm.weight", "transformer.layer.{n}.sa_layer_norm.weight"),
    Rule::same("layers.{n}.attention_output_norm.bias", "transformer.layer.{n}.sa_layer_norm.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "transformer.layer.{n}.ffn.lin1.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "transformer.layer.{n}.ffn.lin1.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "transformer.layer.{n}.ffn.lin2.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "transformer.layer.{n}.ffn.lin2.bias"),
    Rule::same("layers.{n}.output_norm.weight", "transformer.layer.{n}.output_layer_norm.weight"),
    Rule::same("layers.{n}.output_norm.bias", "transformer.layer.{n}.output_layer_norm.bias"),
    Rule::unprefixed("score.dense.weight", "pre_classifier.weight"),
    Rule::unprefixed("score.dense.bias", "pre_classifier.bias"),
    Rule::unprefixed("score.output.weight", "classifier.weight"),
    Rule::unprefixed("score.output.bias", "classifier.bias"),
    Rule::unprefixed("prediction.dense.weight", "vocab_transform.weight"),
    Rule::unprefixed("prediction.dense.bias", "vocab_transform.bias"),
    Rule::unprefixed("prediction.norm.weight", "vocab_layer_norm.weight"),
    Rule::unprefixed("prediction.norm.bias", "vocab_layer_norm.bias"),
    Rule::unprefixed("output.weight", "vocab_projector.weight"),
    Rule::unprefixed("output.bias", "vocab_projector.bias"),
];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("dropout", "for training"),
    ("qa_dropout", "for training"),
    ("seq_classif_dropout", "for training"),
    ("gradient_checkpointing", "for training"),
    ("sinusoidal_pos_embds", "the stored vectors of positions say it"),
    ("tie_weights_", "`tie_word_embeddings` says it"),
    ("output_past", "for the program that runs it"),
    ("rope_parameters*", "positions are learned"),
    ("rope_theta", "positions are learned"),
    ("partial_rotary_factor", "positions are learned"),
    ("pruned_heads*", "the shapes say it"),
    ("head_dim", "heads are parts of the hidden size"),
    ("num_key_value_heads", "each query head has a key head"),
];
