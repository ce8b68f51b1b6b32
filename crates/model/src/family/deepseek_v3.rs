//! DeepSeek 2 and 3, and Kimi K2: low-rank attention (MLA), some dense layers, then mixtures of experts with one that
//! every token is sent to. The rotated elements of q and k lie in interleaved order everywhere, and stay so.
//!
//! Keys and values are made from a latent vector by two matrices for each head, as in GGUF: attention multiplies with
//! these. In transformers they are one, `kv_b_proj`.
//!
//! Source: transformers `DeepseekV3ForCausalLM`@v4.57; conversion/deepseek.py, `DeepseekV2Model`, and
//! gguf-py/gguf/tensor_mapping.py@0c1e57098; vllm/model_executor/models/deepseek_v2.py, v0.33.0.

use derive::Module;
use tensor::Expr;

use crate::activation::Activation;
use crate::computes::Computes;
use crate::config::describe::{self, Description};
use crate::config::parts::MoeDefaults;
use crate::config::{Config, DecoderKeys, Field, Keys, Latent, Moe, Reader, Rotary, WithoutEffect};
use crate::dialect::{Dialect, GGUF_DECODER, GGUF_MOE, HF_DECODER, HF_DROPS, HF_LLAMA, HF_MOE, Rule};
use crate::ecosystem::DialectName;
use crate::module::{
    self, ColumnParallelLinear, FusedPart, Linear, MergedColumnParallelLinear, Module, RmsNorm,
    RowParallelLinear, Tree,
};
use crate::param::{Along, Axis, ParamSpec, Role};
use crate::rope::{Rope, RopeScaling, Yarn, yarn_mscale};
use crate::{ConfigProblem, Fact};

use super::Family;
use super::blocks::{self, Bias, Block, Decoder, GatedFfn, MoeFfn};

/// The unit that stands for the family in the table.
pub(super) struct DeepseekV3;

