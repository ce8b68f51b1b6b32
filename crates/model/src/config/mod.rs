//! The numbers of a model, each with where it came from.

pub(crate) mod delta;
pub mod describe;
pub(crate) mod keys;
pub(crate) mod parts;
pub(crate) mod rope;
pub(crate) mod verdict;
pub mod windows;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::activation::Activation;
use crate::rope::RopeScaling;
use crate::{ConfigProblem, DialectName, Error, Fact, Facts};

pub use delta::Delta;
pub use keys::{DecoderKeys, OF_TRANSFORMERS};
pub use parts::{Encoder, Latent, Moe, MoeDefaults};
pub use rope::Rotary;
pub use verdict::{GGUF_DECODER_WITHOUT_EFFECT, KeyVerdict, NotFollowed, Verdict, WithoutEffect};

/// Where a field came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A key of the checkpoint.
    Key(String),
    /// No key gave it; this is why the value holds all the same.
    Default(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Key(key) => write!(f, "`{key}`"),
            Origin::Default(why) => write!(f, "default: {why}"),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub origin: Origin,
}

impl<T> Field<T> {
    /// A value that no key gave.
    pub fn default(value: T, why: &'static str) -> Field<T> {
        Field { value, origin: Origin::Default(why) }
    }
}

impl<T> std::ops::Deref for Field<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// The numbers of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The architecture, as the checkpoint calls it.
    pub architecture: String,
    /// Layers.
    pub layers: Field<u64>,
    /// Elements of the residual stream.
    pub hidden: Field<u64>,
    /// Query heads.
    pub heads: Field<u64>,
    /// Key and value heads.
    pub kv_heads: Field<u64>,
    /// Elements of a head.
    pub head_dim: Field<u64>,
    /// Elements inside the feed-forward network.
    pub ffn: Field<u64>,
    /// Tokens in the vocabulary.
    pub vocab: Field<u64>,
    /// Positions that the model was trained for.
    pub context: Field<u64>,
    /// Added to the variance by every norm.
    pub norm_eps: Field<f64>,
    /// The base of the rotary frequencies.
    pub rope_theta: Field<f64>,
    /// The same for layers with a window.
    pub rope_local_theta: Field<f64>,
    /// Elements of a head that are rotated; the rest pass.
    pub rope_dims: Field<u64>,
    /// The stretch of rotary frequencies.
    pub rope_scaling: Field<RopeScaling>,
    /// The same for layers with a window.
    pub rope_local_scaling: Field<RopeScaling>,
    /// Positions that a layer with a window sees, itself included; 0: no such layers.
    pub window: Field<u64>,
    /// One flag per layer: true if the layer has the window.
    pub windowed: Field<Vec<bool>>,
    /// Scores are multiplied by this before the softmax.
    pub attention_scale: Field<f64>,
    /// `c` in `c · tanh(score / c)`, for scores that were multiplied; 0: none.
    pub score_soft_cap: Field<f64>,
    /// Scores of layer `i`, counted from 0, are divided by `i + 1` as well (GPT-2).
    pub attention_scale_by_layer: Field<bool>,
    /// The activation inside the feed-forward network.
    pub activation: Field<Activation>,
    /// Attention's linear layers have biases: `None`, the file decides.
    pub attention_bias: Field<Option<bool>>,
    /// The feed-forward network's linear layers have biases: `None`, the file decides.
    pub ffn_bias: Field<Option<bool>>,
    /// Rows of the token embedding are multiplied by this (Granite).
    pub embedding_scale: Field<f64>,
    /// Results of attention and of feed-forward networks are multiplied by this before they are added (Granite).
    pub residual_scale: Field<f64>,
    /// Logits are divided by this (Granite).
    pub logit_divisor: Field<f64>,
    /// `c` in `c · tanh(logits / c)`; 0: none.
    pub logit_soft_cap: Field<f64>,
    /// The output matrix is the token embedding: `Some(false)` says that it is not, `None` that the
    /// file decides.
    pub tied: Field<Option<bool>>,
    /// Layers after the last that predict further tokens: a checkpoint may have them, and a model does without.
    pub next_layers: Field<u64>,
    /// Kinds of tokens that have an embedding of their own (BERT); 0: none.
    pub token_types: Field<u64>,
    /// The token that takes no position: learned positions of other tokens count from the number after its own (RoBERTa).
    /// `None`: every token takes one, from 0 on.
    pub padding: Field<Option<u64>>,
    /// Scores that a text is given, by a head of a class `…ForSequenceClassification`; 0: none.
    pub labels: Field<u64>,
    /// The mixture of experts that feed-forward networks are.
    pub moe: Option<Moe>,
    /// The low-rank projections of attention (DeepSeek's MLA).
    pub latent: Option<Latent>,
    /// Linear attention in some layers (Qwen 3.5).
    pub delta: Option<Delta>,
    /// The encoder that a decoder looks at (Whisper).
    pub encoder: Option<Encoder>,
    /// Numbers of a family from outside that no field here is for, by name: the width of a state, an interval of layers.
    pub own: BTreeMap<&'static str, Field<f64>>,
    /// Values that change results and that the engine does not follow.
    pub not_followed: Vec<NotFollowed>,
}

