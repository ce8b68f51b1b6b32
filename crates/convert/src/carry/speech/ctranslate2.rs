//! The files of a directory of CTranslate2.
//!
//! Source: python/ctranslate2/converters/transformers.py (`WhisperLoader`) of CTranslate2 4.8.5; faster_whisper/transcribe.py of
//! faster-whisper 1.2.1, which reads `tokenizer.json` and `preprocessor_config.json` beside them.

use checkpoint::{Attribute, Ctranslate2Files};
use model::{Description, Fact, Loss, Model};
use serde_json::json;

use super::hf::preprocessor;
use super::{GENERATION, PREPROCESSOR, Speech, TOKENIZER};
use crate::Error;
use crate::carry::to_hf::pretty;
use crate::carry::{Beside, Carried, Left};

/// Endings of attributes of 16 bits; the others have 8.
const WIDE: &[&str] = &["/num_heads", "/alignment_heads", "/alignment_layer"];

impl Speech {
    /// The files of a directory of CTranslate2 with the model that has the parameters of which `own` is true.
    pub(super) fn into_ctranslate2(
        mut self,
        description: &Description,
        model: &Model,
        own: &dyn Fn(&str) -> bool,
    ) -> Result<Carried, Error> {
        let mut files = Ctranslate2Files::default();
        for (key, fact) in &description.pairs {
            match (key.as_str(), fact) {
                ("spec", Fact::Str(spec)) => files.spec.clone_from(spec),
                ("revision", Fact::Count(n)) => files.revision = u32::try_from(*n).unwrap_or(0),
                // The variables themselves say these.
                (key, _) if key.ends_with(']') || key.ends_with('*') => {}
                (key, fact) => files.attributes.push((key.to_owned(), attribute(key, fact)?)),
            }
        }
        if !own("output.weight") {
            let alias = ("decoder/projection/weight", "decoder/embeddings/weight");
            files.aliases.push((alias.0.to_owned(), alias.1.to_owned()));
        }
        let mut lost = description.losses.clone();
        let tokens = engine::text::bytes_of_text(&self.vocabulary);
        if tokens.is_ok_and(|text| text.iter().any(|token| !token.is_empty())) {
            files.members.push(("vocabulary.json".to_owned(), pretty(&json!(self.vocabulary))));
        } else {
            lost.push(Loss::beside(
                "tokenizer",
                "the directory has no vocabulary, without which CTranslate2 does not read it: the source has none",
            ));
        }
        let config = json!({
            "alignment_heads": self.alignment_heads,
            "lang_ids": self.languages,
            "suppress_ids": self.suppressed,
            "suppress_ids_begin": self.suppressed_first,
        });
        files.members.push(("config.json".to_owned(), pretty(&config)));
        match self.tokenizer_json() {
            Some(Ok(json)) => files.members.push((TOKENIZER.to_owned(), json)),
            Some(Err(why)) => {
                self.left.push(Left::new("tokens", TOKENIZER, format!("it cannot be made: {why}")));
            }
            None => {}
        }
        if !self.has(PREPROCESSOR)
            && let Some(encoder) = &model.config().encoder
        {
            let json = preprocessor(*encoder.mels, *encoder.context);
            files.members.push((PREPROCESSOR.to_owned(), pretty(&json)));
        }
        let others = std::mem::take(&mut self.members).into_iter();
        files.members.extend(others.filter(|(name, _)| name != GENERATION));
        Ok(Carried { beside: Beside::Ctranslate2(Box::new(files)), made: vec![], left: self.left, lost })
    }
}

/// An attribute of the width that CTranslate2 reads it with.
fn attribute(key: &str, fact: &Fact) -> Result<Attribute, Error> {
    let value = match fact {
        Fact::Count(n) => i16::try_from(*n).ok(),
        Fact::Number(x) => x.to_string().parse().ok(),
        _ => None,
    };
    let is_wide = WIDE.iter().any(|end| key.ends_with(end));
    let narrow = |n: i16| i8::try_from(n).ok().map(Attribute::I8);
    value.and_then(|n| if is_wide { Some(Attribute::I16(n)) } else { narrow(n) }).ok_or_else(|| {
        let bits = if is_wide { 16 } else { 8 };
        Error::Convert { what: format!("CTranslate2 has {bits} bits for `{key}`, which is {fact}").into() }
    })
}
