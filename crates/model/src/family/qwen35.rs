//! Qwen 3.5: three of four layers are linear attention by the gated delta rule, and the others attend, with a gate after their heads.
//! Texts alone: what else a checkpoint has for images is left, by name.
//!
//! Source: transformers `Qwen3_5ForCausalLM`@v5.23; conversion/qwen.py, `Qwen3_5TextModel`,
//! and gguf-py/gguf/tensor_mapping.py@0c1e57098.

use tensor::{Expr, ValueOrder};

use crate::Fact;
use crate::activation::Activation;
use crate::config::delta::UNIT_EPS;
use crate::config::describe::{self, Description};
use crate::config::{
    Config, DecoderKeys, Delta, GGUF_DECODER_WITHOUT_EFFECT, Keys, Reader, Rotary, WithoutEffect,
};
use crate::dialect::{Dialect, GGUF_DECODER, HF_DECODER, Rule, add_one, neg_exp, untile};
use crate::ecosystem::DialectName;
use crate::module::Module;

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, GatedDelta, GatedFfn};

/// The unit that stands for the family in the table.
pub(super) struct Qwen35;

impl Family for Qwen35 {
    fn name(&self) -> &'static str {
        "qwen35"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["qwen35"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &[
            "Qwen3_5ForCausalLM",
            "Qwen3_5TextModel",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5Model",
            "qwen3_5_text",
            "qwen3_5",
        ]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let tied = r.tied(false);
        let common = DecoderKeys {
            kv_heads_absent: Some(4),
            head_dim_absent: Some(256),
            rotary: Rotary { partial: true, part_absent: 0.25, ..Rotary::PLAIN },
            next_layers: true,
            ..DecoderKeys::LLAMA
        };
        let base = Config { tied, ..common.read(r) };
        sections(r, *base.rope_dims / 2);
        r.not_null(PART, "a number");
        let attention_bias = r.attention_bias(false);
        let delta = Some(Delta::read(r, &base));
        Config { attention_bias, delta, ..base }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_DECODER_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        if dialect == DialectName::Gguf {
            return gguf(c, own);
        }
        let mut d = describe::hf(c, "Qwen3_5ForCausalLM", "qwen3_5_text", "rms_norm_eps");
        d.text("hidden_act", c.activation.name());
        if *c.rope_dims == *c.head_dim {
            // A quarter by default.
            d.number("partial_rotary_factor", 1.0);
        }
        if let Some(delta) = &c.delta {
            d.count("linear_conv_kernel_dim", *delta.kernel);
            d.count("linear_key_head_dim", *delta.key);
            d.count("linear_value_head_dim", *delta.value);
            d.count("linear_num_key_heads", *delta.key_heads);
            d.count("linear_num_value_heads", *delta.value_heads);
            let kind = |linear: &bool| {
                Fact::Str(if *linear { "linear_attention" } else { "full_attention" }.to_owned())
            };
            d.put("layer_types", Fact::List(delta.layers.iter().map(kind).collect()));
            if (*delta.unit_eps - UNIT_EPS).abs() > 1e-9 {
                let what =
                    "transformers makes queries and keys of linear attention of length 1 with 1e-6 always";
                d.lose("*.attention.layer_norm_rms_epsilon", "delta_unit_eps", what);
            }
        }
        d.flag("attention_bias", is_biased(c, own));
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let ffn = GatedFfn::new(c, *c.ffn, Bias::No);
            match &c.delta {
                Some(delta) if delta.is_in(n) => {
                    Block::new(c, blocks::Norm::rms, GatedDelta::new(c, delta), ffn)
                }
                _ => {
                    let bias = Bias::from(*c.attention_bias);
                    let attention = Attention::new(c, n, bias, bias).partly_rotary(c, n);
                    Block::new(c, blocks::Norm::rms, attention.with_head_norms(c).gated(c), ffn)
                }
            }
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => {
                Dialect { drops: GGUF_DROPS, ..Dialect::new(name, vec![GGUF, GGUF_DECODER]) }
            }
            _ => Dialect { drops: DROPS, ..Dialect::new(name, vec![HF, HF_DECODER]) },
        })
    }

    fn value_order(&self, dialect: DialectName) -> ValueOrder {
        match dialect {
            DialectName::Gguf => ValueOrder::Tiled,
            _ => ValueOrder::Grouped,
        }
    }
}

/// True if the layers that attend have biases.
fn is_biased(c: &Config, own: &dyn Fn(&str) -> bool) -> bool {
    let full = |n: &u64| !c.delta.as_ref().is_some_and(|delta| delta.is_in(*n));
    (0..*c.layers).find(full).is_some_and(|n| own(&format!("layers.{n}.attention.q.bias")))
}