impl Config {
    /// Every field with its value and origin, for `inspect`.
    pub fn fields(&self) -> Vec<(&'static str, String, &Origin)> {
        let f = |name, value: String, origin| (name, value, origin);
        let tied = self.tied.map_or_else(|| "as stored".to_owned(), |t| t.to_string());
        let mut fields = vec![
            f("layers", self.layers.to_string(), &self.layers.origin),
            f("hidden", self.hidden.to_string(), &self.hidden.origin),
            f("heads", self.heads.to_string(), &self.heads.origin),
            f("kv_heads", self.kv_heads.to_string(), &self.kv_heads.origin),
            f("head_dim", self.head_dim.to_string(), &self.head_dim.origin),
            f("ffn", self.ffn.to_string(), &self.ffn.origin),
            f("vocab", self.vocab.to_string(), &self.vocab.origin),
            f("context", self.context.to_string(), &self.context.origin),
            f("norm_eps", format!("{:e}", *self.norm_eps as f32), &self.norm_eps.origin),
            f("rope_theta", self.rope_theta.to_string(), &self.rope_theta.origin),
            f("rope_scaling", self.rope_scaling.to_string(), &self.rope_scaling.origin),
            f("attention_scale", self.attention_scale.to_string(), &self.attention_scale.origin),
            f("tied", tied, &self.tied.origin),
        ];
        fields.push(f("activation", self.activation.name().to_owned(), &self.activation.origin));
        if self.has_windows() {
            fields.push(f("window", self.window.to_string(), &self.window.origin));
            fields.push(f("windowed", windows::shown(&self.windowed), &self.windowed.origin));
        }
        if self.rope_local_theta.value.to_bits() != self.rope_theta.value.to_bits() {
            let theta = &self.rope_local_theta;
            fields.push(f("rope_local_theta", theta.to_string(), &theta.origin));
        }
        if self.rope_local_scaling.value != *self.rope_scaling {
            let scaling = &self.rope_local_scaling;
            fields.push(f("rope_local_scaling", scaling.to_string(), &scaling.origin));
        }
        if *self.attention_scale_by_layer {
            let by_layer = &self.attention_scale_by_layer;
            fields.push(f("attention_scale_by_layer", by_layer.to_string(), &by_layer.origin));
        }
        for (name, bias) in [("attention_bias", &self.attention_bias), ("ffn_bias", &self.ffn_bias)] {
            if **bias == Some(true) {
                fields.push(f(name, "true".to_owned(), &bias.origin));
            }
        }
        if self.rope_dims.value != *self.head_dim {
            fields.push(f("rope_dims", self.rope_dims.to_string(), &self.rope_dims.origin));
        }
        let scales = [
            ("embedding_scale", &self.embedding_scale),
            ("residual_scale", &self.residual_scale),
            ("logit_divisor", &self.logit_divisor),
        ];
        for (name, scale) in scales.into_iter().filter(|(_, scale)| (scale.value - 1.0).abs() > 0.0) {
            fields.push(f(name, scale.to_string(), &scale.origin));
        }
        for (name, cap) in
            [("score_soft_cap", &self.score_soft_cap), ("logit_soft_cap", &self.logit_soft_cap)]
        {
            if **cap > 0.0 {
                fields.push(f(name, cap.to_string(), &cap.origin));
            }
        }
        if *self.token_types > 0 {
            fields.push(f("token_types", self.token_types.to_string(), &self.token_types.origin));
        }
        if *self.labels > 0 {
            fields.push(f("labels", self.labels.to_string(), &self.labels.origin));
        }
        if let Some(padding) = *self.padding {
            fields.push(f("padding", padding.to_string(), &self.padding.origin));
        }
        fields.extend(self.moe.iter().flat_map(Moe::fields));
        fields.extend(self.latent.iter().flat_map(Latent::fields));
        fields.extend(self.delta.iter().flat_map(Delta::fields));
        fields.extend(self.encoder.iter().flat_map(Encoder::fields));
        fields.extend(self.own.iter().map(|(name, field)| f(name, field.to_string(), &field.origin)));
        fields
    }

