//! Rotary frequencies and their stretch, in both ecosystems, read and written.
//!
//! Source: transformers modeling_rope_utils.py@v5.23, `RotaryEmbeddingConfigMixin`, and
//! configuration_{gemma3,phi3}.py, `convert_rope_params_to_dict`; conversion/base.py@0c1e57098,
//! `TextModel.set_gguf_parameters`; src/llama-context.cpp@0c1e57098, `llama_context::llama_context`.

use super::describe::Description;
use super::keys::OF_TRANSFORMERS;
use super::{ConfigProblem, Field, Keys, Origin, Reader};
use crate::rope::{RopeScaling, Yarn, long_magnitude, yarn_mscale};
use crate::{DialectName, Fact};

const THETA: Keys = Keys::new("rope_theta", &["rope.freq_base"], &["rope_theta"]);
const LOCAL_THETA: Keys = Keys::new("rope_local_theta", &["rope.freq_base_swa"], &["rope_local_base_freq"]);
const DIMS: Keys = Keys::new("rope_dims", &["rope.dimension_count"], &[]);
const PART: Keys = Keys::new("rope_dims", &[], &["partial_rotary_factor"]);
const KIND: Keys = Keys::new("rope_scaling", &["rope.scaling.type"], &[]);
const FACTOR: Keys = Keys::new("rope_scaling", &["rope.scaling.factor", "rope.scale_linear"], &[]);
/// Positions that the model was first trained with.
pub(crate) const ORIGINAL: Keys = Keys::new(
    "original_context",
    &["rope.scaling.original_context_length"],
    &["original_max_position_embeddings"],
);
/// A further factor of cosines and sines, multiplied with the scaling's own.
pub(crate) const ATTENTION_FACTOR: Keys = Keys::new("attention_factor", &["rope.scaling.attn_factor"], &[]);
/// The whole factor: llama.cpp's converter writes it, and llama.cpp does not read it.
const YARN_FACTOR: Keys = Keys::new("attention_factor", &["rope.scaling.yarn_attn_factor"], &[]);
const BETA_FAST: Keys = Keys::new("beta_fast", &["rope.scaling.yarn_beta_fast"], &[]);
const BETA_SLOW: Keys = Keys::new("beta_slow", &["rope.scaling.yarn_beta_slow"], &[]);
const LOG_MUL: Keys = Keys::new("mscale_all_dim", &["rope.scaling.yarn_log_multiplier"], &[]);

const BETAS: (f64, f64) = (32.0, 1.0);

/// How a family's config.json says its rotary embedding.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "ways in which families differ, one of another")]
pub struct Rotary {
    /// The base where no key gives it.
    pub theta: f64,
    /// The key beside the object for the base.
    pub theta_beside: Keys,
    /// Layers with a window have an embedding of their own (Gemma 3), with this base where no key gives it.
    pub local_theta: Option<f64>,
    /// The key beside the object for that base.
    pub local_theta_beside: Keys,
    /// `rope_scaling` is for layers with a window, too (ModernBERT).
    pub scaling_everywhere: bool,
    /// `original_max_position_embeddings` is outside the object and wins over the object's; this is its default (Phi
    /// 3).
    pub original: Option<u64>,
    /// `longrope` is the only stretch, and `yarn` another name for it (Phi 3).
    pub only_long: bool,
    /// A part of each head may be rotated.
    pub partial: bool,
    /// This part, where no key gives it; 1: the whole head.
    pub part_absent: f64,
    /// `mscale_all_dim` scales scores, too (DeepSeek).
    pub scales_scores: bool,
    /// The stretch where no key gives one (gpt-oss).
    pub absent: fn() -> RopeScaling,
}

impl Rotary {
    /// As most families have it.
    pub const PLAIN: Rotary = Rotary {
        theta: 10_000.0,
        theta_beside: THETA,
        local_theta: None,
        local_theta_beside: LOCAL_THETA,
        scaling_everywhere: false,
        original: None,
        only_long: false,
        partial: false,
        part_absent: 1.0,
        scales_scores: false,
        absent: || RopeScaling::None,
    };
}

