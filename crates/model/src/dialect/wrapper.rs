//! Prefixes around a model's names in transformers' files: a training loop's wrapper, or a model of several parts
//! of which text is one. The names are read as if it were not there; the parts beside the text are left, by name.
//!
//! Source: golden/wrappers, made by transformers 5.23, torch 2.13 and peft 0.21.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use tensor::{DropRule, Pattern};

/// Prefixes that training loops put before every name: peft, `torch.compile`, `DataParallel` and `DistributedDataParallel`.
const OUTER: &[&str] = &["base_model.model.", "_orig_mod.", "module."];
/// The segment that `torch.compile` of a layer or of the backbone puts inside names.
const INNER: &str = "._orig_mod.";

/// Where the text model stands. `{base}` is what the backbone is called in the model with its head (`model.`).
#[derive(PartialEq, Eq)]
struct Form {
    /// Before the names of the backbone, instead of `{base}`.
    body: &'static str,
    /// Before the names beside it: the output matrix.
    head: &'static str,
}

static FORMS: &[Form] = &[
    Form { body: "{base}", head: "" },
    // The backbone alone: `LlamaModel`.
    Form { body: "", head: "" },
    // transformers 4.52 to 4.57, and whoever saves the state of a model in memory.
    Form { body: "model.language_model.", head: "" },
    // `LlavaModel` and its like.
    Form { body: "language_model.", head: "" },
    // `save_pretrained` of transformers writes most of them so, and mlx-vlm does.
    Form { body: "language_model.{base}", head: "language_model." },
    // Idefics3 and SmolVLM.
    Form { body: "model.text_model.", head: "" },
    Form { body: "text_model.", head: "" },
];

/// Parts of multimodal models that text alone does not need, and their purpose.
static PARTS: &[(&str, &str)] = &[
    ("vision_tower", IMAGES),
    ("vision_model", IMAGES),
    ("vision_encoder", IMAGES),
    ("visual", IMAGES),
    ("multi_modal_projector", PROJECTOR),
    ("mm_projector", PROJECTOR),
    ("connector", PROJECTOR),
    ("patch_merger", IMAGES),
    ("vision_language_adapter", PROJECTOR),
    ("vision_projection", PROJECTOR),
    ("image_newline", IMAGES),
    ("embed_vision", IMAGES),
    ("audio_tower", SOUND),
    ("audio_model", SOUND),
    ("audio_projector", PROJECTOR),
    ("embed_audio", SOUND),
];
const IMAGES: &str = "for images, which text alone does not need";
const SOUND: &str = "for sound, which text alone does not need";
const PROJECTOR: &str = "for what stands beside text, which text alone does not need";

/// Kinds of names that make a second model of what stands under another prefix.
const MODEL: usize = 3;

/// Modules that `PARTS` may be nested in.
const PLACES: &[&str] = &["", "model."];

/// Names that are the model's twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ambiguous {
    /// Two text models.
    Models {
        /// The prefix of each, and its number of kinds of names.
        prefixes: [(String, usize); 2],
        /// The prefix of all names of one of them, which no name of the other has.
        one: String,
    },
    /// Two entries that are one tensor of the model but for what a training loop put around their names.
    Entries([String; 2]),
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ambiguous::Models { prefixes: [(a, n), (b, m)], .. } => {
                let under = |prefix: &str| match prefix {
                    "" => "without a prefix".to_owned(),
                    prefix => format!("under `{prefix}`"),
                };
                write!(
                    f,
                    "two models are in it: {n} kinds of the model's names {}, {m} {}",
                    under(a),
                    under(b)
                )
            }
            Ambiguous::Entries([a, b]) => write!(
                f,
                "`{}` and `{}` are the same tensor of the model, each in another wrapper",
                a.escape_debug(),
                b.escape_debug()
            ),
        }
    }
}

impl std::error::Error for Ambiguous {}

