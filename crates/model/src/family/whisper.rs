//! Whisper: an encoder of sound, and a decoder whose layers look at it. No key of it has a bias.
//!
//! llama.cpp has no such architecture; whisper.cpp has a format of its own.
//!
//! Source: transformers `WhisperForConditionalGeneration`@v4.57; vllm/model_executor/models/whisper.py, v0.33.0.

use derive::Module;

use crate::activation::Activation;
use crate::computes::NotRun;
use crate::config::describe::Description;
use crate::config::{Config, DecoderKeys, Encoder, Field, Keys, Reader, WithoutEffect};
use crate::dialect::{Dialect, Rule};
use crate::ecosystem::DialectName;
use crate::module::{
    ColumnParallelLinear, Embedding, FusedPart, LayerNorm, Layers, Linear, MergedColumnParallelLinear,
    Module, RowParallelLinear, Table,
};
use crate::param::Axis;

use super::Family;
use super::blocks::{Attention, Bias, Ffn};

/// The unit that stands for the family in the table.
pub(super) struct Whisper;

const LAYERS: Keys = Keys::new("layers", &[], &["decoder_layers"]);
const HIDDEN: Keys = Keys::new("hidden", &[], &["d_model"]);
const HEADS: Keys = Keys::new("heads", &[], &["decoder_attention_heads"]);
const FFN: Keys = Keys::new("ffn", &[], &["decoder_ffn_dim"]);
const CONTEXT: Keys = Keys::new("context", &[], &["max_target_positions"]);
const NONE: Keys = Keys::new("kv_heads", &[], &[]);

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
            causal: false,
            ..DecoderKeys::LLAMA
        };
        let tied = r.tied(true);
        let encoder = Some(Encoder::read(r));
        r.only_flag(Keys::new("embedding_scale", &[], &["scale_embedding"]), false);
        Config { tied, encoder, ..common.read(r) }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let mut d = Description::new(dialect);
        let (DialectName::Hf, Some(encoder)) = (dialect, &c.encoder) else { return d };
        d.named("WhisperForConditionalGeneration", "whisper");
        d.text("activation_function", c.activation.name());
        d.flag("is_encoder_decoder", true);
        d.count("d_model", *c.hidden);
        d.count("encoder_layers", *encoder.layers);
        d.count("encoder_attention_heads", *encoder.heads);
        d.count("encoder_ffn_dim", *encoder.ffn);
        d.count("decoder_layers", *c.layers);
        d.count("decoder_attention_heads", *c.heads);
        d.count("decoder_ffn_dim", *c.ffn);
        d.count("max_source_positions", *encoder.context);
        d.count("max_target_positions", *c.context);
        d.count("num_mel_bins", *encoder.mels);
        d.count("vocab_size", *c.vocab);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let hidden = Axis::Hidden.of(*c.hidden);
        let block = |n| DecoderBlock {
            attention_norm: LayerNorm::new(hidden),
            attention: Attention::new(c, n, Bias::Yes, Bias::Yes).without_key_bias(),
            cross_attn_norm: LayerNorm::new(hidden),
            cross_attn: CrossAttention::new(c),
            ffn_norm: LayerNorm::new(hidden),
            ffn: Ffn::new(c, Bias::Yes),
        };
        Box::new(WhisperModel {
            enc: c.encoder.as_ref().map(|encoder| EncoderModel::new(c, encoder)),
            token_embedding: Embedding::new(*c.vocab, hidden),
            position_embedding: Embedding::new(Axis::Position.of(*c.context), hidden),
            layers: Layers((0..*c.layers).map(block).collect()),
            output_norm: LayerNorm::new(hidden),
            output: Linear::new(hidden, *c.vocab).tied_to("token_embedding.weight"),
        })
    }

    fn without_effect(&self, _: DialectName) -> &'static WithoutEffect {
        WITHOUT_EFFECT
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        match name {
            DialectName::Gguf => None,
            DialectName::Hf => Some(Dialect { prefix: "model.", ..Dialect::new(name, vec![HF]) }),
        }
    }
}

#[derive(Module)]
struct WhisperModel {
    enc: Option<EncoderModel>,
    /// Whole on every rank, as vLLM has it.
    token_embedding: Embedding,
    position_embedding: Embedding,
    layers: Layers<DecoderBlock>,
    output_norm: LayerNorm,
    output: Linear,
}