/// The rotary embedding, as read.
pub(super) struct Embedding {
    pub(super) theta: Field<f64>,
    pub(super) scaling: Field<RopeScaling>,
    pub(super) local_theta: Field<f64>,
    pub(super) local_scaling: Field<RopeScaling>,
    pub(super) dims: Field<u64>,
}

/// The rotary embedding of heads with `head_dim` elements.
pub(super) fn read(r: &mut Reader, rotary: &Rotary, head_dim: u64) -> Embedding {
    match r.dialect() {
        DialectName::Gguf => of_gguf(r, rotary, head_dim),
        _ => of_hf(r, rotary, head_dim),
    }
}

/// One embedding in all layers: windows do not change it.
fn shared(theta: Field<f64>, scaling: Field<RopeScaling>, dims: Field<u64>) -> Embedding {
    Embedding { local_theta: theta.clone(), local_scaling: scaling.clone(), theta, scaling, dims }
}

fn of_hf(r: &mut Reader, rotary: &Rotary, head_dim: u64) -> Embedding {
    let prefix = if r.has_parts() { "text_config." } else { "" };
    let path = |name: &str| format!("{prefix}{name}");
    let is_object = |r: &Reader, path: &str| r.facts.lookup(path) == Some(Fact::Object);
    let (scaling, parameters) = (path("rope_scaling"), path("rope_parameters"));
    for object in [&scaling, &parameters] {
        if let Some(found) = r.facts.lookup(object).filter(|f| !matches!(f, Fact::Null | Fact::Object)) {
            let (wanted, found) = ("an object".to_owned(), found.to_string());
            r.problem(ConfigProblem::Invalid { key: object.clone(), wanted, found });
        }
    }
    let (full, sliding) = (path("rope_parameters.full_attention"), path("rope_parameters.sliding_attention"));
    let Some(local_theta) = rotary.local_theta else {
        // One object for all layers. `rope_scaling`, the name in transformers 4, wins unless it is empty.
        let empty = r.facts.pairs().iter().any(|(key, value)| *key == scaling && *value == Fact::Object);
        let old = is_object(r, &scaling) && !empty;
        if old {
            for (key, _) in r.facts.pairs() {
                if key.strip_prefix(&parameters).is_some_and(|rest| rest.starts_with('.')) {
                    r.note(&key, super::Verdict::WithoutEffect("`rope_scaling` is there, and wins"));
                }
            }
        } else {
            for nested in [&full, &sliding] {
                if is_object(r, nested) {
                    let message = "one object for all layers";
                    r.does_not_follow(nested, &Fact::Object, message);
                }
            }
        }
        let of = [if old { scaling } else { parameters }];
        let mut object = Object { r, paths: &of, plain: false };
        let theta = object.beside("rope_theta", rotary.theta_beside, rotary.theta);
        let dims = object.dims(rotary, head_dim);
        let scaling = object.scaling(rotary, *dims);
        return shared(theta, scaling, dims);
    };
    // An object for each kind of layer; `rope_scaling` adds to that of the layers without a window.
    let old = is_object(r, &scaling);
    if old && is_object(r, &parameters) && !is_object(r, &full) {
        r.does_not_follow(&scaling, &Fact::Object, "no second object where `rope_parameters` is one");
    }
    // Without `rope_parameters` there is a type already, which `type` does not change.
    let plain = !is_object(r, &parameters);
    let of_sliding = if rotary.scaling_everywhere { vec![scaling.clone(), sliding] } else { vec![sliding] };
    let of_full = [scaling, full];
    let mut object = Object { r, paths: &of_full, plain };
    let theta = object.beside("rope_theta", rotary.theta_beside, rotary.theta);
    let dims = object.dims(rotary, head_dim);
    let scaling = object.scaling(rotary, *dims);
    let mut object = Object { r, paths: &of_sliding, plain: plain && rotary.scaling_everywhere };
    let local_theta = object.beside("rope_theta", rotary.local_theta_beside, local_theta);
    let local_dims = object.dims(rotary, head_dim);
    let local_scaling = object.scaling(rotary, *local_dims);
    if *local_dims != *dims {
        let key = object.key("partial_rotary_factor");
        let found = r.facts.lookup(&key).unwrap_or(Fact::Null);
        r.does_not_follow(&key, &found, "as much of a head as in the other layers");
    }
    Embedding { theta, scaling, local_theta, local_scaling, dims }
}

