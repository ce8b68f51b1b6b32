//! Qwen 3 with mixtures of experts in all layers.
//!
//! Source: transformers `Qwen3MoeForCausalLM`@v4.57; conversion/qwen.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/qwen3_moe.py, v0.33.0.

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::parts::MoeDefaults;
use crate::config::{
    Config, DecoderKeys, GGUF_DECODER_WITHOUT_EFFECT, Keys, Moe, Reader, WithoutEffect, windows,
};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_MOE, GGUF_QKV, HF_DECODER, HF_DROPS, HF_LLAMA, HF_MOE};
use crate::ecosystem::DialectName;
use crate::module::Module;
use crate::{ConfigProblem, Fact};

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, MoeFfn};

/// The unit that stands for the family in the table.
pub(super) struct Qwen3Moe;

impl Family for Qwen3Moe {
    fn name(&self) -> &'static str {
        "qwen3moe"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["qwen3moe"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Qwen3MoeForCausalLM", "Qwen3MoeModel", "qwen3_moe"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        let common = DecoderKeys { kv_heads_absent: Some(4), ..DecoderKeys::LLAMA };
        let base = Config { tied, ..common.read(r) };
        let attention_bias = r.attention_bias(false);
        // GGUF does not say it, and llama.cpp takes them to sum up to 1.
        let normed = r.dialect() == DialectName::Gguf;
        let moe = Moe::read(r, &base.ffn, &MoeDefaults { normed, ..MoeDefaults::PLAIN });
        all_layers(r);
        windows::everywhere_if_used(r, Config { moe: Some(moe), attention_bias, ..base }, 4096)
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let normed = c.moe.as_ref().is_some_and(|moe| *moe.normed);
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "qwen3moe", "attention.layer_norm_rms_epsilon", Activation::Silu);
            describe::gguf_rotary(&mut d, c, "qwen3moe");
            describe::gguf_moe(&mut d, c, "qwen3moe");
            if let Some(moe) = &c.moe {
                d.count("qwen3moe.expert_feed_forward_length", *moe.ffn);
            }
            if !normed {
                d.flag("qwen3moe.expert_weights_norm", normed);
                let what = "llama.cpp makes the weights of experts sum up to 1 always: every result differs";
                d.lose("norm_topk_prob", "", what);
            }
            describe::lose_window(&mut d, c, "window");
            describe::lose_output_bias(&mut d, own);
            return d;
        }
        let mut d = describe::hf(c, "Qwen3MoeForCausalLM", "qwen3_moe", "rms_norm_eps");
        describe::hf_moe(&mut d, c, "num_experts");
        if let Some(moe) = &c.moe {
            d.count("moe_intermediate_size", *moe.ffn);
        }
        d.flag("norm_topk_prob", normed);
        d.count("decoder_sparse_step", 1);
        d.put("mlp_only_layers", Fact::List(vec![]));
        d.text("hidden_act", c.activation.name());
        d.flag("attention_bias", own("layers.0.attention.q.bias"));
        d.flag("use_sliding_window", c.has_windows());
        if c.has_windows() {
            d.count("sliding_window", *c.window);
        }
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n).with_head_norms(c);
            Block::new(c, blocks::Norm::rms, attention, c.moe.as_ref().map(|moe| MoeFfn::new(c, moe)))
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF_QKV, GGUF_MOE]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF_DECODER, HF_LLAMA, HF_MOE]) },
        })
    }
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("output_router_logits", "for training"),
    ("router_aux_loss_coef", "for training"),
    ("max_window_layers", "of Qwen 2: here all layers have the window, or none"),
];

/// Config.json can leave experts out of some layers, which no released model does and GGUF cannot say.
fn all_layers(r: &mut Reader) {
    const STEP: Keys = Keys::new("decoder_sparse_step", &[], &["decoder_sparse_step"]);
    const DENSE: Keys = Keys::new("mlp_only_layers", &[], &["mlp_only_layers"]);
    r.not_null(STEP, "a number");
    let step = r.fact(STEP).filter(|(_, fact)| *fact != Fact::Count(1));
    let dense = r.fact(DENSE).filter(|(_, fact)| *fact != Fact::List(vec![]));
    for ((key, found), wanted) in
        [(step, "1"), (dense, "an empty list")].into_iter().filter_map(|(f, w)| Some((f?, w)))
    {
        let wanted = format!("{wanted}: experts in every layer");
        r.problem(ConfigProblem::Invalid { key, wanted, found: found.to_string() });
    }
}