#[derive(Module)]
struct DecoderBlock {
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
    not_run: NotRun,
    q: ColumnParallelLinear,
    kv: MergedColumnParallelLinear,
    output: RowParallelLinear,
}

impl CrossAttention {
    fn new(c: &Config) -> CrossAttention {
        let (hidden, heads) = (Axis::Hidden.of(*c.hidden), Axis::Heads.of_units(*c.heads, *c.head_dim));
        let parts = [FusedPart::new("k", heads).without_bias(), FusedPart::new("v", heads)];
        CrossAttention {
            not_run: NotRun::new("its decoder looks at an encoder"),
            q: ColumnParallelLinear::new(hidden, heads).with_bias(),
            kv: MergedColumnParallelLinear::new(hidden, parts).with_bias(),
            output: RowParallelLinear::new(heads, hidden).with_bias(),
        }
    }
}

#[derive(Module)]
struct EncoderModel {
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
            ffn: encoder.ffn.clone(),
            ..c.clone()
        };
        let block = |n| EncoderBlock {
            attention_norm: LayerNorm::new(hidden),
            attention: Attention::new(&own, n, Bias::Yes, Bias::Yes).without_key_bias(),
            ffn_norm: LayerNorm::new(hidden),
            ffn: Ffn::new(&own, Bias::Yes),
        };
        EncoderModel {
            conv1: Convolution::new(*encoder.mels, *c.hidden),
            conv2: Convolution::new(*c.hidden, *c.hidden),
            position_embedding: Embedding::new(Axis::Position.of(*encoder.context), hidden),
            layers: (0..*encoder.layers).map(block).collect(),
            output_norm: LayerNorm::new(hidden),
        }
    }
}

#[derive(Module)]
struct EncoderBlock {
    attention_norm: LayerNorm,
    attention: Attention,
    ffn_norm: LayerNorm,
    ffn: Ffn,
}

/// Over three neighbours in time: `weight` `[out, in, 3]`, `bias` `[out]`.
#[derive(Module)]
struct Convolution {
    #[module(flatten)]
    weight: Table,
    #[module(flatten)]
    bias: Table,
}

impl Convolution {
    fn new(input: u64, output: u64) -> Convolution {
        Convolution {
            weight: Table::of_axes([output.into(), input.into(), 3.into()]),
            bias: Table::new(output).named("bias"),
        }
    }
}

macro_rules! linear {
    ($param:literal, $entry:literal) => {
        Rule::same(concat!($param, ".weight"), concat!($entry, ".weight"))
    };
    ($param:literal, $entry:literal, bias) => {
        Rule::same(concat!($param, ".bias"), concat!($entry, ".bias"))
    };
}