/// Objects of config.json with the numbers of a scaling; the first that has a value wins.
struct Object<'a, 'b> {
    r: &'a mut Reader<'b>,
    paths: &'a [String],
    /// The type is `default` where `rope_type` does not say it.
    plain: bool,
}

impl Object<'_, '_> {
    /// The first of the objects that says it, or the last of all.
    fn key(&self, name: &str) -> String {
        let keys: Vec<String> = self.paths.iter().map(|path| format!("{path}.{name}")).collect();
        let said = |key: &&String| !matches!(self.r.facts.lookup(key), None | Some(Fact::Null));
        keys.iter().find(said).or(keys.last()).cloned().unwrap_or_default()
    }

    fn lookup(&self, name: &str) -> Option<Fact> {
        self.r.ask(&self.key(name)).filter(|fact| *fact != Fact::Null)
    }

    fn wrong(&mut self, name: &str, wanted: &str, found: Option<&Fact>) {
        let found = found.map_or("absent".to_owned(), Fact::to_string);
        let key = self.key(name);
        self.r.problem(ConfigProblem::Invalid { key, wanted: wanted.to_owned(), found });
    }

    fn if_there(&mut self, name: &str) -> Option<f64> {
        self.lookup(name).map(|_| self.number(name))
    }

    fn number(&mut self, name: &str) -> f64 {
        let fact = self.lookup(name);
        let number = fact.as_ref().and_then(positive);
        if number.is_none() {
            self.wrong(name, "a positive number", fact.as_ref());
        }
        number.unwrap_or(1.0)
    }

    /// A list of `count` numbers.
    fn numbers(&mut self, name: &str, count: u64) -> Vec<f64> {
        let fact = self.lookup(name);
        let numbers = match &fact {
            Some(Fact::List(list)) => list.iter().map(positive).collect::<Option<Vec<f64>>>(),
            _ => None,
        };
        let numbers = numbers.filter(|numbers| numbers.len() as u64 == count);
        if numbers.is_none() {
            self.wrong(name, &format!("a list of {count} positive numbers"), fact.as_ref());
        }
        numbers.unwrap_or_default()
    }

    /// A number of the object; else of the key beside it; else the default.
    fn beside(&mut self, name: &str, beside: Keys, default: f64) -> Field<f64> {
        if let Some(value) = self.if_there(name) {
            self.r.overridden(beside, "the rotary parameters say it, and win");
            return Field { value, origin: Origin::Key(self.key(name)) };
        }
        self.r.number(beside).unwrap_or(Field::default(default, OF_TRANSFORMERS))
    }

    /// Elements of a head that are rotated.
    fn dims(&mut self, rotary: &Rotary, head_dim: u64) -> Field<u64> {
        let part = match self.if_there("partial_rotary_factor") {
            Some(value) => {
                self.r.overridden(PART, "the rotary parameters say it, and win");
                Some(Field { value, origin: Origin::Key(self.key("partial_rotary_factor")) })
            }
            None => self.r.number(PART),
        };
        let dims = |part: f64| u64::try_from((part * head_dim as f64 + 1e-6) as i64).unwrap_or(0);
        let is_said = part.is_some();
        match part.filter(|part| (part.value - 1.0).abs() > 1e-9) {
            // The reference takes it, and then fails or rotates the whole head.
            Some(Field { value, origin: Origin::Key(key) }) if !rotary.partial => {
                self.r.does_not_follow(&key, &Fact::Number(value), "1, or no such key");
                Field::default(head_dim, "the whole head")
            }
            Some(part) => Field { value: dims(*part), origin: part.origin },
            None if !is_said && rotary.part_absent < 1.0 => {
                Field::default(dims(rotary.part_absent), OF_TRANSFORMERS)
            }
            None => Field::default(head_dim, "the whole head"),
        }
    }

