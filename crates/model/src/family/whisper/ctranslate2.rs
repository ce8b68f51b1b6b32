//! Whisper in CTranslate2: projections that read the same are one matrix, and keys have a bias of zeros there.
//!
//! Source: python/ctranslate2/specs/whisper_spec.py, transformer_spec.py and converters/transformers.py (`WhisperLoader`,
//! `BartLoader.set_attention`) of CTranslate2 4.8.5.

use tensor::Expr;

use crate::config::describe::Description;
use crate::config::{Config, Encoder, WithoutEffect};
use crate::dialect::{Rule, Zeros};
use crate::ecosystem::DialectName;
use crate::facts::Fact;

/// The name of its specification.
pub(super) static SPEC: &[&str] = &["WhisperSpec"];

/// The attributes, and what shapes and names of variables say.
pub(super) fn describe(c: &Config, encoder: &Encoder) -> Description {
    let mut d = Description::new(DialectName::Ctranslate2);
    d.text("spec", SPEC[0]);
    for (keys, value) in super::FIXED {
        keys.ctranslate2.iter().for_each(|key| d.count(key, *value));
    }
    // As `TransformerDecoderSpec` has them. Whisper does without.
    d.count("decoder/alibi_use_positive_positions", 0);
    d.count("decoder/scale_alibi", 0);
    d.count("decoder/alignment_heads", 1);
    d.put("decoder/alignment_layer", Fact::Number(-1.0));
    d.count("decoder/num_heads", *c.heads);
    d.count("encoder/num_heads", *encoder.heads);
    d.count("decoder/layer_*", *c.layers);
    d.count("encoder/layer_*", *encoder.layers);
    d.count("decoder/embeddings/weight[0]", *c.vocab);
    d.count("decoder/embeddings/weight[1]", *c.hidden);
    d.count("decoder/layer_0/ffn/linear_0/weight[0]", *c.ffn);
    d.count("decoder/position_encodings/encodings[0]", *c.context);
    d.count("encoder/layer_0/ffn/linear_0/weight[0]", *encoder.ffn);
    d.count("encoder/position_encodings/encodings[0]", *encoder.context);
    d.count("encoder/conv1/weight[1]", *encoder.mels);
    d
}

/// Part `I`, counted from 0, of matrices or biases that are one below the other, each of the width of the residual stream.
fn part<const I: u64>(joined: Expr, c: &Config, _: usize) -> Expr {
    joined.slice(0, I * *c.hidden..(I + 1) * *c.hidden)
}

