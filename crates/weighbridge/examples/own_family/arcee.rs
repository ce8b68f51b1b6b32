//! Arcee (AFM-4.5B): Llama with a feed-forward network that has no gate, and whose activation is squared.
//!
//! Source: transformers `ArceeForCausalLM`@v5.23; llama.cpp conversion/llama.py, `ArceeModel`, src/models/arcee.cpp and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098.

use weighbridge::model::config::{
    Config, DecoderKeys, GGUF_DECODER_WITHOUT_EFFECT, Reader, WithoutEffect, describe,
};
use weighbridge::model::dialect::{
    Dialect, GGUF_DECODER, GGUF_QKV_INTERLEAVED, HF_DECODER, HF_DROPS, HF_LLAMA, Rule,
};
use weighbridge::model::family::blocks::{Attention, Bias, Block, Decoder, Ffn, Norm};
use weighbridge::model::{Activation, Description, DialectName, Family};
use weighbridge::module::Module;
use weighbridge::tensor::RopeOrder;

pub(crate) struct Arcee;

impl Family for Arcee {
    fn name(&self) -> &'static str {
        "arcee"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["arcee"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["ArceeForCausalLM", "ArceeModel", "arcee"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let keys =
            DecoderKeys { norm_eps_absent: 1e-5, activation_absent: Activation::Relu2, ..DecoderKeys::LLAMA };
        let (attention_bias, ffn_bias) = (r.attention_bias(false), r.ffn_bias(false));
        Config { tied: r.tied(false), attention_bias, ffn_bias, ..keys.read(r) }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => &[
                ("sliding_window", "of other families: every layer sees all positions"),
                ("layer_types", "of other families: every layer sees all positions"),
            ],
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        match dialect {
            DialectName::Gguf => {
                let eps = "attention.layer_norm_rms_epsilon";
                let mut d = describe::gguf(c, "arcee", eps, Activation::Relu2);
                describe::gguf_rotary(&mut d, c, "arcee");
                d.count("arcee.rope.dimension_count", *c.rope_dims);
                describe::lose_output_bias(&mut d, own);
                if own("layers.0.ffn.up.bias") {
                    d.lose("mlp_bias", "", "llama.cpp has no biases here, and refuses the file");
                }
                d
            }
            _ => {
                let mut d = describe::hf(c, "ArceeForCausalLM", "arcee", "rms_norm_eps");
                d.text("hidden_act", c.activation.name());
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
            Block::new(c, Norm::rms, attention, Ffn::new(c, Bias::from(*c.ffn_bias)))
        };
        Box::new(Decoder::new(c, Norm::rms, block).with_rope_factors(c))
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

/// Factors of rotary frequencies that are stretched as Llama 3's.
static GGUF: &[Rule] = &[Rule::same("rope_factors.weight", "rope_freqs.weight")];
