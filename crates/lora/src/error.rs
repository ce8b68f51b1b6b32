//! Errors of adapters.

use std::fmt;

use tensor::{Diagnostic, Diagnostics};

use crate::Problems;

/// Why an adapter cannot be used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its weights cannot be opened.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Its weights cannot be read.
    #[error(transparent)]
    Load(#[from] load::Error),
    /// A file cannot be read.
    #[error("cannot read `{path}`: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no adapter, or its configuration is not JSON.
    #[error("{}", what.what)]
    Malformed {
        /// The problem.
        what: Diagnostic,
    },
    /// The adapter contradicts itself, or says something that is not followed.
    #[error("the adapter `{path}` cannot be used:\n{problems}")]
    Unusable {
        /// The adapter.
        path: String,
        /// Every problem.
        problems: Problems,
    },
    /// The adapter is not for this model.
    #[error("{}\n{problems}", misfit(path))]
    Misfit {
        /// The adapter.
        path: String,
        /// Every problem.
        problems: Problems,
        /// The family whose names the adapter has, if it is another.
        fit: Option<Box<model::Fit>>,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// Returns each problem with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        match self {
            Error::Checkpoint(e) => e.diagnostics(),
            Error::Load(e) => e.diagnostics(),
            Error::Io { .. } => Diagnostics::of(self, None),
            Error::Malformed { what } => what.clone().into(),
            Error::Unusable { path, problems } => {
                problems.diagnostics().under(&format!("the adapter `{path}` cannot be used:"))
            }
            Error::Misfit { path, problems, fit } => problems
                .diagnostics()
                .under(&misfit(path))
                .with_hint(fit.as_ref().map(|fit| format!("the adapter is of another family: {fit}"))),
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

fn misfit(path: &str) -> String {
    format!("the adapter `{path}` does not fit the model:")
}