    /// Whether layer `n`, counted from 0, sees a window only.
    pub fn is_windowed(&self, n: u64) -> bool {
        let layer = usize::try_from(n).ok().and_then(|n| self.windowed.get(n));
        *self.window > 0 && layer.is_some_and(|windowed| *windowed)
    }

    /// Returns true if any layer attends within a window.
    pub fn has_windows(&self) -> bool {
        *self.window > 0 && self.windowed.contains(&true)
    }
}

/// The keys of one field: `gguf` below the architecture's prefix, `hf` in config.json.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The field of [`Config`].
    pub field: &'static str,
    /// GGUF keys, without the architecture's prefix.
    pub gguf: &'static [&'static str],
    /// config.json keys; dots descend into objects.
    pub hf: &'static [&'static str],
    /// Attributes and extents of CTranslate2's variables.
    pub ctranslate2: &'static [&'static str],
    /// Keys of OpenAI's `dims`.
    pub openai: &'static [&'static str],
}

impl Keys {
    /// The keys of the field called `field`. The first key that is there, and not null, is read.
    pub const fn new(
        field: &'static str,
        gguf: &'static [&'static str],
        hf: &'static [&'static str],
    ) -> Keys {
        Keys { field, gguf, hf, ctranslate2: &[], openai: &[] }
    }

    /// The same with keys in CTranslate2: names of attributes; `X[1]`, the second extent of the variable `X`; and `X_*`,
    /// the number of layers that are called `X_0`, `X_1` and so on.
    #[must_use]
    pub const fn in_ctranslate2(self, keys: &'static [&'static str]) -> Keys {
        Keys { ctranslate2: keys, ..self }
    }

    /// The same with keys in OpenAI's `dims`.
    #[must_use]
    pub const fn in_openai(self, keys: &'static [&'static str]) -> Keys {
        Keys { openai: keys, ..self }
    }
}

/// Reads a configuration and collects every problem. Each key that is read gets a verdict; keys that are never read are
/// unknown, unless [`Family::without_effect`](crate::Family::without_effect) has them.
pub struct Reader<'a> {
    facts: &'a dyn Facts,
    architecture: &'a str,
    problems: Vec<ConfigProblem>,
    /// The keys that were read, with their verdicts.
    noted: RefCell<BTreeMap<String, Verdict>>,
    not_followed: Vec<NotFollowed>,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// The origin of a stand-in for a field that was reported.
