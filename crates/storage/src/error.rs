//! Why a storage did not list or open something.

use std::io;

use crate::Location;

/// Why a directory was not listed, or a file not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system or the server refused.
    #[error("cannot {doing} `{location}`: {source}")]
    Io {
        /// The file or directory.
        location: Location,
        /// What was tried, as a verb: `open`, `list`.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Text that leads elsewhere than to a file of the storage, or would on another system.
    #[error("`{}` is no name of a file in the directory", name.escape_debug())]
    BadName {
        /// The text.
        name: String,
    },
    /// A link leads out of the storage.
    #[error("`{location}`: `{}` leads out of the directory, to `{}`", name.escape_debug(), target.escape_debug())]
    Outside {
        /// The storage.
        location: Location,
        /// The name of the link, or of what is behind it.
        name: String,
        /// Where it leads.
        target: String,
    },
    /// A file was wanted, and a directory is there.
    #[error("`{location}`: wanted a regular file, found a directory")]
    Directory {
        /// The directory.
        location: Location,
    },
    /// A file was wanted, and something else is there.
    #[error("`{location}`: wanted a regular file, found {found}")]
    NotAFile {
        /// Where.
        location: Location,
        /// What it is, with its article: `a named pipe`.
        found: &'static str,
    },
    /// A directory was wanted, and a file is there.
    #[error("`{location}`: wanted a directory, found a file")]
    NotADirectory {
        /// The file.
        location: Location,
    },
    /// A directory of more names than [`crate::MOST_NAMES`].
    #[error("`{location}`: more than {limit} names")]
    TooMany {
        /// The directory.
        location: Location,
        /// The most that is listed.
        limit: u64,
    },
}

impl Error {
    /// What was to be opened or listed; `None` for what is no name.
    pub fn location(&self) -> Option<&Location> {
        match self {
            Error::Io { location, .. }
            | Error::Outside { location, .. }
            | Error::Directory { location }
            | Error::NotAFile { location, .. }
            | Error::NotADirectory { location }
            | Error::TooMany { location, .. } => Some(location),
            Error::BadName { .. } => None,
        }
    }

    /// Whether nothing is there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The system's refusal of `doing` something to `location`.
    pub fn io(location: impl Into<Location>, doing: &'static str, source: io::Error) -> Error {
        Error::Io { location: location.into(), doing, source }
    }
}
