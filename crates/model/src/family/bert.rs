//! BERT: an encoder with norms after attention and after the feed-forward network, and heads that a file may have.
//!
//! Source: transformers `BertModel`, `BertForMaskedLM` and `BertForPreTraining`@v4.57; conversion/bert.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/bert.py, v0.33.0.

use derive::Module;

use crate::Fact;
use crate::activation::Activation;
use crate::computes::{Branch, Computes, Encoder};
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Field, Keys, Reader, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, Rule};
use crate::ecosystem::DialectName;
use crate::module::{LayerNorm, Layers, Linear, Module, VocabParallelEmbedding};
use crate::param::Axis;

use super::Family;
use super::blocks::{Attention, Bias, Ffn};

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
        &["BertModel", "BertForMaskedLM", "BertForPreTraining", "bert"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        const POSITIONS: Keys = Keys::new("positions", &[], &["position_embedding_type"]);
        // Of the tokenizer in GGUF, where the key has no architecture before it.
        const TYPES: Keys =
            Keys::new("token_types", &["tokenizer.ggml.token_type_count"], &["type_vocab_size"]);
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
        let token_types = r.count(TYPES, 1).unwrap_or(Field::default(2, "of transformers"));
        Config { tied, token_types, ..base }
    }

    fn describe(&self, c: &Config, dialect: DialectName, _: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "bert", "attention.layer_norm_epsilon", Activation::Gelu);
            d.flag("bert.attention.causal", false);
            d.count("tokenizer.ggml.token_type_count", *c.token_types);
            return d;
        }
        let mut d = Description::new(DialectName::Hf);
        d.named("BertModel", "bert");
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

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let norm = || LayerNorm::new(hidden).with_eps(*c.norm_eps as f32);
        let block = |n| BertBlock {
            computes: residual(),
            attention: Attention::new(c, n, Bias::Yes, Bias::Yes).bidirectional(),
            attention_output_norm: norm(),
            ffn: Ffn::new(c, Bias::Yes),
            output_norm: norm(),
        };
        let encoder = Encoder { vocab: *c.vocab, hidden: *c.hidden, context: *c.context, layers: *c.layers };
        let head = |outputs: u64| Linear::new(hidden, outputs).with_bias().optional();
        Box::new(BertModel {
            computes: Computes::Encoder(encoder),
            token_embedding: VocabParallelEmbedding::new(*c.vocab, hidden),
            // Divided as vLLM does it, vllm/model_executor/models/bert.py, `BertEmbedding`.
            position_embedding: VocabParallelEmbedding::new(*c.context, hidden),
            token_type_embedding: VocabParallelEmbedding::new(*c.token_types, hidden),
            embedding_norm: norm(),
            layers: Layers((0..*c.layers).map(block).collect()),
            pooler: head(*c.hidden),
            prediction: Prediction { dense: head(*c.hidden), norm: LayerNorm::new(hidden).optional() },
            // Whole on every rank: vLLM's is a plain linear.
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight").with_optional_bias(),
            next_sentence: head(2),
        })
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_WITHOUT_EFFECT,
            DialectName::Hf => WITHOUT_EFFECT,
        }
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => {
                Dialect { without: WITHOUT, ..Dialect::new(name, vec![GGUF, GGUF_DECODER, GGUF_QKV]) }
            }
            DialectName::Hf => Dialect { prefix: "bert.", drops: DROPS, ..Dialect::new(name, vec![HF]) },
        })
    }
}

#[derive(Module)]
struct BertModel {
    #[module(flatten)]
    computes: Computes,
    token_embedding: VocabParallelEmbedding,
    position_embedding: VocabParallelEmbedding,
    token_type_embedding: VocabParallelEmbedding,
    embedding_norm: LayerNorm,
    layers: Layers<BertBlock>,
    /// The layer that classifies by the first token.
    pooler: Linear,
    /// The layers before the output matrix.
    prediction: Prediction,
    output: Linear,
    next_sentence: Linear,
}

/// Norms stand after the sums.
fn residual() -> Computes {
    let branch = |layer, sum_norm| Branch {
        norm: None,
        layer,
        post_norm: None,
        scale: 1.0,
        sum_norm: Some(sum_norm),
        parallel: false,
    };
    Computes::Residual(vec![branch("attention", "attention_output_norm"), branch("ffn", "output_norm")])
}

#[derive(Module)]
struct BertBlock {
    #[module(flatten)]
    computes: Computes,
    attention: Attention,
    attention_output_norm: LayerNorm,
    ffn: Ffn,
    output_norm: LayerNorm,
}

#[derive(Module)]
struct Prediction {
    dense: Linear,
    norm: LayerNorm,
}

const HEAD: &str = "of a head, which llama.cpp's files of BERT are without";

static WITHOUT: &[(&str, &str)] = &[
    ("pooler.{kind}", HEAD),
    ("prediction.{part}.{kind}", HEAD),
    ("output.bias", HEAD),
    ("next_sentence.{kind}", HEAD),
];

static GGUF: &[Rule] = &[
    Rule::same("position_embedding.weight", "position_embd.weight"),
    Rule::same("token_type_embedding.weight", "token_types.weight"),
    Rule::same("embedding_norm.weight", "token_embd_norm.weight"),
    Rule::same("embedding_norm.bias", "token_embd_norm.bias"),
    Rule::same("layers.{n}.attention_output_norm.weight", "blk.{n}.attn_output_norm.weight"),
    Rule::same("layers.{n}.attention_output_norm.bias", "blk.{n}.attn_output_norm.bias"),
    Rule::same("layers.{n}.output_norm.weight", "blk.{n}.layer_output_norm.weight"),
    Rule::same("layers.{n}.output_norm.bias", "blk.{n}.layer_output_norm.bias"),
];

static DROPS: &[(&str, &str)] = &[("embeddings.position_ids", "the numbers from 0 on, a constant")];

/// The first files have TensorFlow's names of norms: `gamma` and `beta`.
static HF: &[Rule] = &[
    Rule::same("token_embedding.weight", "embeddings.word_embeddings.weight"),
    Rule::same("position_embedding.weight", "embeddings.position_embeddings.weight"),
    Rule::same("token_type_embedding.weight", "embeddings.token_type_embeddings.weight"),
    Rule::same("embedding_norm.weight", "embeddings.LayerNorm.weight"),
    Rule::same("embedding_norm.weight", "embeddings.LayerNorm.gamma"),
    Rule::same("embedding_norm.bias", "embeddings.LayerNorm.bias"),
    Rule::same("embedding_norm.bias", "embeddings.LayerNorm.beta"),
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

static WITHOUT_EFFECT: &WithoutEffect = &[
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

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.pooling_type", "for the program that runs it"),
    ("*.vocab_size", "the tokens say it"),
    ("tokenizer.ggml.token_type_count", "the shapes say it"),
    ("*.attention.key_length", "the shapes say it"),
    ("*.attention.value_length", "the shapes say it"),
];
