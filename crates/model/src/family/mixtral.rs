//! Mixtral: Llama whose feed-forward networks are mixtures of experts. In GGUF it is a `llama` with experts.
//!
//! Source: transformers `MixtralForCausalLM`@v4.57; conversion/llama.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/mixtral.py, v0.33.0.
use tensor::RopeOrder;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::parts::MoeDefaults;
use crate::config::{
    Config, DecoderKeys, GGUF_DECODER_WITHOUT_EFFECT, Moe, Reader, Rotary, WithoutEffect, windows,
};
use crate::dialect::{
    Dialect, GGUF_DECODER, GGUF_MOE, GGUF_QKV_INTERLEAVED, HF_DECODER, HF_DROPS, HF_LLAMA, Rule,
};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, MoeFfn};

/// The unit that stands for the family in the table.
pub(super) struct Mixtral;

impl Family for Mixtral {
    fn name(&self) -> &'static str {
        "mixtral"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["llama"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["MixtralForCausalLM", "MixtralModel", "mixtral"]
    }

    fn claims(&self, r: &Reader) -> bool {
        r.dialect() == DialectName::Hf || Moe::is_there(r)
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        let hf = r.dialect() == DialectName::Hf;
        let rotary = Rotary { theta: if hf { 1e6 } else { Rotary::PLAIN.theta }, ..Rotary::PLAIN };
        let common =
            DecoderKeys { norm_eps_absent: 1e-5, kv_heads_absent: Some(8), rotary, ..DecoderKeys::LLAMA };
        let base = Config { tied, ..common.read(r) };
        let moe = Moe::read(r, &base.ffn, &MoeDefaults { unread: UNREAD, ..MoeDefaults::PLAIN });
        windows::everywhere(r, Config { moe: Some(moe), ..base }, None)
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "llama", "attention.layer_norm_rms_epsilon", Activation::Silu);
            describe::gguf_rotary(&mut d, c, "llama");
            describe::gguf_moe(&mut d, c, "llama");
            d.count("llama.rope.dimension_count", *c.rope_dims);
            describe::gguf_unread_window(&mut d, c, "llama");
            return d;
        }
        let mut d = describe::hf(c, "MixtralForCausalLM", "mixtral", "rms_norm_eps");
        describe::hf_moe(&mut d, c, "num_local_experts");
        d.text("hidden_act", c.activation.name());
        if *c.window > 0 {
            d.count("sliding_window", *c.window);
        }
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let attention = Attention::new(c, n, Bias::No, Bias::No).rotary(c, n);
            Block::new(c, blocks::Norm::rms, attention, c.moe.as_ref().map(|moe| MoeFfn::new(c, moe)))
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block).with_rope_factors(c))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV_INTERLEAVED, GGUF_MOE, GGUF]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF_LLAMA, HF]) },
        })
    }

    fn rope_order(&self, dialect: DialectName) -> RopeOrder {
        match dialect {
            DialectName::Gguf => RopeOrder::Interleaved,
            _ => RopeOrder::Half,
        }
    }
}

/// The width of an expert is that of a feed-forward network, and the weights of the chosen sum up to 1.
const UNREAD: &[&str] = &["expert_ffn", "expert_scale", "expert_weights_normed"];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("output_router_logits", "for training"),
    ("router_aux_loss_coef", "for training"),
    ("router_jitter_noise", "for training"),
    ("attention_bias", "Mixtral has no biases"),
];

static GGUF: &[Rule] = &[Rule::same("rope_factors.weight", "rope_freqs.weight")];

/// Directories of mlx-lm have experts in a stack (mlx_lm/models/mixtral.py@v0.32.2, `sanitize`).
static HF: &[Rule] = &[
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.block_sparse_moe.gate.weight"),
    Rule::same(
        "layers.{n}.ffn.experts.gate.weight",
        "model.layers.{n}.block_sparse_moe.experts.{e}.w1.weight",
    ),
    Rule::same(
        "layers.{n}.ffn.experts.down.weight",
        "model.layers.{n}.block_sparse_moe.experts.{e}.w2.weight",
    ),
    Rule::same("layers.{n}.ffn.experts.up.weight", "model.layers.{n}.block_sparse_moe.experts.{e}.w3.weight"),
    Rule::mlx(
        "layers.{n}.ffn.experts.gate.weight",
        "model.layers.{n}.block_sparse_moe.switch_mlp.gate_proj.weight",
    ),
    Rule::mlx(
        "layers.{n}.ffn.experts.down.weight",
        "model.layers.{n}.block_sparse_moe.switch_mlp.down_proj.weight",
    ),
    Rule::mlx(
        "layers.{n}.ffn.experts.up.weight",
        "model.layers.{n}.block_sparse_moe.switch_mlp.up_proj.weight",
    ),
];
