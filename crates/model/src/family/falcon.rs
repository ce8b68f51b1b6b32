//! Falcon (7B, and 11B of Falcon 2): attention and a feed-forward network beside each other, of one norm; one key and value
//! head, or some. Config.json's files have queries, keys and values in one tensor, group by group.
//!
//! Source: transformers `FalconForCausalLM`@v5.23; llama.cpp conversion/falcon.py, src/models/falcon.cpp and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/falcon.py, v0.33.0.

use tensor::Expr;

use crate::activation::Activation;
use crate::config::describe::{self, Description};
use crate::config::{Config, DecoderKeys, Field, Keys, Reader, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, Rule, rows_k, rows_q, rows_v};
use crate::ecosystem::DialectName;
use crate::module::Module;
use crate::{ConfigProblem, Fact};

use super::Family;
use super::blocks::{self, Attention, Bias, Block, Decoder, Ffn};

/// The unit that stands for the family in the table.
pub(super) struct Falcon;

impl Family for Falcon {
    fn name(&self) -> &'static str {
        "falcon"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["falcon"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &["FalconForCausalLM", "FalconModel", "falcon"]
    }

    fn config(&self, r: &mut Reader) -> Config {
        let common = DecoderKeys {
            hidden: Keys::new("hidden", &["embedding_length"], &["n_embed", "hidden_size"]),
            kv_heads: Keys::new("kv_heads", &["attention.head_count_kv"], &[]),
            head_dim: Keys::new("head_dim", &["attention.key_length"], &[]),
            ffn: Keys::new("ffn", &["feed_forward_length"], &["ffn_hidden_size"]),
            norm_eps: Keys::new("norm_eps", &["attention.layer_norm_epsilon"], &["layer_norm_epsilon"]),
            norm_eps_absent: 1e-5,
            activation: Keys::new("activation", &[], &["activation"]),
            activation_absent: Activation::Gelu,
            ffn_by_hidden: Some(4),
            ..DecoderKeys::LLAMA
        };
        let mut c = common.read(r);
        if r.dialect() == DialectName::Hf {
            c.kv_heads = kv_heads(r, &c.heads);
            // Transformers computes them, and fails where they are set.
            r.only(HEAD_DIM, "no such key", |_| false);
            r.only(ROTARY, "no such key", |_| false);
        }
        r.only_flag(ALIBI, false);
        r.only_flag(PARALLEL, true);
        let bias = r.bias(Keys::new("bias", &[], &["bias"]), false);
        Config { tied: r.tied(true), attention_bias: bias.clone(), ffn_bias: bias, ..c }
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        let biased = own("layers.0.attention.output.bias");
        if dialect == DialectName::Gguf {
            let mut d = describe::gguf(c, "falcon", "attention.layer_norm_epsilon", Activation::Gelu);
            describe::gguf_rotary(&mut d, c, "falcon");
            describe::lose_head_dim(&mut d, c);
            d.text("falcon.tensor_data_layout", "jploski");
            if biased {
                d.lose("bias", "", "llama.cpp has no biases here, and refuses the file");
            }
            return d;
        }
        let mut d = describe::hf(c, "FalconForCausalLM", "falcon", "layer_norm_epsilon");
        d.pairs.retain(|(key, _)| !OF_LLAMA.contains(&&**key));
        d.count("ffn_hidden_size", *c.ffn);
        d.count("num_kv_heads", *c.kv_heads);
        let grouped = *c.kv_heads != 1 && *c.kv_heads != *c.heads;
        d.flag("new_decoder_architecture", grouped);
        d.flag("multi_query", *c.kv_heads == 1);
        if grouped {
            d.count("num_ln_in_parallel_attn", 1);
        }
        d.flag("parallel_attn", true);
        d.flag("alibi", false);
        d.text("activation", c.activation.name());
        d.flag("bias", biased);
        d.flag("tie_word_embeddings", !own("output.weight"));
        d
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let bias = Bias::from(*c.attention_bias);
            let attention = Attention::new(c, n, bias, bias).rotary(c, n);
            Block::new(c, blocks::Norm::layer, attention, Ffn::new(c, Bias::from(*c.ffn_bias))).in_parallel(c)
        };
        Box::new(Decoder::new(c, blocks::Norm::layer, block))
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF_DECODER, GGUF]),
            _ => Dialect {
                prefix: "transformer.",
                drops: &[("h.{n}.self_attention.rotary_emb.inv_freq", "computed from the configuration")],
                ..Dialect::new(name, vec![HF])
            },
        })
    }
}

const HEAD_DIM: Keys = Keys::new("head_dim", &[], &["head_dim"]);
const ROTARY: Keys = Keys::new("rotary", &[], &["rotary"]);
const ALIBI: Keys = Keys::new("alibi", &[], &["alibi"]);
const PARALLEL: Keys = Keys::new("parallel", &[], &["parallel_attn"]);
const NEW: Keys = Keys::new("kv_heads", &[], &["new_decoder_architecture"]);
const MULTI_QUERY: Keys = Keys::new("kv_heads", &[], &["multi_query"]);
const KV_HEADS: Keys = Keys::new("kv_heads", &[], &["num_kv_heads"]);
const NORMS: Keys = Keys::new("norms", &[], &["num_ln_in_parallel_attn"]);

/// Keys that Llama's config.json has, and this has otherwise or not at all.
const OF_LLAMA: &[&str] = &["intermediate_size", "num_key_value_heads", "head_dim"];