impl Ambiguous {
    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        vec![match self {
            Ambiguous::Models { one, .. } => format!(
                "a rule leaves one of them: rule = [{{ from = \"{one}{{rest..}}\", drop = \"another model\" }}]"
            ),
            Ambiguous::Entries(_) => "a rule with `drop` leaves one of them".to_owned(),
        }]
    }
}

/// How a checkpoint's names are made from those in a family's tables.
pub(super) struct Wrapped<'a> {
    base: &'static str,
    form: &'static Form,
    /// A further prefix that most names have.
    outer: &'a str,
    /// The kinds of names that there are, without what training loops put around them.
    there: HashSet<String>,
    /// For names that an outer or inner wrapper has changed: the name without it, and the entry's.
    entries: Option<HashMap<Cow<'a, str>, &'a str>>,
}

impl<'a> Wrapped<'a> {
    /// Names as the tables have them.
    pub(super) fn plain(names: &[&str]) -> Wrapped<'static> {
        let there = super::patterns(names.iter().copied());
        Wrapped { base: "", form: &FORMS[0], outer: "", there, entries: None }
    }

    /// Names as the tables have them, below `outer` if one is.
    pub(super) fn below(outer: &'static str, names: &[&'a str]) -> Wrapped<'a> {
        if !names.iter().any(|name| name.starts_with(outer)) {
            return Wrapped::plain(names);
        }
        let bare = |name: &&'a str| name.strip_prefix(outer).unwrap_or(name);
        let there = super::patterns(names.iter().map(bare));
        let entries = names.iter().map(|name| (Cow::Borrowed(bare(name)), *name)).collect();
        Wrapped { base: "", form: &FORMS[0], outer, there, entries: Some(entries) }
    }

    /// Whether an entry is of the kind that the tables call `kind`.
    pub(super) fn has(&self, kind: &str) -> bool {
        if self.is_own_form() { self.there.contains(kind) } else { self.there.contains(&self.formed(kind)) }
    }

    /// Finds how `names` are wrapped. `kinds` are the family's names in its backbone, whose prefix is `base`.
    ///
    /// # Errors
    /// If there are two ways.
    pub(super) fn find(
        names: &[&'a str],
        base: &'static str,
        kinds: &HashSet<String>,
    ) -> Result<Wrapped<'a>, Ambiguous> {
        let bare: Vec<Cow<'a, str>> = names.iter().map(|name| unwrapped(name)).collect();
        let there = super::patterns(bare.iter().map(|name| &**name));
        let kinds: Vec<&str> = kinds.iter().filter_map(|kind| kind.strip_prefix(base)).collect();
        let mut hits: Vec<(&'static Form, usize)> = vec![];
        for form in FORMS {
            let body = form.body(base);
            let found = kinds.iter().filter(|kind| there.contains(&format!("{body}{kind}"))).count();
            hits.push((form, found));
        }
        // Of equals the first.
        let (form, most) = hits.iter().copied().rev().max_by_key(|hit| hit.1).unwrap_or((&FORMS[0], 0));
        let form = if most == 0 { &FORMS[0] } else { form };
        let others = |hit: &&(&'static Form, usize)| *hit.0 != *form && hit.1 >= MODEL && 2 * hit.1 >= most;
        if let Some(other) = hits.iter().find(others) {
            let of = |(form, kinds): (&Form, usize)| (form.body(base), kinds);
            // The longer, since one without a prefix has all names.
            let longer = if form.body(base).len() > other.0.body(base).len() { form } else { other.0 };
            let one = if longer.head.is_empty() { longer.body(base) } else { longer.head.to_owned() };
            return Err(Ambiguous::Models { prefixes: [of((form, most)), of(*other)], one });
        }
        let changed = names.iter().zip(&bare).any(|(name, bare)| name.len() != bare.len());
        let (mut outer, mut entries) = ("", None);
        if changed {
            let mut map = HashMap::with_capacity(names.len());
            for (name, bare) in names.iter().zip(bare) {
                let before = &name[..name.len() - after(name).len()];
                outer = if outer.len() < before.len() { before } else { outer };
                if let Some(twice) = map.insert(bare, *name)
                    && twice != *name
                {
                    return Err(Ambiguous::Entries([twice.to_owned(), (*name).to_owned()]));
                }
            }
            entries = Some(map);
        }
        Ok(Wrapped { base, form, outer, there, entries })
    }

    fn is_own_form(&self) -> bool {
        *self.form == FORMS[0]
    }

    /// The entry that holds what the tables call `name`; the name that it would have, if it is not there.
    pub(super) fn entry(&self, name: &str) -> String {
        let name = self.formed(name);
        match &self.entries {
            None => name,
            Some(entries) => match entries.get(name.as_str()) {
                Some(entry) => (*entry).to_owned(),
                None => format!("{}{name}", self.outer),
            },
        }
    }

    /// The name, or the pattern, in this form, without what else stands around it.
    pub(super) fn formed(&self, name: &str) -> String {
        match name.strip_prefix(self.base) {
            Some(rest) => format!("{}{rest}", self.form.body(self.base)),
            None => format!("{}{name}", self.form.head),
        }
    }

    /// Entries that may be left: `drops` of the tables, and parts beside the text model.
    pub(super) fn drops(&self, drops: Vec<DropRule>) -> Vec<DropRule> {
        let formed = drops
            .into_iter()
            .map(|d| DropRule { pattern: Pattern::new(self.formed(d.pattern.as_str())), ..d });
        let mut drops: Vec<DropRule> = formed.collect();
        for (part, why) in PARTS {
            let why = format!("`{part}` is {why}");
            drops.extend(PLACES.iter().flat_map(|place| {
                let drop = |name: String| DropRule { pattern: Pattern::new(name), why: why.clone() };
                [drop(format!("{place}{part}")), drop(format!("{place}{part}.{{rest..}}"))]
            }));
        }
        let Some(entries) = &self.entries else { return drops };
        // Wrapped otherwise each: by their own names.
        let mut named = vec![];
        for (bare, entry) in entries {
            if let Some(drop) = drops.iter().find(|d| d.pattern.matches(bare)) {
                named.push(DropRule { pattern: Pattern::new(*entry), why: drop.why.clone() });
            }
        }
        named.sort_by(|a, b| a.pattern.as_str().cmp(b.pattern.as_str()));
        named
    }
}

impl Form {
    fn body(&self, base: &str) -> String {
        self.body.replace("{base}", base)
    }
}

/// `name` after what training loops put before it.
fn after(mut name: &str) -> &str {
    while let Some(rest) = OUTER.iter().find_map(|outer| name.strip_prefix(outer)) {
        name = rest;
    }
    name
}

/// `name` without what training loops put around it.
fn unwrapped(name: &str) -> Cow<'_, str> {
    let name = after(name);
    if !name.contains(INNER) {
        return Cow::Borrowed(name);
    }
    let mut name = name.to_owned();
    while name.contains(INNER) {
        name = name.replace(INNER, ".");
    }
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_training_loops_add_is_taken_off() {
        for name in [
            "model.layers.0.mlp.up_proj.weight",
            "module.model.layers.0.mlp.up_proj.weight",
            "module._orig_mod.model.layers.0.mlp.up_proj.weight",
            "_orig_mod.module.model.layers.0.mlp.up_proj.weight",
            "base_model.model.model.layers.0.mlp.up_proj.weight",
            "model._orig_mod.layers.0._orig_mod._orig_mod.mlp.up_proj.weight",
        ] {
            assert_eq!(unwrapped(name), "model.layers.0.mlp.up_proj.weight", "{name}");
        }
        // Only whole segments.
        assert_eq!(unwrapped("my_module.x"), "my_module.x");
        assert_eq!(unwrapped("model.x_orig_mod.y"), "model.x_orig_mod.y");
    }
}
