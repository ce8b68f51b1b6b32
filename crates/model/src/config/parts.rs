//! The numbers of what only some models have: experts, low-rank attention, an encoder.

use super::{ConfigProblem, Field, Keys, LARGEST_HEAD, Origin, Reader};
use crate::computes::{Groups, Routing, Scores};
use crate::{DialectName, Fact};

const EXPERTS: Keys = Keys::new("experts", &["expert_count"], &["num_local_experts", "num_experts"]);
const USED: Keys =
    Keys::new("experts_used", &["expert_used_count"], &["num_experts_per_tok", "experts_per_token"]);
const EXPERT_FFN: Keys = Keys::new("expert_ffn", &["expert_feed_forward_length"], &["moe_intermediate_size"]);
const SHARED: Keys = Keys::new("experts_shared", &["expert_shared_count"], &["n_shared_experts"]);
const DENSE: Keys = Keys::new("dense_layers", &["leading_dense_block_count"], &["first_k_dense_replace"]);
const GROUPS: Keys = Keys::new("expert_groups", &["expert_group_count"], &["n_group"]);
const GROUPS_USED: Keys = Keys::new("expert_groups_used", &["expert_group_used_count"], &["topk_group"]);
const SCALE: Keys = Keys::new("expert_scale", &["expert_weights_scale"], &["routed_scaling_factor"]);
const NORMED: Keys = Keys::new("expert_weights_normed", &["expert_weights_norm"], &["norm_topk_prob"]);
const GATING: Keys = Keys::new("expert_gating", &["expert_gating_func"], &[]);
const SCORING: Keys = Keys::new("expert_gating", &[], &["scoring_func"]);

const Q_RANK: Keys = Keys::new("q_rank", &["attention.q_lora_rank"], &["q_lora_rank"]);
const KV_RANK: Keys = Keys::new("kv_rank", &["attention.kv_lora_rank"], &["kv_lora_rank"]);
const NOPE: Keys = Keys::new("head_nope", &[], &["qk_nope_head_dim"]);
/// Old files have them without `_mla`, where newer ones have the sizes of what the heads share.
const KEY: Keys = Keys::new("head_key", &["attention.key_length_mla", "attention.key_length"], &[]);
const ROTATED: Keys = Keys::new("head_rope", &["rope.dimension_count"], &["qk_rope_head_dim"]);
const VALUE: Keys =
    Keys::new("head_value", &["attention.value_length_mla", "attention.value_length"], &["v_head_dim"]);

/// No model has more experts in all its layers together; each may be a name to make.
const MOST_EXPERTS: u64 = 1 << 18;

/// One field, as [`super::Config::fields`] shows it.
pub(super) type Shown<'a> = (&'static str, String, &'a Origin);

pub(super) fn shown<'a, T: std::fmt::Display>(name: &'static str, field: &'a Field<T>) -> Shown<'a> {
    (name, field.to_string(), &field.origin)
}

/// Experts that feed-forward networks are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// Experts of a layer.
    pub experts: Field<u64>,
    /// Experts that a token is sent to.
    pub used: Field<u64>,
    /// Elements inside an expert.
    pub ffn: Field<u64>,
    /// Experts that every token is sent to, in one network.
    pub shared: Field<u64>,
    /// The number of first layers without experts.
    pub dense: Field<u64>,
    /// Groups that experts are chosen in; 0: none.
    pub groups: Field<u64>,
    /// Groups that a token is sent to.
    pub groups_used: Field<u64>,
    /// The experts of a group whose scores, summed, say how good it is.
    pub group_best: Field<u64>,
    /// The factor of the chosen experts' weights.
    pub scale: Field<f64>,
    /// The weights of the chosen sum up to 1.
    pub normed: Field<bool>,
    /// Experts are weighed by a sigmoid, else by a softmax.
    pub sigmoid: Field<bool>,
    /// Config.json's files have experts `[in, out]`: the ones of gpt-oss that are not quantised.
    pub upright: bool,
}

