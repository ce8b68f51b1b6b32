//! The keys of each field, and the fields that every decoder has.
//!
//! Source: gguf-py/gguf/constants.py@0c1e57098; transformers `*Config` classes@v4.57 and v5 (which
//! gathers the rotary keys in `rope_parameters`).

use std::collections::BTreeMap;

use super::{Config, ConfigProblem, Field, Keys, Origin, Reader, rope};
use crate::activation::Activation;
use crate::{DialectName, Fact, Verdict};

/// The end of the names of classes that score texts.
const CLASSIFIER: &str = "ForSequenceClassification";

/// The origin of a default that transformers has for config.json.
pub const OF_TRANSFORMERS: &str = "of transformers";

const fn keys(field: &'static str, gguf: &'static [&'static str], hf: &'static [&'static str]) -> Keys {
    Keys::new(field, gguf, hf)
}

const NEXT_LAYERS: Keys = keys("next_layers", &["nextn_predict_layers"], &[]);
/// No released model predicts more than a few tokens at once.
const MOST_NEXT: u64 = 64;
const LAYERS: Keys = keys("layers", &["block_count"], &["num_hidden_layers"]);
const HIDDEN: Keys = keys("hidden", &["embedding_length"], &["hidden_size"]);
const HEADS: Keys = keys("heads", &["attention.head_count"], &["num_attention_heads"]);
const KV_HEADS: Keys = keys("kv_heads", &["attention.head_count_kv"], &["num_key_value_heads"]);
const HEAD_DIM: Keys = keys("head_dim", &["attention.key_length"], &["head_dim"]);
const FFN: Keys = keys("ffn", &["feed_forward_length"], &["intermediate_size"]);
const VOCAB: Keys = keys("vocab", &["vocab_size"], &["vocab_size"])
    .in_ctranslate2(&["decoder/embeddings/weight[0]"])
    .in_openai(&["n_vocab"]);
/// Positions that a model was trained for.
pub(super) const CONTEXT: Keys = keys("context", &["context_length"], &["max_position_embeddings"]);
const NORM_EPS: Keys = keys("norm_eps", &["attention.layer_norm_rms_epsilon"], &["rms_norm_eps"]);
const TIED: Keys = keys("tied", &[], &["tie_word_embeddings"]);
const CAUSAL: Keys = keys("causal", &["attention.causal"], &["is_causal"]);
const BY_LAYER: Keys = keys("per_layer_config", &[], &["per_layer_config"]);
const ATTENTION_SCALE: Keys = keys("attention_scale", &["attention.scale"], &["query_pre_attn_scalar"]);
/// `c` in `c · tanh(logits / c)`.
pub(crate) const LOGIT_SOFT_CAP: Keys =
    keys("logit_soft_cap", &["final_logit_softcapping"], &["final_logit_softcapping"]);
const HIDDEN_ACT: Keys = keys("activation", &[], &["hidden_act"]);
const ATTENTION_BIAS: Keys = keys("attention_bias", &[], &["attention_bias"]);
const MLP_BIAS: Keys = keys("ffn_bias", &[], &["mlp_bias"]);

/// Keys of GGUF that llama.cpp reads for every architecture, and that no model of these families has.
static GGUF_ONLY_ABSENT: &[&str] = &[
    "embedding_length_out",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count_swa",
];

/// The configuration keys that every decoder has, and their defaults in config.json. A family overrides those that
/// differ from Llama's: `DecoderKeys { norm_eps_absent: 1e-5, ..DecoderKeys::LLAMA }`.
#[derive(Clone, Copy, Debug)]
pub struct DecoderKeys {
    /// Of [`Config::layers`].
    pub layers: Keys,
    /// Of [`Config::hidden`].
    pub hidden: Keys,
    /// Of [`Config::heads`].
    pub heads: Keys,
    /// Of [`Config::kv_heads`].
    pub kv_heads: Keys,
    /// Of [`Config::head_dim`].
    pub head_dim: Keys,
    /// Of [`Config::ffn`].
    pub ffn: Keys,
    /// Of [`Config::context`].
    pub context: Keys,
    /// Keys for [`Config::activation`]. GGUF has none.
    pub activation: Keys,
    /// Of [`Config::norm_eps`].
    pub norm_eps: Keys,
    /// Where no key gives the width of the feed-forward network: this factor times the residual stream's. `None`: the key is
    /// required.
    pub ffn_by_hidden: Option<u64>,
    /// The epsilon of norms.
    pub norm_eps_absent: f64,
    /// Default number of key and value heads; `None`: as many as query heads.
    pub kv_heads_absent: Option<u64>,
    /// Elements of a head; `None`: the residual stream shared out.
    pub head_dim_absent: Option<u64>,
    /// The activation. In GGUF it always holds.
    pub activation_absent: Activation,
    /// The rotary embedding.
    pub rotary: rope::Rotary,
    /// A token sees only those before it.
    pub causal: bool,
    /// Layers that predict further tokens are counted among the blocks of GGUF, of which they are the last.
    pub next_layers: bool,
}

impl DecoderKeys {
    /// As Llama has it.
    pub const LLAMA: DecoderKeys = DecoderKeys {
        layers: LAYERS,
        hidden: HIDDEN,
        heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        ffn: FFN,
        context: CONTEXT,
        activation: HIDDEN_ACT,
        norm_eps: NORM_EPS,
        ffn_by_hidden: None,
        norm_eps_absent: 1e-6,
        kv_heads_absent: None,
        head_dim_absent: None,
        activation_absent: Activation::Silu,
        rotary: rope::Rotary::PLAIN,
        causal: true,
        next_layers: false,
    };

    /// Reads what every decoder has. A family replaces the fields that it reads otherwise:
    /// `Config { tied: r.tied(true), ..keys.read(r) }`. Problems go to the reader.
    pub fn read(&self, r: &mut Reader) -> Config {
        common(r, self)
    }
}

fn common(r: &mut Reader, common: &DecoderKeys) -> Config {
    let hf = r.dialect() != DialectName::Gguf;
    if common.causal {
        r.only_flag(CAUSAL, true);
    }
    r.only(BY_LAYER, "no numbers of single layers", |_| false);
    for name in GGUF_ONLY_ABSENT {
        r.only(keys(name, std::slice::from_ref(name), &[]), "no such key", |_| false);
    }
    let zero = |fact: &Fact| fact.number() == Some(0.0);
    if !common.next_layers {
        r.only(NEXT_LAYERS, "0", zero);
    }
    r.only(keys("rope_scaling", &["rope.scaling.alpha"], &[]), "0", zero);
    let hidden = r.required_count(common.hidden);
    let heads = r.required_count(common.heads);
    let kv_heads = r.count(common.kv_heads, 1).unwrap_or_else(|| {
        let absent = common.kv_heads_absent.filter(|_| hf && !r.is_null(common.kv_heads));
        absent
            .map_or(Field::default(*heads, "as many as query heads"), |n| Field::default(n, OF_TRANSFORMERS))
    });
    let head_dim = head_dim(r, common, &hidden, &heads);
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
        let found = r.number(common.norm_eps);
        if hf && found.is_none() && r.fact(common.norm_eps).is_none() {
            Field::default(common.norm_eps_absent, OF_TRANSFORMERS)
        } else {
            r.required(found, common.norm_eps, 1e-5)
        }
    };
    let rope = rope::read(r, &common.rotary, *head_dim);
    let mut layers = r.required_layers(common.layers);
    let most = (*layers - 1).min(MOST_NEXT);
    let next_layers = if common.next_layers {
        let wanted = format!("an integer from 0 to {most}");
        r.typed(NEXT_LAYERS, &wanted, |fact| fact.count().filter(|n| *n <= most))
    } else {
        None
    };
    let next_layers = next_layers.unwrap_or(Field::default(0, "none"));
    layers.value -= *next_layers;
    let windowed = vec![false; usize::try_from(*layers).unwrap_or(usize::MAX).min(4096)];
    Config {
        architecture: r.architecture().to_owned(),
        context: r.required_count(common.context),
        attention_scale: Field::default((*head_dim as f64).powf(-0.5), "1 / sqrt(head_dim)"),
        score_soft_cap: Field::default(0.0, "none"),
        attention_scale_by_layer: Field::default(false, "no"),
        activation: activation(r, common),
        attention_bias: Field::default(None, "as stored"),
        ffn_bias: Field::default(None, "as stored"),
        rope_theta: rope.theta,
        rope_local_theta: rope.local_theta,
        rope_dims: rope.dims,
        rope_scaling: rope.scaling,
        rope_local_scaling: rope.local_scaling,
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab,
        norm_eps,
        window: Field::default(0, "every layer sees all positions"),
        windowed: Field::default(windowed, "no window"),
        embedding_scale: Field::default(1.0, "none"),
        residual_scale: Field::default(1.0, "none"),
        logit_divisor: Field::default(1.0, "none"),
        logit_soft_cap: Field::default(0.0, "none"),
        tied: Field::default(None, "an absent output matrix is the token embedding"),
        next_layers,
        token_types: Field::default(0, "none"),
        padding: Field::default(None, "every token takes a position"),
        labels: labels(r),
        moe: None,
        latent: None,
        delta: None,
        encoder: None,
        own: BTreeMap::new(),
        not_followed: Vec::new(),
    }
}

/// The scores of a class for them. `id2label` has a name for each, and two are the default.
fn labels(r: &mut Reader) -> Field<u64> {
    const LABELS: Keys = keys("labels", &[], &["num_labels"]);
    const NAMES: &str = "id2label.";
    if r.dialect() == DialectName::Gguf || !r.architecture().ends_with(CLASSIFIER) {
        return Field::default(0, "none");
    }
    let names: Vec<String> =
        r.facts.pairs().into_iter().map(|(key, _)| key).filter(|key| key.starts_with(NAMES)).collect();
    for name in &names {
        r.note(name, Verdict::Used);
    }
    let named = names.len() as u64;
    match r.count(LABELS, 1) {
        Some(said) if named > 0 && *said != named => {
            let wanted = format!("{named}, as many as `id2label` has");
            r.does_not_follow("num_labels", &Fact::Count(*said), &wanted);
            said
        }
        Some(said) => said,
        None if named > 0 => Field { value: named, origin: Origin::Key("id2label".to_owned()) },
        None => Field::default(2, OF_TRANSFORMERS),
    }
}

fn head_dim(r: &mut Reader, common: &DecoderKeys, hidden: &Field<u64>, heads: &Field<u64>) -> Field<u64> {
    let hf = r.dialect() != DialectName::Gguf;
    if let Some(said) = r.count(common.head_dim, 1) {
        return said;
    }
    if let Some(absent) = common.head_dim_absent.filter(|_| hf && !r.is_null(common.head_dim)) {
        return Field::default(absent, OF_TRANSFORMERS);
    }
    let known = [&hidden.origin, &heads.origin].iter().all(|o| **o != Origin::Default(super::MISSING));
    if known && !hidden.is_multiple_of(**heads) {
        r.problem(ConfigProblem::Invalid {
            key: "head_dim".to_owned(),
            wanted: format!("a key, since {} hidden does not divide by {} heads", **hidden, **heads),
            found: "absent".to_owned(),
        });
    }
    Field::default((**hidden / **heads).max(1), "hidden / heads")
}

/// Reads the activation: a word in config.json, and absent from GGUF.
fn activation(r: &mut Reader, common: &DecoderKeys) -> Field<Activation> {
    let absent = common.activation_absent;
    if r.dialect() == DialectName::Gguf {
        return Field::default(absent, "the family's");
    }
    r.not_null(common.activation, "the name of an activation");
    let Some((key, fact)) = r.fact(common.activation) else { return Field::default(absent, OF_TRANSFORMERS) };
    let named = match &fact {
        Fact::Str(name) => Activation::named(name),
        _ => None,
    };
    if let Some(value) = named {
        return Field { value, origin: Origin::Key(key) };
    }
    r.does_not_follow(&key, &fact, &Activation::names());
    Field::default(absent, "not followed")
}

/// `1 / sqrt(query_pre_attn_scalar)` in config.json, the factor itself in GGUF.
pub(crate) fn attention_scale(r: &mut Reader) -> Option<Field<f64>> {
    let found = r.number(ATTENTION_SCALE)?;
    Some(match r.dialect() {
        DialectName::Gguf => found,
        _ => Field { value: found.value.powf(-0.5), origin: found.origin },
    })
}

impl Reader<'_> {
    /// Whether the output matrix is the token embedding ([`Config::tied`]). config.json says so by `tie_word_embeddings`, whose
    /// default is the family's; other files by leaving it out.
    pub fn tied(&mut self, default: bool) -> Field<Option<bool>> {
        if self.dialect() != DialectName::Hf {
            return Field::default(None, "an absent output matrix is the token embedding");
        }
        let tied = self.flag(TIED);
        if let Some(Field { origin: Origin::Key(key), .. }) = &tied {
            for other in self.candidates(TIED).iter().filter(|other| *other != key) {
                if self.facts.lookup(other).is_some() {
                    self.note(
                        other,
                        Verdict::WithoutEffect("the key beside `text_config` says it, and wins"),
                    );
                }
            }
        }
        match tied {
            Some(tied) => Field { value: Some(*tied), origin: tied.origin },
            None => Field::default(Some(default), OF_TRANSFORMERS),
        }
    }

    /// Whether attention's linear layers have biases, by `attention_bias`.
    pub fn attention_bias(&mut self, default: bool) -> Field<Option<bool>> {
        self.bias(ATTENTION_BIAS, default)
    }

    /// Whether the feed-forward network's linear layers have biases, by `mlp_bias`.
    pub fn ffn_bias(&mut self, default: bool) -> Field<Option<bool>> {
        self.bias(MLP_BIAS, default)
    }

    /// Whether linear layers have biases, by a flag of config.json, which decides: the reference ignores other biases in the
    /// file. In GGUF the file decides.
    pub fn bias(&mut self, keys: Keys, default: bool) -> Field<Option<bool>> {
        if self.dialect() == DialectName::Gguf {
            return Field::default(None, "as stored");
        }
        match self.flag(keys) {
            Some(bias) => Field { value: Some(*bias), origin: bias.origin },
            None => Field::default(Some(default), OF_TRANSFORMERS),
        }
    }
}