    fn scaling(&mut self, rotary: &Rotary, dims: u64) -> Field<RopeScaling> {
        let there = self.paths.iter().any(|path| self.r.facts.lookup(path) == Some(Fact::Object));
        if !there {
            return Field::default((rotary.absent)(), OF_TRANSFORMERS);
        }
        let name = if self.plain || self.lookup("rope_type").is_some() { "rope_type" } else { "type" };
        if name == "rope_type" && self.lookup("type").is_some() {
            let key = self.key("type");
            self.r.note(&key, super::Verdict::WithoutEffect("`rope_type` says it, and wins"));
        }
        let kind = match self.lookup(name) {
            None => return Field::default(RopeScaling::None, OF_TRANSFORMERS),
            Some(Fact::Str(kind)) => kind,
            Some(found) => {
                self.wrong(name, "a string", Some(&found));
                return Field::default(RopeScaling::None, "refused");
            }
        };
        let origin = Origin::Key(self.key(name).rsplit_once('.').map_or_else(String::new, |(o, _)| o.into()));
        Field { value: self.of_kind(name, &kind, rotary, dims), origin }
    }

    fn of_kind(&mut self, name: &str, kind: &str, rotary: &Rotary, dims: u64) -> RopeScaling {
        match kind {
            "default" => RopeScaling::None,
            "longrope" => self.long(rotary, dims),
            "su" => {
                // An old name, which files of Phi 3 had before they were changed.
                let found = Fact::Str(kind.to_owned());
                self.r.does_not_follow(&self.key(name), &found, "`longrope`, as transformers 5 calls it");
                self.long(rotary, dims)
            }
            "yarn" if rotary.only_long => self.long(rotary, dims),
            other if rotary.only_long => {
                self.wrong(name, "`default` or `longrope`", Some(&Fact::Str(other.to_owned())));
                RopeScaling::None
            }
            "linear" => RopeScaling::Linear { factor: self.number("factor") },
            "dynamic" => RopeScaling::Dynamic { factor: self.number("factor") },
            "llama3" => RopeScaling::Llama3 {
                factor: self.number("factor"),
                low_freq_factor: self.number("low_freq_factor"),
                high_freq_factor: self.number("high_freq_factor"),
                original_context: self.original(rotary),
            },
            "yarn" => self.yarn(rotary),
            other => {
                let wanted = "`default`, `linear`, `dynamic`, `yarn`, `longrope` or `llama3`";
                self.wrong(name, wanted, Some(&Fact::Str(other.to_owned())));
                RopeScaling::None
            }
        }
    }

    fn long(&mut self, rotary: &Rotary, dims: u64) -> RopeScaling {
        let original_context = self.original(rotary);
        let of_factor =
            self.if_there("factor").map(|factor| long_magnitude(factor * original_context, original_context));
        RopeScaling::LongRope {
            short: self.numbers("short_factor", dims / 2),
            long: self.numbers("long_factor", dims / 2),
            original_context,
            attention_factor: self.if_there("attention_factor").or(of_factor),
        }
    }

    fn yarn(&mut self, rotary: &Rotary) -> RopeScaling {
        let original_context = self.original(rotary);
        let factor = match self.r.ask(&self.key("factor")) {
            Some(Fact::Null) => {
                self.r.number(super::keys::CONTEXT).map_or(1.0, |context| *context / original_context)
            }
            _ => self.number("factor"),
        };
        let said = self.if_there("attention_factor");
        let (mscale, all) = (self.if_there("mscale"), self.if_there("mscale_all_dim"));
        let follows = match (mscale, all) {
            (Some(mscale), Some(all)) => yarn_mscale(factor, mscale) / yarn_mscale(factor, all),
            _ => yarn_mscale(factor, 1.0),
        };
        let truncate = match self.lookup("truncate") {
            // The reference looks beside the objects for each kind of layer, where no key can be.
            Some(_) if rotary.local_theta.is_some() => {
                let key = self.key("truncate");
                self.r.note(
                    &key,
                    super::Verdict::WithoutEffect("an object for each kind of layer does not take it"),
                );
                true
            }
            None => true,
            Some(Fact::Bool(truncate)) => truncate,
            Some(found) => {
                self.wrong("truncate", "true or false", Some(&found));
                true
            }
        };
        RopeScaling::Yarn(Yarn {
            factor,
            original_context,
            beta_fast: self.if_there("beta_fast").unwrap_or(BETAS.0),
            beta_slow: self.if_there("beta_slow").unwrap_or(BETAS.1),
            attention_factor: said.unwrap_or(follows),
            mscale_all_dim: all.filter(|_| rotary.scales_scores),
            truncate,
        })
    }