/// Source: conversion/qwen.py@0c1e57098, `Qwen3NextModel` and `_Qwen35MRopeMixin`; src/models/qwen35.cpp.
fn gguf(c: &Config, own: &dyn Fn(&str) -> bool) -> Description {
    let mut d = describe::gguf(c, "qwen35", "attention.layer_norm_rms_epsilon", Activation::Silu);
    describe::gguf_rotary(&mut d, c, "qwen35");
    d.count("qwen35.rope.dimension_count", *c.rope_dims);
    // Each pair of elements has a section, all of which are the token's position.
    let pairs = *c.rope_dims / 2;
    let sections = [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3, 0];
    d.put("qwen35.rope.dimension_sections", Fact::List(sections.map(Fact::Count).to_vec()));
    if let Some(delta) = &c.delta {
        d.count("qwen35.ssm.conv_kernel", *delta.kernel);
        d.count("qwen35.ssm.state_size", *delta.key);
        d.count("qwen35.ssm.group_count", *delta.key_heads);
        d.count("qwen35.ssm.time_step_rank", *delta.value_heads);
        d.count("qwen35.ssm.inner_size", *delta.value * *delta.value_heads);
        let flags = delta.layers.iter().map(|linear| Fact::Bool(*linear)).collect();
        d.put("qwen35.attention.recurrent_layers", Fact::List(flags));
        let every =
            |interval: u64| (0..*c.layers).all(|n| delta.is_in(n) != (n + 1).is_multiple_of(interval));
        // The list says it, and wins.
        let interval = (1..=*c.layers).find(|interval| every(*interval)).unwrap_or(4);
        d.count("qwen35.full_attention_interval", interval);
        if *delta.value != *delta.key {
            let what = "llama.cpp knows one width of keys and values, and refuses the file";
            d.lose("linear_value_head_dim", "", what);
        }
        if (*delta.unit_eps - *c.norm_eps).abs() > 1e-9 {
            let what = "llama.cpp makes queries and keys of linear attention of length 1 with it, too: every result differs";
            d.lose("rms_norm_eps", "delta_unit_eps", what);
        }
    }
    if is_biased(c, own) {
        d.lose("attention_bias", "", "llama.cpp has no biases here, and refuses the file");
    }
    d
}

/// Text has one position a token, which is that of each section. transformers asks for three sections, whatever they are; llama.cpp does
/// not rotate the pairs that have none.
fn sections(r: &mut Reader, pairs: u64) {
    const SECTIONS: Keys = Keys::new(
        "rope_sections",
        &["rope.dimension_sections"],
        &["rope_parameters.mrope_section", "rope_scaling.mrope_section"],
    );
    let gguf = r.dialect() == DialectName::Gguf;
    let has_all = |sections: &[Fact]| {
        let of = |pair: u64| usize::try_from(pair % 3).ok().and_then(|n| sections.get(n)?.count());
        (0..pairs).all(|pair| of(pair).is_some_and(|count| pair / 3 < count))
    };
    let wanted = if gguf { "a section for each pair of elements" } else { "a list of three counts" };
    r.only(
        SECTIONS,
        wanted,
        |fact| matches!(fact, Fact::List(list) if list.len() >= 3 && (!gguf || has_all(list))),
    );
}

const PART: Keys = Keys::new("rope_dims", &[], &["rope_parameters.partial_rotary_factor"]);

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("rope_parameters.mrope_interleaved", TEXT),
    ("rope_scaling.mrope_interleaved", TEXT),
    ("attn_output_gate", "the heads have a gate always"),
    ("mamba_ssm_dtype", "states are f32 here"),
    ("mtp_num_hidden_layers", NEXT),
    ("mtp_use_dedicated_embeddings", NEXT),
];

const TEXT: &str = "text has one position a token";
const NEXT: &str = "for the prediction of further tokens, which a model does without";

/// Source: `_keys_to_ignore_on_load_unexpected` of transformers, and the names in Qwen's own files.
static GGUF_DROPS: &[(&str, &str)] = &[("blk.{next}.{a}.{b}", NEXT), ("blk.{next}.{a}.{b}.{c}", NEXT)];

static DROPS: &[(&str, &str)] = &[
    ("mtp.fc.weight", NEXT),
    ("mtp.norm.weight", NEXT),
    ("mtp.pre_fc_norm_embedding.weight", NEXT),
    ("mtp.pre_fc_norm_hidden.weight", NEXT),
    ("mtp.layers.{n}.{norm}.weight", NEXT),
    ("mtp.layers.{n}.{part}.{linear}.weight", NEXT),
];

