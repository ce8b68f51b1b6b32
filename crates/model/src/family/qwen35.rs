//! Qwen 3.5: three of four layers are linear attention by the gated delta rule, and the others attend, with a gate after their heads.
//! Texts alone: what else a checkpoint has for images is left, by name.
//!
//! Source: transformers `Qwen3_5ForCausalLM`@v5.23; conversion/qwen.py, `Qwen3_5TextModel`,
//! and gguf-py/gguf/tensor_mapping.py@0c1e57098.

use tensor::Expr;

use crate::Fact;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Delta, Keys, Reader, Rotary, WithoutEffect};
use crate::dialect::{Dialect, HF_DECODER, Rule, add_one};
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
        &[]
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
            ..DecoderKeys::LLAMA
        };
        let base = Config { tied, ..common.read(r) };
        // Text has one position a token, and the sections share it: that they are there is all that the reference needs.
        r.only(
            SECTIONS,
            "a list of three counts",
            |fact| matches!(fact, Fact::List(list) if list.len() >= 3),
        );
        r.not_null(PART, "a number");
        let attention_bias = r.attention_bias(false);
        let delta = Some(Delta::read(r, &base.layers));
        Config { attention_bias, delta, ..base }
    }

    fn without_effect(&self, _: DialectName) -> &'static WithoutEffect {
        WITHOUT_EFFECT
    }

    fn describe(&self, c: &Config, _: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let mut d = describe::hf(c, "Qwen3_5ForCausalLM", "qwen3_5_text", "rms_norm_eps");
        d.text("hidden_act", c.activation.name());
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
        }
        let full = |n: &u64| !c.delta.as_ref().is_some_and(|delta| delta.is_in(*n));
        let first = (0..*c.layers).find(full);
        d.flag("attention_bias", first.is_some_and(|n| own(&format!("layers.{n}.attention.q.bias"))));
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
        match name {
            DialectName::Gguf => None,
            _ => Some(Dialect { drops: DROPS, ..Dialect::new(name, vec![HF, HF_DECODER]) }),
        }
    }
}

const SECTIONS: Keys =
    Keys::new("rope_sections", &[], &["rope_parameters.mrope_section", "rope_scaling.mrope_section"]);
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
    Rule::same("layers.{n}.attention.decay.log", "model.layers.{n}.linear_attn.A_log"),
    Rule::same("layers.{n}.attention.norm.weight", "model.layers.{n}.linear_attn.norm.weight"),
    Rule::same("layers.{n}.attention.out.weight", "model.layers.{n}.linear_attn.out_proj.weight"),
    Rule::with("layers.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight", add_one),
    Rule::with("output_norm.weight", "model.norm.weight", add_one),
];