    /// Positions that the model was first trained with. A key beside the object wins, where layers do not have an object
    /// of each kind; the context holds where no key says it.
    fn original(&mut self, rotary: &Rotary) -> f64 {
        const NAME: &str = "original_max_position_embeddings";
        if rotary.local_theta.is_some() {
            self.r.overridden(ORIGINAL, "an object for each kind of layer does not take it");
        } else if let Some(beside) = self.r.number(ORIGINAL) {
            if self.lookup(NAME).is_some() {
                let key = self.key(NAME);
                self.r.note(&key, super::Verdict::WithoutEffect("the key beside says it, and wins"));
            }
            return *beside;
        }
        if let Some(default) = rotary.original {
            if self.lookup(NAME).is_some() {
                let key = self.key(NAME);
                self.r.note(&key, super::Verdict::WithoutEffect("only the key beside is read"));
            }
            return default as f64;
        }
        match self.if_there(NAME) {
            Some(here) => here,
            None => self.r.number(super::keys::CONTEXT).map_or(1.0, |context| *context),
        }
    }
}

fn positive(fact: &Fact) -> Option<f64> {
    fact.number().filter(|x| x.is_finite() && *x > 0.0)
}

fn of_gguf(r: &mut Reader, rotary: &Rotary, head_dim: u64) -> Embedding {
    let theta = r.number(THETA).unwrap_or(Field::default(10_000.0, "as RoPE was published"));
    let dims = r.count(DIMS, 1).unwrap_or(Field::default(head_dim, "the whole head"));
    let scaling = stretch_of_gguf(r, rotary);
    match rotary.local_theta {
        None => shared(theta, scaling, dims),
        Some(local) => {
            let default = Field::default(local, "as the family was trained");
            let local_theta = r.number(LOCAL_THETA).unwrap_or(default);
            Embedding { theta, scaling, local_theta, local_scaling: no_stretch(), dims }
        }
    }
}

fn no_stretch() -> Field<RopeScaling> {
    Field::default(RopeScaling::None, "no key")
}

fn stretch_of_gguf(r: &mut Reader, rotary: &Rotary) -> Field<RopeScaling> {
    let factor = r.number(FACTOR);
    let kind = r.word(KIND);
    // llama.cpp multiplies by it for any scaling; in Phi 3's files it shows that there is a scaling.
    if !rotary.only_long && !matches!(kind.as_ref().map(|k| k.value.as_str()), Some("yarn" | "longrope")) {
        let one = |fact: &Fact| fact.number().is_some_and(|x| (x - 1.0).abs() < 1e-6);
        r.only(ATTENTION_FACTOR, "1 where frequencies are not stretched by `yarn`", one);
    }
    match (kind.as_ref().map(|k| k.value.as_str()), factor) {
        // Old files give a factor without a type: it is linear.
        (Some("linear") | None, Some(factor)) if (*factor - 1.0).abs() > 1e-9 => {
            Field { value: RopeScaling::Linear { factor: *factor }, origin: factor.origin }
        }
        (Some("none" | "linear") | None, _) => no_stretch(),
        (Some("yarn"), factor) => {
            let factor = r.required(factor, FACTOR, 1.0);
            let original = r.number(ORIGINAL).or_else(|| r.number(super::keys::CONTEXT));
            let original_context = r.required(original, ORIGINAL, 1.0).value;
            let (attention_factor, mscale_all_dim) = yarn_factors(r, rotary, *factor);
            let value = RopeScaling::Yarn(Yarn {
                factor: *factor,
                original_context,
                beta_fast: r.number(BETA_FAST).map_or(BETAS.0, |x| *x),
                beta_slow: r.number(BETA_SLOW).map_or(BETAS.1, |x| *x),
                attention_factor,
                mscale_all_dim,
                truncate: true,
            });
            Field { value, origin: factor.origin }
        }
        (Some("longrope"), _) => long(r),
        (Some(other), _) => {
            let key = match kind.as_ref().map(|k| &k.origin) {
                Some(Origin::Key(key)) => key.clone(),
                _ => "rope.scaling.type".to_owned(),
            };
            r.problem(ConfigProblem::Invalid {
                key,
                wanted: "`none`, `linear`, `yarn` or `longrope`".to_owned(),
                found: format!("`{other}`"),
            });
            Field::default(RopeScaling::None, "refused")
        }
    }
}

