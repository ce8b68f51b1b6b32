//! The reasons why weights in memory cannot be updated.

use std::fmt;

use checkpoint::Location;
use tensor::{Arrangement, Shape};

/// Why what is in memory cannot be updated: nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// A pattern names nothing that is in memory.
    NoMatch {
        /// The pattern.
        pattern: String,
        /// The nearest name.
        nearest: Option<String>,
    },
    /// The plan has nothing for a parameter.
    Missing {
        /// Its name.
        name: String,
    },
    /// The plan has a parameter that is not in memory.
    Extra {
        /// Its name.
        name: String,
        /// The nearest name in memory.
        nearest: Option<String>,
    },
    /// A parameter has another shape.
    Shape {
        /// Its name.
        name: String,
        /// In memory.
        wanted: Shape,
        /// In the plan.
        found: Shape,
    },
    /// A parameter is held in another scheme.
    Scheme {
        /// Its name.
        name: String,
        /// In memory.
        wanted: String,
        /// In the plan.
        found: String,
    },
    /// A parameter shares its slot with another, here or there.
    Tie {
        /// Its name.
        name: String,
        /// The one that it is tied to in memory.
        wanted: Option<String>,
        /// The one that it is tied to in the plan.
        found: Option<String>,
    },
    /// A parameter is borrowed from a map, which cannot be written.
    Borrowed {
        /// Its name.
        name: String,
    },
    /// The plan's layout holds values otherwise, although shapes and schemes are the same.
    Arrangement {
        /// In memory.
        wanted: Option<Arrangement>,
        /// In the plan.
        found: Arrangement,
    },
    /// A file is not what it was when the plan's checkpoint was opened.
    Changed(checkpoint::Error),
    /// A file cannot be read to the last byte that is needed.
    File {
        /// The file.
        location: Location,
        /// The end of what is needed, in bytes.
        needed: u64,
        /// Why.
        source: std::io::Error,
    },
    /// Tensors that were cloned out of what is in memory are still there.
    InUse,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tied = |to: &Option<String>| to.as_ref().map_or("no other".to_owned(), |to| format!("`{to}`"));
        match self {
            Obstacle::NoMatch { pattern, .. } => {
                write!(f, "`{pattern}` names no parameter that is in memory")
            }
            Obstacle::Missing { name } => write!(f, "`{name}`: is in memory, and not in the plan"),
            Obstacle::Extra { name, .. } => write!(f, "`{name}`: is in the plan, and not in memory"),
            Obstacle::Shape { name, wanted, found } => {
                write!(f, "`{name}`: wanted shape {wanted}, found {found}")
            }
            Obstacle::Scheme { name, wanted, found } => write!(f, "`{name}`: wanted {wanted}, found {found}"),
            Obstacle::Tie { name, wanted, found } => {
                write!(f, "`{name}`: wanted one that is tied to {}, found {}", tied(wanted), tied(found))
            }
            Obstacle::Borrowed { name } => {
                write!(f, "`{name}`: is borrowed from a map, which cannot be written")
            }
            Obstacle::Arrangement { wanted, found } => {
                let wanted = wanted.as_ref().map_or("a part of a load".to_owned(), ToString::to_string);
                write!(f, "wanted {wanted}, found {found}")
            }
            Obstacle::Changed(error) => error.fmt(f),
            Obstacle::File { location, needed, source } => {
                write!(f, "`{location}`: {needed} bytes of it are needed: {source}")
            }
            Obstacle::InUse => f.write_str("cloned tensors are still in use"),
        }
    }
}

impl Obstacle {
    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        let hint = match self {
            Obstacle::NoMatch { nearest, .. } | Obstacle::Extra { nearest, .. } => {
                return nearest.iter().map(|near| format!("did you mean `{near}`?")).collect();
            }
            Obstacle::Changed(error) => return error.hints(),
            Obstacle::Borrowed { .. } => "load it owned (`Options::owned`)",
            Obstacle::Arrangement { .. } => {
                "plan it in the layout of the weights in memory; all checkpoints are alike in `canonical`"
            }
            Obstacle::InUse => "drop them (a decoder holds some)",
            _ => return vec![],
        };
        vec![hint.to_owned()]
    }
}