pub(super) static RULES: &[Rule] = &[
    Rule::same("enc.conv1.weight", "encoder/conv1/weight"),
    Rule::same("enc.conv1.bias", "encoder/conv1/bias"),
    Rule::same("enc.conv2.weight", "encoder/conv2/weight"),
    Rule::same("enc.conv2.bias", "encoder/conv2/bias"),
    Rule::same("enc.position_embedding.weight", "encoder/position_encodings/encodings"),
    Rule::same("enc.layers.{n}.attention_norm.weight", "encoder/layer_{n}/self_attention/layer_norm/gamma"),
    Rule::same("enc.layers.{n}.attention_norm.bias", "encoder/layer_{n}/self_attention/layer_norm/beta"),
    Rule::with(
        "enc.layers.{n}.attention.q.weight",
        "encoder/layer_{n}/self_attention/linear_0/weight",
        part::<0>,
    ),
    Rule::with(
        "enc.layers.{n}.attention.q.bias",
        "encoder/layer_{n}/self_attention/linear_0/bias",
        part::<0>,
    ),
    Rule::with(
        "enc.layers.{n}.attention.k.weight",
        "encoder/layer_{n}/self_attention/linear_0/weight",
        part::<1>,
    ),
    Rule::with(
        "enc.layers.{n}.attention.v.weight",
        "encoder/layer_{n}/self_attention/linear_0/weight",
        part::<2>,
    ),
    Rule::with(
        "enc.layers.{n}.attention.v.bias",
        "encoder/layer_{n}/self_attention/linear_0/bias",
        part::<2>,
    ),
    Rule::same("enc.layers.{n}.attention.output.weight", "encoder/layer_{n}/self_attention/linear_1/weight"),
    Rule::same("enc.layers.{n}.attention.output.bias", "encoder/layer_{n}/self_attention/linear_1/bias"),
    Rule::same("enc.layers.{n}.ffn_norm.weight", "encoder/layer_{n}/ffn/layer_norm/gamma"),
    Rule::same("enc.layers.{n}.ffn_norm.bias", "encoder/layer_{n}/ffn/layer_norm/beta"),
    Rule::same("enc.layers.{n}.ffn.up.weight", "encoder/layer_{n}/ffn/linear_0/weight"),
    Rule::same("enc.layers.{n}.ffn.up.bias", "encoder/layer_{n}/ffn/linear_0/bias"),
    Rule::same("enc.layers.{n}.ffn.down.weight", "encoder/layer_{n}/ffn/linear_1/weight"),
    Rule::same("enc.layers.{n}.ffn.down.bias", "encoder/layer_{n}/ffn/linear_1/bias"),
    Rule::same("enc.output_norm.weight", "encoder/layer_norm/gamma"),
    Rule::same("enc.output_norm.bias", "encoder/layer_norm/beta"),
    Rule::same("token_embedding.weight", "decoder/embeddings/weight"),
    Rule::same("position_embedding.weight", "decoder/position_encodings/encodings"),
    Rule::same("layers.{n}.attention_norm.weight", "decoder/layer_{n}/self_attention/layer_norm/gamma"),
    Rule::same("layers.{n}.attention_norm.bias", "decoder/layer_{n}/self_attention/layer_norm/beta"),
    Rule::with(
        "layers.{n}.attention.q.weight",
        "decoder/layer_{n}/self_attention/linear_0/weight",
        part::<0>,
    ),
    Rule::with("layers.{n}.attention.q.bias", "decoder/layer_{n}/self_attention/linear_0/bias", part::<0>),
    Rule::with(
        "layers.{n}.attention.k.weight",
        "decoder/layer_{n}/self_attention/linear_0/weight",
        part::<1>,
    ),
    Rule::with(
        "layers.{n}.attention.v.weight",
        "decoder/layer_{n}/self_attention/linear_0/weight",
        part::<2>,
    ),
    Rule::with("layers.{n}.attention.v.bias", "decoder/layer_{n}/self_attention/linear_0/bias", part::<2>),
    Rule::same("layers.{n}.attention.output.weight", "decoder/layer_{n}/self_attention/linear_1/weight"),
    Rule::same("layers.{n}.attention.output.bias", "decoder/layer_{n}/self_attention/linear_1/bias"),
    Rule::same("layers.{n}.cross_attn_norm.weight", "decoder/layer_{n}/attention/layer_norm/gamma"),
    Rule::same("layers.{n}.cross_attn_norm.bias", "decoder/layer_{n}/attention/layer_norm/beta"),
    Rule::same("layers.{n}.cross_attn.q.weight", "decoder/layer_{n}/attention/linear_0/weight"),
    Rule::same("layers.{n}.cross_attn.q.bias", "decoder/layer_{n}/attention/linear_0/bias"),
    Rule::with("layers.{n}.cross_attn.k.weight", "decoder/layer_{n}/attention/linear_1/weight", part::<0>),
    Rule::with("layers.{n}.cross_attn.v.weight", "decoder/layer_{n}/attention/linear_1/weight", part::<1>),
    Rule::with("layers.{n}.cross_attn.v.bias", "decoder/layer_{n}/attention/linear_1/bias", part::<1>),
    Rule::same("layers.{n}.cross_attn.output.weight", "decoder/layer_{n}/attention/linear_2/weight"),
    Rule::same("layers.{n}.cross_attn.output.bias", "decoder/layer_{n}/attention/linear_2/bias"),
    Rule::same("layers.{n}.ffn_norm.weight", "decoder/layer_{n}/ffn/layer_norm/gamma"),
    Rule::same("layers.{n}.ffn_norm.bias", "decoder/layer_{n}/ffn/layer_norm/beta"),
    Rule::same("layers.{n}.ffn.up.weight", "decoder/layer_{n}/ffn/linear_0/weight"),
    Rule::same("layers.{n}.ffn.up.bias", "decoder/layer_{n}/ffn/linear_0/bias"),
    Rule::same("layers.{n}.ffn.down.weight", "decoder/layer_{n}/ffn/linear_1/weight"),
    Rule::same("layers.{n}.ffn.down.bias", "decoder/layer_{n}/ffn/linear_1/bias"),
    Rule::same("output_norm.weight", "decoder/layer_norm/gamma"),
    Rule::same("output_norm.bias", "decoder/layer_norm/beta"),
    Rule::same("output.weight", "decoder/projection/weight"),
];

/// The bias of keys.
pub(super) static ZEROS: &[Zeros] = &[
    Zeros { entry: "encoder/layer_{n}/self_attention/linear_0/bias", part: 1, of: 3 },
    Zeros { entry: "decoder/layer_{n}/self_attention/linear_0/bias", part: 1, of: 3 },
    Zeros { entry: "decoder/layer_{n}/attention/linear_1/bias", part: 0, of: 2 },
];

pub(super) static WITHOUT_EFFECT: &WithoutEffect = &[
    ("decoder/alignment_heads", "config.json lists the heads for the times of words"),
    ("decoder/alignment_layer", "config.json lists the heads for the times of words"),
    ("decoder/alibi_use_positive_positions", "positions are learned"),
    ("decoder/scale_alibi", "positions are learned"),
    ("alignment_heads", "for the times of words"),
    ("lang_ids", "for the program that runs it"),
    ("suppress_ids", "for sampling"),
    ("suppress_ids_begin", "for sampling"),
    ("add_source_*", "the program that runs it gives the tokens"),
    ("bos_token", "the vocabulary says it"),
    ("eos_token", "the vocabulary says it"),
    ("unk_token", "the vocabulary says it"),
];