/// Values of a family's experts where no key gives them.
#[derive(Clone, Copy, Debug)]
pub struct MoeDefaults {
    /// What config.json calls the number of experts: names for one value, as `attribute_map` of the reference has them.
    pub experts: &'static [&'static str],
    /// Fields that the reference reads no key of config.json for.
    pub unread: &'static [&'static str],
    /// True if the chosen experts' weights are scaled to sum to 1.
    pub normed: bool,
    /// Experts are weighed by a sigmoid.
    pub sigmoid: bool,
    /// The width of an expert; `None`: that of a feed-forward network without experts.
    pub ffn: Option<u64>,
    /// Number of experts that every token is sent to, where no key gives it; `None` if the family has none, even if a
    /// key says otherwise.
    pub shared: Option<u64>,
    /// Layers without experts before the others.
    pub dense: u64,
    /// Groups, and how many of them a token is sent to.
    pub groups: (u64, u64),
    /// Config.json has keys for groups, whatever their defaults.
    pub grouped: bool,
    /// The factor of the chosen experts' weights.
    pub scale: f64,
}

impl MoeDefaults {
    /// Weights that sum up to 1, and nothing else.
    pub const PLAIN: MoeDefaults = MoeDefaults {
        experts: EXPERTS.hf,
        unread: &["expert_scale"],
        normed: true,
        sigmoid: false,
        ffn: None,
        shared: None,
        dense: 0,
        groups: (0, 0),
        grouped: false,
        scale: 1.0,
    };
}

impl Moe {
    /// Reads the keys that exist; `ffn` is the width of an expert where no key gives it.
    pub fn read(r: &mut Reader, ffn: &Field<u64>, defaults: &MoeDefaults) -> Moe {
        let hf = r.dialect() == DialectName::Hf;
        if hf {
            for keys in [EXPERT_FFN, SCALE, NORMED] {
                if defaults.unread.contains(&keys.field) {
                    r.overridden(keys, "the reference reads no such key");
                }
            }
        }
        let is_read = |keys: &Keys| !hf || !defaults.unread.contains(&keys.field);
        let experts = Keys { hf: defaults.experts, ..EXPERTS };
        r.one_value(experts);
        let experts = r.required_count(experts);
        let used = r.required_count(USED);
        let own =
            defaults.ffn.map_or_else(|| ffn.clone(), |width| Field::default(width, "as the family has it"));
        let ffn = Some(EXPERT_FFN).filter(is_read).and_then(|keys| r.count(keys, 1)).unwrap_or(own);
        // Null means none, and an absent key the family's default.
        let count = |r: &mut Reader, keys: Keys, absent: u64| {
            let absent = if r.is_null(keys) { 0 } else { absent };
            let why = if absent == 0 { "none" } else { "as the family has it" };
            r.count(keys, 0).unwrap_or(Field::default(absent, why))
        };
        let dense = count(r, DENSE, defaults.dense);
        let shared = match defaults.shared {
            Some(absent) => count(r, SHARED, absent),
            None => {
                r.overridden(SHARED, "the family has no experts that every token is sent to");
                Field::default(0, "the family has none")
            }
        };
        let (all, chosen) = defaults.groups;
        // Config.json's other families read no keys of groups.
        let grouped = all > 0 || defaults.grouped || r.dialect() == DialectName::Gguf;
        for keys in [GROUPS, GROUPS_USED] {
            if all > 0 && r.is_null(keys) {
                let (key, wanted) = (r.candidates(keys).concat(), "a count of groups".to_owned());
                r.problem(ConfigProblem::Invalid { key, wanted, found: Fact::Null.to_string() });
            }
        }
        let none = || Field::default(0, "none");
        let (mut groups, mut groups_used) =
            if grouped { (count(r, GROUPS, all), count(r, GROUPS_USED, chosen)) } else { (none(), none()) };
        if *groups > 0 && *groups == *groups_used {
            // All of them: the same as none.
            (groups.value, groups_used.value) = (0, 0);
        }
        let normed = Some(NORMED).filter(is_read).and_then(|keys| r.flag(keys));
        let normed = normed.unwrap_or(Field::default(defaults.normed, "as the family was trained"));
        let sigmoid = if hf {
            // The reference has it in its class, and reads no key.
            let word = if defaults.sigmoid { "sigmoid" } else { "softmax" };
            r.only(SCORING, word, |fact| *fact == Fact::Str(word.to_owned()));
            None
        } else {
            // 1 is softmax, 2 sigmoid: llama_expert_gating_func_type of src/llama-hparams.h@0c1e57098.
            r.count(GATING, 0)
                .filter(|kind| **kind > 0)
                .map(|kind| Field { value: *kind == 2, origin: kind.origin })
        };
        let sigmoid = sigmoid.unwrap_or(Field::default(defaults.sigmoid, "as the family was trained"));
        let scale = Some(SCALE).filter(is_read).and_then(|keys| r.number(keys));
        let scale = scale.unwrap_or(Field::default(defaults.scale, "as the family has it"));
        let group_best = Field::default(2, "as the reference has it");
        Moe {
            experts,
            used,
            ffn,
            shared,
            dense,
            groups,
            groups_used,
            group_best,
            scale,
            normed,
            sigmoid,
            upright: false,
        }
    }

