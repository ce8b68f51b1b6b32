//! Errors of converting and comparing.

use std::fmt;

use checkpoint::Location;
use tensor::{Bytes, Diagnostic, Diagnostics};

/// A reason why a conversion or a comparison fails.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint cannot be opened or written.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// It cannot be planned.
    #[error(transparent)]
    Plan(#[from] planner::Error),
    /// The metadata cannot be read.
    #[error(transparent)]
    Check(#[from] check::Error),
    /// Its tokenizer or its defaults of sampling cannot be read.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The format cannot say all of the model.
    #[error("{}", unsaid(format, losses, unknown))]
    Lost {
        /// The format.
        format: &'static str,
        /// The losses.
        losses: Vec<model::Loss>,
        /// Keys that were allowed to be lost, under which nothing is.
        unknown: Vec<String>,
    },
    /// The checkpoint cannot be converted as asked.
    #[error("{}", what.problems())]
    Convert {
        /// Everything that is wrong.
        what: Diagnostics,
    },
    /// Weights are quantised already, and would be quantised again.
    #[error(
        "these weights are already quantised and would be quantised again:{}",
        crate::requantize::listed(weights)
    )]
    Requantize {
        /// Which, by name, and how.
        weights: Vec<crate::Requantized>,
    },
    /// The checkpoints cannot be compared as asked.
    #[error("{}", what.what)]
    Diff {
        /// The problem.
        what: Diagnostic,
    },
    /// An importance matrix cannot be used.
    #[error("`{path}`: {what}")]
    Imatrix {
        /// The file.
        path: String,
        /// The problem.
        what: String,
    },
    /// A policy of compression cannot be used.
    #[error("`{path}`: {what}")]
    Policy {
        /// The file.
        path: String,
        /// The problem.
        what: String,
    },
    /// A tensor takes more memory than is allowed.
    #[error("`{tensor}` needs {} at one time, with its buffers; the limit is {}", Bytes(*wanted), Bytes(*memory))]
    Memory {
        /// The tensor that needs the most.
        tensor: String,
        /// The least number of bytes that it needs.
        wanted: u64,
        /// The limit.
        memory: u64,
    },
    /// The caller ended it.
    #[error("{}", interrupted(kept.as_ref(), *done, *total))]
    Interrupted {
        /// Where what was written is kept; without it, nothing is.
        kept: Option<Location>,
        /// Parameters that were written.
        done: usize,
        /// Parameters that there are.
        total: usize,
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
        let hint = match self {
            Error::Checkpoint(error) => return error.diagnostics(),
            Error::Plan(error) => return error.diagnostics(),
            Error::Check(error) => return error.diagnostics(),
            Error::Engine(error) => return error.diagnostics(),
            Error::Load(error) => return error.diagnostics(),
            Error::Convert { what } => return what.clone(),
            Error::Diff { what } => return what.clone().into(),
            Error::Requantize { .. } => Some("quantise the original floats, or allow it"),
            Error::Imatrix { .. } => Some("llama.cpp's llama-imatrix makes them"),
            Error::Interrupted { kept, .. } => kept.as_ref().map(|_| "the same command continues there"),
            Error::Lost { .. } | Error::Policy { .. } => None,
            Error::Memory { wanted, .. } => {
                return Diagnostics::of(self, Some(format!("allow at least {wanted} bytes")));
            }
        };
        Diagnostics::of(self, hint.map(str::to_owned))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }

    /// Whether the caller asked for something impossible: neither the model nor a file is wrong.
    pub fn is_misuse(&self) -> bool {
        match self {
            Error::Convert { .. } | Error::Requantize { .. } | Error::Diff { .. } => true,
            Error::Checkpoint(e) => matches!(e, checkpoint::Error::Misuse(_)),
            Error::Plan(e) => e.is_misuse(),
            Error::Check(e) => e.is_misuse(),
            _ => false,
        }
    }
}

fn unsaid(format: &str, losses: &[model::Loss], unknown: &[String]) -> String {
    let heading = (!losses.is_empty()).then(|| format!("{format} cannot say all of this model:"));
    let lost = losses.iter().map(|loss| format!("`{}` is lost: {}", loss.key, loss.what));
    let nothing = unknown.iter().map(|key| format!("nothing is lost under `{key}`, which was allowed"));
    heading.into_iter().chain(lost).chain(nothing).collect::<Vec<_>>().join("\n")
}

fn interrupted(kept: Option<&Location>, done: usize, total: usize) -> String {
    match kept {
        None => "interrupted: nothing was written".to_owned(),
        Some(kept) => format!("interrupted: {done} of {total} tensors are kept in `{kept}`"),
    }
}
