//! A command that failed. The exit code says in which way.

use serde::Serialize;

/// Why a command failed.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Error<'a> {
    /// All problems, one a line.
    pub(crate) error: String,
    pub(crate) problems: Vec<Problem<'a>>,
    /// What to try first; null if nothing is known to help.
    pub(crate) hint: Option<&'a str>,
}

/// One problem.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Problem<'a> {
    pub(crate) problem: &'a str,
    /// What may help with it.
    pub(crate) hints: &'a [String],
}
