//! Errors as Python's exceptions, whose classes are in `weighbridge._errors`.

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use weighbridge::Error;
use weighbridge::tensor::{Diagnostic, Diagnostics, nearest};

/// The result of what the library does.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why something failed.
pub(crate) enum Failure {
    /// The library's error.
    Ours(Box<Error>),
    /// An exception, as a callback's or Ctrl-C's.
    Python(PyErr),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Ours(Box::new(error.into()))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Python(error) => error,
            Failure::Ours(error) => raised(class(&error), &error.diagnostics()),
        }
    }
}

/// The class in `weighbridge._errors` of an error.
fn class(error: &Error) -> &'static str {
    match error {
        _ if error.is_unknown_model() => "UnknownModelError",
        _ if error.is_misuse() => "MisuseError",
        Error::Checkpoint(_) | Error::Check(_) => "CheckpointError",
        Error::Convert(_) => "ConvertError",
        Error::Plan(_) => "PlanError",
        Error::Load(_) => "LoadError",
        _ => "RunError",
    }
}

/// The arguments are wrong.
pub(crate) fn misuse(what: Diagnostic) -> PyErr {
    raised("MisuseError", &what.into())
}

/// Memory of the caller's does not fit a plan.
pub(crate) fn mismatch(problems: &Diagnostics) -> PyErr {
    raised("LoadError", problems)
}

/// Running fails, or a text cannot be made tokens.
pub(crate) fn run_error(problems: &Diagnostics) -> PyErr {
    raised("RunError", problems)
}

fn raised(class: &str, diagnostics: &Diagnostics) -> PyErr {
    Python::attach(|py| {
        let parts: Vec<(String, Vec<String>)> =
            diagnostics.iter().map(|d| (d.what.clone(), d.hints.clone())).collect();
        let made = py
            .import("weighbridge._errors")
            .and_then(|module| module.getattr(class)?.call1((diagnostics.to_string(), parts)));
        match made {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}

/// That `what` is not there, and the nearest of the names that are.
pub(crate) fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> PyErr {
    let near = nearest(name, names).map_or_else(String::new, |near| format!(": the nearest is `{near}`"));
    PyKeyError::new_err(format!("{what} `{name}`{near}"))
}

/// An argument that no value has.
pub(crate) fn value_error(what: impl Into<String>) -> PyErr {
    PyValueError::new_err(what.into())
}
