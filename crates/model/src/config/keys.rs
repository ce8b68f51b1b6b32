//! The keys of each field, and the fields that every decoder has.
//!
//! Source: gguf-py/gguf/constants.py@0c1e57098; transformers `*Config` classes@v4.57 and v5 (which
//! gathers the rotary keys in `rope_parameters`).

use super::{Config, ConfigProblem, Field, Keys, Origin, Reader};
use crate::architecture::RopeScaling;
use crate::{DialectName, Fact};

const fn keys(field: &'static str, gguf: &'static [&'static str], hf: &'static [&'static str]) -> Keys {
    Keys { field, gguf, hf }
}

const LAYERS: Keys = keys("layers", &["block_count"], &["num_hidden_layers", "n_layer"]);
const HIDDEN: Keys = keys("hidden", &["embedding_length"], &["hidden_size", "n_embd"]);
const HEADS: Keys = keys("heads", &["attention.head_count"], &["num_attention_heads", "n_head"]);
const KV_HEADS: Keys = keys("kv_heads", &["attention.head_count_kv"], &["num_key_value_heads"]);
const HEAD_DIM: Keys = keys("head_dim", &["attention.key_length"], &["head_dim"]);
const FFN: Keys = keys("ffn", &["feed_forward_length"], &["intermediate_size", "n_inner"]);
const VOCAB: Keys = keys("vocab", &["vocab_size"], &["vocab_size"]);
const CONTEXT: Keys =
    keys("context", &["context_length"], &["max_position_embeddings", "n_positions", "n_ctx"]);
const NORM_EPS: Keys = keys(
    "norm_eps",
    &["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"],
    &["rms_norm_eps", "layer_norm_epsilon"],
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
const PARTIAL_ROTARY: Keys = keys("partial_rotary_factor", &[], &["partial_rotary_factor"]);
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

/// The fields that every decoder has, by their common keys; a family replaces what it reads otherwise.
pub(crate) fn decoder(r: &mut Reader) -> Config {
    let hidden = r.required_count(HIDDEN);
    let heads = r.required_count(HEADS);
    let kv_heads = r
        .count(KV_HEADS, 1)
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
    let ffn = match r.count(FFN, 1) {
        Some(ffn) => ffn,
        None if r.architecture().to_lowercase().starts_with("gpt2") => {
            Field::default(4 * *hidden, "4 × hidden")
        }
        None => r.required(None, FFN, 1),
    };
    let vocab = match (r.count(VOCAB, 1), r.facts.vocabulary()) {
        (Some(vocab), _) => vocab,
        (None, Some((key, tokens))) if tokens > 0 => Field { value: tokens, origin: Origin::Key(key) },
        (None, _) => r.required(None, VOCAB, 1),
    };
    let norm_eps = {
        let found = r.number(NORM_EPS);
        if r.dialect() == DialectName::Hf && found.is_none() && r.fact(NORM_EPS).is_none() {
            Field::default(if r.architecture().starts_with("GPT2") { 1e-5 } else { 1e-6 }, "of transformers")
        } else {
            r.required(found, NORM_EPS, 1e-5)
        }
    };
    let rope_theta = r.number(ROPE_THETA).unwrap_or(Field::default(10_000.0, "as RoPE was published"));
    let rope_local_theta =
        r.number(ROPE_LOCAL_THETA).unwrap_or(Field::default(10_000.0, "as Gemma 3 was trained"));
    partial_rotary(r, &head_dim);
    Config {
        architecture: r.architecture().to_owned(),
        layers: r.required_count(LAYERS),
        context: r.required_count(CONTEXT),
        attention_scale: Field::default((*head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)"),
        rope_scaling: rope_scaling(r),
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
        logit_soft_cap: Field::default(0.0, "none"),
        tied: Field::default(None, "an absent output matrix is the token embedding"),
    }
}

/// A head that is rotated only in part is not run yet: say so rather than rotate it whole.
fn partial_rotary(r: &mut Reader, head_dim: &Field<u64>) {
    if let Some(dims) = r.count(ROPE_DIMS, 1)
        && *dims != **head_dim
        && let Origin::Key(key) = dims.origin
    {
        r.problem(ConfigProblem::Invalid {
            key,
            wanted: format!("{} (the whole head; partial rotation is not supported)", **head_dim),
            found: dims.value.to_string(),
        });
    }
    if let Some(part) = r.number(PARTIAL_ROTARY)
        && (part.value - 1.0).abs() > 1e-9
        && let Origin::Key(key) = part.origin
    {
        r.problem(ConfigProblem::Invalid {
            key,
            wanted: "1 (partial rotation is not supported)".to_owned(),
            found: part.value.to_string(),
        });
    }
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

/// The stretch of rotary frequencies, by any of the keys it has had.
fn rope_scaling(r: &mut Reader) -> Field<RopeScaling> {
    if r.dialect() == DialectName::Gguf {
        return gguf_rope_scaling(r);
    }
    for object in ["rope_scaling", "rope_parameters.full_attention", "rope_parameters"] {
        let kind = match r.facts.lookup(&format!("{object}.rope_type")) {
            Some(Fact::Str(kind)) => kind,
            _ => match r.facts.lookup(&format!("{object}.type")) {
                Some(Fact::Str(kind)) => kind,
                _ => continue,
            },
        };
        let mut number = |name: &str| {
            let key = format!("{object}.{name}");
            let fact = r.facts.lookup(&key);
            match fact.as_ref().and_then(Fact::number).filter(|x| x.is_finite() && *x > 0.0) {
                Some(x) => x,
                None => {
                    let found = fact.map_or("absent".to_owned(), |f| f.to_string());
                    r.problem(ConfigProblem::Invalid { key, wanted: "a positive number".to_owned(), found });
                    1.0
                }
            }
        };
        let value = match kind.as_str() {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: number("factor") },
            "llama3" => RopeScaling::Llama3 {
                factor: number("factor"),
                low_freq_factor: number("low_freq_factor"),
                high_freq_factor: number("high_freq_factor"),
                original_context: number("original_max_position_embeddings"),
            },
            other => {
                r.problem(ConfigProblem::Invalid {
                    key: format!("{object}.rope_type"),
                    wanted: "`default`, `linear` or `llama3`".to_owned(),
                    found: format!("`{other}`"),
                });
                RopeScaling::None
            }
        };
        return Field { value, origin: Origin::Key(object.to_owned()) };
    }
    Field::default(RopeScaling::None, "no key")
}

fn gguf_rope_scaling(r: &mut Reader) -> Field<RopeScaling> {
    const KIND: Keys = keys("rope_scaling", &["rope.scaling.type"], &[]);
    const FACTOR: Keys = keys("rope_scaling", &["rope.scaling.factor", "rope.scale_linear"], &[]);
    let factor = r.number(FACTOR);
    let kind = r.word(KIND);
    match (kind.as_ref().map(|k| k.value.as_str()), factor) {
        // Old files give a factor without a type: it is linear.
        (Some("linear") | None, Some(factor)) if (*factor - 1.0).abs() > 1e-9 => {
            Field { value: RopeScaling::Linear { factor: *factor }, origin: factor.origin }
        }
        (Some("none" | "linear") | None, _) => Field::default(RopeScaling::None, "no key"),
        (Some(other), _) => {
            let key = match kind.as_ref().map(|k| &k.origin) {
                Some(Origin::Key(key)) => key.clone(),
                _ => "rope.scaling.type".to_owned(),
            };
            r.problem(ConfigProblem::Invalid {
                key,
                wanted: "`none` or `linear`".to_owned(),
                found: format!("`{other}`"),
            });
            Field::default(RopeScaling::None, "refused")
        }
    }
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
