//! Qwen 2 and 2.5: Llama with biases of queries, keys and values; late layers may have a window.
//!
//! Source: transformers `Qwen2ForCausalLM`@v4.57; conversion/qwen.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/qwen2.py, v0.33.0.

use crate::architecture::{Architecture, NotRun};
use crate::config::describe::{self, Description};
use crate::config::{Config, Reader, keys};
use crate::dialect::{Dialect, DialectName, GGUF_DECODER, GGUF_QKV, HF_DECODER, HF_DROPS, HF_LLAMA};
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Qwen2;

impl Family for Qwen2 {
    fn name(&self) -> &'static str {
        "qwen2"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["qwen2"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Qwen2ForCausalLM", "qwen2"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        let base = Config { tied, ..keys::decoder(r) };
        keys::late_windows(r, base)
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "qwen2", "attention.layer_norm_rms_epsilon");
            describe::gguf_rotary(&mut d, c, "qwen2");
            return d;
        }
        let mut d = describe::hf(c, "Qwen2ForCausalLM", "qwen2");
        d.text("hidden_act", "silu");
        describe::late_windows(&mut d, c);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |_| {
            let attention = Attention::new(c, Bias::Yes, Bias::No);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::No))
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn architecture(&self, c: &Config) -> Result<Architecture, NotRun> {
        if *c.window > 0 {
            return Err(NotRun::new(format!(
                "layers from {} on see a window of {}",
                *c.window_after, *c.window
            )));
        }
        Architecture::rotary(c)
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV]),
            DialectName::Hf => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF_LLAMA]) },
        })
    }
}