impl Family for DeepseekV3 {
    fn name(&self) -> &'static str {
        "deepseek_v3"
    }

    fn gguf(&self) -> &'static [&'static str] {
        &["deepseek2"]
    }

    fn hf(&self) -> &'static [&'static str] {
        &[
            "DeepseekV3ForCausalLM",
            "DeepseekV3Model",
            "deepseek_v3",
            "kimi_k2",
            "DeepseekV2ForCausalLM",
            "DeepseekV2Model",
            "deepseek_v2",
        ]
    }

    fn config(&self, r: &mut Reader) -> Config {
        const NEXT: Keys = Keys::new("next_layers", &[], &["num_nextn_predict_layers"]);
        let tied = r.tied(false);
        let rotary = Rotary { scales_scores: true, ..Rotary::PLAIN };
        // A head is as long as its two parts together, and there are as many keys as queries.
        let head_dim_absent = Some(1);
        let base = DecoderKeys { head_dim_absent, rotary, ..DecoderKeys::LLAMA }.read(r);
        let latent = Latent::read(r, &base.norm_eps);
        let hf = r.dialect() == DialectName::Hf;
        let v2 =
            r.architecture().to_lowercase().starts_with("deepseekv2") || r.architecture() == "deepseek_v2";
        let defaults = match (hf, v2) {
            (false, _) => MoeDefaults { normed: false, shared: Some(0), ..MoeDefaults::PLAIN },
            (true, true) => MoeDefaults {
                experts: &["n_routed_experts", "num_experts"],
                unread: &[],
                normed: false,
                ffn: Some(1407),
                shared: Some(2),
                grouped: true,
                ..MoeDefaults::PLAIN
            },
            (true, false) => MoeDefaults {
                experts: &["n_routed_experts", "num_local_experts"],
                unread: &[],
                normed: true,
                sigmoid: true,
                ffn: Some(2048),
                shared: Some(1),
                dense: 3,
                groups: (8, 4),
                grouped: true,
                scale: 2.5,
            },
        };
        let mut moe = Moe::read(r, &base.ffn, &defaults);
        if hf && v2 {
            groups_of_v2(r, &mut moe);
            r.only_flag(Keys::new("expert_weights_normed", &[], &["norm_topk_prob"]), false);
            moe.normed = Field::default(false, "as transformers runs DeepSeek 2");
        }
        if hf {
            r.only_flag(Keys::new("attention_bias", &[], &["attention_bias"]), false);
            r.only_flag(Keys::new("ffn_bias", &[], &["mlp_bias"]), false);
            r.only_flag(Keys::new("rope_order", &[], &["rope_interleave"]), true);
        }
        let temperature = &["attention.temperature_scale", "attention.temperature_length"];
        r.only(Keys::new("attention_scale", temperature, &[]), "no such key", |_| false);
        every_layer(r);
        let head_dim =
            Field { value: latent.nope.saturating_add(*latent.rope), origin: latent.rope.origin.clone() };
        let next_layers = r.count(NEXT, 0).filter(|n| **n <= 64).unwrap_or(base.next_layers.clone());
        Config {
            tied,
            kv_heads: base.heads.clone(),
            rope_dims: head_dim.clone(),
            attention_scale: Field::default((*head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)"),
            attention_bias: Field::default(Some(false), "none"),
            head_dim,
            next_layers,
            moe: Some(moe),
            latent: Some(latent),
            ..base
        }
    }

    fn describe(&self, c: &Config, dialect: DialectName, own: &dyn Fn(&str) -> bool) -> Description {
        match (dialect, &c.latent, &c.moe) {
            (DialectName::Gguf, Some(latent), Some(moe)) => gguf(c, latent, moe),
            (DialectName::Hf, Some(latent), Some(moe)) => hf(c, latent, moe, own),
            _ => Description::new(dialect),
        }
    }

    fn module(&self, c: &Config) -> Box<dyn Module> {
        let block = |n| {
            let attention = c.latent.as_ref().map(|latent| LatentAttention::new(c, n, latent));
            let ffn: Box<dyn Module> = match &c.moe {
                Some(moe) if n >= *moe.dense => {
                    Box::new(MoeFfn::new(c, moe).with_correction(moe, *moe.sigmoid))
                }
                _ => Box::new(GatedFfn::new(c, *c.ffn, Bias::No)),
            };
            Block::new(c, blocks::Norm::rms, attention, ffn)
        };
        Box::new(Decoder::new(c, blocks::Norm::rms, block))
    }

    fn without_effect(&self, dialect: DialectName) -> &'static WithoutEffect {
        match dialect {
            DialectName::Gguf => GGUF_WITHOUT_EFFECT,
            _ => WITHOUT_EFFECT,
        }
    }

    fn dialect(&self, name: DialectName) -> Option<Dialect> {
        Some(match name {
            DialectName::Gguf => Dialect::new(name, vec![GGUF, GGUF_DECODER, GGUF_MOE]),
            _ => Dialect { drops: DROPS, ..Dialect::new(name, vec![HF, HF_DECODER, HF_LLAMA, HF_MOE]) },
        })
    }
}

/// The groups that DeepSeek 2 chooses experts in: none, or by the best expert of each.
fn groups_of_v2(r: &mut Reader, moe: &mut Moe) {
    const METHOD: Keys = Keys::new("expert_groups", &[], &["topk_method"]);
    let limited = r.word(METHOD).is_some_and(|method| *method == "group_limited_greedy");
    if limited && *moe.groups > 1 {
        moe.group_best = Field::default(1, "as the reference has it");
    }
    if !limited {
        r.only(METHOD, "`greedy` or `group_limited_greedy`", |fact| *fact == Fact::Str("greedy".to_owned()));
        (moe.groups, moe.groups_used) = (Field::default(0, "none"), Field::default(0, "none"));
    }
}

static WITHOUT_EFFECT: &WithoutEffect = &[
    ("num_key_value_heads", "keys are made for every head"),
    ("head_dim", "the sizes of its parts say it"),
    ("topk_method", "the class says it"),
    ("aux_loss_alpha", "for training"),
    ("seq_aux", "for training"),
    ("ep_size", "for the program that runs it"),
    ("output_router_logits", "for training"),
    ("router_aux_loss_coef", "for training"),
    ("num_nextn_predict_layers", "layers after the last, which a model does without"),
    ("num_mtp_layers", "layers after the last, which a model does without"),
];

static GGUF_WITHOUT_EFFECT: &WithoutEffect = &[
    ("*.attention.head_count_kv", "keys are made for every head"),
    ("*.attention.key_length", "as wide as the latent vector and what is rotated"),
    ("*.attention.value_length", "as wide as the latent vector"),
    ("*.vocab_size", "the tokens say it"),
    ("*.rope.scaling.finetuned", "llama.cpp computes nothing from it"),
];

