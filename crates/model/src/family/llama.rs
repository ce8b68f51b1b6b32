//! Llama and what shares its block: `SmolLM`, and Mistral, whose layers may have a window.
//!
//! Source: transformers `LlamaForCausalLM` and `MistralForCausalLM`@v4.57; conversion/llama.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; src/models/llama.cpp@0c1e57098, which reads no key for a window.

use crate::architecture::{Architecture, NotRun, RopeOrder};
use crate::config::describe::{self, Description};
use crate::config::{Config, Reader, keys};
use crate::dialect::{
    Dialect, DialectName, GGUF_DECODER, GGUF_QKV_INTERLEAVED, HF_DECODER, HF_DROPS, HF_LLAMA, Rule,
};
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
        let base = Config { tied, ..keys::decoder(r) };
        // In Llama's own files the key means nothing.
        if r.dialect() == DialectName::Hf && !r.architecture().to_lowercase().starts_with("mistral") {
            return base;
        }
        let window = r.count(keys::WINDOW, 0).unwrap_or(base.window.clone());
        Config { window, ..base }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        match dialect {
            DialectName::Gguf => {
                let mut d = describe::gguf(c, "llama", "attention.layer_norm_rms_epsilon");
                describe::gguf_rotary(&mut d, c, "llama");
                d.count("llama.rope.dimension_count", *c.rope_dims);
                if *c.window > 0 {
                    d.count("llama.attention.sliding_window", *c.window);
                }
                d
            }
            DialectName::Hf if *c.window > 0 => {
                let mut d = describe::hf(c, "MistralForCausalLM", "mistral");
                d.text("hidden_act", "silu");
                d.count("sliding_window", *c.window);
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
            DialectName::Hf => {
                let mut d = describe::hf(c, "LlamaForCausalLM", "llama");
                d.text("hidden_act", "silu");
                d.flag("attention_bias", own("layers.0.attention.q.bias"));
                d.flag("mlp_bias", own("layers.0.ffn.up.bias"));
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |_| {
            let attention = Attention::new(c, Bias::Optional, Bias::Optional);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::Optional))
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block).with_rope_factors(c))
    }

    fn architecture(&self, c: &Config) -> Result<Architecture, NotRun> {
        Architecture::rotary(c)
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV_INTERLEAVED, GGUF]),
            DialectName::Hf => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF_LLAMA]) },
        })
    }

    fn rope_order(&self, dialect: DialectName) -> RopeOrder {
        match dialect {
            DialectName::Gguf => RopeOrder::Interleaved,
            DialectName::Hf => RopeOrder::Half,
        }
    }
}

static GGUF: &[Rule] = &[Rule::same("rope_factors.weight", "rope_freqs.weight")];