const MISSING: &str = "missing";

/// Keys of config.json that may be null, as transformers types them. Another one that is null has no value.
static NULLABLE: &[&str] = &[
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "head_dim",
    "is_causal",
    "layer_types",
    "mlp_only_layers",
    "n_group",
    "n_inner",
    "num_key_value_heads",
    "num_ln_in_parallel_attn",
    "num_nextn_predict_layers",
    "partial_rotary_factor",
    "q_lora_rank",
    "quantization_config.quant_method",
    "scoring_func",
    "sliding_window",
    "topk_group",
    "use_bidirectional_attention",
];

/// No sane model has a number above this; beyond it products overflow and loops do not end.
const LARGEST: u64 = 1 << 32;

/// Elements of a head.
const LARGEST_HEAD: u64 = 4096;

/// The most layers of a model.
const MOST_LAYERS: u64 = 4096;

impl<'a> Reader<'a> {
    pub(crate) fn new(facts: &'a dyn Facts, architecture: &'a str) -> Self {
        let noted = RefCell::default();
        Reader { facts, architecture, problems: Vec::new(), noted, not_followed: Vec::new() }
    }

    /// The architecture, as the checkpoint calls it.
    pub fn architecture(&self) -> &str {
        self.architecture
    }

    /// The dialect of the checkpoint.
    pub fn dialect(&self) -> DialectName {
        self.facts.dialect()
    }

    /// Reports a problem.
    pub fn problem(&mut self, problem: ConfigProblem) {
        self.problems.push(problem);
    }

    /// The keys to try, in order. A config.json of several parts has the text model's in `text_config`, and only there.
    pub(crate) fn candidates(&self, keys: Keys) -> Vec<String> {
        let prefixed = |prefix: &str, names: &[&str]| names.iter().map(|k| format!("{prefix}.{k}")).collect();
        let bare = |names: &[&str]| names.iter().map(|k| (*k).to_owned()).collect::<Vec<String>>();
        match self.facts.dialect() {
            DialectName::Gguf => {
                let own: Vec<String> = prefixed(self.architecture, keys.gguf);
                [own, bare(keys.gguf)].concat()
            }
            DialectName::Hf if self.has_parts() => {
                let own: Vec<String> = prefixed("text_config", keys.hf);
                // The matrices are the whole model's; where it does not say, the text model does.
                let both = keys.field == "tied";
                if both { [bare(keys.hf), own].concat() } else { own }
            }
            DialectName::Hf => bare(keys.hf),
            DialectName::Ctranslate2 => bare(keys.ctranslate2),
            DialectName::Openai => bare(keys.openai),
        }
    }

    pub(crate) fn has_parts(&self) -> bool {
        self.facts.lookup("text_config") == Some(Fact::Object)
    }

    /// The value of a key under its full name, which counts as used then.
    fn ask(&self, key: &str) -> Option<Fact> {
        let fact = self.facts.lookup(key)?;
        self.note(key, Verdict::Used);
        Some(fact)
    }

    fn note(&self, key: &str, verdict: Verdict) {
        self.noted.borrow_mut().insert(key.to_owned(), verdict);
    }

    /// The first of the keys that is there, be it null.
    fn said(&self, keys: Keys) -> Option<(String, Fact)> {
        self.candidates(keys).into_iter().find_map(|key| Some((key.clone(), self.ask(&key)?)))
    }

    /// The first of the keys that is there and not null.
    pub fn fact(&self, keys: Keys) -> Option<(String, Fact)> {
        let there = |key: String| match self.ask(&key) {
            Some(Fact::Null) | None => None,
            Some(fact) => Some((key, fact)),
        };
        self.candidates(keys).into_iter().find_map(there)
    }