/// The factor of cosines and sines, and `mscale_all_dim`.
///
/// llama.cpp scales scores of `deepseek2` by what it scales cosines and sines by, times
/// `1 + 0.1 · mscale_all_dim · ln(factor)`; a file without the key is of a model that scales none.
fn yarn_factors(r: &mut Reader, rotary: &Rotary, factor: f64) -> (f64, Option<f64>) {
    let besides = r.number(ATTENTION_FACTOR).map_or(1.0, |x| *x);
    let said = r.number(YARN_FACTOR).map(|x| *x);
    if !rotary.scales_scores {
        return (said.unwrap_or_else(|| yarn_mscale(factor, 1.0)) * besides, None);
    }
    // Negative where scores are scaled less than cosines and sines are.
    let log_mul = r.typed(LOG_MUL, "a number", |fact| fact.number().filter(|x| x.is_finite()));
    let Some(log_mul) = log_mul.map(|log_mul| round(*log_mul * 10.0)).filter(|x| *x != 0.0) else {
        return (said.unwrap_or_else(|| yarn_mscale(factor, 1.0)) * besides, None);
    };
    let scores = besides * yarn_mscale(factor, log_mul);
    let all = if factor > 1.0 { round((scores - 1.0) / (0.1 * factor.ln())) } else { log_mul };
    (round(said.unwrap_or(1.0) * besides), Some(all).filter(|all| all.abs() > 1e-5))
}

/// A number that went through f32.
fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

/// Reads GGUF's `longrope`, whose factors are tensors.
pub(crate) fn long(r: &mut Reader) -> Field<RopeScaling> {
    let found = r.number(ORIGINAL);
    let original = r.required(found, ORIGINAL, 1.0);
    let context = r.number(super::keys::CONTEXT).map_or(original.value, |x| *x);
    let own = long_magnitude(context, original.value);
    let said = r.number(ATTENTION_FACTOR).map(|x| *x).filter(|x| (x - own).abs() > 1e-6 * own);
    let value = RopeScaling::LongRope {
        short: vec![],
        long: vec![],
        original_context: original.value,
        attention_factor: said,
    };
    Field { value, origin: original.origin }
}

/// The keys of GGUF, below `architecture`.
pub(super) fn to_gguf(d: &mut Description, scaling: &RopeScaling, architecture: &str, context: u64) {
    const FIELD: &str = "rope_scaling";
    let key = |rest: &str| format!("{architecture}.rope.scaling.{rest}");
    match scaling {
        // Of Llama 3 there are factors instead, in a tensor.
        RopeScaling::None | RopeScaling::Llama3 { .. } => {}
        RopeScaling::Dynamic { .. } => d.lose(
            "rope_scaling.rope_type",
            FIELD,
            format!("GGUF has no word for `dynamic`: texts of more than {context} tokens continue otherwise"),
        ),
        RopeScaling::Linear { factor } => {
            d.text(&key("type"), "linear");
            d.number(&key("factor"), *factor);
            if architecture == "deepseek2" {
                let what = "llama.cpp scales scores of a stretched model otherwise: every result differs";
                d.lose("rope_scaling.rope_type", "", what);
            }
        }
        RopeScaling::Yarn(y) => yarn_to_gguf(d, y, architecture),
        RopeScaling::LongRope { original_context, attention_factor: said, .. } => {
            d.text(&key("type"), "longrope");
            d.whole(&key("original_context_length"), *original_context);
            let own = long_magnitude(context as f64, *original_context);
            d.number(&key("attn_factor"), said.unwrap_or(own));
        }
    }
}

