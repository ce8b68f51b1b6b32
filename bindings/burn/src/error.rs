//! Errors.

use std::fmt;

use burn::store::ApplyResult;
use weighbridge::tensor::Diagnostics;

/// Errors between a checkpoint and a module of burn.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint cannot be opened or planned.
    #[error(transparent)]
    Weighbridge(#[from] weighbridge::Error),
    /// Burn has no type for tensors of the checkpoint.
    #[error("burn has no type for:{}", tensors.iter().map(|(name, scheme)| format!("\n`{name}`: {scheme}")).collect::<String>())]
    Dtype {
        /// The name and the encoding of each.
        tensors: Vec<(String, String)>,
    },
    /// A remapper gives several tensors one name.
    #[error("several tensors would be called {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))]
    OneName {
        /// The names.
        names: Vec<String>,
    },
    /// The module wants other tensors. Nothing was read, and the module is as it was.
    #[error("`{path}` does not fit the module:\n{found}")]
    Misfit {
        /// The checkpoint.
        path: String,
        /// Everything that is missing, unused or of another shape, as burn reports it; nothing is applied.
        found: Box<ApplyResult>,
    },
    /// Tensors could not be read. Those that could are in the module.
    #[error("`{path}` could not be read:\n{found}")]
    Read {
        /// The checkpoint.
        path: String,
        /// The tensors that were applied, and the error of each that was not.
        found: Box<ApplyResult>,
    },
    /// A checkpoint is read here, not written.
    #[error("`{path}` is read, not written: burn's own stores write modules")]
    ReadOnly {
        /// The checkpoint.
        path: String,
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
            Error::Weighbridge(error) => error.diagnostics(),
            _ => Diagnostics::of(self, None),
        }
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

impl From<weighbridge::planner::Error> for Error {
    fn from(error: weighbridge::planner::Error) -> Error {
        Error::Weighbridge(error.into())
    }
}

impl From<weighbridge::checkpoint::Error> for Error {
    fn from(error: weighbridge::checkpoint::Error) -> Error {
        Error::Weighbridge(error.into())
    }
}
