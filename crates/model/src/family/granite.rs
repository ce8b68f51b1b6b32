//! Granite 3: Llama with factors of the token embedding, of what is added to the residual stream, of scores and of logits.
//!
//! Source: transformers `GraniteForCausalLM`@v5.23; llama.cpp conversion/granite.py, `GraniteModel`, and
//! src/models/granite.cpp@0c1e57098; vllm/model_executor/models/granite.py, v0.33.0.

use tensor::RopeOrder;

use crate::Fact;
use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Field, Keys, OF_TRANSFORMERS, Reader, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV_INTERLEAVED, HF_DECODER, HF_DROPS, HF_LLAMA, Rule};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Granite;

impl Family for Granite {
    fn name(&self) -> &'static str {
        "granite"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["granite"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["GraniteForCausalLM", "GraniteModel", "granite"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let c = DecoderKeys::LLAMA.read(r);
        let hf = r.dialect() == DialectName::Hf;
        let one = || Field::default(1.0, if hf { OF_TRANSFORMERS } else { "none" });
        let attention_scale = match r.number(ATTENTION) {
            Some(scale) => scale,
            None if hf => one(),
            None => c.attention_scale.clone(),
        };
        let logit_divisor = r.number(LOGITS);
        let logit_divisor =
            if hf { logit_divisor.unwrap_or(one()) } else { r.required(logit_divisor, LOGITS, 1.0) };
        // Projectors of images, each for a layer.
        r.only(
            DEEPSTACK,
            "-1 for each layer",
            |fact| matches!(fact, Fact::List(list) if list.iter().all(|fact| fact.number() == Some(-1.0))),
        );
        // A switch for rotary embeddings here.
        r.only_flag(ROTATED, true);
        Config {
            tied: r.tied(false),
            attention_bias: r.attention_bias(false),
            ffn_bias: r.ffn_bias(false),
            embedding_scale: r.number(EMBEDDING).unwrap_or(one()),
            residual_scale: r.number(RESIDUAL).unwrap_or(one()),
            logit_divisor,
            attention_scale,
            ..c
        }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        match dialect {
            DialectName::Gguf => {
                let mut d =
                    describe::gguf(c, "granite", "attention.layer_norm_rms_epsilon", Activation::Silu);
                describe::gguf_rotary(&mut d, c, "granite");
                d.count("granite.rope.dimension_count", *c.rope_dims);
                d.number("granite.attention.scale", *c.attention_scale);
                d.number("granite.embedding_scale", *c.embedding_scale);
                d.number("granite.residual_scale", *c.residual_scale);
                d.number("granite.logit_scale", *c.logit_divisor);
                d
            }
            _ => {
                let mut d = describe::hf(c, "GraniteForCausalLM", "granite", "rms_norm_eps");
                d.text("hidden_act", c.activation.name());
                d.number("attention_multiplier", *c.attention_scale);
                d.number("embedding_multiplier", *c.embedding_scale);
                d.number("residual_multiplier", *c.residual_scale);
                d.number("logits_scaling", *c.logit_divisor);
                d.flag("attention_bias", own("layers.0.attention.q.bias"));
                d.flag("mlp_bias", own("layers.0.ffn.up.bias"));
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::from(*c.ffn_bias)))
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block).with_rope_factors(c))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV_INTERLEAVED, GGUF]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF_LLAMA]) },
        })
    }

    fn rope_order(&self, dialect: DialectName) -> RopeOrder {
        match dialect {
            DialectName::Gguf => RopeOrder::Interleaved,
            _ => RopeOrder::Half,
        }
    }
}

const ATTENTION: Keys = Keys::new("attention_scale", &["attention.scale"], &["attention_multiplier"]);
const EMBEDDING: Keys = Keys::new("embedding_scale", &["embedding_scale"], &["embedding_multiplier"]);
const RESIDUAL: Keys = Keys::new("residual_scale", &["residual_scale"], &["residual_multiplier"]);
const LOGITS: Keys = Keys::new("logit_divisor", &["logit_scale"], &["logits_scaling"]);
const DEEPSTACK: Keys = Keys::new("deepstack", &["deepstack_mapping"], &[]);
const ROTATED: Keys = Keys::new("rotated", &["rope.scaling.finetuned"], &[]);

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("sliding_window", "of other families: every layer sees all positions"),
    ("layer_types", "of other families: every layer sees all positions"),
];

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.expert_shared_feed_forward_length", "the family has no experts, and no tensors of any"),
    ("*.attention.value_length", "as long as a key, which is checked by shapes"),
    ("*.vocab_size", "the tokens say it"),
];

/// Factors of rotary frequencies that are stretched as Llama 3's.
static GGUF: &[Rule] = &[Rule::same("rope_factors.weight", "rope_freqs.weight")];
