//! Qwen 2, 2.5 and 3: Llama with biases of queries, keys and values, or with norms of each head's query and key; late
//! layers may have a window.
//!
//! Source: transformers `Qwen2ForCausalLM` and `Qwen3ForCausalLM`@v4.57; conversion/qwen.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/qwen2.py and qwen3.py, v0.33.0.

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, GGUF_DECODER_WITHOUT_EFFECT, Reader, WithoutEffect, windows};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, HF_DECODER, HF_DROPS, HF_LLAMA};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// A generation: its name, and its differences from Llama's attention.
pub(super) struct Qwen {
    /// In both ecosystems.
    name: &'static [&'static str; 1],
    /// In config.json, by its class, by that of its backbone, and by its type.
    hf: &'static [&'static str; 3],
    attention: fn(&Config, u64) -> Attention,
    /// Whether config.json says if there are biases.
    says_bias: bool,
    /// Elements of a head where config.json does not say it; `None`: the residual stream shared out.
    head_dim_absent: Option<u64>,
}

pub(super) static QWEN2: Qwen = Qwen {
    name: &["qwen2"],
    hf: &["Qwen2ForCausalLM", "Qwen2Model", "qwen2"],
    attention: |c, n| Attention::new(c, n, Bias::Yes, Bias::No).rotary(c, n),
    says_bias: false,
    head_dim_absent: None,
};

pub(super) static QWEN3: Qwen = Qwen {
    name: &["qwen3"],
    hf: &["Qwen3ForCausalLM", "Qwen3Model", "qwen3"],
    attention: |c, n| {
        let bias = Bias::from(*c.attention_bias);
        Attention::new(c, n, bias, bias).rotary(c, n).with_head_norms(c)
    },
    says_bias: true,
    head_dim_absent: Some(128),
};

impl Family for Qwen {
    fn name(&self) -> &'static str {
        self.name[0]
    }

    fn gguf(&self) -> &'static [&'static str] {
        self.name
    }

    fn hf(&self) -> &'static [&'static str] {
        self.hf
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        let common = DecoderKeys {
            kv_heads_absent: Some(32),
            head_dim_absent: self.head_dim_absent,
            ..DecoderKeys::LLAMA
        };
        let mut c = Config { tied, ..common.read(r) };
        if self.says_bias {
            c.attention_bias = r.attention_bias(false);
        }
        windows::late(r, c, 4096)
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let ([name], [class, _, kind]) = (self.name, self.hf);
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, name, "attention.layer_norm_rms_epsilon", Activation::Silu);
            describe::gguf_rotary(&mut d, c, name);
            describe::lose_window(&mut d, c, "window");
            describe::lose_output_bias(&mut d, own);
            return d;
        }
        let mut d = describe::hf(c, class, kind, "rms_norm_eps");
        d.text("hidden_act", c.activation.name());
        if self.says_bias {
            d.flag("attention_bias", own("layers.0.attention.q.bias"));
        }
        describe::late_windows(&mut d, c);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let ffn = GatedFfn::new(c, *c.ffn, Bias::No);
            Block::new(c, blocks::Norm::rms, (self.attention)(c, n), ffn)
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF_LLAMA]) },
        })
    }
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("attention_bias", "of Qwen 3: Qwen 2 has biases of queries, keys and values always"),
    ("use_mrope", "text has one position a token"),
];
