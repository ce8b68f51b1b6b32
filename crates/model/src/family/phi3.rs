//! Phi 3 and 4: Llama with queries, keys and values in one matrix, gate and up in another; factors for each rotary
//! frequency in the models for long texts.
//!
//! Source: transformers `Phi3ForCausalLM`@v4.57; conversion/phi.py, `Phi3MiniModel`, and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/phi3.py, v0.33.0.

use derive::Module;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Reader, Rotary, WithoutEffect, rope, windows};
use crate::dialect::{
    Dialect, GGUF_DECODER, HF_DECODER, HF_DROPS, HF_LLAMA, Rule, rows_gate, rows_k, rows_q, rows_up, rows_v,
};
use crate::ecosystem::DialectName;
use crate::module::{Module, Table};
use crate::param::Axis;
use crate::rope::RopeScaling;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Phi3;

impl Family for Phi3 {
    fn name(&self) -> &'static str {
        "phi3"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["phi3"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["Phi3ForCausalLM", "Phi3Model", "phi3"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        let rotary = Rotary { original: Some(4096), only_long: true, partial: true, ..Rotary::PLAIN };
        let common = DecoderKeys { norm_eps_absent: 1e-5, rotary, ..DecoderKeys::LLAMA };
        let c = Config { tied, ..common.read(r) };
        let mut c = windows::everywhere(r, c, None);
        // The converter names no kind of stretch, but writes what goes with its factors.
        let long = r.dialect() == DialectName::Gguf && r.fact(rope::ATTENTION_FACTOR).is_some();
        if long && *c.rope_scaling == RopeScaling::None {
            c.rope_scaling = rope::long(r);
            c.rope_local_scaling = c.rope_scaling.clone();
        }
        c
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "phi3", "attention.layer_norm_rms_epsilon", Activation::Silu);
            describe::gguf_rotary(&mut d, c, "phi3");
            d.count("phi3.rope.dimension_count", *c.rope_dims);
            // llama.cpp wants the key in any case, and knows Phi 4 by its 0.
            d.count("phi3.attention.sliding_window", *c.window);
            describe::lose_window(&mut d, c, "");
            if !matches!(*c.rope_scaling, RopeScaling::LongRope { .. }) {
                d.count("phi3.rope.scaling.original_context_length", *c.context);
            }
            return d;
        }
        let mut d = describe::hf(c, "Phi3ForCausalLM", "phi3", "rms_norm_eps");
        d.text("hidden_act", c.activation.name());
        if *c.window > 0 {
            d.count("sliding_window", *c.window);
        }
        if !matches!(*c.rope_scaling, RopeScaling::LongRope { .. }) {
            d.count("original_max_position_embeddings", *c.context);
        }
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let attention = Attention::new(c, n, Bias::No, Bias::No).partly_rotary(c, n);
            Block::new(c, blocks::Norm::rms, attention, GatedFfn::new(c, *c.ffn, Bias::No))
        };
        let factors = || Some(Table::new(Axis::HeadDim.of(*c.rope_dims / 2)).optional());
        Box::new(Phi {
            decoder: Decoder::new(c, blocks::Norm::rms, block),
            rope_factors_short: factors(),
            rope_factors_long: factors(),
        })
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF, GGUF_DECODER]),
            _ => Dialect { drops: HF_DROPS, ..Dialect::new(name, vec![HF, HF_DECODER, HF_LLAMA]) },
        })
    }
}

#[derive(Module)]
struct Phi {
    #[module(flatten)]
    decoder: Decoder,
    /// For texts within the first context; GGUF alone has them as tensors.
    rope_factors_short: Option<Table>,
    /// For longer texts.
    rope_factors_long: Option<Table>,
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("resid_pdrop", "for training"),
    ("embd_pdrop", "for training"),
    ("attention_bias", "Phi 3 has no biases"),
    ("mlp_bias", "Phi 3 has no biases"),
    ("original_max_position_embeddings", "the stretch does not ask for it"),
];

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.rope.scaling.original_context_length", "frequencies are not stretched"),
    ("*.rope.scaling.finetuned", "llama.cpp computes nothing from it"),
    ("*.attention.value_length", "as long as a key, which is checked by shapes"),
    ("*.vocab_size", "the tokens say it"),
];

static GGUF: &[Rule] = &[
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_qkv.weight", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_qkv.weight", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "blk.{n}.attn_qkv.weight", rows_v),
    Rule::with("layers.{n}.ffn.gate.weight", "blk.{n}.ffn_up.weight", rows_gate),
    Rule::with("layers.{n}.ffn.up.weight", "blk.{n}.ffn_up.weight", rows_up),
    Rule::same("rope_factors_short.weight", "rope_factors_short.weight"),
    Rule::same("rope_factors_long.weight", "rope_factors_long.weight"),
];

static HF: &[Rule] = &[
    Rule::with("layers.{n}.attention.q.weight", "model.layers.{n}.self_attn.qkv_proj.weight", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "model.layers.{n}.self_attn.qkv_proj.weight", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "model.layers.{n}.self_attn.qkv_proj.weight", rows_v),
    Rule::with("layers.{n}.ffn.gate.weight", "model.layers.{n}.mlp.gate_up_proj.weight", rows_gate),
    Rule::with("layers.{n}.ffn.up.weight", "model.layers.{n}.mlp.gate_up_proj.weight", rows_up),
];
