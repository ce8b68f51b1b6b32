//! Errors.

use std::fmt;

use weighbridge::tensor::Diagnostics;

/// Errors between a checkpoint and a model of candle.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint cannot be opened, planned or loaded.
    #[error(transparent)]
    Weighbridge(#[from] weighbridge::Error),
    /// The model of candle wants other tensors.
    #[error("`{path}` does not fit candle's model:\n{problems}")]
    Misfit {
        /// The checkpoint.
        path: String,
        /// Every problem: what is missing, what is not used, what has another shape.
        problems: weighbridge::plan::Problems,
    },
    /// Tensors are encoded as none of candle's are.
    #[error("candle has no type for:{}", tensors.iter().map(|(name, scheme)| format!("\n`{name}`: {scheme}")).collect::<String>())]
    Foreign {
        /// The name and the encoding of each.
        tensors: Vec<(String, String)>,
    },
    /// The checkpoint has no such tensor.
    #[error("`{path}` has no tensor `{name}`")]
    Unknown {
        /// The checkpoint.
        path: String,
        /// The name.
        name: String,
        /// The nearest name that it has.
        nearest: Option<String>,
    },
    /// Candle failed.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
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
            Error::Misfit { path, problems } => {
                problems.diagnostics().under(&format!("`{path}` does not fit candle's model:"))
            }
            Error::Foreign { .. } => {
                let hint = "let the plan encode them otherwise: `PlanBuilder::encode`".to_owned();
                Diagnostics::of(self, Some(hint))
            }
            Error::Unknown { nearest, .. } => {
                Diagnostics::of(self, nearest.as_ref().map(|name| format!("the nearest is `{name}`")))
            }
            Error::Candle(error) => Diagnostics::of(error, None),
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

impl From<weighbridge::load::Error> for Error {
    fn from(error: weighbridge::load::Error) -> Error {
        Error::Weighbridge(error.into())
    }
}

impl From<weighbridge::checkpoint::Error> for Error {
    fn from(error: weighbridge::checkpoint::Error) -> Error {
        Error::Weighbridge(error.into())
    }
}

/// Candle's own error stays what it is; others become [`candle_core::Error::Wrapped`].
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> candle_core::Error {
        match error {
            Error::Candle(error) => error,
            other => candle_core::Error::wrap(other),
        }
    }
}
