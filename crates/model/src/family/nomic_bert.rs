//! NomicBERT: BERT with rotary positions, a gated feed-forward network, and no biases but those of norms.
//!
//! Source: transformers `NomicBertModel`, `NomicBertForMaskedLM` and conversion_mapping.py@v5.23; conversion/bert.py and
//! src/models/nomic-bert.cpp@0c1e57098.

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Field, Keys, OF_TRANSFORMERS, Reader, Rotary, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, Rule, rows_k, rows_q, rows_v};
use crate::ecosystem::DialectName;
use crate::module::{Linear, Module};
use crate::param::Axis;

use super::Family;
use super::bert::{self, Prediction};
use super::blocks::{Attention, Bias, Encoder, EncoderBlock, GatedFfn, Norm};

/// The unit that stands for the family in the table.
pub(super) struct NomicBert;

impl Family for NomicBert {
    fn name(&self) -> &'static str {
        "nomic_bert"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["nomic-bert"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["NomicBertModel", "NomicBertForMaskedLM", "nomic_bert"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            kv_heads: Keys::new("kv_heads", &["attention.head_count_kv"], &[]),
            norm_eps: Keys::new("norm_eps", &["attention.layer_norm_epsilon"], &["layer_norm_eps"]),
            norm_eps_absent: 1e-12,
            rotary: Rotary { theta: 1000.0, ..Rotary::PLAIN },
            activation_absent: Activation::Silu,
            causal: false,
            ..DecoderKeys::LLAMA
        };
        let tied = r.tied(true);
        let base = common.read(r);
        r.only_flag(Keys::new("causal", &["attention.causal"], &[]), false);
        let token_types = r.count(bert::TYPES, 1).unwrap_or(Field::default(2, OF_TRANSFORMERS));
        Config { tied, token_types, ..base }
    }

    fn describe(&self, c: &Config, dialect: DialectName, _: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = bert::describe_gguf(c, "nomic-bert", Activation::Silu);
            describe::gguf_rotary(&mut d, c, "nomic-bert");
            return d;
        }
        let mut d = bert::describe_hf(c, "NomicBert", "nomic_bert");
        d.count("head_dim", *c.head_dim);
        // Null is no number to this class.
        d.count("pad_token_id", 0);
        d.number("rope_theta", *c.rope_theta);
        describe::rope_scaling(&mut d, c);
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let block = |n| {
            let attention = Attention::new(c, n, Bias::No, Bias::No).rotary(c, n);
            EncoderBlock::new(c, attention, GatedFfn::new(c, *c.ffn, Bias::No))
        };
        Box::new(NomicBertModel {
            encoder: bert::typed(c, Encoder::new(c, Norm::layer, block).without_positions()),
            prediction: Prediction::new(c),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
        })
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => bert::GGUF_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect {
                without: bert::WITHOUT,
                ..Dialect::new(name, vec![GGUF, bert::GGUF, GGUF_DECODER, GGUF_QKV])
            },
            _ => Dialect {
                prefix: "nomic_bert.",
                drops: bert::DROPS,
                ..Dialect::new(name, vec![HF, bert::HF_EMBEDDINGS])
            },
        })
    }
}

#[derive(Module)]
struct NomicBertModel {
    #[module(flatten)]
    encoder: Encoder,
    prediction: Prediction,
    output: Linear,
}

/// Queries, keys and values are one tensor, or three as in other architectures.
static GGUF: &[Rule] = &[
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_qkv.weight", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_qkv.weight", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "blk.{n}.attn_qkv.weight", rows_v),
];

/// Files have the first names of each; in transformers the modules have the others.
static HF: &[Rule] = &[
    Rule::same("embedding_norm.weight", "emb_ln.weight"),
    Rule::same("embedding_norm.bias", "emb_ln.bias"),
    Rule::with("layers.{n}.attention.q.weight", "encoder.layers.{n}.attn.Wqkv.weight", rows_q),
    Rule::same("layers.{n}.attention.q.weight", "layers.{n}.self_attn.q_proj.weight"),
    Rule::with("layers.{n}.attention.k.weight", "encoder.layers.{n}.attn.Wqkv.weight", rows_k),
    Rule::same("layers.{n}.attention.k.weight", "layers.{n}.self_attn.k_proj.weight"),
    Rule::with("layers.{n}.attention.v.weight", "encoder.layers.{n}.attn.Wqkv.weight", rows_v),
    Rule::same("layers.{n}.attention.v.weight", "layers.{n}.self_attn.v_proj.weight"),
    Rule::same("layers.{n}.attention.output.weight", "encoder.layers.{n}.attn.out_proj.weight"),
    Rule::same("layers.{n}.attention.output.weight", "layers.{n}.self_attn.o_proj.weight"),
    Rule::same("layers.{n}.attention_output_norm.weight", "encoder.layers.{n}.norm1.weight"),
    Rule::same("layers.{n}.attention_output_norm.weight", "layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.attention_output_norm.bias", "encoder.layers.{n}.norm1.bias"),
    Rule::same("layers.{n}.attention_output_norm.bias", "layers.{n}.post_attention_layernorm.bias"),
    Rule::same("layers.{n}.ffn.gate.weight", "encoder.layers.{n}.mlp.fc12.weight"),
    Rule::same("layers.{n}.ffn.gate.weight", "layers.{n}.mlp.gate_proj.weight"),
    Rule::same("layers.{n}.ffn.up.weight", "encoder.layers.{n}.mlp.fc11.weight"),
    Rule::same("layers.{n}.ffn.up.weight", "layers.{n}.mlp.up_proj.weight"),
    Rule::same("layers.{n}.ffn.down.weight", "encoder.layers.{n}.mlp.fc2.weight"),
    Rule::same("layers.{n}.ffn.down.weight", "layers.{n}.mlp.down_proj.weight"),
    Rule::same("layers.{n}.output_norm.weight", "encoder.layers.{n}.norm2.weight"),
    Rule::same("layers.{n}.output_norm.weight", "layers.{n}.post_mlp_layernorm.weight"),
    Rule::same("layers.{n}.output_norm.bias", "encoder.layers.{n}.norm2.bias"),
    Rule::same("layers.{n}.output_norm.bias", "layers.{n}.post_mlp_layernorm.bias"),
    Rule::unprefixed("prediction.dense.weight", "cls.predictions.transform.dense.weight"),
    Rule::unprefixed("prediction.dense.bias", "cls.predictions.transform.dense.bias"),
    Rule::unprefixed("prediction.norm.weight", "cls.predictions.transform.layer_norm.weight"),
    Rule::unprefixed("prediction.norm.bias", "cls.predictions.transform.layer_norm.bias"),
    Rule::unprefixed("output.weight", "cls.predictions.decoder.weight"),
    Rule::unprefixed("output.bias", "cls.predictions.bias"),
];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("hidden_dropout_prob", "for training"),
    ("attention_probs_dropout_prob", "for training"),
    ("gradient_checkpointing", "for training"),
    ("position_embedding_type", "positions are rotary"),
    ("num_key_value_heads", "each query head has a key head"),
    ("is_decoder", "the family says it"),
    ("add_cross_attention", "the family says it"),
];
