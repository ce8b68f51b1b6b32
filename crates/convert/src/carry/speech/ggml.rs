//! What a file of whisper.cpp says beside its weights.
//!
//! Source: models/convert-pt-to-ggml.py of pywhispercpp 1.5.1.

use checkpoint::OpenaiMetadata;
use model::{Description, Fact, Loss, Model};

use super::{Speech, filters};
use crate::Error;
use crate::carry::{Beside, Carried, Left};

impl Speech {
    /// The sizes, filters and tokens of a file of whisper.cpp.
    pub(super) fn into_ggml(mut self, description: &Description, model: &Model) -> Result<Carried, Error> {
        let dims = description.pairs.iter().filter_map(|(key, fact)| match fact {
            Fact::Count(n) => Some((key.clone(), i64::try_from(*n).ok()?)),
            _ => None,
        });
        let filters = match self.filters.take() {
            Some(filters) => filters,
            None => filters::usual(model)?,
        };
        let mut lost = description.losses.clone();
        let tokens = engine::text::bytes_of_text(&self.vocabulary).unwrap_or_default();
        if tokens.iter().all(Vec::is_empty) {
            lost.push(Loss::beside("tokenizer", "the file has no tokens: the source has none"));
        }
        let whisper = "whisper.cpp has lists of its own, by the size of the model";
        for (key, said) in [
            ("alignment_heads", self.alignment_heads.is_some()),
            ("suppress_tokens", self.suppressed.is_some()),
            ("begin_suppress_tokens", self.suppressed_first.is_some()),
        ] {
            if said {
                self.left.push(Left::new("settings", key, whisper));
            }
        }
        let said = OpenaiMetadata::new(dims.collect(), tokens, filters);
        Ok(Carried { beside: Beside::Ggml(Box::new(said)), made: vec![], left: self.left, lost })
    }
}
