//! Errors of the text side, by fault, with their hints.

use std::fmt;

use tensor::Diagnostics;

/// Errors of a vocabulary, a `tokenizer.json` or a chat template.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file contradicts itself.
    #[error("`{field}`: {problem}")]
    Malformed {
        /// The metadata key or JSON path.
        field: &'static str,
        /// The value wanted and the value found.
        problem: String,
    },
    /// The file asks for what Weighbridge does not do.
    #[error("{what} `{found}` is not supported")]
    Unsupported {
        /// The kind of feature.
        what: &'static str,
        /// Its name in the file.
        found: String,
        /// The supported values.
        supported: String,
    },
    /// Fields of a file are wrong, or would be read otherwise than the reference reads them.
    #[error("`{file}` cannot be followed exactly{}", listed(problems))]
    Refused {
        /// The name of the file.
        file: &'static str,
        /// Each field, by its path in the file, and what is wrong with it.
        problems: Vec<(String, String)>,
    },
    /// A text may have so few tokens that nothing of it is left.
    #[error("{most} tokens leave no room for a text: the model adds {added}")]
    NoRoom {
        /// Tokens at most.
        most: usize,
        /// Tokens that the model adds.
        added: usize,
    },
    /// The file needs the library `tokenizers`, which this build does not have.
    #[error(
        "`tokenizer.json` needs the library `tokenizers`, and this build does not have it{}",
        listed(parts)
    )]
    NeedsLibrary {
        /// The parts of the file that need it, by path, and what they ask for.
        parts: Vec<(String, String)>,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    pub(super) fn malformed(field: &'static str, problem: impl Into<String>) -> Error {
        Error::Malformed { field, problem: problem.into() }
    }

    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::Unsupported { supported, .. } => Some(format!("supported are {supported}")),
            Error::NeedsLibrary { .. } => Some("build with the feature `tokenizers`".to_owned()),
            Error::NoRoom { .. } => Some("allow more tokens".to_owned()),
            Error::Malformed { .. } | Error::Refused { .. } => None,
        };
        Diagnostics::of(self, hint)
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

fn listed(problems: &[(String, String)]) -> String {
    let line = |(path, said): &(String, String)| match path.as_str() {
        "" => format!("\n  {said}"),
        _ => format!("\n  `{path}`: {said}"),
    };
    problems.iter().map(line).collect()
}

/// A field of a tokenizer file that is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The name of the file.
    pub file: &'static str,
    /// The path of the field in it.
    pub field: String,
    /// Why it is not followed.
    pub why: String,
}

impl Note {
    pub(super) fn new(file: &'static str, field: &str, why: impl Into<String>) -> Note {
        Note { file, field: field.to_owned(), why: why.into() }
    }

    pub(super) fn unknown(file: &'static str, field: &str) -> Note {
        Note::new(file, field, "what it does is not known")
    }
}

/// A feature of a `tokenizer.json` that GGUF cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerLoss {
    /// The path of the field.
    pub field: String,
    /// How texts change without it.
    pub effect: String,
}

impl TokenizerLoss {
    pub(super) fn new(field: &str, effect: impl Into<String>) -> TokenizerLoss {
        TokenizerLoss { field: field.to_owned(), effect: effect.into() }
    }
}
