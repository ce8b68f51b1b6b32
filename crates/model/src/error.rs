//! Errors, by whose fault they are.

use std::fmt;

use tensor::Diagnostics;

/// One thing that a configuration lacks or contradicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigProblem {
    /// No key gives the field, and there is no default.
    Missing {
        /// The field of [`crate::Config`].
        field: &'static str,
        /// The keys that were looked for.
        keys: Vec<String>,
    },
    /// A key has a value that cannot be.
    Invalid {
        /// The key.
        key: String,
        /// What it should have been.
        wanted: String,
        /// What it is.
        found: String,
    },
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigProblem::Missing { field, keys } => {
                write!(f, "no value for `{field}`: looked for ")?;
                for (i, key) in keys.iter().enumerate() {
                    write!(f, "{}`{key}`", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            ConfigProblem::Invalid { key, wanted, found } => {
                write!(f, "`{key}` is {found}, wanted {wanted}")
            }
        }
    }
}

/// As much of a stranger's name as a message has room for.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(96).flat_map(char::escape_debug).collect()
}

/// What can be wrong with a model's description.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint does not say what it is.
    #[error("the checkpoint does not name its architecture: looked for {0}")]
    NoArchitecture(String),
    /// No family claims it.
    #[error("architecture `{}` is not supported{}", short(.name), also(.why.as_deref()))]
    Unsupported {
        /// What the checkpoint calls itself.
        name: String,
        /// Known facts about it; words of the file are escaped.
        why: Option<String>,
        /// What the families claim.
        known: String,
    },
    /// The configuration has problems.
    #[error("the configuration of `{architecture}` is wrong:{}", list(.problems))]
    Config {
        /// What the checkpoint calls itself.
        architecture: String,
        /// Every problem.
        problems: Vec<ConfigProblem>,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// What it says, with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::Unsupported { known, .. } => Some(format!("known are {known}")),
            _ => None,
        };
        Diagnostics::of(self, hint)
    }

    /// What to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

fn list(problems: &[ConfigProblem]) -> String {
    problems.iter().map(|p| format!("\n  {p}")).collect()
}

fn also(why: Option<&str>) -> String {
    why.map_or(String::new(), |why| format!(": {why}"))
}