/// Reads the number of key and value heads of config.json, by two flags.
fn kv_heads(r: &mut Reader, heads: &Field<u64>) -> Field<u64> {
    let grouped = r.flag(NEW).is_some_and(|new| *new);
    let multi_query = r.flag(MULTI_QUERY);
    let one = |fact: &Fact| *fact == Fact::Count(1);
    r.only(NORMS, "1: one norm before attention and the feed-forward network", one);
    if grouped {
        r.overridden(MULTI_QUERY, "`new_decoder_architecture` says it, and wins");
        if r.fact(NORMS).is_none() {
            let (wanted, found) = ("1: one norm".to_owned(), "none, which means 2".to_owned());
            r.problem(ConfigProblem::Invalid { key: "num_ln_in_parallel_attn".to_owned(), wanted, found });
        }
        return r.count(KV_HEADS, 1).unwrap_or(Field::default(**heads, "as many as query heads"));
    }
    match multi_query {
        Some(Field { value: false, origin }) => {
            let all = **heads;
            r.only(KV_HEADS, "as many as query heads", |fact| fact.count() == Some(all));
            Field { value: all, origin }
        }
        _ => {
            r.overridden(KV_HEADS, "`multi_query` says it: one");
            Field::default(1, "one for all query heads")
        }
    }
}

/// Rows `from` to `to`, counted in heads, of each group: its queries, then a key, then a value.
fn of_groups(expr: Expr, c: &Config, from: u64, to: u64) -> Expr {
    let (group, head) = (group(c), *c.head_dim);
    expr.split(0, (group + 2) * head).slice(1, from * head..to * head).merge(0)
}

/// Query heads that share a key head.
fn group(c: &Config) -> u64 {
    *c.heads / *c.kv_heads
}

fn groups_q(expr: Expr, c: &Config, _: usize) -> Expr {
    of_groups(expr, c, 0, group(c))
}

fn groups_k(expr: Expr, c: &Config, _: usize) -> Expr {
    of_groups(expr, c, group(c), group(c) + 1)
}

fn groups_v(expr: Expr, c: &Config, _: usize) -> Expr {
    of_groups(expr, c, group(c) + 1, group(c) + 2)
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("hidden_dropout", "for training"),
    ("apply_residual_connection_post_layernorm", "transformers does not read it"),
    ("n_head", "`num_attention_heads` says it"),
    ("n_head_kv", "`num_kv_heads` says it"),
    ("n_layer", "`num_hidden_layers` says it"),
    ("num_key_value_heads", "`num_kv_heads` says it"),
    ("intermediate_size", "`ffn_hidden_size` says it"),
    ("hidden_act", "`activation` says it"),
    ("attention_bias", "of other families: `bias` says it"),
    ("mlp_bias", "of other families: `bias` says it"),
    ("rms_norm_eps", "of other families: these norms have `layer_norm_epsilon`"),
    ("sliding_window", "of other families: every layer sees all positions"),
    ("layer_types", "of other families: every layer sees all positions"),
];

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.tensor_data_layout", "llama.cpp computes nothing from it"),
    ("*.attention.value_length", "as long as a key, which is checked by shapes"),
    ("*.vocab_size", "the tokens say it"),
];

static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention_norm.bias", "blk.{n}.attn_norm.bias"),
    Rule::with("layers.{n}.attention.q.weight", "blk.{n}.attn_qkv.weight", rows_q),
    Rule::with("layers.{n}.attention.k.weight", "blk.{n}.attn_qkv.weight", rows_k),
    Rule::with("layers.{n}.attention.v.weight", "blk.{n}.attn_qkv.weight", rows_v),
    Rule::with("layers.{n}.attention.q.bias", "blk.{n}.attn_qkv.bias", rows_q),
    Rule::with("layers.{n}.attention.k.bias", "blk.{n}.attn_qkv.bias", rows_k),
    Rule::with("layers.{n}.attention.v.bias", "blk.{n}.attn_qkv.bias", rows_v),
    Rule::same("output_norm.bias", "output_norm.bias"),
];

static HF: &[Rule] = &[
    Rule::same("token_embedding.weight", "word_embeddings.weight"),
    Rule::same("layers.{n}.attention_norm.weight", "h.{n}.input_layernorm.weight"),
    Rule::same("layers.{n}.attention_norm.bias", "h.{n}.input_layernorm.bias"),
    Rule::with("layers.{n}.attention.q.weight", "h.{n}.self_attention.query_key_value.weight", groups_q),
    Rule::with("layers.{n}.attention.k.weight", "h.{n}.self_attention.query_key_value.weight", groups_k),
    Rule::with("layers.{n}.attention.v.weight", "h.{n}.self_attention.query_key_value.weight", groups_v),
    Rule::with("layers.{n}.attention.q.bias", "h.{n}.self_attention.query_key_value.bias", groups_q),
    Rule::with("layers.{n}.attention.k.bias", "h.{n}.self_attention.query_key_value.bias", groups_k),
    Rule::with("layers.{n}.attention.v.bias", "h.{n}.self_attention.query_key_value.bias", groups_v),
    Rule::same("layers.{n}.attention.output.weight", "h.{n}.self_attention.dense.weight"),
    Rule::same("layers.{n}.attention.output.bias", "h.{n}.self_attention.dense.bias"),
    Rule::same("layers.{n}.ffn.up.weight", "h.{n}.mlp.dense_h_to_4h.weight"),
    Rule::same("layers.{n}.ffn.up.bias", "h.{n}.mlp.dense_h_to_4h.bias"),
    Rule::same("layers.{n}.ffn.down.weight", "h.{n}.mlp.dense_4h_to_h.weight"),
    Rule::same("layers.{n}.ffn.down.bias", "h.{n}.mlp.dense_4h_to_h.bias"),
    Rule::same("output_norm.weight", "ln_f.weight"),
    Rule::same("output_norm.bias", "ln_f.bias"),
    Rule::unprefixed("output.weight", "lm_head.weight"),
];
