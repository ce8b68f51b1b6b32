//! gpt-oss: mixtures of experts with biases, a learned sink for each head's attention, every other layer with a window.
//!
//! Config.json's files have gate and up in one tensor, row by row in turn. Quantised to MXFP4, experts are `[out, in]`;
//! else `[in, out]`.
//!
//! Source: transformers `GptOssForCausalLM`@v4.57 and integrations/mxfp4.py; conversion/gpt_oss.py and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/gpt_oss.py, v0.33.0.

use tensor::Expr;

use crate::Fact;
use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::parts::MoeDefaults;
use crate::config::{
    Config, DecoderKeys, GGUF_DECODER_WITHOUT_EFFECT, Keys, Moe, Reader, Rotary, WithoutEffect, windows,
};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_MOE, GGUF_QKV, HF_DECODER, HF_DROPS, HF_LLAMA, Rule};
use crate::ecosystem::DialectName;
use crate::module::Module;
use crate::rope::{RopeScaling, Yarn, yarn_mscale};

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, MoeFfn};

/// The unit that stands for the family in the table.
pub(super) struct GptOss;

impl Family for GptOss {
    fn name(&self) -> &'static str {
        "gpt-oss"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["gpt-oss"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["GptOssForCausalLM", "GptOssModel", "gpt_oss"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        const METHOD: Keys = Keys::new("quantisation", &[], &["quantization_config.quant_method"]);
        let tied = r.tied(false);
        let hf = r.dialect() == DialectName::Hf;
        let rotary = match r.dialect() {
            DialectName::Gguf => Rotary::PLAIN,
            _ => Rotary { theta: 150_000.0, absent: || RopeScaling::Yarn(released()), ..Rotary::PLAIN },
        };
        let common = DecoderKeys {
            // Experts have an activation of their own.
            activation: Keys::new("activation", &[], &[]),
            norm_eps_absent: 1e-5,
            kv_heads_absent: Some(8),
            head_dim_absent: Some(64),
            rotary,
            ..DecoderKeys::LLAMA
        };
        let c = Config { tied, ..common.read(r) };
        let mut moe = Moe::read(r, &c.ffn, &MoeDefaults { unread: UNREAD, ..MoeDefaults::PLAIN });
        moe.upright = !(hf && r.word(METHOD).is_some_and(|method| *method == "mxfp4"));
        let mut c = windows::alternating_by_types(r, c, 128, 2);
        windows::not_empty(r, &c);
        let local = Keys::new("rope_local_theta", &["rope.freq_base_swa"], &[]);
        let theta = *c.rope_theta;
        r.only(local, "the base of the other layers", |fact| {
            fact.number().is_some_and(|x| (x - theta).abs() < 1e-6 * theta)
        });
        r.only_flag(Keys::new("attention_bias", &[], &["attention_bias"]), true);
        let near = |wanted: f64| move |fact: &Fact| fact.number().is_some_and(|x| (x - wanted).abs() < 1e-6);
        r.only(Keys::new("swiglu_limit", &[], &["swiglu_limit"]), "7", near(7.0));
        r.only(Keys::new("swiglu_alpha", &[], &["swiglu_alpha"]), "1.702", near(1.702));
        if let (false, RopeScaling::Yarn(yarn)) = (hf, &mut c.rope_scaling.value) {
            // GGUF has no key for it. llama.cpp truncates always, and the released models were trained without.
            let untruncated = Yarn { truncate: false, ..yarn.clone() };
            yarn.truncate = untruncated != released();
            c.rope_local_scaling = c.rope_scaling.clone();
        }
        Config { moe: Some(moe), ..c }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "gpt-oss", "attention.layer_norm_rms_epsilon", Activation::Silu);
            describe::gguf_rotary(&mut d, c, "gpt-oss");
            describe::gguf_moe(&mut d, c, "gpt-oss");
            d.count("gpt-oss.expert_feed_forward_length", *c.ffn);
            describe::gguf_windows(&mut d, c, "gpt-oss", Some(2));
            if matches!(&*c.rope_scaling, RopeScaling::Yarn(yarn) if *yarn == Yarn { truncate: true, ..released() })
            {
                // llama.cpp truncates, as is said here; but files do not say so, and are read as the released models.
                d.take_as_said("rope_scaling");
            }
            if !c.has_windows() {
                d.lose("layer_types", "window", "llama.cpp ends where no layer has a window");
            }
            if !own("output.weight") {
                d.lose(
                    "tie_word_embeddings",
                    "",
                    "llama.cpp wants an output matrix beside the embedding's, and refuses the file",
                );
            }
            return d;
        }
        let mut d = describe::hf(c, "GptOssForCausalLM", "gpt_oss", "rms_norm_eps");
        describe::hf_moe(&mut d, c, "num_local_experts");
        d.text("hidden_act", "silu");
        d.number("swiglu_limit", 7.0);
        d.flag("attention_bias", true);
        d.count("sliding_window", *c.window);
        describe::layer_types(&mut d, c);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let attention = Attention::new(c, n, Bias::Yes, Bias::Yes).rotary(c, n).with_sinks(c);
            let experts = c
                .moe
                .as_ref()
                .map(|moe| MoeFfn::new(c, moe).with_biases().activated(Activation::ClampedSwiglu));
            Block::new(c, blocks::Norm::rms, attention, experts)
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF, GGUF_DECODER, GGUF_QKV, GGUF_MOE]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF, HF_DECODER, HF_LLAMA]) },
        })
    }
}

