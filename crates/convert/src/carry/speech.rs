//! The settings of a model of speech, from what each of its forms says, and to the files of each.

mod ctranslate2;
mod filters;
mod ggml;
mod hf;
mod source;

use checkpoint::{MelFilters, Metadata};
use engine::text::VocabularyBuf;
use model::{DialectName, Loss, Model};
use serde_json::Value;

use super::{Carried, Left, proven};
use crate::Error;

/// The settings of a model, beside sizes and weights.
#[derive(Default)]
struct Speech {
    /// The tokens by id, spelled as byte-level vocabularies spell them; empty where they are not known, and no longer than the model's.
    vocabulary: Vec<String>,
    /// The vocabulary for a tokenizer.json, where no file has one.
    tokenizer: Option<VocabularyBuf>,
    /// Attention heads whose weights tell the times of words: layer and head.
    alignment_heads: Option<Value>,
    /// The tokens of languages, sorted.
    languages: Vec<u64>,
    /// Tokens that are never said.
    suppressed: Option<Value>,
    /// Tokens that a text never begins with.
    suppressed_first: Option<Value>,
    /// The filters of the front end, where the source holds them.
    filters: Option<MelFilters>,
    /// Files of an HF directory that go along as they are.
    members: Vec<(String, Vec<u8>)>,
    /// What the source says and nothing here holds.
    left: Vec<Left>,
}

/// Sizes of the vocabularies of models for several languages begin here.
const MULTILINGUAL: u64 = 51_865;
/// Of a second of sound: samples, and frames before the encoder halves them.
const RATE: u64 = 16_000;
const HOP: u64 = 160;
const FFT: u64 = 400;

const GENERATION: &str = "generation_config.json";
const PREPROCESSOR: &str = "preprocessor_config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The metadata of a model of speech as `home` has it.
///
/// # Errors
/// If `home` has no way to say the model, or a file beside the weights is broken.
pub(super) fn carried(
    metadata: &Metadata,
    model: &Model,
    home: DialectName,
    own: &dyn Fn(&str) -> bool,
) -> Result<Carried, Error> {
    let description = model.describe(home, own);
    proven(model, &description)?;
    let speech = Speech::of(metadata, model)?;
    let odd = speech.filters.as_ref().filter(|_| home != DialectName::Openai);
    let odd = odd.map(|own| filters::differ(own, model)).transpose()?.unwrap_or(false);
    let mut carried = match home {
        DialectName::Ctranslate2 => speech.into_ctranslate2(&description, model, own),
        DialectName::Openai => speech.into_ggml(&description, model),
        _ => Ok(speech.into_hf(description, model)),
    }?;
    if odd {
        let what = "the front end has filters of its own, and the result is heard through the usual ones";
        carried.lost.push(Loss::beside("filters", what));
    }
    Ok(carried)
}

impl Speech {
    /// The id of a token.
    fn id(&self, token: &str) -> Option<u64> {
        // Tokens with a meaning come last.
        let at = self.vocabulary.iter().rposition(|other| other == token)?;
        Some(at as u64)
    }

    /// Whether one of the files that go along is called `name`.
    fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(member, _)| member == name)
    }
}