/// The parts of a head that `q_proj` has one after the other: the query, then its gate. `[heads, 2, head_dim]`.
fn of_gated(expr: Expr, c: &Config, part: u64) -> Expr {
    let dim = *c.head_dim;
    expr.split(0, 2 * dim).slice(1, part * dim..(part + 1) * dim).merge(0)
}

fn gated_q(expr: Expr, c: &Config, _: usize) -> Expr {
    of_gated(expr, c, 0)
}

fn gate(expr: Expr, c: &Config, _: usize) -> Expr {
    of_gated(expr, c, 1)
}

/// Queries, keys or values, which linear attention has one after the other along `axis`.
fn of_delta(expr: Expr, c: &Config, axis: usize, part: usize) -> Expr {
    let Some(delta) = &c.delta else { return expr };
    let (keys, values) = (*delta.key_heads * *delta.key, *delta.value_heads * *delta.value);
    let ends = [0, keys, 2 * keys, 2 * keys + values];
    expr.slice(axis, ends[part]..ends[part + 1])
}

fn delta_q(expr: Expr, c: &Config, _: usize) -> Expr {
    of_delta(expr, c, 0, 0)
}

fn delta_k(expr: Expr, c: &Config, _: usize) -> Expr {
    of_delta(expr, c, 0, 1)
}

fn delta_v(expr: Expr, c: &Config, _: usize) -> Expr {
    of_delta(expr, c, 0, 2)
}

/// The same of a convolution, `[channels, 1, kernel]`. mlx-lm writes `[channels, kernel, 1]`, with norms that are not less one: that does not
/// fit here, and so is not taken for what it is not (`sanitize` of mlx_lm/models/qwen3_5.py@v0.32.2).
fn of_conv(expr: Expr, c: &Config, part: usize) -> Expr {
    of_delta(expr.permute(&[1, 0, 2]), c, 1, part).merge(0)
}

fn conv_q(expr: Expr, c: &Config, _: usize) -> Expr {
    of_conv(expr, c, 0)
}

fn conv_k(expr: Expr, c: &Config, _: usize) -> Expr {
    of_conv(expr, c, 1)
}

fn conv_v(expr: Expr, c: &Config, _: usize) -> Expr {
    of_conv(expr, c, 2)
}

/// Elements of a value.
fn width(c: &Config) -> u64 {
    c.delta.as_ref().map_or(1, |delta| *delta.value)
}

/// The rows of values of linear attention, out of all rows.
fn tiled_v(expr: Expr, c: &Config, rank: usize) -> Expr {
    tiled_values(of_delta(expr, c, 0, 2), c, rank)
}

fn tiled_values(expr: Expr, c: &Config, rank: usize) -> Expr {
    untile(expr, c, 0, width(c), rank)
}

/// One row, or one number, for each head.
fn tiled_heads(expr: Expr, c: &Config, rank: usize) -> Expr {
    untile(expr, c, 0, 1, rank)
}

fn tiled_columns(expr: Expr, c: &Config, rank: usize) -> Expr {
    untile(expr, c, 1, width(c), rank)
}

/// Heads of values are tiled, and rates are there, and not their logarithms.
static GGUF: &[Rule] = &[
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight", gated_q),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_q.bias", gated_q),
    Rule::with("layers.{n}.attention.gate.weight", "blk.{n}.attn_q.weight", gate),
    Rule::with("layers.{n}.attention.gate.bias", "blk.{n}.attn_q.bias", gate),
    Rule::same("layers.{n}.attention.k.weight", "blk.{n}.attn_k.weight"),
    Rule::same("layers.{n}.attention.k.bias", "blk.{n}.attn_k.bias"),
    Rule::same("layers.{n}.attention.v.weight", "blk.{n}.attn_v.weight"),
    Rule::same("layers.{n}.attention.v.bias", "blk.{n}.attn_v.bias"),
    Rule::same("layers.{n}.attention.q_norm.weight", "blk.{n}.attn_q_norm.weight"),
    Rule::same("layers.{n}.attention.k_norm.weight", "blk.{n}.attn_k_norm.weight"),
    Rule::with("layers.{n}.attention.q_in.weight", "blk.{n}.attn_qkv.weight", delta_q),
    Rule::with("layers.{n}.attention.k_in.weight", "blk.{n}.attn_qkv.weight", delta_k),
    Rule::with("layers.{n}.attention.v_in.weight", "blk.{n}.attn_qkv.weight", tiled_v),
    Rule::with("layers.{n}.attention.z_in.weight", "blk.{n}.attn_gate.weight", tiled_values),
    Rule::with("layers.{n}.attention.b_in.weight", "blk.{n}.ssm_beta.weight", tiled_heads),
    Rule::with("layers.{n}.attention.a_in.weight", "blk.{n}.ssm_alpha.weight", tiled_heads),
    Rule::with("layers.{n}.attention.a_in.bias", "blk.{n}.ssm_dt.bias", tiled_heads),
    Rule::with("layers.{n}.attention.q_conv.weight", "blk.{n}.ssm_conv1d.weight", delta_q),
    Rule::with("layers.{n}.attention.k_conv.weight", "blk.{n}.ssm_conv1d.weight", delta_k),
    Rule::with("layers.{n}.attention.v_conv.weight", "blk.{n}.ssm_conv1d.weight", tiled_v),
    Rule::with("layers.{n}.attention.decay.weight", "blk.{n}.ssm_a", tiled_heads),
    Rule::same("layers.{n}.attention.norm.weight", "blk.{n}.ssm_norm.weight"),
    Rule::with("layers.{n}.attention.out.weight", "blk.{n}.ssm_out.weight", tiled_columns),
    Rule::same("layers.{n}.ffn_norm.weight", "blk.{n}.post_attention_norm.weight"),
];