/// Config.json can leave experts out of some layers, which no released model does and GGUF cannot say.
fn every_layer(r: &mut Reader) {
    const STEP: Keys = Keys::new("moe_layer_freq", &[], &["moe_layer_freq"]);
    if let Some((key, found)) = r.fact(STEP).filter(|(_, fact)| *fact != Fact::Count(1)) {
        let wanted = "1: experts in every layer after the dense ones".to_owned();
        r.problem(ConfigProblem::Invalid { key, wanted, found: found.to_string() });
    }
}

fn gguf(c: &Config, latent: &Latent, moe: &Moe) -> Description {
    let mut d = describe::gguf(c, "deepseek2", "attention.layer_norm_rms_epsilon", Activation::Silu);
    describe::gguf_rotary(&mut d, c, "deepseek2");
    describe::gguf_moe(&mut d, c, "deepseek2");
    // Keys and values as the heads share them: one of each, as wide as the latent vector.
    d.count("deepseek2.attention.head_count_kv", 1);
    d.count("deepseek2.attention.key_length", *latent.kv_rank + *latent.rope);
    d.count("deepseek2.attention.value_length", *latent.kv_rank);
    d.count("deepseek2.attention.key_length_mla", *c.head_dim);
    d.count("deepseek2.attention.value_length_mla", *latent.value);
    d.count("deepseek2.attention.kv_lora_rank", *latent.kv_rank);
    if *latent.q_rank > 0 {
        d.count("deepseek2.attention.q_lora_rank", *latent.q_rank);
    }
    d.count("deepseek2.rope.dimension_count", *latent.rope);
    d.count("deepseek2.leading_dense_block_count", *moe.dense);
    d.count("deepseek2.expert_feed_forward_length", *moe.ffn);
    d.count("deepseek2.expert_shared_count", *moe.shared);
    if *moe.normed {
        d.flag("deepseek2.expert_weights_norm", true);
    }
    d.count("deepseek2.expert_gating_func", if *moe.sigmoid { 2 } else { 1 });
    if (*c.norm_eps - *latent.norm_eps).abs() > 1e-3 * *latent.norm_eps {
        let what = "llama.cpp adds it to norms of latent vectors, too, where transformers adds 1e-6: every result differs";
        d.lose("rms_norm_eps", "latent_norm_eps", what);
    }
    if *moe.groups > 1 && *moe.group_best == 1 {
        let what =
            "llama.cpp chooses groups by their best two experts, not by the best: other experts are asked";
        d.lose("topk_method", "expert_group_best", what);
    }
    d
}

fn hf(c: &Config, latent: &Latent, moe: &Moe, own: &dyn Fn(&str) -> bool) -> Description {
    let (architecture, model_type) = if *moe.sigmoid {
        ("DeepseekV3ForCausalLM", "deepseek_v3")
    } else {
        ("DeepseekV2ForCausalLM", "deepseek_v2")
    };
    let mut d = describe::hf(c, architecture, model_type, "rms_norm_eps");
    describe::hf_moe(&mut d, c, "n_routed_experts");
    // Transformers 5 calls this what it rotates.
    d.count("head_dim", *latent.rope);
    d.put("q_lora_rank", if *latent.q_rank > 0 { Fact::Count(*latent.q_rank) } else { Fact::Null });
    d.count("kv_lora_rank", *latent.kv_rank);
    d.count("qk_nope_head_dim", *latent.nope);
    d.count("qk_rope_head_dim", *latent.rope);
    d.count("v_head_dim", *latent.value);
    d.count("moe_intermediate_size", *moe.ffn);
    d.count("n_shared_experts", *moe.shared);
    d.count("first_k_dense_replace", *moe.dense);
    if *moe.groups > 0 || *moe.sigmoid {
        // Absent, there are eight groups.
        d.count("n_group", (*moe.groups).max(1));
        d.count("topk_group", (*moe.groups_used).max(1));
    }
    d.number("routed_scaling_factor", *moe.scale);
    d.flag("norm_topk_prob", *moe.normed);
    d.text("scoring_func", if *moe.sigmoid { "sigmoid" } else { "softmax" });
    let corrected = format!("layers.{}.ffn.router.correction.bias", *moe.dense);
    let grouped = if *moe.groups > 1 { "group_limited_greedy" } else { "greedy" };
    d.text("topk_method", if *moe.sigmoid && own(&corrected) { "noaux_tc" } else { grouped });
    if (*latent.norm_eps - 1e-6).abs() > 1e-9 {
        let what =
            "transformers adds 1e-6 in norms of latent vectors, whatever the file says: every result differs";
        d.lose("rms_norm_eps", "latent_norm_eps", what);
    }
    if *moe.normed && !*moe.sigmoid {
        let what = "transformers does not make the weights of DeepSeek 2's experts sum up to 1: every result differs";
        d.lose("norm_topk_prob", "expert_weights_normed", what);
    }
    if *moe.groups > 1 && *moe.group_best != 1 && !*moe.sigmoid {
        let what = "transformers chooses groups of DeepSeek 2 by their best expert, not by the best two: other experts are asked";
        d.lose("topk_method", "expert_group_best", what);
    }
    d.text("hidden_act", c.activation.name());
    d.flag("attention_bias", false);
    d.flag("tie_word_embeddings", !own("output.weight"));
    d
}

