//! The keys of each field, and the fields that every decoder has.
//!
//! Source: gguf-py/gguf/constants.py@0c1e57098; transformers `*Config` classes@v4.57 and v5 (which
//! gathers the rotary keys in `rope_parameters`).

use super::{Config, ConfigProblem, Field, Keys, Origin, Reader, rope};
use crate::{DialectName, Fact};

pub(crate) const fn keys(
    field: &'static str,
    gguf: &'static [&'static str],
    hf: &'static [&'static str],
) -> Keys {
    Keys { field, gguf, hf }
}

const LAYERS: Keys = keys("layers", &["block_count"], &["num_hidden_layers", "n_layer"]);
const HIDDEN: Keys = keys("hidden", &["embedding_length"], &["hidden_size", "n_embd"]);
const HEADS: Keys = keys("heads", &["attention.head_count"], &["num_attention_heads", "n_head"]);
const KV_HEADS: Keys = keys("kv_heads", &["attention.head_count_kv"], &["num_key_value_heads"]);
const HEAD_DIM: Keys = keys("head_dim", &["attention.key_length"], &["head_dim"]);
const FFN: Keys = keys("ffn", &["feed_forward_length"], &["intermediate_size", "n_inner"]);
const VOCAB: Keys = keys("vocab", &["vocab_size"], &["vocab_size"]);
/// Positions that a model was trained for.
pub(super) const CONTEXT: Keys =
    keys("context", &["context_length"], &["max_position_embeddings", "n_positions", "n_ctx"]);
const NORM_EPS: Keys = keys(
    "norm_eps",
    &["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"],
    &["rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"],
);
const ROPE_THETA: Keys = keys(
    "rope_theta",
    &["rope.freq_base"],
    &["rope_theta", "rope_parameters.rope_theta", "rope_parameters.full_attention.rope_theta"],
);
const ROPE_LOCAL_THETA: Keys = keys(
    "rope_local_theta",
    &["rope.freq_base_swa"],
    &["rope_local_base_freq", "rope_parameters.sliding_attention.rope_theta"],
);
const ROPE_DIMS: Keys = keys("rope_dims", &["rope.dimension_count"], &[]);
const PARTIAL_ROTARY: Keys =
    keys("partial_rotary_factor", &[], &["partial_rotary_factor", "rope_parameters.partial_rotary_factor"]);
const TIED: Keys = keys("tied", &[], &["tie_word_embeddings"]);
/// Positions that a layer with a window sees.
pub(crate) const WINDOW: Keys = keys("window", &["attention.sliding_window"], &["sliding_window"]);
const WINDOW_PATTERN: Keys = keys(
    "window_pattern",
    &["attention.sliding_window_pattern"],
    &["sliding_window_pattern", "_sliding_window_pattern"],
);
const LAYER_TYPES: Keys = keys("layer_types", &[], &["layer_types"]);
const ATTENTION_SCALE: Keys = keys("attention_scale", &["attention.scale"], &["query_pre_attn_scalar"]);
/// `c` in `c · tanh(logits / c)`.
pub(crate) const LOGIT_SOFT_CAP: Keys =
    keys("logit_soft_cap", &["final_logit_softcapping"], &["final_logit_softcapping"]);

/// The keys and the defaults of what every model has, where families differ.
pub(crate) struct Common {
    pub(crate) layers: Keys,
    pub(crate) hidden: Keys,
    pub(crate) heads: Keys,
    pub(crate) kv_heads: Keys,
    pub(crate) ffn: Keys,
    pub(crate) context: Keys,
    /// The feed-forward network is so many times as wide as the residual stream where no key says it.
    pub(crate) ffn_by_hidden: Option<u64>,
    /// What config.json's norms add where no key says it.
    pub(crate) norm_eps: f64,
}

/// What decoders after Llama have.
pub(crate) const DECODER: Common = Common {
    layers: LAYERS,
    hidden: HIDDEN,
    heads: HEADS,
    kv_heads: KV_HEADS,
    ffn: FFN,
    context: CONTEXT,
    ffn_by_hidden: None,
    norm_eps: 1e-6,
};

/// The fields that every decoder has, by their common keys; a family replaces what it reads otherwise.
pub(crate) fn decoder(r: &mut Reader) -> Config {
    common(r, &DECODER)
}

