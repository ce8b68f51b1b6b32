//! `tokenize --json`.

use serde::Serialize;
use weighbridge::engine::text::{Note as Noted, Tokenizer};

/// What `weighbridge tokenize --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tokenize<'a> {
    /// The kind of the tokenizer.
    tokenizer: &'a str,
    /// The number of its tokens.
    vocabulary: usize,
    /// The text that was encoded, or that the ids were decoded to.
    text: &'a str,
    /// The number of tokens.
    count: usize,
    tokens: Vec<Token<'a>>,
    /// Fields of the tokenizer's files that are not followed.
    notes: Vec<Note<'a>>,
}

/// A token.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Token<'a> {
    id: u32,
    /// Its spelling in the vocabulary.
    token: &'a str,
}

/// A field that is not followed.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Note<'a> {
    file: &'a str,
    field: &'a str,
    why: &'a str,
}

impl<'a> Tokenize<'a> {
    pub(crate) fn of(tokenizer: &'a Tokenizer, text: &'a str, ids: &[u32]) -> Tokenize<'a> {
        let token = |id: &u32| Token { id: *id, token: tokenizer.token_spelling(*id).unwrap_or_default() };
        let note = |n: &'a Noted| Note { file: n.file, field: &n.field, why: &n.why };
        Tokenize {
            tokenizer: tokenizer.name(),
            vocabulary: tokenizer.vocab_size(),
            text,
            count: ids.len(),
            tokens: ids.iter().map(token).collect(),
            notes: tokenizer.notes().iter().map(note).collect(),
        }
    }
}