    /// Which experts a token is sent to.
    pub(crate) fn routing(&self) -> Routing {
        let groups = Groups { all: *self.groups, used: *self.groups_used, best: *self.group_best };
        Routing {
            used: *self.used,
            scores: if *self.sigmoid { Scores::Sigmoid } else { Scores::Softmax },
            // One group holds all experts.
            groups: (groups.all > 1).then_some(groups),
            normed: *self.normed,
            scale: *self.scale as f32,
        }
    }

    /// Whether a checkpoint has experts at all.
    pub(crate) fn is_there(r: &Reader) -> bool {
        r.fact(EXPERTS).and_then(|(_, fact)| fact.count()).is_some_and(|n| n > 0)
    }

    /// Checks what must hold between its numbers.
    pub(super) fn check(&self, r: &mut Reader, layers: u64) {
        let mut wrong = |field: &Field<u64>, name: &str, wanted: String| {
            let key = match &field.origin {
                Origin::Key(key) => key.clone(),
                Origin::Default(_) => name.to_owned(),
            };
            r.problem(ConfigProblem::Invalid { key, wanted, found: field.to_string() });
        };
        if self.experts.saturating_mul(layers) > MOST_EXPERTS {
            let wanted = format!("at most {MOST_EXPERTS} experts in all {layers} layers");
            wrong(&self.experts, "experts", wanted);
        }
        if *self.used > *self.experts {
            wrong(&self.used, "experts_used", format!("at most all {} experts", *self.experts));
        }
        if let Some(each) = self.experts.checked_div(*self.groups) {
            let within = self.groups_used.saturating_mul(each);
            if !self.experts.is_multiple_of(*self.groups) {
                let wanted = format!("a multiple of the {} groups", *self.groups);
                wrong(&self.experts, "experts", wanted);
            } else if *self.groups_used > *self.groups {
                let wanted = format!("at most all {} groups", *self.groups);
                wrong(&self.groups_used, "expert_groups_used", wanted);
            } else if *self.used > within {
                let wanted = format!("groups with at least {} experts", *self.used);
                wrong(&self.groups_used, "expert_groups_used", wanted);
            } else if *self.groups > 1 && *self.group_best > each {
                let wanted = format!("groups of at least {} experts", *self.group_best);
                wrong(&self.groups, "expert_groups", wanted);
            }
        }
        if *self.shared > 1024 {
            wrong(&self.shared, "experts_shared", "at most 1024".to_owned());
        }
        if *self.dense > layers {
            wrong(&self.dense, "dense_layers", format!("at most all {layers} layers"));
        }
    }

    pub(super) fn fields(&self) -> Vec<Shown<'_>> {
        let scale = (self.scale.value as f32).to_string();
        vec![
            shown("experts", &self.experts),
            shown("experts_used", &self.used),
            shown("expert_ffn", &self.ffn),
            shown("experts_shared", &self.shared),
            shown("dense_layers", &self.dense),
            shown("expert_groups", &self.groups),
            shown("expert_groups_used", &self.groups_used),
            shown("expert_group_best", &self.group_best),
            ("expert_scale", scale, &self.scale.origin),
            shown("expert_weights_normed", &self.normed),
            shown("expert_sigmoid", &self.sigmoid),
        ]
    }
}

/// Low-rank projections: queries, and keys and values, go through a narrow layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Elements between a token and its queries; 0: they are made at once.
    pub q_rank: Field<u64>,
    /// Elements between a token and its keys and values.
    pub kv_rank: Field<u64>,
    /// Elements of a key that are not rotated.
    pub nope: Field<u64>,
    /// Elements of a key that are rotated, the same for all heads.
    pub rope: Field<u64>,
    /// Elements of a value.
    pub value: Field<u64>,
    /// The epsilon of the norms of latent vectors.
    pub norm_eps: Field<f64>,
}

/// The epsilon of norms of latent vectors in transformers, which ignore the configuration: modeling_deepseek_v3.py@v5.23,
/// `DeepseekV3Attention.__init__`.
const NORM_EPS: f64 = 1e-6;

