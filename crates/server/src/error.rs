//! Errors of a server that cannot serve.

use std::fmt;

use weighbridge::tensor::Diagnostics;

use crate::offer::NotLoaded;

/// Errors of a server that cannot serve.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be loaded, or several cannot.
    #[error("{}", lines(&.0.problems))]
    Model(NotLoaded),
    /// The model has no tokenizer, or a broken one.
    #[error("a server needs a tokenizer: {}", lines(.0))]
    Tokenizer(Diagnostics),
    /// The system has no thread, or the socket fails.
    #[error(transparent)]
    Io(std::io::Error),
}

/// The problems, a line for each.
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
            Error::Model(why) => why.problems.clone(),
            Error::Tokenizer(of) => Diagnostics::of(self, of.hints().into_iter().next()),
            Error::Io(_) => Diagnostics::of(self, None),
        }
    }

    /// Several errors as one; `None` if there are none.
    pub(crate) fn all(mut errors: Vec<Error>) -> Option<Error> {
        if errors.len() < 2 {
            return errors.pop();
        }
        let is_misuse = errors.iter().all(|error| matches!(error, Error::Model(why) if why.is_misuse));
        let problems =
            errors.iter().flat_map(|error| error.diagnostics().iter().cloned().collect::<Vec<_>>());
        Some(Error::Model(NotLoaded { problems: problems.collect(), is_for_memory: false, is_misuse }))
    }

    /// True if a model may fit when others have left.
    pub(crate) fn is_for_memory(&self) -> bool {
        matches!(self, Error::Model(NotLoaded { is_for_memory: true, .. }))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}
