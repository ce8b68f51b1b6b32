//! What can go wrong before any arithmetic starts.

use std::fmt;

/// An error of this crate, all of them the caller's misuse or the machine's lack.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No instruction set has this name.
    #[error(
        "no instruction set is called `{name}`\n\
         hint: WEIGHBRIDGE_CPU takes `scalar`, `avx2`, `avxvnni` or `avx512vnni`"
    )]
    IsaUnknown {
        /// What was asked for.
        name: String,
    },
    /// The machine lacks the instruction set.
    #[error(
        "this machine lacks the instruction set `{name}`\nhint: unset WEIGHBRIDGE_CPU to use the best it has"
    )]
    IsaMissing {
        /// What was asked for.
        name: String,
    },
    /// A scheme has this name already.
    #[error("there is a scheme called `{name}` already")]
    Taken {
        /// The name.
        name: String,
    },
}

/// As it is shown: a `main` that ends with one says what is wrong, and not how that is kept.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
