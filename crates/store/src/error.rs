//! Errors of the cache.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tensor::{Diagnostic, Diagnostics};

/// Errors of the cache.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the cache could not be handled.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The copy could not be written.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The plan cannot be run.
    #[error(transparent)]
    Load(#[from] load::Error),
}

/// As people read it, hints included.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { path, doing, source }
    }

    /// Returns each problem with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        match self {
            Error::Io { .. } => Diagnostics::from(Diagnostic::from(self.to_string())),
            Error::Checkpoint(e) => e.diagnostics(),
            Error::Load(e) => e.diagnostics(),
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}
