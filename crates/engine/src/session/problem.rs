//! Files that a session does not go on from.

use std::fmt;

/// The reason why a file gives a session nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedProblem {
    /// The file is something else.
    NotSaved,
    /// The file is of a session that differs.
    Differs {
        /// The part that differs.
        what: &'static str,
        /// The value of this session.
        wanted: String,
        /// The value in the file.
        found: String,
    },
    /// The file is not as it was written.
    Damaged {
        /// The damage.
        what: String,
    },
}

impl fmt::Display for SavedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedProblem::NotSaved => f.write_str("it is no saved session"),
            SavedProblem::Differs { what, wanted, found } => {
                write!(f, "it is of another {what}: wanted {wanted}, found {found}")
            }
            SavedProblem::Damaged { what } => write!(f, "it is damaged: {what}"),
        }
    }
}

impl SavedProblem {
    /// Returns what to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            SavedProblem::NotSaved => "give the path of a file that a session was saved to",
            SavedProblem::Differs { .. } => {
                "a saved session is of one model, prepared in one way: run its text again, and save that to another file"
            }
            SavedProblem::Damaged { .. } => {
                "if a session was saved to it, run its text again, and save that to another file"
            }
        }
    }
}
