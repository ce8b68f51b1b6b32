//! Chooses the encoding of each parameter: by name, then by its purpose.

mod misfits;
mod on_the_way;
mod presets;
mod purposes;
mod rule;

use std::sync::Arc;

use tensor::{Diagnostics, Scheme, Shape};

use crate::Error;

pub use misfits::{Holder, Misfits, fits};
use misfits::{is_floating, of_linear_layers};
pub(crate) use on_the_way::Encoded;
pub use on_the_way::Encoding;
pub use presets::{PRESETS, Preset, PresetGroup, floats_in};
pub(crate) use purposes::{LayoutParam, Purposes, Traits, roles};
pub use rule::{EncodeRule, glob};

/// A parameter that may be encoded.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) shape: &'a Shape,
    /// The shape that all ranks together hold, if they share it.
    pub(crate) whole: Option<&'a Shape>,
    /// The scheme without rules and presets.
    pub(crate) scheme: &'a Scheme,
    /// How its values are stored.
    pub(crate) stored: &'a Scheme,
}

/// The choice for one parameter.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The scheme to encode it in; `None`: as it is.
    pub scheme: Option<Arc<Scheme>>,
    /// The rule or preset that decided.
    pub rule: String,
}

/// How a parameter is stored, as far as encoding rules are concerned.
pub(crate) enum Seen {
    /// It can be encoded.
    Floats,
    /// It cannot: how it is stored.
    Other(String),
    /// It is what another is.
    Tied(String),
}

/// The parts of an encoding that depend on the purposes of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker<'a> {
    /// A preset.
    Preset(&'static Preset),
    /// A rule with a scheme of linear layers.
    Rule(&'a EncodeRule),
}

impl Asker<'_> {
    /// The error where purposes are unknown.
    pub(crate) fn unknown(self, source: &Error) -> Error {
        match self {
            Asker::Preset(preset) => preset.unknown(source),
            Asker::Rule(rule) => {
                let what = format!(
                    "the rule `{rule}` is for linear layers, and which tensors these are is unknown: {source}"
                );
                Error::Encoding { what: Diagnostics::of(&what, source.hints()) }
            }
        }
    }
}

/// Decides for one parameter after the other, and finds out what is wrong.
pub(crate) struct Chooser<'a> {
    encoding: &'a Encoding,
    purposes: Option<Purposes>,
    holder: Option<Holder<'a>>,
    /// Whether each rule decides something.
    used: Vec<bool>,
    seen: Vec<(String, Seen)>,
    pub(crate) misfits: Misfits,
}

impl<'a> Chooser<'a> {
    /// Calls `purposes` only if something depends on them: a preset, or with a `holder`, which holds some schemes and not
    /// others, a rule with a scheme of linear layers.
    pub(crate) fn new(
        encoding: &'a Encoding,
        holder: Option<Holder<'a>>,
        purposes: impl FnOnce(Asker<'_>) -> Result<Purposes, Error>,
    ) -> Result<Chooser<'a>, Error> {
        let used = vec![false; encoding.rules.len()];
        let linear = encoding.rules.iter().find(|rule| holder.is_some() && of_linear_layers(rule.scheme()));
        let asker = encoding.preset.map(Asker::Preset).or(linear.map(Asker::Rule));
        let purposes = asker.map(purposes).transpose()?;
        Ok(Chooser { encoding, purposes, holder, used, seen: vec![], misfits: Misfits::default() })
    }

    /// The rule for `name`, which is taken note of.
    fn rule(&mut self, name: &str, stored: &Scheme) -> Option<&'a EncodeRule> {
        if !is_floating(stored) {
            self.seen.push((name.to_owned(), Seen::Other(stored.name.to_string())));
            return None;
        }
        self.seen.push((name.to_owned(), Seen::Floats));
        let at = self.encoding.rules.iter().position(|r| r.matches(name))?;
        self.used[at] = true;
        Some(&self.encoding.rules[at])
    }

    /// Returns the choice for `subject`; `None` if neither a rule nor the preset matches.
    pub(crate) fn choose(&mut self, subject: &Subject<'_>) -> Option<Choice> {
        let rule = self.rule(subject.name, subject.stored);
        if !is_floating(subject.stored) {
            return Some(Choice { scheme: None, rule: "not floats".to_owned() });
        }
        if let Some(rule) = rule {
            self.misfits.check(subject, rule.scheme(), self.holder);
            if let Some(purposes) = &self.purposes
                && of_linear_layers(rule.scheme())
                && self.holder.is_some()
                && fits(rule.scheme(), subject.shape).is_ok()
                && let Some(what) = purposes.other_than_linear(subject.name, subject.shape)
            {
                self.misfits.not_linear(subject.name, rule.scheme(), what);
            }
            return Some(Choice { scheme: Some(Arc::clone(rule.scheme())), rule: rule.to_string() });
        }
        let (preset, purposes) = (self.encoding.preset?, self.purposes.as_ref()?);
        let guided = self.encoding.is_guided;
        let choice = preset.choose(subject, purposes, guided).unwrap_or_else(|what| {
            self.misfits.param(subject.name, what);
            Choice { scheme: None, rule: String::new() }
        });
        if let Some(scheme) = &choice.scheme {
            if !guided && preset.wants_guide(subject.name, scheme, purposes) {
                self.misfits.unguided(preset, scheme);
            }
            self.misfits.preset(preset, subject, scheme, self.holder);
        }
        Some(choice)
    }

    /// A parameter that is another rank's.
    fn elsewhere(&mut self, name: &str, stored: &Scheme) {
        self.rule(name, stored);
    }

    /// A parameter that is what `root` is.
    fn tied(&mut self, name: &str, root: &str) {
        self.seen.push((name.to_owned(), Seen::Tied(root.to_owned())));
    }

    /// `Ok` if every rule decides something, and everything fits.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        for (rule, _) in self.encoding.rules.iter().zip(&self.used).filter(|(_, used)| !**used) {
            self.misfits.rule(rule, &self.seen);
        }
        self.misfits.none()
    }
}