/// Attention through latent vectors.
#[derive(Module)]
struct LatentAttention {
    #[module(flatten)]
    computes: Computes,
    /// Both ways into latent vectors, where queries have one.
    qkv_a: Option<MergedColumnParallelLinear>,
    q_a_norm: Option<RmsNorm>,
    q_b: Option<ColumnParallelLinear>,
    q: Option<ColumnParallelLinear>,
    kv_a: Option<Linear>,
    kv_a_norm: RmsNorm,
    kv_b: KvB,
    output: RowParallelLinear,
}

impl LatentAttention {
    fn new(c: &Config, n: u64, latent: &Latent) -> LatentAttention {
        let hidden = Axis::Hidden.of(*c.hidden);
        let (q_rank, kv_rank) = (Axis::Latent.of(*latent.q_rank), Axis::Latent.of(*latent.kv_rank));
        let queries = Axis::Heads.of_units(*c.heads, *c.head_dim);
        let kv_a = Axis::Latent.of(*latent.kv_rank + *latent.rope);
        let low = *latent.q_rank > 0;
        let norm = |axis: Along| RmsNorm::new(axis).with_eps(*latent.norm_eps as f32);
        let parts = || [FusedPart::whole("q_a", q_rank), FusedPart::whole("kv_a", kv_a)];
        LatentAttention {
            computes: Computes::LatentAttention(module::LatentAttention {
                heads: *c.heads,
                latent: *latent.kv_rank,
                q_latent: low.then_some(*latent.q_rank),
                nope: *latent.nope,
                value: *latent.value,
                rope: Rope { dims: *latent.rope, ..Rope::of(c, n) },
                scale: score_scale(c),
            }),
            qkv_a: low.then(|| MergedColumnParallelLinear::new(hidden, parts())),
            q_a_norm: low.then(|| norm(q_rank)),
            q_b: low.then(|| ColumnParallelLinear::new(q_rank, queries)),
            q: (!low).then(|| ColumnParallelLinear::new(hidden, queries)),
            kv_a: (!low).then(|| Linear::new(hidden, kv_a)),
            kv_a_norm: norm(kv_rank),
            kv_b: KvB {
                heads: Axis::Heads.of(*c.heads),
                rank: kv_rank,
                nope: *latent.nope,
                value: *latent.value,
            },
            output: RowParallelLinear::new(Axis::Heads.of_units(*c.heads, *latent.value), hidden),
        }
    }
}

/// What scores are multiplied by. Source: transformers `yarn_apply_mscale`, modeling_rope_utils.py@v5.23.
fn score_scale(c: &Config) -> f32 {
    let stretched = match &*c.rope_scaling {
        RopeScaling::Yarn(Yarn { factor, mscale_all_dim: Some(all), .. }) => yarn_mscale(*factor, *all),
        _ => 1.0,
    };
    (*c.attention_scale * stretched * stretched) as f32
}

/// The matrices that make keys and values from a latent vector: `k_b` `[heads, rank, nope]`, which maps a query to the
/// latent space, and `v_b` `[heads, value, rank]`. Held as one, `[heads · (nope + value), rank]`.
struct KvB {
    heads: Along,
    rank: Along,
    nope: u64,
    value: u64,
}

