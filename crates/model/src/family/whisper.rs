//! Whisper: an encoder of sound, and a decoder whose layers look at it. No key of it has a bias.
//!
//! llama.cpp has no such architecture; whisper.cpp has a format of its own.
//!
//! One model has several forms: transformers', CTranslate2's, and OpenAI's own, which whisper.cpp keeps.
//!
//! Source: transformers `WhisperForConditionalGeneration`@v4.57; vllm/model_executor/models/whisper.py, v0.33.0.

mod ctranslate2;
mod hf;
mod openai;

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::Description;
use crate::config::{Config, DecoderKeys, Encoder, Field, Keys, Reader, WithoutEffect};
use crate::dialect::Dialect;
use crate::ecosystem::DialectName;
use crate::facts::Fact;
use crate::module::{
    self, AudioEncoder, Branch, ColumnParallelLinear, Computes, Embedding, FusedPart, LayerNorm, Layers,
    Linear, MergedColumnParallelLinear, Module, RowParallelLinear, Table,
};
use crate::param::Axis;

use super::Family;
use super::blocks::{Attention, Bias, Ffn};

/// The unit that stands for the family in the table.
pub(super) struct Whisper;

const LAYERS: Keys = Keys::new("layers", &[], &["decoder_layers"])
    .in_ctranslate2(&["decoder/layer_*"])
    .in_openai(&["n_text_layer"]);
const HIDDEN: Keys = Keys::new("hidden", &[], &["d_model"])
    .in_ctranslate2(&["decoder/embeddings/weight[1]"])
    .in_openai(&["n_text_state", "n_audio_state"]);
const HEADS: Keys = Keys::new("heads", &[], &["decoder_attention_heads"])
    .in_ctranslate2(&["decoder/num_heads"])
    .in_openai(&["n_text_head"]);
const FFN: Keys =
    Keys::new("ffn", &[], &["decoder_ffn_dim"]).in_ctranslate2(&["decoder/layer_0/ffn/linear_0/weight[0]"]);
const CONTEXT: Keys = Keys::new("context", &[], &["max_target_positions"])
    .in_ctranslate2(&["decoder/position_encodings/encodings[0]"])
    .in_openai(&["n_text_ctx"]);
const NONE: Keys = Keys::new("kv_heads", &[], &[]);

/// Attributes of CTranslate2's decoders that have one value in every Whisper; the activation is `Activation::GELU`.
static FIXED: &[(Keys, u64)] = &[
    (Keys::new("revision", &[], &[]).in_ctranslate2(&["revision"]), 3),
    (Keys::new("activation", &[], &[]).in_ctranslate2(&["decoder/activation"]), 3),
    (Keys::new("pre_norm", &[], &[]).in_ctranslate2(&["decoder/pre_norm"]), 1),
    (Keys::new("alibi", &[], &[]).in_ctranslate2(&["decoder/alibi"]), 0),
    (Keys::new("embedding_scale", &[], &[]).in_ctranslate2(&["decoder/scale_embeddings"]), 0),
    (Keys::new("zero_start", &[], &[]).in_ctranslate2(&["decoder/start_from_zero_embedding"]), 0),
];