fn yarn_to_gguf(d: &mut Description, y: &Yarn, architecture: &str) {
    const FIELD: &str = "rope_scaling";
    let key = |rest: &str| format!("{architecture}.rope.scaling.{rest}");
    d.text(&key("type"), "yarn");
    d.number(&key("factor"), y.factor);
    d.whole(&key("original_context_length"), y.original_context);
    d.number(&key("yarn_beta_fast"), y.beta_fast);
    d.number(&key("yarn_beta_slow"), y.beta_slow);
    for (name, beta, read) in [("beta_fast", y.beta_fast, BETAS.0), ("beta_slow", y.beta_slow, BETAS.1)] {
        if (beta - read).abs() > 1e-9 {
            let what = format!("llama.cpp reads no key for it and takes {read}: frequencies differ");
            d.lose(&format!("rope_scaling.{name}"), "", what);
        }
    }
    if !y.truncate {
        let what = "llama.cpp always truncates the ramp between frequencies: some differ a little".to_owned();
        d.lose("rope_scaling.truncate", FIELD, what);
    }
    let follows = if architecture == "deepseek2" {
        // The scale of scores follows from both numbers: see `yarn_factors`.
        let scores = y.mscale_all_dim.map_or(1.0, |all| yarn_mscale(y.factor, all));
        let log_mul = if y.factor > 1.0 {
            (scores / y.attention_factor - 1.0) / (0.1 * y.factor.ln())
        } else {
            y.mscale_all_dim.unwrap_or(0.0)
        };
        if log_mul.abs() > 1e-9 {
            d.number(&key("yarn_log_multiplier"), 0.1 * log_mul);
        }
        if log_mul.abs() > 1e-9 { 1.0 } else { yarn_mscale(y.factor, 1.0) }
    } else {
        yarn_mscale(y.factor, 1.0)
    };
    let besides = y.attention_factor / follows;
    if (besides - 1.0).abs() > 1e-6 {
        d.number(&key("attn_factor"), besides);
    }
}

/// `rope_scaling`, which every version of transformers reads.
pub(super) fn to_hf(d: &mut Description, scaling: &RopeScaling) {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let mut kind = |kind: &str, numbers: &[(&str, Option<f64>)]| {
        d.text("rope_scaling.rope_type", kind);
        for (name, x) in numbers.iter().filter_map(|(name, x)| Some((name, (*x)?))) {
            let key = format!("rope_scaling.{name}");
            if *name == ORIGINAL { d.whole(&key, x) } else { d.number(&key, x) }
        }
    };
    match scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => kind("linear", &[("factor", Some(*factor))]),
        RopeScaling::Dynamic { factor } => kind("dynamic", &[("factor", Some(*factor))]),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => kind(
            "llama3",
            &[
                ("factor", Some(*factor)),
                ("low_freq_factor", Some(*low_freq_factor)),
                ("high_freq_factor", Some(*high_freq_factor)),
                (ORIGINAL, Some(*original_context)),
            ],
        ),
        RopeScaling::Yarn(y) => {
            let near = |x: f64| (y.attention_factor - x).abs() < 1e-6;
            // The released models with `mscale_all_dim` have an equal `mscale`, so that nothing is left of both.
            let mscale = y.mscale_all_dim.filter(|_| near(1.0));
            let plain = y.mscale_all_dim.is_none() && near(yarn_mscale(y.factor, 1.0));
            let said = (mscale.is_none() && !plain).then_some(y.attention_factor);
            kind(
                "yarn",
                &[
                    ("factor", Some(y.factor)),
                    (ORIGINAL, Some(y.original_context)),
                    ("beta_fast", Some(y.beta_fast)),
                    ("beta_slow", Some(y.beta_slow)),
                    ("attention_factor", said),
                    ("mscale", mscale),
                    ("mscale_all_dim", y.mscale_all_dim),
                ],
            );
            if !y.truncate {
                d.flag("rope_scaling.truncate", false);
            }
        }
        RopeScaling::LongRope { short, long, original_context, attention_factor } => {
            kind("longrope", &[("attention_factor", *attention_factor)]);
            for (name, factors) in [("short_factor", short), ("long_factor", long)] {
                d.numbers(&format!("rope_scaling.{name}"), factors);
            }
            d.whole(ORIGINAL, *original_context);
        }
    }
}