impl Module for KvB {
    fn declare(&self, tree: &mut Tree) {
        let spec = |axes: [Along; 3]| ParamSpec::new(Role::Matrix, axes);
        let k = tree.part("..k_b.weight", spec([self.heads, self.rank, self.nope.into()]));
        let v = tree.part("..v_b.weight", spec([self.heads, self.value.into(), self.rank]));
        let upright = Expr::source(k).permute(&[0, 2, 1]);
        tree.held_as("weight", Expr::concat(1, vec![upright, Expr::source(v)]).merge(0));
    }
}

/// Rows of keys of each head, turned.
fn k_b(expr: Expr, c: &Config, _: usize) -> Expr {
    let Some(latent) = &c.latent else { return expr };
    let heads = expr.split(0, *latent.nope + *latent.value);
    heads.slice(1, 0..*latent.nope).permute(&[0, 2, 1])
}

/// Rows of values of each head.
fn v_b(expr: Expr, c: &Config, _: usize) -> Expr {
    let Some(latent) = &c.latent else { return expr };
    let rows = *latent.nope + *latent.value;
    expr.split(0, rows).slice(1, *latent.nope..rows)
}

/// Files from before the heads were taken apart have them as transformers does.
static GGUF: &[Rule] = &[
    Rule::same("layers.{n}.attention.q.weight", "blk.{n}.attn_q.weight"),
    Rule::same("layers.{n}.attention.q_a.weight", "blk.{n}.attn_q_a.weight"),
    Rule::same("layers.{n}.attention.q_a_norm.weight", "blk.{n}.attn_q_a_norm.weight"),
    Rule::same("layers.{n}.attention.q_b.weight", "blk.{n}.attn_q_b.weight"),
    Rule::same("layers.{n}.attention.kv_a.weight", "blk.{n}.attn_kv_a_mqa.weight"),
    Rule::same("layers.{n}.attention.kv_a_norm.weight", "blk.{n}.attn_kv_a_norm.weight"),
    Rule::same("layers.{n}.attention.k_b.weight", "blk.{n}.attn_k_b.weight"),
    Rule::with("layers.{n}.attention.k_b.weight", "blk.{n}.attn_kv_b.weight", k_b),
    Rule::same("layers.{n}.attention.v_b.weight", "blk.{n}.attn_v_b.weight"),
    Rule::with("layers.{n}.attention.v_b.weight", "blk.{n}.attn_kv_b.weight", v_b),
];

static HF: &[Rule] = &[
    Rule::same("layers.{n}.attention.q_a.weight", "model.layers.{n}.self_attn.q_a_proj.weight"),
    Rule::same("layers.{n}.attention.q_a_norm.weight", "model.layers.{n}.self_attn.q_a_layernorm.weight"),
    Rule::same("layers.{n}.attention.q_b.weight", "model.layers.{n}.self_attn.q_b_proj.weight"),
    Rule::same("layers.{n}.attention.kv_a.weight", "model.layers.{n}.self_attn.kv_a_proj_with_mqa.weight"),
    Rule::same("layers.{n}.attention.kv_a_norm.weight", "model.layers.{n}.self_attn.kv_a_layernorm.weight"),
    Rule::with("layers.{n}.attention.k_b.weight", "model.layers.{n}.self_attn.kv_b_proj.weight", k_b),
    Rule::with("layers.{n}.attention.v_b.weight", "model.layers.{n}.self_attn.kv_b_proj.weight", v_b),
    // mlx_lm/models/deepseek_v3.py@v0.32.2, `sanitize`.
    Rule::mlx("layers.{n}.attention.k_b.weight", "model.layers.{n}.self_attn.embed_q.weight"),
    Rule::mlx("layers.{n}.attention.v_b.weight", "model.layers.{n}.self_attn.unembed_out.weight"),
];

/// Source of the layers after the last: README_WEIGHTS.md of DeepSeek-V3, "Multi-Token Prediction".
static DROPS: &[(&str, &str)] = &[
    HF_DROPS[0],
    HF_DROPS[1],
    ("model.layers.{next}.{a}.{b}", NEXT),
    ("model.layers.{next}.{a}.{b}.{c}", NEXT),
    ("model.layers.{next}.{a}.{b}.{c}.{d}", NEXT),
    ("model.layers.{next}.{a}.{b}.{c}.{d}.{e}", NEXT),
];

const NEXT: &str = "predicts further tokens, which the model does without";