impl Family for Whisper {
    fn name(&self) -> &'static str {
        "whisper"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &[]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["WhisperForConditionalGeneration", "WhisperModel", "whisper"]
    }

    fn elsewhere(&self, dialect: DialectName) -> &'static [&'static str] {
        match dialect {
            DialectName::Ctranslate2 => ctranslate2::SPEC,
            DialectName::Openai => openai::ARCHITECTURE,
            DialectName::Gguf | DialectName::Hf => &[],
        }
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            layers: LAYERS,
            hidden: HIDDEN,
            heads: HEADS,
            kv_heads: NONE,
            ffn: FFN,
            context: CONTEXT,
            activation: Keys::new("activation", &[], &["activation_function"]),
            activation_absent: Activation::Gelu,
            // Of torch: no key gives it.
            norm_eps: Keys::new("norm_eps", &[], &[]),
            norm_eps_absent: 1e-5,
            head_dim: Keys::new("head_dim", &[], &[]),
            // OpenAI's code says it.
            ffn_by_hidden: (r.dialect() == DialectName::Openai).then_some(4),
            causal: false,
            ..DecoderKeys::LLAMA
        };
        for (keys, wanted) in FIXED {
            r.only(*keys, &wanted.to_string(), |fact| *fact == Fact::Count(*wanted));
        }
        r.one_value(HIDDEN);
        let tied = r.tied(true);
        let hidden = r.count(HIDDEN, 1).map_or(1, |hidden| *hidden);
        let encoder = Some(Encoder::read(r, hidden));
        r.only_flag(Keys::new("embedding_scale", &[], &["scale_embedding"]), false);
        Config { tied, encoder, ..common.read(r) }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let Some(encoder) = &c.encoder else { return Description::new(dialect) };
        match dialect {
            DialectName::Gguf => Description::new(dialect),
            DialectName::Hf => hf::describe(c, encoder, own),
            DialectName::Ctranslate2 => ctranslate2::describe(c, encoder),
            DialectName::Openai => openai::describe(c, encoder),
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let block = |n| DecoderBlock {
            computes: residual(&[
                ("attention_norm", "attention"),
                ("cross_attn_norm", "cross_attn"),
                ("ffn_norm", "ffn"),
            ]),
            attention_norm: norm(c),
            attention: Attention::new(c, n, Bias::Yes, Bias::Yes).without_key_bias(),
            cross_attn_norm: norm(c),
            cross_attn: CrossAttention::new(c),
            ffn_norm: norm(c),
            ffn: Ffn::new(c, Bias::Yes),
        };
        let computes = module::Decoder {
            vocab: *c.vocab,
            hidden: *c.hidden,
            context: *c.context,
            layers: *c.layers,
            logit_divisor: None,
            logit_soft_cap: None,
        };
        Box::new(WhisperModel {
            computes: Computes::Decoder(computes),
            enc: c.encoder.as_ref().map(|encoder| EncoderModel::new(c, encoder)),
            token_embedding: Embedding::new(*c.vocab, hidden),
            position_embedding: Embedding::new(Axis::Position.of(*c.context), hidden),
            layers: Layers((0..*c.layers).map(block).collect()),
            output_norm: norm(c),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight"),
        })
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf | DialectName::Hf => hf::WITHOUT_EFFECT,
            DialectName::Ctranslate2 => ctranslate2::WITHOUT_EFFECT,
            DialectName::Openai => &[],
        }
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        match name {
            DialectName::Gguf => None,
            DialectName::Hf => Some(Dialect { prefix: "model.", ..Dialect::new(name, vec![hf::RULES]) }),
            DialectName::Ctranslate2 => {
                Some(Dialect { zeros: ctranslate2::ZEROS, ..Dialect::new(name, vec![ctranslate2::RULES]) })
            }
            DialectName::Openai => Some(Dialect {
                drops: openai::DROPS,
                without: &[("output.weight", "it is the token embedding")],
                ..Dialect::new(name, vec![openai::RULES])
            }),
        }
    }
}

#[derive(Module)]
struct WhisperModel {
    #[module(flatten)]
    computes: Computes,
    enc: Option<EncoderModel>,
    /// Whole on every rank, as vLLM has it.
    token_embedding: Embedding,
    position_embedding: Embedding,
    layers: Layers<DecoderBlock>,
    output_norm: LayerNorm,
    output: Linear,
}

fn norm(c: &Config) -> LayerNorm {
    LayerNorm::new(Axis::Hidden.of(*c.hidden)).with_eps(*c.norm_eps as f32)
}

/// Each layer after its norm, added to the residual stream.
fn residual(steps: &[(&'static str, &'static str)]) -> Computes {
    let branch = |(norm, layer): &(&'static str, &'static str)| Branch {
        norm: Some(*norm),
        layer,
        post_norm: None,
        scale: 1.0,
        sum_norm: None,
        parallel: false,
    };
    Computes::Residual(steps.iter().map(branch).collect())
}

