//! The stretch of rotary frequencies, in both ecosystems, read and written.
//!
//! Source: transformers modeling_rope_utils.py@v4.57; conversion/base.py@0c1e57098, `TextModel.set_gguf_parameters`.

use super::describe::Description;
use super::keys::keys;
use super::{ConfigProblem, Field, Keys, Origin, Reader};
use crate::architecture::{RopeScaling, Yarn};
use crate::{DialectName, Fact};

const KIND: Keys = keys("rope_scaling", &["rope.scaling.type"], &[]);
const FACTOR: Keys = keys("rope_scaling", &["rope.scaling.factor", "rope.scale_linear"], &[]);
/// Positions that the model was first trained with.
pub(crate) const ORIGINAL: Keys = keys(
    "original_context",
    &["rope.scaling.original_context_length"],
    &["original_max_position_embeddings"],
);
/// What cosines and sines are multiplied by.
pub(crate) const ATTENTION_FACTOR: Keys =
    keys("attention_factor", &["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"], &[]);
const BETA_FAST: Keys = keys("beta_fast", &["rope.scaling.yarn_beta_fast"], &[]);
const BETA_SLOW: Keys = keys("beta_slow", &["rope.scaling.yarn_beta_slow"], &[]);
const LOG_MUL: Keys = keys("mscale_all_dim", &["rope.scaling.yarn_log_mul"], &[]);

/// Where config.json has it, in the order of precedence.
const OBJECTS: &[&str] = &["rope_scaling", "rope_parameters.full_attention", "rope_parameters"];

/// The stretch, by any of the keys it has had.
pub(super) fn scaling(r: &mut Reader) -> Field<RopeScaling> {
    if r.dialect() == DialectName::Gguf {
        return of_gguf(r);
    }
    let prefixed = ["text_config.", ""];
    let objects = prefixed.iter().flat_map(|p| OBJECTS.iter().map(move |o| format!("{p}{o}")));
    for object in objects {
        let word = |key: &str| match r.facts.lookup(&format!("{object}.{key}")) {
            Some(Fact::Str(kind)) => Some(kind),
            _ => None,
        };
        let Some(kind) = word("rope_type").or_else(|| word("type")) else { continue };
        let value = of_object(r, &object, &kind);
        return Field { value, origin: Origin::Key(object) };
    }
    Field::default(RopeScaling::None, "no key")
}

fn of_object(r: &mut Reader, object: &str, kind: &str) -> RopeScaling {
    let mut object = Object { r, path: object };
    match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: object.number("factor") },
        "dynamic" => RopeScaling::Dynamic { factor: object.number("factor") },
        "llama3" => RopeScaling::Llama3 {
            factor: object.number("factor"),
            low_freq_factor: object.number("low_freq_factor"),
            high_freq_factor: object.number("high_freq_factor"),
            original_context: object.number("original_max_position_embeddings"),
        },
        "yarn" => RopeScaling::Yarn(Yarn {
            factor: object.number("factor"),
            original_context: object.original(),
            beta_fast: object.if_there("beta_fast").unwrap_or(32.0),
            beta_slow: object.if_there("beta_slow").unwrap_or(1.0),
            attention_factor: object.if_there("attention_factor"),
            mscale: object.if_there("mscale"),
            mscale_all_dim: object.if_there("mscale_all_dim"),
            truncate: object.r.facts.lookup(&object.key("truncate")) != Some(Fact::Bool(false)),
        }),
        "longrope" | "su" => RopeScaling::LongRope {
            short: object.numbers("short_factor"),
            long: object.numbers("long_factor"),
            original_context: object.original(),
            attention_factor: object.if_there("attention_factor"),
        },
        other => {
            let key = object.key("rope_type");
            object.r.problem(ConfigProblem::Invalid {
                key,
                wanted: "`default`, `linear`, `dynamic`, `yarn`, `longrope` or `llama3`".to_owned(),
                found: format!("`{other}`"),
            });
            RopeScaling::None
        }
    }
}

/// An object of config.json with numbers of a stretch.
struct Object<'a, 'b> {
    r: &'a mut Reader<'b>,
    path: &'a str,
}

impl Object<'_, '_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    fn wrong(&mut self, name: &str, wanted: &str, found: Option<&Fact>) {
        let found = found.map_or("absent".to_owned(), Fact::to_string);
        let key = self.key(name);
        self.r.problem(ConfigProblem::Invalid { key, wanted: wanted.to_owned(), found });
    }

    fn if_there(&mut self, name: &str) -> Option<f64> {
        match self.r.facts.lookup(&self.key(name)) {
            None | Some(Fact::Null) => None,
            Some(_) => Some(self.number(name)),
        }
    }

    fn number(&mut self, name: &str) -> f64 {
        let fact = self.r.facts.lookup(&self.key(name));
        let number = fact.as_ref().and_then(positive);
        if number.is_none() {
            self.wrong(name, "a positive number", fact.as_ref());
        }
        number.unwrap_or(1.0)
    }

    fn numbers(&mut self, name: &str) -> Vec<f64> {
        let fact = self.r.facts.lookup(&self.key(name));
        let numbers = match &fact {
            Some(Fact::List(list)) => list.iter().map(positive).collect::<Option<Vec<f64>>>(),
            _ => None,
        };
        if numbers.is_none() {
            self.wrong(name, "a list of positive numbers", fact.as_ref());
        }
        numbers.unwrap_or_default()
    }

    /// It stands here or, in Phi 3, beside; else it is the context.
    fn original(&mut self) -> f64 {
        if let Some(here) = self.if_there("original_max_position_embeddings") {
            return here;
        }
        let beside = self.r.number(ORIGINAL).or_else(|| self.r.number(super::keys::CONTEXT));
        beside.map_or_else(|| self.number("original_max_position_embeddings"), |field| field.value)
    }
}

