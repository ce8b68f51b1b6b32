//! Errors of running a model.

use std::fmt;

/// What can go wrong while a model runs.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The layout gave other names than the engine runs.
    #[error("`{name}` was not loaded, and the engine needs it")]
    NotLoaded {
        /// The runtime parameter.
        name: String,
    },
    /// The layout takes entries as they are stored, whatever they mean.
    #[error(
        "what was loaded does not say in which order the rows of q and k lie, which the engine must know"
    )]
    NoRopeOrder,
    /// An update ended on the way: the weights in memory belong to two models.
    #[error(
        "an update of the weights ended on the way: they are of two models\nhint: update all of them, or load them again"
    )]
    Torn,
    /// A size does not fit this machine.
    #[error("the model does not fit this machine's address space")]
    TooLarge,
    /// The KV cache is not to be had.
    #[error("no memory for a KV cache of {capacity} positions\nhint: ask for fewer with --ctx")]
    CacheTooLarge {
        /// Positions asked for.
        capacity: usize,
    },
    /// Nothing to run.
    #[error("no tokens to run")]
    NoTokens,
    /// A token that the vocabulary lacks.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// The cache is full.
    #[error(
        "the context is full: {wanted} positions wanted, room for {capacity}\nhint: ask for more with --ctx"
    )]
    ContextFull {
        /// Positions wanted.
        wanted: usize,
        /// Positions there is room for.
        capacity: usize,
    },
    /// More positions than a learned table holds.
    #[error("a context of {wanted} was asked for, and the model has learned {learned} positions")]
    Positions {
        /// Positions wanted.
        wanted: usize,
        /// Positions learned.
        learned: usize,
    },
    /// A matrix that the processor cannot multiply.
    #[error("no kernel multiplies matrices of {scheme}\nhint: `--backend reference` decodes them row by row")]
    NoKernel {
        /// Its scheme.
        scheme: String,
    },
    /// The tokenizer or the chat template is wrong.
    #[error("`{path}`: {source}")]
    Text {
        /// The checkpoint.
        path: String,
        /// What is wrong.
        source: crate::text::Error,
    },
    /// A file of a tokenizer cannot be read.
    #[error("cannot read `{path}`: {source}")]
    TextIo {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The checkpoint has no tokenizer.
    #[error("`{path}` has no tokenizer: looked for {looked_for}\nhint: {hint}")]
    NoTokenizer {
        /// The checkpoint.
        path: String,
        /// Where it was looked for.
        looked_for: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The sampling defaults cannot be read.
    #[error("`{path}`: {what}")]
    Sampling {
        /// The checkpoint.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A file beside the weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The sampler could not choose.
    #[error(transparent)]
    Sampler(#[from] crate::sampler::Error),
}

/// As it is shown: a `main` that ends with one says what is wrong, and not how that is kept.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether the caller asked for what cannot be: neither the model nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Error::CacheTooLarge { .. }
                | Error::ContextFull { .. }
                | Error::Positions { .. }
                | Error::NoTokens
        )
    }
}
