//! OLMo 2: norms after attention and the feed-forward network, and none before them; a norm of all queries of a token
//! together, and one of all its keys.
//!
//! Source: transformers `Olmo2ForCausalLM`@v5.23; llama.cpp conversion/olmo.py, `Olmo2Model`, and
//! src/models/olmo2.cpp@0c1e57098.

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Keys, Reader, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_QKV, HF_DECODER, HF_DROPS, HF_LLAMA, Rule};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Olmo2;

impl Family for Olmo2 {
    fn name(&self) -> &'static str {
        "olmo2"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["olmo2"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Olmo2ForCausalLM", "Olmo2Model", "olmo2"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let keys = DecoderKeys { norm_eps_absent: 1e-5, ..DecoderKeys::LLAMA };
        // OLMo 3 has the same name in GGUF, windows, and another rotary embedding in layers with one.
        r.only(WINDOW, "0: no layer with a window", |fact| fact.number() == Some(0.0));
        Config { tied: r.tied(false), attention_bias: r.attention_bias(false), ..keys.read(r) }
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
                let mut d = describe::gguf(c, "olmo2", "attention.layer_norm_rms_epsilon", Activation::Silu);
                describe::gguf_rotary(&mut d, c, "olmo2");
                describe::lose_head_dim(&mut d, c);
                describe::lose_output_bias(&mut d, own);
                if !own("output.weight") {
                    let what =
                        "llama.cpp wants an output matrix beside the embedding's, and refuses the file";
                    d.lose("tie_word_embeddings", "", what);
                }
                d
            }
            _ => {
                let mut d = describe::hf(c, "Olmo2ForCausalLM", "olmo2", "rms_norm_eps");
                d.text("hidden_act", c.activation.name());
                d.flag("attention_bias", own("layers.0.attention.q.bias"));
                d.flag("tie_word_embeddings", !own("output.weight"));
                d
            }
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n).with_joint_norms(c);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::No))
                .with_post_norms_alone(c, blocks::Norm::rms)
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF, GGUF_DECODER, GGUF_QKV]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF, HF_DECODER, HF_LLAMA]) },
        })
    }
}

const WINDOW: Keys = Keys::new("window", &["attention.sliding_window"], &[]);

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("sliding_window", "of other families: every layer sees all positions"),
    ("layer_types", "of other families: every layer sees all positions"),
    ("mlp_bias", "of other families: the feed-forward network has no biases"),
];

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.attention.sliding_window_pattern", "no layer has a window"),
    ("*.rope.freq_base_swa", "no layer has a window"),
    ("*.attention.value_length", "as long as a key, which is checked by shapes"),
    ("*.vocab_size", "the tokens say it"),
];

static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention_post_norm.weight", "blk.{n}.post_attention_norm.weight"),
    Rule::same("layers.{n}.ffn_post_norm.weight", "blk.{n}.post_ffw_norm.weight"),
];

/// `post_attention_layernorm` is the norm after attention here; in Llama the same name is the one before the feed-forward
/// network.
static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention_post_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
    Rule::same("layers.{n}.ffn_post_norm.weight", "model.layers.{n}.post_feedforward_layernorm.weight"),
];