fn positive(fact: &Fact) -> Option<f64> {
    fact.number().filter(|x| x.is_finite() && *x > 0.0)
}

fn of_gguf(r: &mut Reader) -> Field<RopeScaling> {
    let factor = r.number(FACTOR);
    let kind = r.word(KIND);
    match (kind.as_ref().map(|k| k.value.as_str()), factor) {
        // Old files give a factor without a type: it is linear.
        (Some("linear") | None, Some(factor)) if (*factor - 1.0).abs() > 1e-9 => {
            Field { value: RopeScaling::Linear { factor: *factor }, origin: factor.origin }
        }
        (Some("none" | "linear") | None, _) => Field::default(RopeScaling::None, "no key"),
        (Some("yarn"), factor) => {
            let factor = r.required(factor, FACTOR, 1.0);
            let found = r.number(ORIGINAL);
            let original_context = r.required(found, ORIGINAL, 1.0).value;
            let mscale = r.number(LOG_MUL).map(|log_mul| (*log_mul * 1e7).round() / 1e6);
            let value = RopeScaling::Yarn(Yarn {
                factor: *factor,
                original_context,
                beta_fast: r.number(BETA_FAST).map_or(32.0, |x| *x),
                beta_slow: r.number(BETA_SLOW).map_or(1.0, |x| *x),
                attention_factor: r.number(ATTENTION_FACTOR).map(|x| *x),
                mscale,
                mscale_all_dim: mscale,
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

/// What GGUF says of `longrope`: its factors are tensors.
pub(crate) fn long(r: &mut Reader) -> Field<RopeScaling> {
    let found = r.number(ORIGINAL);
    let original = r.required(found, ORIGINAL, 1.0);
    let context = r.number(super::keys::CONTEXT).map_or(original.value, |x| *x);
    let own = attention_factor(context, original.value);
    let said = r.number(ATTENTION_FACTOR).map(|x| *x).filter(|x| (x - own).abs() > 1e-6 * own);
    let value = RopeScaling::LongRope {
        short: vec![],
        long: vec![],
        original_context: original.value,
        attention_factor: said,
    };
    Field { value, origin: original.origin }
}

/// What cosines and sines are multiplied by where no key says it.
/// Source: conversion/phi.py@0c1e57098, `Phi3MiniModel.generate_extra_tensors`.
pub(crate) fn attention_factor(context: f64, original: f64) -> f64 {
    let scale = context / original;
    if scale > 1.0 { (1.0 + scale.ln() / original.ln()).sqrt() } else { 1.0 }
}

/// The keys of GGUF, below `architecture`.
pub(super) fn to_gguf(d: &mut Description, scaling: &RopeScaling, architecture: &str, context: u64) {
    let key = |rest: &str| format!("{architecture}.rope.scaling.{rest}");
    match scaling {
        // Of Llama 3 there are factors instead, in a tensor; of the others GGUF has no keys.
        RopeScaling::None | RopeScaling::Llama3 { .. } | RopeScaling::Dynamic { .. } => {}
        RopeScaling::Linear { factor } => {
            d.text(&key("type"), "linear");
            d.number(&key("factor"), *factor);
        }
        RopeScaling::Yarn(y) => {
            d.text(&key("type"), "yarn");
            d.number(&key("factor"), y.factor);
            d.whole(&key("original_context_length"), y.original_context);
            d.number(&key("yarn_beta_fast"), y.beta_fast);
            d.number(&key("yarn_beta_slow"), y.beta_slow);
            if let Some(factor) = y.attention_factor {
                d.number(&key("yarn_attn_factor"), factor);
            }
            if let Some(mscale) = y.mscale_all_dim {
                d.number(&key("yarn_log_mul"), 0.1 * mscale);
            }
        }
        RopeScaling::LongRope { original_context, attention_factor: said, .. } => {
            d.text(&key("type"), "longrope");
            d.whole(&key("original_context_length"), *original_context);
            let own = attention_factor(context as f64, *original_context);
            d.number(&key("attn_factor"), said.unwrap_or(own));
        }
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
            kind(
                "yarn",
                &[
                    ("factor", Some(y.factor)),
                    (ORIGINAL, Some(y.original_context)),
                    ("beta_fast", Some(y.beta_fast)),
                    ("beta_slow", Some(y.beta_slow)),
                    ("attention_factor", y.attention_factor),
                    ("mscale", y.mscale),
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
