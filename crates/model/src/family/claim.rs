//! Which family claims a checkpoint.

use crate::config::Reader;
use crate::error::short;
use crate::{ConfigProblem, DialectName, Error, Fact, Facts};

use super::{Family, families};

/// Classes of transformers that put images or sound before a text model and run that as it is, and their `model_type`s.
/// Their text model's family is that of their `text_config`.
///
/// Held against the text model alone, by logits: golden/wrappers. Qwen2-VL and its like are not here: they rotate by
/// positions in the image.
pub(super) static MULTIMODAL: &[&str] = &[
    "Gemma3ForConditionalGeneration",
    "Gemma3Model",
    "GotOcr2ForConditionalGeneration",
    "GotOcr2Model",
    "Idefics3ForConditionalGeneration",
    "Idefics3Model",
    "InternVLForConditionalGeneration",
    "InternVLModel",
    "LlavaForConditionalGeneration",
    "LlavaModel",
    "LlavaNextForConditionalGeneration",
    "LlavaNextModel",
    "LlavaOnevisionForConditionalGeneration",
    "LlavaOnevisionModel",
    "Mistral3ForConditionalGeneration",
    "Mistral3Model",
    "SmolVLMForConditionalGeneration",
    "SmolVLMModel",
    "VipLlavaForConditionalGeneration",
    "VipLlavaModel",
    "VoxtralForConditionalGeneration",
    "gemma3",
    "got_ocr2",
    "idefics3",
    "internvl",
    "llava",
    "llava_next",
    "llava_onevision",
    "mistral3",
    "smolvlm",
    "vipllava",
    "voxtral",
];

/// The family that claims the checkpoint, and what the checkpoint calls its architecture: that of the text model, if it is
/// one of several parts.
pub(crate) fn find(facts: &dyn Facts) -> Result<(&'static dyn Family, String), Error> {
    let dialect = facts.dialect();
    let (classes, types): (&str, &str) = match dialect {
        DialectName::Gguf => ("general.architecture", ""),
        DialectName::Hf => ("architectures", "model_type"),
        DialectName::Ctranslate2 => ("spec", ""),
        DialectName::Openai => ("architecture", ""),
    };
    let mut names = words(facts, classes);
    // A class that no family claims may compute something other than its type says.
    let by_class = !names.is_empty();
    if !by_class {
        names = words(facts, types);
    }
    for name in &names {
        let found = if let Some(family) = claimant(facts, name) {
            (family, name.clone())
        } else if dialect == DialectName::Hf && MULTIMODAL.contains(&name.as_str()) {
            text_model(facts, name)?
        } else {
            continue;
        };
        if by_class {
            agree(facts, name, found.0)?;
        }
        return Ok(found);
    }
    let Some(name) = names.into_iter().next() else {
        let keys = [classes, types].into_iter().filter(|key| !key.is_empty());
        return Err(Error::NoArchitecture(keys.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")));
    };
    let text = words(facts, "text_config.model_type").into_iter().next();
    let own_type = words(facts, types).into_iter().next().filter(|_| by_class);
    let why = match (text, own_type) {
        (Some(text), _) if claimant(facts, &text).is_some() => {
            Some(format!("its text model `{text}` is, but this class may run it otherwise"))
        }
        (Some(text), _) => Some(format!("nor is its text model `{}`", short(&text))),
        (None, Some(own)) if claimant(facts, &own).is_some() => {
            Some(format!("its `model_type` `{own}` is, but a class of another name may compute otherwise"))
        }
        _ => None,
    };
    Err(Error::Unsupported { name, why, known: known(dialect) })
}

/// Rejects a `model_type` that belongs to another model than the class, since the reference may use either. An unknown
/// type may come with a class of its own.
fn agree(facts: &dyn Facts, class: &str, family: &dyn Family) -> Result<(), Error> {
    let (key, parts) = ("model_type", MULTIMODAL.contains(&class));
    let Some(found) = words(facts, key).into_iter().next().filter(|_| facts.dialect() == DialectName::Hf)
    else {
        return Ok(());
    };
    let agrees = match claimant(facts, &found) {
        Some(other) => !parts && other.name() == family.name(),
        None => parts == MULTIMODAL.contains(&found.as_str()),
    };
    if agrees {
        return Ok(());
    }
    let wanted = format!("a type of the class `{}`", short(class));
    let problem =
        ConfigProblem::Invalid { key: key.to_owned(), wanted, found: format!("`{}`", short(&found)) };
    Err(Error::Config { architecture: class.to_owned(), problems: vec![problem] })
}

/// The family of the text model of a multimodal class.
fn text_model(facts: &dyn Facts, class: &str) -> Result<(&'static dyn Family, String), Error> {
    let mut names = words(facts, "text_config.model_type");
    names.extend(words(facts, "text_config.architectures"));
    let found = names.iter().find_map(|name| claimant(facts, name).map(|family| (family, name.clone())));
    found.ok_or_else(|| Error::Unsupported {
        name: class.to_owned(),
        why: Some(match names.first() {
            Some(name) => format!("its text model is `{}`", short(name)),
            None => "`text_config.model_type` does not say what its text model is".to_owned(),
        }),
        known: known(DialectName::Hf),
    })
}

/// The family that claims `name`.
fn claimant(facts: &dyn Facts, name: &str) -> Option<&'static dyn Family> {
    let reader = Reader::new(facts, name);
    let is_of = |f: &&dyn Family| claims(*f, facts.dialect()).contains(&name) && f.claims(&reader);
    families().into_iter().find(is_of)
}

/// The names that `family` claims in `dialect`.
pub(super) fn claims(family: &dyn Family, dialect: DialectName) -> &'static [&'static str] {
    match dialect {
        DialectName::Gguf => family.gguf(),
        DialectName::Hf => family.hf(),
        other => family.elsewhere(other),
    }
}

/// The words at `key`: one, or a list.
fn words(facts: &dyn Facts, key: &str) -> Vec<String> {
    let word = |fact| match fact {
        Fact::Str(s) => Some(s),
        _ => None,
    };
    match facts.lookup(key) {
        Some(Fact::List(list)) => list.into_iter().filter_map(word).collect(),
        fact => fact.and_then(word).into_iter().collect(),
    }
}

/// The names that families claim: types for transformers, since classes are many.
fn known(dialect: DialectName) -> String {
    let all = families().into_iter().flat_map(|family| claims(family, dialect).iter().copied());
    let mut known: Vec<&str> = all.collect();
    if dialect == DialectName::Hf {
        known.retain(|name| !name.contains(|c: char| c.is_ascii_uppercase()));
    }
    known.sort_unstable();
    known.dedup();
    known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
