//! MPNet: BERT without types of tokens, whose scores have an addend for each distance and head, the same in all layers.
//!
//! Source: transformers `MPNetModel` and `MPNetForMaskedLM`@v5.23.

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::Description;
use crate::config::{Config, DecoderKeys, Field, Keys, OF_TRANSFORMERS, Reader, WithoutEffect};
use crate::dialect::{Dialect, Rule};
use crate::ecosystem::DialectName;
use crate::module::{Linear, Module, Relative};
use crate::param::Axis;

use super::Family;
use super::bert::{self, Prediction};
use super::blocks::{Encoder, Norm, ScoreHead};

/// The unit that stands for the family in the table.
pub(super) struct MpNet;

/// The number of rows that the table of addends has, in [`Config::own`].
const FIELD: &str = "relative_attention_num_buckets";

/// Kinds of distances that the reference tells apart, whatever the table has.
const BUCKETS: u64 = 32;
const FARTHEST: u64 = 128;

/// Where positions begin, whatever the configuration calls the padding token.
const PADDING: u64 = 1;

impl Family for MpNet {
    fn name(&self) -> &'static str {
        "mpnet"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &[]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification", "mpnet"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        const RELATIVE: Keys = Keys::new(FIELD, &[], &["relative_attention_num_buckets"]);
        let common = DecoderKeys {
            kv_heads: Keys::new("kv_heads", &[], &[]),
            head_dim: Keys::new("head_dim", &[], &[]),
            norm_eps: Keys::new("norm_eps", &[], &["layer_norm_eps"]),
            norm_eps_absent: 1e-12,
            activation_absent: Activation::Gelu,
            causal: false,
            ..DecoderKeys::LLAMA
        };
        let tied = r.tied(true);
        let mut c = common.read(r);
        let buckets = r.count(RELATIVE, BUCKETS).unwrap_or(Field::default(BUCKETS, OF_TRANSFORMERS));
        c.own.insert(FIELD, Field { value: *buckets as f64, origin: buckets.origin });
        Config { tied, padding: Field::default(Some(PADDING), "the family's"), ..c }
    }

    fn describe(&self, c: &Config, _: DialectName, _: &dyn Fn(&str) -> bool) -> Description {
        let mut d = bert::describe_hf(c, "MPNet", "mpnet");
        d.count("relative_attention_num_buckets", buckets(c));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let relative = Relative { buckets: BUCKETS, farthest: FARTHEST };
        let block = |n| bert::block(c, bert::attention(c, n).with_relative_bias(relative));
        Box::new(MpNetModel {
            encoder: Encoder::new(c, Norm::layer, block).with_relative_bias(c, buckets(c)),
            pooler: Linear::new(hidden, *c.hidden).with_bias().optional(),
            score: ScoreHead::new(c, bert::TANH),
            prediction: Prediction::new(c),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
        })
    }

    fn without_effect(&self, _: DialectName) -> &'static WithoutEffect {
        WITHOUT_EFFECT
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        (name == DialectName::Hf).then(|| Dialect {
            prefix: "mpnet.",
            drops: bert::DROPS,
            ..Dialect::new(name, vec![bert::HF_EMBEDDINGS, HF, bert::HF, bert::LM_HEAD, bert::SCORE])
        })
    }
}

/// Rows of the table of addends.
fn buckets(c: &Config) -> u64 {
    c.own.get(FIELD).map_or(BUCKETS, |rows| u64::try_from(**rows as i64).unwrap_or(0))
}

#[derive(Module)]
struct MpNetModel {
    #[module(flatten)]
    encoder: Encoder,
    /// The layer that classifies by the first token.
    pooler: Linear,
    score: Option<ScoreHead>,
    prediction: Prediction,
    output: Linear,
}

/// The rest is called as in BERT.
static HF: &[Rule] = &[
    Rule::same("relative_bias.weight", "encoder.relative_attention_bias.weight"),
    Rule::same("layers.{n}.attention.q.weight", "encoder.layer.{n}.attention.attn.q.weight"),
    Rule::same("layers.{n}.attention.q.bias", "encoder.layer.{n}.attention.attn.q.bias"),
    Rule::same("layers.{n}.attention.k.weight", "encoder.layer.{n}.attention.attn.k.weight"),
    Rule::same("layers.{n}.attention.k.bias", "encoder.layer.{n}.attention.attn.k.bias"),
    Rule::same("layers.{n}.attention.v.weight", "encoder.layer.{n}.attention.attn.v.weight"),
    Rule::same("layers.{n}.attention.v.bias", "encoder.layer.{n}.attention.attn.v.bias"),
    Rule::same("layers.{n}.attention.output.weight", "encoder.layer.{n}.attention.attn.o.weight"),
    Rule::same("layers.{n}.attention.output.bias", "encoder.layer.{n}.attention.attn.o.bias"),
    Rule::same("layers.{n}.attention_output_norm.weight", "encoder.layer.{n}.attention.LayerNorm.weight"),
    Rule::same("layers.{n}.attention_output_norm.bias", "encoder.layer.{n}.attention.LayerNorm.bias"),
];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("hidden_dropout_prob", "for training"),
    ("attention_probs_dropout_prob", "for training"),
    ("gradient_checkpointing", "for training"),
    ("type_vocab_size", "there are no types of tokens"),
    ("position_embedding_type", "positions are learned"),
    ("is_decoder", "the family says it"),
    ("add_cross_attention", "the family says it"),
    ("rope_parameters*", "positions are learned"),
    ("rope_theta", "positions are learned"),
    ("partial_rotary_factor", "positions are learned"),
    ("pruned_heads*", "the shapes say it"),
    ("head_dim", "heads are parts of the hidden size"),
    ("num_key_value_heads", "each query head has a key head"),
];
