//! The verdicts on a checkpoint's keys, for people.

use std::sync::Arc;

use weighbridge::convert::{Covered, coverage};
use weighbridge::engine::text::Tokenizer;
use weighbridge::lora::Adapter;
use weighbridge::model::{KeyVerdict, Verdict};
use weighbridge::{Checkpoint, Metadata, Model};

use crate::failure::Failure;
use crate::json::Key;

/// Keys that nobody here knows, or whose values nothing here follows.
pub(crate) struct Doubts {
    all: Vec<Covered>,
    /// Of the tokenizer's files.
    text: Vec<String>,
}

impl Doubts {
    /// Reads every key's verdict.
    pub(crate) fn of(checkpoint: &Checkpoint, model: &Model) -> Result<Doubts, Failure> {
        let text = match checkpoint.metadata() {
            Metadata::Hf(_) => match weighbridge::engine::text::tokenizer(checkpoint) {
                Ok(tokenizer) => notes(&tokenizer),
                Err(weighbridge::engine::Error::NoTokenizer { .. }) => vec![],
                Err(error) => {
                    vec![format!("no text: {}", error.diagnostics().to_string().replace('\n', " "))]
                }
            },
            _ => vec![],
        };
        Ok(Doubts { all: coverage(checkpoint, model)?, text })
    }

    /// Reads every key's verdict, and takes a tokenizer that is loaded already.
    pub(crate) fn with(
        checkpoint: &Checkpoint,
        model: &Model,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Doubts, Failure> {
        let text = tokenizer.map(notes).unwrap_or_default();
        Ok(Doubts { all: coverage(checkpoint, model)?, text })
    }

    /// The same with the keys of adapters.
    pub(crate) fn and(mut self, adapters: &[Arc<Adapter>]) -> Doubts {
        for adapter in adapters {
            let file = format!("the adapter {}", adapter.path());
            let doubted = |key: &KeyVerdict| line(&file, &key.key, &key.value, &key.verdict);
            self.text.extend(adapter.keys().iter().filter_map(doubted));
        }
        self
    }

    /// Refuses them, if that was asked for.
    pub(crate) fn unless(self, strict: bool) -> Result<Doubts, Failure> {
        let lines = self.lines();
        if !strict || lines.is_empty() {
            return Ok(self);
        }
        Err(Failure::Other(format!(
            "the checkpoint has keys that are unknown or not followed:\n{}\nhint: without `--strict` they are only listed",
            lines.join("\n")
        )))
    }

    /// A line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.all.iter().filter_map(covered).chain(self.text.iter().cloned()).collect()
    }

    /// All keys, with their verdicts.
    pub(crate) fn keys(&self) -> Vec<Key<'_>> {
        self.all.iter().map(Key::from).collect()
    }
}

fn notes(tokenizer: &Tokenizer) -> Vec<String> {
    let line = |note: &weighbridge::engine::text::Note| {
        format!("not followed, in {}: `{}`: {}", note.file, note.field, note.why)
    };
    tokenizer.notes().iter().map(line).collect()
}

fn covered(key: &Covered) -> Option<String> {
    line(key.file, &key.key, &key.value, &key.verdict)
}

fn line(file: &str, key: &str, value: &str, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Unknown => Some(format!("unknown key in {file}: `{key}` = {value}")),
        Verdict::NotFollowed { wanted } => {
            Some(format!("not followed, in {file}: `{key}` is {value}, wanted {wanted}"))
        }
        Verdict::Used | Verdict::Checked | Verdict::WithoutEffect(_) => None,
    }
}
