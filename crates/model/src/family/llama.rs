//! Llama and what shares its block: `SmolLM`, and Mistral, whose layers may have a window.
//!
//! Source: transformers `LlamaForCausalLM` and `MistralForCausalLM`@v4.57; conversion/llama.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; src/models/llama.cpp@0c1e57098, which reads no key for a window.
use tensor::RopeOrder;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{
    Config, DecoderKeys, Field, GGUF_DECODER_WITHOUT_EFFECT, OF_TRANSFORMERS, Reader, WithoutEffect, windows,
};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV_INTERLEAVED, HF_DECODER, HF_DROPS, HF_LLAMA, Rule};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Llama;

impl Family for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["llama"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["LlamaForCausalLM", "LlamaModel", "llama", "MistralForCausalLM", "MistralModel", "mistral"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        if is_mistral(r) {
            let common = DecoderKeys { kv_heads_absent: Some(8), ..DecoderKeys::LLAMA };
            let c = Config { tied, ..common.read(r) };
            let c = windows::everywhere(r, c, Some(4096));
            return match r.dialect() {
                DialectName::Gguf => c,
                _ => Config { attention_bias: no_bias(), ffn_bias: no_bias(), ..c },
            };
        }
        let c = DecoderKeys::LLAMA.read(r);
        let (attention_bias, ffn_bias) = (r.attention_bias(false), r.ffn_bias(false));
        let c = Config { attention_bias, ffn_bias, tied, ..c };
        // In config.json the key means nothing: it is Mistral's.
        if r.dialect() == DialectName::Gguf { windows::everywhere(r, c, None) } else { c }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        match dialect {
            DialectName::Gguf => {
                let mut d = describe::gguf(c, "llama", "attention.layer_norm_rms_epsilon", Activation::Silu);
                describe::gguf_rotary(&mut d, c, "llama");
                d.count("llama.rope.dimension_count", *c.rope_dims);
                describe::gguf_unread_window(&mut d, c, "llama");
                d
            }
            DialectName::Hf if *c.window > 0 => {
                let mut d = describe::hf(c, "MistralForCausalLM", "mistral", "rms_norm_eps");
                d.text("hidden_act", c.activation.name());
                d.count("sliding_window", *c.window);
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
            _ => {
                let mut d = describe::hf(c, "LlamaForCausalLM", "llama", "rms_norm_eps");
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
            let ffn = GatedFfn::new(c, *c.ffn, Bias::from(*c.ffn_bias));
            Block::new(c, blocks::Norm::rms, Attention::new(c, n, bias, bias).rotary(c, n), ffn)
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

fn is_mistral(r: &Reader) -> bool {
    r.dialect() == DialectName::Hf && r.architecture().to_lowercase().starts_with("mistral")
}

/// Mistral has no key for biases, and the reference has no biases.
fn no_bias() -> Field<Option<bool>> {
    Field::default(Some(false), OF_TRANSFORMERS)
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("sliding_window", "of Mistral: Llama has no window"),
    ("layer_types", "of other families: Llama has no window"),
    ("attention_bias", "of Llama: Mistral has no biases"),
    ("mlp_bias", "of Llama: Mistral has no biases"),
];

static GGUF: &[Rule] = &[Rule::same("rope_factors.weight", "rope_freqs.weight")];