static HF: &[Rule] = &[
    linear!("enc.conv1", "encoder.conv1"),
    linear!("enc.conv1", "encoder.conv1", bias),
    linear!("enc.conv2", "encoder.conv2"),
    linear!("enc.conv2", "encoder.conv2", bias),
    linear!("enc.position_embedding", "encoder.embed_positions"),
    linear!("enc.layers.{n}.attention_norm", "encoder.layers.{n}.self_attn_layer_norm"),
    linear!("enc.layers.{n}.attention_norm", "encoder.layers.{n}.self_attn_layer_norm", bias),
    linear!("enc.layers.{n}.attention.q", "encoder.layers.{n}.self_attn.q_proj"),
    linear!("enc.layers.{n}.attention.q", "encoder.layers.{n}.self_attn.q_proj", bias),
    linear!("enc.layers.{n}.attention.k", "encoder.layers.{n}.self_attn.k_proj"),
    linear!("enc.layers.{n}.attention.v", "encoder.layers.{n}.self_attn.v_proj"),
    linear!("enc.layers.{n}.attention.v", "encoder.layers.{n}.self_attn.v_proj", bias),
    linear!("enc.layers.{n}.attention.output", "encoder.layers.{n}.self_attn.out_proj"),
    linear!("enc.layers.{n}.attention.output", "encoder.layers.{n}.self_attn.out_proj", bias),
    linear!("enc.layers.{n}.ffn_norm", "encoder.layers.{n}.final_layer_norm"),
    linear!("enc.layers.{n}.ffn_norm", "encoder.layers.{n}.final_layer_norm", bias),
    linear!("enc.layers.{n}.ffn.up", "encoder.layers.{n}.fc1"),
    linear!("enc.layers.{n}.ffn.up", "encoder.layers.{n}.fc1", bias),
    linear!("enc.layers.{n}.ffn.down", "encoder.layers.{n}.fc2"),
    linear!("enc.layers.{n}.ffn.down", "encoder.layers.{n}.fc2", bias),
    linear!("enc.output_norm", "encoder.layer_norm"),
    linear!("enc.output_norm", "encoder.layer_norm", bias),
    linear!("token_embedding", "decoder.embed_tokens"),
    linear!("position_embedding", "decoder.embed_positions"),
    linear!("layers.{n}.attention_norm", "decoder.layers.{n}.self_attn_layer_norm"),
    linear!("layers.{n}.attention_norm", "decoder.layers.{n}.self_attn_layer_norm", bias),
    linear!("layers.{n}.attention.q", "decoder.layers.{n}.self_attn.q_proj"),
    linear!("layers.{n}.attention.q", "decoder.layers.{n}.self_attn.q_proj", bias),
    linear!("layers.{n}.attention.k", "decoder.layers.{n}.self_attn.k_proj"),
    linear!("layers.{n}.attention.v", "decoder.layers.{n}.self_attn.v_proj"),
    linear!("layers.{n}.attention.v", "decoder.layers.{n}.self_attn.v_proj", bias),
    linear!("layers.{n}.attention.output", "decoder.layers.{n}.self_attn.out_proj"),
    linear!("layers.{n}.attention.output", "decoder.layers.{n}.self_attn.out_proj", bias),
    linear!("layers.{n}.cross_attn_norm", "decoder.layers.{n}.encoder_attn_layer_norm"),
    linear!("layers.{n}.cross_attn_norm", "decoder.layers.{n}.encoder_attn_layer_norm", bias),
    linear!("layers.{n}.cross_attn.q", "decoder.layers.{n}.encoder_attn.q_proj"),
    linear!("layers.{n}.cross_attn.q", "decoder.layers.{n}.encoder_attn.q_proj", bias),
    linear!("layers.{n}.cross_attn.k", "decoder.layers.{n}.encoder_attn.k_proj"),
    linear!("layers.{n}.cross_attn.v", "decoder.layers.{n}.encoder_attn.v_proj"),
    linear!("layers.{n}.cross_attn.v", "decoder.layers.{n}.encoder_attn.v_proj", bias),
    linear!("layers.{n}.cross_attn.output", "decoder.layers.{n}.encoder_attn.out_proj"),
    linear!("layers.{n}.cross_attn.output", "decoder.layers.{n}.encoder_attn.out_proj", bias),
    linear!("layers.{n}.ffn_norm", "decoder.layers.{n}.final_layer_norm"),
    linear!("layers.{n}.ffn_norm", "decoder.layers.{n}.final_layer_norm", bias),
    linear!("layers.{n}.ffn.up", "decoder.layers.{n}.fc1"),
    linear!("layers.{n}.ffn.up", "decoder.layers.{n}.fc1", bias),
    linear!("layers.{n}.ffn.down", "decoder.layers.{n}.fc2"),
    linear!("layers.{n}.ffn.down", "decoder.layers.{n}.fc2", bias),
    linear!("output_norm", "decoder.layer_norm"),
    linear!("output_norm", "decoder.layer_norm", bias),
    Rule::unprefixed("output.weight", "proj_out.weight"),
];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("is_encoder_decoder", "it names the family"),
    ("num_hidden_layers", "`encoder_layers` and `decoder_layers` say it"),
    ("num_attention_heads", "`encoder_attention_heads` says it"),
    ("num_key_value_heads", "`encoder_attention_heads` says it"),
    ("hidden_size", "`d_model` says it"),
    ("*dropout", "for training"),
    ("*_layerdrop", "for training"),
    ("init_std", "for training"),
    ("apply_spec_augment", "for training"),
    ("mask_*", "for training"),
    ("classifier_proj_size", "for another head"),
    ("use_weighted_layer_sum", "for another head"),
    ("median_filter_width", "for the times of words"),
    ("alignment_heads", "for the times of words"),
    ("lang_ids", "for the program that runs it"),
    ("rope_parameters*", "positions are learned"),
    ("rope_theta", "positions are learned"),
    ("partial_rotary_factor", "positions are learned"),
];
