//! Errors of the text side, by fault.

/// What can be wrong with a vocabulary, a `tokenizer.json` or a chat template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file contradicts itself.
    #[error("`{field}`: {problem}")]
    Malformed {
        /// The metadata key or JSON path.
        field: &'static str,
        /// What was wanted and what was found.
        problem: String,
    },
    /// The file asks for what Weighbridge does not do.
    #[error("{what} `{found}` is not supported\nhint: supported are {supported}")]
    Unsupported {
        /// What kind of thing it is.
        what: &'static str,
        /// Its name in the file.
        found: String,
        /// What would have been understood.
        supported: String,
    },
}

impl Error {
    pub(super) fn malformed(field: &'static str, problem: impl Into<String>) -> Error {
        Error::Malformed { field, problem: problem.into() }
    }
}
