//! `embed`: the document of `--json`, and the line of a vector.

use serde::Serialize;
use weighbridge::embedder::{Remark, Vectors};

use super::{Real, real};

/// The document that `weighbridge embed --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Embed<'a> {
    /// The path of the model.
    pub(crate) model: String,
    /// Its family.
    pub(crate) family: &'a str,
    /// The backend that ran it.
    pub(crate) backend: String,
    /// Elements of a vector.
    pub(crate) width: usize,
    /// Tokens of a text at most, with those that the model adds.
    pub(crate) max_tokens: usize,
    /// How the vectors of tokens are made one. The results of several ways are joined.
    pub(crate) pooling: Vec<&'a str>,
    /// Vectors were divided by their length at the end.
    pub(crate) normalized: bool,
    /// How vectors of this model are compared: `cosine`, `dot`, `euclidean` or `manhattan`.
    pub(crate) similarity: &'a str,
    /// The number of texts.
    pub(crate) texts: usize,
    /// Tokens that were run.
    pub(crate) tokens: usize,
    /// Texts that were cut, since they are too long.
    pub(crate) cut: usize,
    /// The file with the vectors; null if they are here.
    pub(crate) destination: Option<String>,
    /// In the order of the texts; null if they are in a file.
    pub(crate) vectors: Option<Vec<EmbedVector>>,
    /// Settings that are not followed, and what is done where there are none.
    pub(crate) notes: Vec<EmbedNote<'a>>,
    /// Seconds until the model was loaded.
    pub(crate) load_seconds: f64,
    /// Seconds for the vectors.
    pub(crate) seconds: f64,
    pub(crate) tokens_per_second: Real,
}

/// The vector of a text; without `--json`, each is a line.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EmbedVector {
    /// The number of the text, from 0 on.
    pub(crate) index: usize,
    /// Its tokens that were run, with those that the model adds.
    pub(crate) tokens: usize,
    /// Its tokens that were left out, since it is too long.
    pub(crate) left_out: usize,
    /// An element that is not a number is null.
    pub(crate) vector: Vec<Option<f32>>,
}

/// Something about the settings.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EmbedNote<'a> {
    /// The file; empty if it is about the whole.
    file: &'a str,
    /// The key; empty if it is about the file.
    key: &'a str,
    what: &'a str,
}

impl EmbedVector {
    /// The vectors of texts from number `first` on.
    pub(crate) fn all(first: usize, vectors: &Vectors) -> impl Iterator<Item = EmbedVector> {
        (0..vectors.len()).map(move |n| EmbedVector {
            index: first + n,
            tokens: vectors.tokens(n),
            left_out: vectors.left_out(n),
            vector: vectors.row(n).iter().map(|x| Some(*x).filter(|x| x.is_finite())).collect(),
        })
    }
}

impl<'a> EmbedNote<'a> {
    /// The notes of a model.
    pub(crate) fn all(notes: &'a [Remark]) -> Vec<EmbedNote<'a>> {
        let note = |Remark { file, key, what }: &'a Remark| EmbedNote { file, key, what };
        notes.iter().map(note).collect()
    }
}

/// Tokens a second.
pub(crate) fn rate(tokens: usize, seconds: f64) -> Real {
    real(tokens as f64 / seconds)
}