/// Rows `first`, `first + 2`, … of each expert.
fn every_second(expr: Expr, first: u64) -> Expr {
    expr.split(1, 2).slice(2, first..first + 1).merge(1)
}

/// `[experts, in, out]` as `[experts, out, in]`, where the file has it so.
fn upright(expr: Expr, c: &Config, rank: usize) -> Expr {
    let turned = c.moe.as_ref().is_some_and(|moe| moe.upright);
    if turned && rank == 3 { expr.permute(&[0, 2, 1]) } else { expr }
}

fn gate(expr: Expr, c: &Config, rank: usize) -> Expr {
    every_second(upright(expr, c, rank), 0)
}

fn up(expr: Expr, c: &Config, rank: usize) -> Expr {
    every_second(upright(expr, c, rank), 1)
}

/// The scaling of the released models, used where config.json has none.
fn released() -> Yarn {
    Yarn {
        factor: 32.0,
        original_context: 4096.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: yarn_mscale(32.0, 1.0),
        mscale_all_dim: None,
        truncate: false,
    }
}

/// The width of an expert is that of a feed-forward network, and the weights of the chosen sum up to 1.
const UNREAD: &[&str] = &["expert_ffn", "expert_scale", "expert_weights_normed"];

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("hidden_act", "experts have an activation of their own"),
    ("output_router_logits", "for training"),
    ("router_aux_loss_coef", "for training"),
    ("experts_per_token", "`num_experts_per_tok` says it"),
    ("initial_context_length", "the rotary parameters say it"),
];

static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention.sinks.weight", "blk.{n}.attn_sinks.weight"),
    Rule::same("layers.{n}.ffn_norm.weight", "blk.{n}.post_attention_norm.weight"),
];

static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention.sinks.weight", "model.layers.{n}.self_attn.sinks"),
    Rule::same("layers.{n}.ffn.router.weight", "model.layers.{n}.mlp.router.weight"),
    Rule::same("layers.{n}.ffn.router.bias", "model.layers.{n}.mlp.router.bias"),
    Rule::with("layers.{n}.ffn.experts.gate.weight", "model.layers.{n}.mlp.experts.gate_up_proj", gate),
    Rule::with("layers.{n}.ffn.experts.gate.bias", "model.layers.{n}.mlp.experts.gate_up_proj_bias", gate),
    Rule::with("layers.{n}.ffn.experts.up.weight", "model.layers.{n}.mlp.experts.gate_up_proj", up),
    Rule::with("layers.{n}.ffn.experts.up.bias", "model.layers.{n}.mlp.experts.gate_up_proj_bias", up),
    Rule::with("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.experts.down_proj", upright),
    Rule::same("layers.{n}.ffn.experts.down.bias", "model.layers.{n}.mlp.experts.down_proj_bias"),
    // mlx_lm/models/gpt_oss.py@v0.32.2, `sanitize`.
    Rule::mlx("layers.{n}.ffn.experts.gate.weight", "model.layers.{n}.mlp.experts.gate_proj.weight"),
    Rule::mlx("layers.{n}.ffn.experts.gate.bias", "model.layers.{n}.mlp.experts.gate_proj.bias"),
    Rule::mlx("layers.{n}.ffn.experts.up.weight", "model.layers.{n}.mlp.experts.up_proj.weight"),
    Rule::mlx("layers.{n}.ffn.experts.up.bias", "model.layers.{n}.mlp.experts.up_proj.bias"),
    Rule::mlx("layers.{n}.ffn.experts.down.weight", "model.layers.{n}.mlp.experts.down_proj.weight"),
    Rule::mlx("layers.{n}.ffn.experts.down.bias", "model.layers.{n}.mlp.experts.down_proj.bias"),
];
