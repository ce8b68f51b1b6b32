//! `rerank`: the document of `--json`, and the line of a text.

use serde::Serialize;

use super::{EmbedNote, Real};

/// The document that `weighbridge rerank --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rerank<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// Its family.
    pub(crate) family: &'a str,
    /// The backend that ran it.
    pub(crate) backend: String,
    /// The query that the texts were scored for.
    pub(crate) query: &'a str,
    /// Tokens of the query with a text at most, with those that the model adds.
    pub(crate) max_tokens: usize,
    /// The function that the model's scores were put through: `sigmoid` or `identity`.
    pub(crate) activation: &'a str,
    /// The number of texts.
    pub(crate) texts: usize,
    /// Tokens that were run.
    pub(crate) tokens: usize,
    /// Texts that were cut, or whose query was, since both are too long together.
    pub(crate) cut: usize,
    /// The texts, the best first.
    pub(crate) results: Vec<RerankText>,
    /// Settings that are not followed, and what is done where there are none.
    pub(crate) notes: Vec<EmbedNote<'a>>,
    /// Seconds until the model was loaded.
    pub(crate) load_seconds: f64,
    /// Seconds for the scores.
    pub(crate) seconds: f64,
    pub(crate) tokens_per_second: Real,
}

/// A text and its score; without `--json`, each is a line.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RerankText {
    /// The number of the text, from 0 on.
    pub(crate) index: usize,
    /// Its score.
    pub(crate) score: f32,
    /// The text.
    pub(crate) text: String,
}