    /// Reports keys for one value that do not have the same: what a reader takes depends on their order, or on the reader.
    pub(crate) fn one_value(&mut self, keys: Keys) {
        let Some((first, wanted)) = self.fact(keys) else { return };
        for key in self.candidates(keys) {
            let other = self.ask(&key).filter(|fact| ![&Fact::Null, &wanted].contains(&fact));
            if let Some(found) = other {
                let wanted = format!("{wanted}, as `{first}` says");
                self.problem(ConfigProblem::Invalid { key, wanted, found: found.to_string() });
            }
        }
    }

    /// Returns true if the key is present and null. Some families treat that otherwise than an absent key.
    pub fn is_null(&self, keys: Keys) -> bool {
        matches!(self.said(keys), Some((_, Fact::Null)))
    }

    /// Reports a null where there has to be a value.
    pub(crate) fn not_null(&mut self, keys: Keys, wanted: &str) {
        let nullable = keys.hf.iter().any(|key| NULLABLE.contains(key));
        if let (DialectName::Hf, false, Some((key, Fact::Null))) = (self.dialect(), nullable, self.said(keys))
        {
            let (wanted, found) = (wanted.to_owned(), Fact::Null.to_string());
            let problem = ConfigProblem::Invalid { key, wanted, found };
            if !self.problems.contains(&problem) {
                self.problem(problem);
            }
        }
    }

    /// Accepts only some values of a key. Another value is reported, and the model is not run; its weights can still be
    /// loaded and converted. `wanted` describes the accepted values.
    pub fn only(&mut self, keys: Keys, wanted: &str, taken: impl Fn(&Fact) -> bool) {
        self.not_null(keys, wanted);
        let Some((key, fact)) = self.fact(keys) else { return };
        if taken(&fact) {
            self.note(&key, Verdict::Checked);
        } else {
            self.does_not_follow(&key, &fact, wanted);
        }
    }

    /// Takes a flag with one value only.
    pub fn only_flag(&mut self, keys: Keys, wanted: bool) {
        self.only(keys, if wanted { "true" } else { "false" }, |fact| *fact == Fact::Bool(wanted));
    }

    /// Reports a value that changes what is computed and that nothing here follows: the model is not run.
    pub fn does_not_follow(&mut self, key: &str, found: &Fact, wanted: &str) {
        let wanted = wanted.to_owned();
        self.note(key, Verdict::NotFollowed { wanted: wanted.clone() });
        self.not_followed.push(NotFollowed { key: key.to_owned(), found: found.to_string(), wanted });
    }

    /// Records that these keys have no effect in this configuration, and why: another key for the same value wins.
    pub fn overridden(&self, keys: Keys, why: &'static str) {
        for key in self.candidates(keys) {
            if self.facts.lookup(&key).is_some() {
                self.note(&key, Verdict::WithoutEffect(why));
            }
        }
    }

    fn typed<T>(&mut self, keys: Keys, wanted: &str, read: impl Fn(&Fact) -> Option<T>) -> Option<Field<T>> {
        self.not_null(keys, wanted);
        let (key, fact) = self.fact(keys)?;
        match read(&fact) {
            Some(value) => Some(Field { value, origin: Origin::Key(key) }),
            None => {
                let found = fact.to_string();
                self.problem(ConfigProblem::Invalid { key, wanted: wanted.to_owned(), found });
                None
            }
        }
    }

    /// A count of at least `least`, if a key gives it. A list of equal counts is one count.
    pub fn count(&mut self, keys: Keys, least: u64) -> Option<Field<u64>> {
        let wanted = format!("an integer from {least} to {LARGEST}");
        self.typed(keys, &wanted, |fact| fact.count().filter(|n| (least..=LARGEST).contains(n)))
    }

    /// A positive, finite number, if a key gives it.
    pub fn number(&mut self, keys: Keys) -> Option<Field<f64>> {
        self.typed(keys, "a positive number", |fact| fact.number().filter(|x| x.is_finite() && *x > 0.0))
    }

