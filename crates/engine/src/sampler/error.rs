//! Errors of choosing a token.

use std::fmt;

use tensor::{Diagnostic, Diagnostics};

/// Errors of choosing a token.
#[derive(PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options are outside their ranges.
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Options {
        /// Each of them.
        problems: Vec<OptionProblem>,
    },
    /// Logits that no softmax takes.
    #[error("{count} of {vocab} logits are not numbers")]
    NotNumbers {
        /// How many are NaN or +∞.
        count: usize,
        /// How many there are.
        vocab: usize,
    },
    /// Every logit is −∞.
    #[error("no token may come: all logits are −∞")]
    NoToken,
    /// A constraint allows no token, or could not say which.
    #[error("{what}")]
    Constraint {
        /// Why, in the words of the constraint.
        what: String,
    },
    /// Logits for another vocabulary.
    #[error("{found} logits for a sampler of {wanted}")]
    Vocabulary {
        /// Tokens that the sampler was made for.
        wanted: usize,
        /// Logits given.
        found: usize,
    },
}

/// An option outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionProblem {
    /// The option.
    pub option: &'static str,
    /// Its range.
    pub wanted: String,
    /// The value given.
    pub found: String,
}

impl fmt::Display for OptionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` must be {}, found {}", self.option, self.wanted, self.found)
    }
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
            Error::Options { problems } => {
                return problems.iter().map(|problem| Diagnostic::new(problem.to_string())).collect();
            }
            Error::NotNumbers { .. } => {
                "the weights or a kernel are broken; the reference backend tells which"
            }
            Error::NoToken | Error::Constraint { .. } | Error::Vocabulary { .. } => {
                return Diagnostics::of(self, None);
            }
        };
        Diagnostics::of(self, Some(hint.to_owned()))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}
