//! Errors, by whose fault they are.

use std::fmt;

use tensor::Diagnostics;

use crate::ecosystem::DialectName;

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
        /// The value wanted.
        wanted: String,
        /// The value found.
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

/// A problem in a family's own declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FamilyProblem {
    /// Another family has its name.
    NameTaken,
    /// It claims no architecture.
    ClaimsNothing,
    /// It claims an architecture that is claimed already.
    Claimed {
        /// The ecosystem.
        dialect: DialectName,
        /// The architecture.
        architecture: &'static str,
        /// The family that claims it; `None`: models of several parts, of which one is a text model of some family.
        by: Option<&'static str>,
    },
    /// It claims architectures in an ecosystem, and gives no names of parameters there.
    NoDialect {
        /// The ecosystem.
        dialect: DialectName,
    },
    /// It returns the names of another ecosystem than it was asked for.
    OtherDialect {
        /// The ecosystem that it was asked for.
        dialect: DialectName,
        /// The one that it gives.
        found: DialectName,
    },
    /// A rule cannot be followed.
    Rule {
        /// The ecosystem.
        dialect: DialectName,
        /// The parameter.
        param: &'static str,
        /// The entry.
        entry: &'static str,
        /// The obstacle.
        why: &'static str,
    },
    /// Two modules own one name.
    TwoOwners {
        /// The name.
        name: String,
        /// The modules.
        owners: [String; 2],
    },
    /// A module owns a parameter that no rule names.
    Nameless {
        /// The ecosystem.
        dialect: DialectName,
        /// The parameter; `{n}` is any layer.
        param: String,
        /// The nearest name that rules have and no module owns.
        nearest: Option<String>,
    },
}

impl fmt::Display for FamilyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FamilyProblem::NameTaken => f.write_str("another family has this name"),
            FamilyProblem::ClaimsNothing => f.write_str("it claims no architecture"),
            FamilyProblem::Claimed { dialect, architecture, by: Some(by) } => {
                write!(f, "{dialect}: the family `{by}` claims `{architecture}`")
            }
            FamilyProblem::Claimed { dialect, architecture, by: None } => write!(
                f,
                "{dialect}: `{architecture}` is a model of several parts; claim the architecture of its text model"
            ),
            FamilyProblem::NoDialect { dialect } => {
                write!(f, "{dialect}: it claims architectures there, and has no names for parameters")
            }
            FamilyProblem::OtherDialect { dialect, found } => {
                write!(f, "{dialect}: wanted the names of {dialect}, found those of {found}")
            }
            FamilyProblem::Rule { dialect, param, entry, why } => {
                write!(f, "{dialect}: the rule for `{param}` from `{entry}`: {why}")
            }
            FamilyProblem::TwoOwners { name, owners: [one, other] } => {
                write!(f, "two modules own `{name}`: {one} and {other}")
            }
            FamilyProblem::Nameless { dialect, param, nearest } => {
                write!(f, "{dialect}: no rule names `{param}`")?;
                match nearest {
                    Some(nearest) => write!(f, ", and no module owns `{nearest}`, which a rule names"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// As much of a stranger's name as a message has room for.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(96).flat_map(char::escape_debug).collect()
}

/// Problems of a model's description.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint does not say what it is.
    #[error("the checkpoint does not name its architecture: looked for {0}")]
    NoArchitecture(String),
    /// No family claims it.
    #[error("architecture `{}` is not supported{}", short(.name), also(.why.as_deref()))]
    Unsupported {
        /// The name of the architecture in the checkpoint.
        name: String,
        /// Known facts about it; words of the file are escaped.
        why: Option<String>,
        /// The names that the families claim.
        known: String,
    },
    /// The description of a family contradicts itself, or another family.
    #[error("the family `{family}` is declared wrongly:{}", list(.problems))]
    Family {
        /// The family.
        family: &'static str,
        /// Every problem.
        problems: Vec<FamilyProblem>,
    },
    /// The configuration has problems.
    #[error("the configuration of `{architecture}` is wrong:{}", list(.problems))]
    Config {
        /// The name of the architecture in the checkpoint.
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
    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::Unsupported { known, .. } => Some(format!("known are {known}")),
            _ => None,
        };
        Diagnostics::of(self, hint)
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

fn list<P: fmt::Display>(problems: &[P]) -> String {
    problems.iter().map(|p| format!("\n  {p}")).collect()
}

fn also(why: Option<&str>) -> String {
    why.map_or(String::new(), |why| format!(": {why}"))
}