    /// A flag, if a key gives it.
    pub fn flag(&mut self, keys: Keys) -> Option<Field<bool>> {
        self.typed(keys, "true or false", |fact| match fact {
            Fact::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// A word, if a key gives it.
    pub fn word(&mut self, keys: Keys) -> Option<Field<String>> {
        self.typed(keys, "a string", |fact| match fact {
            Fact::Str(s) => Some(s.clone()),
            _ => None,
        })
    }

    /// `field`, or a problem that names the keys. The value given then does not matter.
    pub fn required<T>(&mut self, field: Option<Field<T>>, keys: Keys, stand_in: T) -> Field<T> {
        field.unwrap_or_else(|| {
            let reported = self.candidates(keys);
            // A key with a wrong value has been reported already.
            let null = self.problems.iter().any(
                |problem| matches!(problem, ConfigProblem::Invalid { key, .. } if reported.contains(key)),
            );
            if self.fact(keys).is_none() && !null {
                self.problem(ConfigProblem::Missing { field: keys.field, keys: reported });
            }
            Field::default(stand_in, MISSING)
        })
    }

    /// A required count of at least 1.
    pub fn required_count(&mut self, keys: Keys) -> Field<u64> {
        let found = self.count(keys, 1);
        self.required(found, keys, 1)
    }

    /// A required number of layers: at least 1, at most 4096.
    fn required_layers(&mut self, keys: Keys) -> Field<u64> {
        let layers = self.required_count(keys);
        if let Origin::Key(key) = &layers.origin
            && *layers > MOST_LAYERS
        {
            let (key, found) = (key.clone(), layers.to_string());
            self.problem(ConfigProblem::Invalid {
                key,
                wanted: format!("at most {MOST_LAYERS} layers"),
                found,
            });
        }
        layers
    }

    /// Returns the configuration, and the verdicts on the keys that were read.
    pub(crate) fn finish(mut self, config: Config) -> Result<(Config, BTreeMap<String, Verdict>), Error> {
        self.relations(&config);
        if self.problems.is_empty() {
            let not_followed = self.not_followed;
            return Ok((Config { not_followed, ..config }, self.noted.into_inner()));
        }
        Err(Error::Config { architecture: self.architecture.to_owned(), problems: self.problems })
    }

    /// Checks what must hold between fields that are there.
    fn relations(&mut self, c: &Config) {
        let known = |origins: &[&Origin]| origins.iter().all(|o| **o != Origin::Default(MISSING));
        let key = |field: &Origin, name: &str| match field {
            Origin::Key(key) => key.clone(),
            Origin::Default(_) => name.to_owned(),
        };
        if known(&[&c.heads.origin, &c.kv_heads.origin]) && !c.heads.is_multiple_of(*c.kv_heads) {
            self.problem(ConfigProblem::Invalid {
                key: key(&c.kv_heads.origin, "kv_heads"),
                wanted: format!("a divisor of the {} query heads", *c.heads),
                found: c.kv_heads.to_string(),
            });
        }
        let from_hidden = [&c.head_dim.origin, &c.hidden.origin, &c.heads.origin];
        if known(&from_hidden) && (!c.head_dim.is_multiple_of(2) || *c.head_dim > LARGEST_HEAD) {
            self.problem(ConfigProblem::Invalid {
                key: key(&c.head_dim.origin, "head_dim"),
                wanted: format!("an even number up to {LARGEST_HEAD}"),
                found: c.head_dim.to_string(),
            });
        }
        if known(&from_hidden) && *c.rope_dims > *c.head_dim {
            self.problem(ConfigProblem::Invalid {
                key: key(&c.rope_dims.origin, "rope_dims"),
                wanted: format!("at most the {} of a head", *c.head_dim),
                found: c.rope_dims.to_string(),
            });
        }
        if let Some(moe) = &c.moe {
            moe.check(self, *c.layers);
        }
    }
}