impl Latent {
    /// Reads its numbers; `norm_eps` is the epsilon of the other norms.
    pub(crate) fn read(r: &mut Reader, norm_eps: &Field<f64>) -> Latent {
        // Null means none; in config.json, an absent key means the default of its class.
        let absent = if r.dialect() == DialectName::Hf && !r.is_null(Q_RANK) { 1536 } else { 0 };
        let why = if absent == 0 { "none" } else { super::keys::OF_TRANSFORMERS };
        let q_rank = r.count(Q_RANK, 0).unwrap_or(Field::default(absent, why));
        let kv_rank = r.required_count(KV_RANK);
        let rope = r.required_count(ROTATED);
        let nope = match r.dialect() {
            DialectName::Gguf => {
                let key = r.required_count(KEY);
                Field { value: key.saturating_sub(*rope).max(1), origin: key.origin }
            }
            _ => r.required_count(NOPE),
        };
        let value = r.required_count(VALUE);
        for (field, what) in [(&nope, "head_nope"), (&rope, "head_rope"), (&value, "head_value")] {
            if **field >= LARGEST_HEAD {
                let key = match &field.origin {
                    Origin::Key(key) => key.clone(),
                    Origin::Default(_) => what.to_owned(),
                };
                let wanted = format!("less than {LARGEST_HEAD}");
                r.problem(ConfigProblem::Invalid { key, wanted, found: field.to_string() });
            }
        }
        let norm_eps = match r.dialect() {
            // llama.cpp has one for all norms.
            DialectName::Gguf => norm_eps.clone(),
            _ => Field::default(NORM_EPS, "as the reference has it"),
        };
        Latent { q_rank, kv_rank, nope, rope, value, norm_eps }
    }

    pub(super) fn fields(&self) -> Vec<Shown<'_>> {
        vec![
            shown("q_rank", &self.q_rank),
            shown("kv_rank", &self.kv_rank),
            shown("head_nope", &self.nope),
            shown("head_rope", &self.rope),
            shown("head_value", &self.value),
            ("latent_norm_eps", (self.norm_eps.value as f32).to_string(), &self.norm_eps.origin),
        ]
    }
}

/// An encoder of sound, as wide as its decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    /// Layers.
    pub layers: Field<u64>,
    /// Heads.
    pub heads: Field<u64>,
    /// Elements inside the feed-forward network.
    pub ffn: Field<u64>,
    /// Positions.
    pub context: Field<u64>,
    /// Channels of the input.
    pub mels: Field<u64>,
}

impl Encoder {
    /// Reads it; `hidden` are the elements of the residual stream.
    pub(crate) fn read(r: &mut Reader, hidden: u64) -> Encoder {
        const LAYERS: Keys = Keys::new("encoder_layers", &[], &["encoder_layers"])
            .in_ctranslate2(&["encoder/layer_*"])
            .in_openai(&["n_audio_layer"]);
        const HEADS: Keys = Keys::new("encoder_heads", &[], &["encoder_attention_heads"])
            .in_ctranslate2(&["encoder/num_heads"])
            .in_openai(&["n_audio_head"]);
        const FFN: Keys = Keys::new("encoder_ffn", &[], &["encoder_ffn_dim"])
            .in_ctranslate2(&["encoder/layer_0/ffn/linear_0/weight[0]"]);
        const CONTEXT: Keys = Keys::new("encoder_context", &[], &["max_source_positions"])
            .in_ctranslate2(&["encoder/position_encodings/encodings[0]"])
            .in_openai(&["n_audio_ctx"]);
        const MELS: Keys = Keys::new("encoder_mels", &[], &["num_mel_bins"])
            .in_ctranslate2(&["encoder/conv1/weight[1]"])
            .in_openai(&["n_mels"]);
        Encoder {
            layers: r.required_layers(LAYERS),
            heads: r.required_count(HEADS),
            ffn: if r.dialect() == DialectName::Openai {
                Field::default(4 * hidden, "4 × hidden")
            } else {
                r.required_count(FFN)
            },
            context: r.required_count(CONTEXT),
            mels: r.required_count(MELS),
        }
    }

    pub(super) fn fields(&self) -> Vec<Shown<'_>> {
        vec![
            shown("encoder_layers", &self.layers),
            shown("encoder_heads", &self.heads),
            shown("encoder_ffn", &self.ffn),
            shown("encoder_context", &self.context),
            shown("encoder_mels", &self.mels),
        ]
    }
}
