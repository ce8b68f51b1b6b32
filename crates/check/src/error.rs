//! Errors of checks.

use std::fmt;

use tensor::{Bytes, Diagnostics};

use crate::finding::Finding;
use crate::keys::KeyFinding;

/// A reason why a check cannot run, or a difference found during a load.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file beside the weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Its tensors cannot be read as they are stored.
    #[error(transparent)]
    Plan(#[from] planner::Error),
    /// A manifest is not one that can be used.
    #[error("`{path}`: {what}")]
    Manifest {
        /// The file.
        path: String,
        /// The problem, wanted and found.
        what: String,
    },
    /// A manifest cannot be read or written.
    #[error("cannot {doing} the manifest `{path}`: {source}")]
    ManifestIo {
        /// The file.
        path: String,
        /// The operation: `read`, `write`.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another manifest exists where one is to be written.
    #[error("`{path}` already exists and differs")]
    ManifestThere {
        /// The file.
        path: String,
    },
    /// The loaded tensors or keys differ from a manifest.
    #[error("`{path}` does not match the manifest:\n{}", lines(findings, keys))]
    Differs {
        /// The checkpoint.
        path: String,
        /// Every tensor that differs.
        findings: Vec<Finding>,
        /// Every difference beside the tensors.
        keys: Vec<KeyFinding>,
    },
    /// The caller ended it.
    #[error("interrupted: {} of {} were checked", Bytes(*done), Bytes(*total))]
    Interrupted {
        /// Bytes that were checked.
        done: u64,
        /// Bytes that there are.
        total: u64,
    },
    /// Loading failed.
    #[error(transparent)]
    Load(#[from] load::Error),
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
            Error::Checkpoint(error) => error.diagnostics(),
            Error::Plan(error) => error.diagnostics(),
            Error::Load(error) => error.diagnostics(),
            _ => Diagnostics::of(self, None),
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }

    /// Whether the caller asked for something impossible: neither the checkpoint nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        match self {
            Error::ManifestThere { .. } | Error::Load(load::Error::LittleMemory { .. }) => true,
            Error::Checkpoint(e) => matches!(e, checkpoint::Error::Misuse(_)),
            Error::Plan(e) => e.is_misuse(),
            _ => false,
        }
    }
}

fn lines(findings: &[Finding], keys: &[KeyFinding]) -> String {
    let keys = keys.iter().map(ToString::to_string);
    findings.iter().map(ToString::to_string).chain(keys).collect::<Vec<_>>().join("\n")
}
