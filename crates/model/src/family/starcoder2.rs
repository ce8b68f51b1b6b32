//! StarCoder 2: Llama with LayerNorm, with biases, and with a feed-forward network that has no gate. All layers may see a
//! window only.
//!
//! Source: transformers `Starcoder2ForCausalLM`@v5.23; llama.cpp conversion/starcoder.py, src/models/starcoder2.cpp and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098.

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, GGUF_DECODER_WITHOUT_EFFECT, Keys, Reader, WithoutEffect, windows};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, HF_DECODER, HF_DROPS, HF_LLAMA, Rule};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, Ffn};

/// The unit that stands for the family in the table.
pub(super) struct StarCoder2;

impl Family for StarCoder2 {
    fn name(&self) -> &'static str {
        "starcoder2"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["starcoder2"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Starcoder2ForCausalLM", "Starcoder2Model", "starcoder2"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let keys = DecoderKeys {
            norm_eps: Keys::new("norm_eps", &["attention.layer_norm_epsilon"], &["norm_epsilon"]),
            norm_eps_absent: 1e-5,
            kv_heads_absent: Some(2),
            activation_absent: Activation::GeluTanh,
            ..DecoderKeys::LLAMA
        };
        let bias = r.bias(Keys::new("bias", &[], &["use_bias"]), true);
        let c = Config { tied: r.tied(true), attention_bias: bias.clone(), ffn_bias: bias, ..keys.read(r) };
        match r.dialect() {
            // llama.cpp reads no window here.
            DialectName::Gguf => c,
            _ => windows::everywhere(r, c, None),
        }
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
                let eps = "attention.layer_norm_epsilon";
                let mut d = describe::gguf(c, "starcoder2", eps, Activation::GeluTanh);
                describe::gguf_rotary(&mut d, c, "starcoder2");
                describe::lose_head_dim(&mut d, c);
                describe::lose_window(&mut d, c, "window");
                if !own("layers.0.attention.output.bias") {
                    d.lose("use_bias", "", "llama.cpp wants biases here, and refuses a file without them");
                }
                d
            }
            _ => {
                let mut d = describe::hf(c, "Starcoder2ForCausalLM", "starcoder2", "norm_epsilon");
                d.text("hidden_act", c.activation.name());
                d.flag("use_bias", own("layers.0.attention.output.bias"));
                if *c.window > 0 {
                    d.count("sliding_window", *c.window);
                }
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n);
            Block::new(c, blocks::Norm::layer, attention, Ffn::new(c, Bias::from(*c.ffn_bias)))
        };
        Box::new(Decoder::new(c, blocks::Norm::layer, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF, GGUF_DECODER, GGUF_QKV]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF, HF_DECODER, HF_LLAMA]) },
        })
    }
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("residual_dropout", "for training"),
    ("embedding_dropout", "for training"),
    ("attention_bias", "of other families: `use_bias` says it"),
    ("mlp_bias", "of other families: `use_bias` says it"),
    ("rms_norm_eps", "of other families: these norms have `norm_epsilon`"),
];

static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention_norm.bias", "blk.{n}.attn_norm.bias"),
    Rule::same("layers.{n}.ffn_norm.bias", "blk.{n}.ffn_norm.bias"),
    Rule::same("output_norm.bias", "output_norm.bias"),
];

static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention_norm.bias", "model.layers.{n}.input_layernorm.bias"),
    Rule::same("layers.{n}.ffn_norm.bias", "model.layers.{n}.post_attention_layernorm.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "model.layers.{n}.mlp.c_fc.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "model.layers.{n}.mlp.c_fc.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "model.layers.{n}.mlp.c_proj.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "model.layers.{n}.mlp.c_proj.bias"),
    Rule::same("output_norm.bias", "model.norm.bias"),
];