/// Norms are stored less one, but that of linear attention.
static HF: &[Rule] = &[
    Rule::with("layers.{n}.attention_norm.weight", "model.layers.{n}.input_layernorm.weight", add_one),
    Rule::with("layers.{n}.attention.q.weight", "model.layers.{n}.self_attn.q_proj.weight", gated_q),
    Rule::with("layers.{n}.attention.q.bias", "model.layers.{n}.self_attn.q_proj.bias", gated_q),
    Rule::with("layers.{n}.attention.gate.weight", "model.layers.{n}.self_attn.q_proj.weight", gate),
    Rule::with("layers.{n}.attention.gate.bias", "model.layers.{n}.self_attn.q_proj.bias", gate),
    Rule::same("layers.{n}.attention.k.bias", "model.layers.{n}.self_attn.k_proj.bias"),
    Rule::same("layers.{n}.attention.v.bias", "model.layers.{n}.self_attn.v_proj.bias"),
    Rule::same("layers.{n}.attention.output.bias", "model.layers.{n}.self_attn.o_proj.bias"),
    Rule::with("layers.{n}.attention.q_norm.weight", "model.layers.{n}.self_attn.q_norm.weight", add_one),
    Rule::with("layers.{n}.attention.k_norm.weight", "model.layers.{n}.self_attn.k_norm.weight", add_one),
    Rule::with(
        "layers.{n}.attention.q_in.weight",
        "model.layers.{n}.linear_attn.in_proj_qkv.weight",
        delta_q,
    ),
    Rule::with(
        "layers.{n}.attention.k_in.weight",
        "model.layers.{n}.linear_attn.in_proj_qkv.weight",
        delta_k,
    ),
    Rule::with(
        "layers.{n}.attention.v_in.weight",
        "model.layers.{n}.linear_attn.in_proj_qkv.weight",
        delta_v,
    ),
    Rule::same("layers.{n}.attention.z_in.weight", "model.layers.{n}.linear_attn.in_proj_z.weight"),
    Rule::same("layers.{n}.attention.b_in.weight", "model.layers.{n}.linear_attn.in_proj_b.weight"),
    Rule::same("layers.{n}.attention.a_in.weight", "model.layers.{n}.linear_attn.in_proj_a.weight"),
    Rule::same("layers.{n}.attention.a_in.bias", "model.layers.{n}.linear_attn.dt_bias"),
    Rule::with("layers.{n}.attention.q_conv.weight", "model.layers.{n}.linear_attn.conv1d.weight", conv_q),
    Rule::with("layers.{n}.attention.k_conv.weight", "model.layers.{n}.linear_attn.conv1d.weight", conv_k),
    Rule::with("layers.{n}.attention.v_conv.weight", "model.layers.{n}.linear_attn.conv1d.weight", conv_v),
    Rule::with("layers.{n}.attention.decay.weight", "model.layers.{n}.linear_attn.A_log", neg_exp),
    Rule::same("layers.{n}.attention.norm.weight", "model.layers.{n}.linear_attn.norm.weight"),
    Rule::same("layers.{n}.attention.out.weight", "model.layers.{n}.linear_attn.out_proj.weight"),
    Rule::with("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight", add_one),
    Rule::with("output_norm.weight", "model.norm.weight", add_one),
];