/// The same by other keys.
pub(crate) fn common(r: &mut Reader, common: &Common) -> Config {
    let hidden = r.required_count(common.hidden);
    let heads = r.required_count(common.heads);
    let kv_heads = r
        .count(common.kv_heads, 1)
        .unwrap_or(Field { value: *heads, origin: Origin::Default("as many as query heads") });
    let head_dim = r.count(HEAD_DIM, 1).unwrap_or_else(|| {
        let known = [&hidden.origin, &heads.origin].iter().all(|o| **o != Origin::Default(super::MISSING));
        if known && !hidden.is_multiple_of(*heads) {
            r.problem(ConfigProblem::Invalid {
                key: "head_dim".to_owned(),
                wanted: format!("a key, since {} hidden does not divide by {} heads", *hidden, *heads),
                found: "absent".to_owned(),
            });
        }
        Field::default((*hidden / *heads).max(1), "hidden / heads")
    });
    let ffn = match (r.count(common.ffn, 1), common.ffn_by_hidden) {
        (Some(ffn), _) => ffn,
        (None, Some(times)) => Field::default(times * *hidden, "4 × hidden"),
        (None, None) => r.required(None, common.ffn, 1),
    };
    let vocab = match (r.count(VOCAB, 1), r.facts.vocabulary()) {
        (Some(vocab), _) => vocab,
        (None, Some((key, tokens))) if tokens > 0 => Field { value: tokens, origin: Origin::Key(key) },
        (None, _) => r.required(None, VOCAB, 1),
    };
    let norm_eps = {
        let found = r.number(NORM_EPS);
        if r.dialect() == DialectName::Hf && found.is_none() && r.fact(NORM_EPS).is_none() {
            Field::default(common.norm_eps, "of transformers")
        } else {
            r.required(found, NORM_EPS, 1e-5)
        }
    };
    let rope_theta = r.number(ROPE_THETA).unwrap_or(Field::default(10_000.0, "as RoPE was published"));
    let rope_local_theta =
        r.number(ROPE_LOCAL_THETA).unwrap_or(Field::default(10_000.0, "as Gemma 3 was trained"));
    let rope_dims = rope_dims(r, &head_dim);
    Config {
        architecture: r.architecture().to_owned(),
        layers: r.required_count(common.layers),
        context: r.required_count(common.context),
        attention_scale: Field::default((*head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)"),
        rope_scaling: rope::scaling(r),
        rope_dims,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab,
        norm_eps,
        rope_theta,
        rope_local_theta,
        window: Field::default(0, "every layer sees all positions"),
        window_pattern: Field::default(0, "no window"),
        window_after: Field::default(0, "no window"),
        logit_soft_cap: Field::default(0.0, "none"),
        tied: Field::default(None, "an absent output matrix is the token embedding"),
        next_layers: Field::default(0, "none"),
        token_types: Field::default(0, "none"),
        moe: None,
        latent: None,
        encoder: None,
    }
}

/// Elements of a head that are rotated: a number, or a part of the head.
fn rope_dims(r: &mut Reader, head_dim: &Field<u64>) -> Field<u64> {
    let part = r.number(PARTIAL_ROTARY).filter(|part| **part < 1.0);
    let dims = |part: f64| u64::try_from((part * **head_dim as f64 + 1e-6) as i64).unwrap_or(0);
    let of_part = part.map(|part| Field { value: dims(*part), origin: part.origin });
    r.count(ROPE_DIMS, 1).or(of_part).unwrap_or(Field::default(**head_dim, "the whole head"))
}

/// Windows as Qwen has them: if a flag says so, in the layers from `max_window_layers` on. GGUF has no key for them.
pub(crate) fn late_windows(r: &mut Reader, base: Config) -> Config {
    const USED: Keys = keys("window", &[], &["use_sliding_window"]);
    const AFTER: Keys = keys("window_after", &[], &["max_window_layers"]);
    if r.dialect() == DialectName::Gguf || !r.flag(USED).is_some_and(|used| *used) {
        return base;
    }
    let window = r.count(WINDOW, 0).unwrap_or(base.window.clone());
    let after = r.count(AFTER, 0).unwrap_or(Field::default(28, "of transformers"));
    if *after >= *base.layers {
        return base;
    }
    Config { window, window_after: after, ..base }
}

/// `1 / sqrt(query_pre_attn_scalar)` in config.json, the factor itself in GGUF.
pub(crate) fn attention_scale(r: &mut Reader) -> Option<Field<f64>> {
    let found = r.number(ATTENTION_SCALE)?;
    Some(match r.dialect() {
        DialectName::Gguf => found,
        DialectName::Hf => Field { value: found.value.powf(-0.5), origin: found.origin },
    })
}

/// Every how many layers one is global: a number, or a list of layer types that must have that period.
pub(crate) fn window_pattern(r: &mut Reader, layers: u64, default: u64) -> Field<u64> {
    if let Some((key, Fact::List(types))) = r.fact(LAYER_TYPES) {
        let global = |f: &Fact| matches!(f, Fact::Str(s) if s == "full_attention");
        // The first global layer gives the period; without one, none within these layers is global.
        let period = types.iter().position(global).map_or(types.len() as u64 + 1, |i| i as u64 + 1);
        let regular = types.iter().zip(1u64..).all(|(f, n)| global(f) == n.is_multiple_of(period));
        if types.len() as u64 != layers || !regular {
            r.problem(ConfigProblem::Invalid {
                key: key.clone(),
                wanted: format!("{layers} layer types, global at a fixed period"),
                found: format!("{} types{}", types.len(), if regular { "" } else { " without a period" }),
            });
        }
        return Field { value: period, origin: Origin::Key(key) };
    }
    r.count(WINDOW_PATTERN, 1).unwrap_or(Field::default(default, "as the family was trained"))
}

impl Reader<'_> {
    /// Whether the output matrix is the token embedding. GGUF says so by leaving it out; config.json by a
    /// key, whose default is the family's.
    pub(crate) fn tied(&mut self, default: bool) -> Field<Option<bool>> {
        if self.dialect() == DialectName::Gguf {
            return Field::default(None, "an absent output matrix is the token embedding");
        }
        match self.flag(TIED) {
            Some(tied) => Field { value: Some(*tied), origin: tied.origin },
            None => Field::default(Some(default), "of transformers"),
        }
    }
}
