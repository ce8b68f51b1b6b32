//! Errors of a server that cannot serve.

use std::fmt;

use weighbridge::tensor::Diagnostics;

/// Errors of a server that cannot serve.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be loaded.
    #[error("{}", lines(.0))]
    Model(Diagnostics),
    /// The model has no room.
    #[error("{}", lines(.0))]
    Memory(Diagnostics),
    /// The model has no tokenizer, or a broken one.
    #[error("a server needs a tokenizer: {}", lines(.0))]
    Tokenizer(Diagnostics),
    /// The system has no thread, or the socket fails.
    #[error(transparent)]
    Io(std::io::Error),
}

/// What is wrong, a line for each problem.
fn lines(all: &Diagnostics) -> String {
    all.iter().map(|d| d.what.as_str()).collect::<Vec<_>>().join("\n")
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
        match self {
            Error::Model(all) | Error::Memory(all) => all.clone(),
            Error::Tokenizer(of) => Diagnostics::of(self, of.hints().into_iter().next()),
            Error::Io(_) => Diagnostics::of(self, None),
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}
