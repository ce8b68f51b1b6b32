//! Errors found before any arithmetic starts.

use std::fmt;

use tensor::Diagnostics;

/// An error of this crate, all of them the caller's misuse or the machine's lack.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No instruction set has this name.
    #[error("no instruction set is called `{name}`")]
    IsaUnknown {
        /// The name asked for.
        name: String,
    },
    /// The machine lacks the instruction set.
    #[error("this machine lacks the instruction set `{name}`")]
    IsaMissing {
        /// The name asked for.
        name: String,
    },
    /// A scheme has this name already.
    #[error("there is a scheme called `{name}` already")]
    Taken {
        /// The name.
        name: String,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::IsaUnknown { .. } => {
                "WEIGHBRIDGE_CPU takes `scalar`, `avx2`, `avxvnni`, `avx512vnni` or `neondotprod`"
            }
            Error::IsaMissing { .. } => "unset WEIGHBRIDGE_CPU to use the best it has",
            Error::Taken { .. } => return Diagnostics::of(self, None),
        };
        Diagnostics::of(self, Some(hint.to_owned()))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}