#[derive(Module)]
struct DecoderBlock {
    #[module(flatten)]
    computes: Computes,
    attention_norm: LayerNorm,
    attention: Attention,
    cross_attn_norm: LayerNorm,
    cross_attn: CrossAttention,
    ffn_norm: LayerNorm,
    ffn: Ffn,
}

/// Attention whose keys and values are of the encoder.
#[derive(Module)]
struct CrossAttention {
    #[module(flatten)]
    computes: Computes,
    q: ColumnParallelLinear,
    kv: MergedColumnParallelLinear,
    output: RowParallelLinear,
}

impl CrossAttention {
    fn new(c: &Config) -> CrossAttention {
        let (hidden, heads) = (Axis::Hidden.of(*c.hidden), Axis::Heads.of_units(*c.heads, *c.head_dim));
        let parts = [FusedPart::new("k", heads).without_bias(), FusedPart::new("v", heads)];
        CrossAttention {
            computes: Computes::CrossAttention(module::CrossAttention {
                heads: *c.heads,
                head_dim: *c.head_dim,
                scale: *c.attention_scale as f32,
            }),
            q: ColumnParallelLinear::new(hidden, heads).with_bias(),
            kv: MergedColumnParallelLinear::new(hidden, parts).with_bias(),
            output: RowParallelLinear::new(heads, hidden).with_bias(),
        }
    }
}

#[derive(Module)]
struct EncoderModel {
    #[module(flatten)]
    computes: Computes,
    conv1: Convolution,
    conv2: Convolution,
    position_embedding: Embedding,
    /// All of them before the first layer of the decoder.
    layers: Vec<EncoderBlock>,
    output_norm: LayerNorm,
}

impl EncoderModel {
    fn new(c: &Config, encoder: &Encoder) -> EncoderModel {
        let hidden = Axis::Hidden.of(*c.hidden);
        let head_dim = (*c.hidden / *encoder.heads).max(1);
        let own = Config {
            heads: encoder.heads.clone(),
            kv_heads: encoder.heads.clone(),
            head_dim: Field::default(head_dim, "hidden / heads"),
            attention_scale: Field::default((head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)"),
            ffn: encoder.ffn.clone(),
            ..c.clone()
        };
        let block = |n| EncoderBlock {
            computes: residual(&[("attention_norm", "attention"), ("ffn_norm", "ffn")]),
            attention_norm: norm(c),
            attention: Attention::new(&own, n, Bias::Yes, Bias::Yes).without_key_bias().bidirectional(),
            ffn_norm: norm(c),
            ffn: Ffn::new(&own, Bias::Yes),
        };
        let computes =
            AudioEncoder { mels: *encoder.mels, context: *encoder.context, layers: *encoder.layers };
        EncoderModel {
            computes: Computes::AudioEncoder(computes),
            conv1: Convolution::new(*encoder.mels, *c.hidden),
            conv2: Convolution::new(*c.hidden, *c.hidden),
            position_embedding: Embedding::new(Axis::Position.of(*encoder.context), hidden),
            layers: (0..*encoder.layers).map(block).collect(),
            output_norm: norm(c),
        }
    }
}

#[derive(Module)]
struct EncoderBlock {
    #[module(flatten)]
    computes: Computes,
    attention_norm: LayerNorm,
    attention: Attention,
    ffn_norm: LayerNorm,
    ffn: Ffn,
}

/// Over three neighbours in time: `weight` `[out, in, 3]`, `bias` `[out]`.
#[derive(Module)]
struct Convolution {
    #[module(flatten)]
    computes: Computes,
    #[module(flatten)]
    weight: Table,
    #[module(flatten)]
    bias: Table,
}

impl Convolution {
    fn new(input: u64, output: u64) -> Convolution {
        Convolution {
            computes: Computes::Convolution,
            weight: Table::of_axes([output.into(), input.into(), 3.into()]),
            bias: Table::new(output).named("bias"),
        }
    }
}
