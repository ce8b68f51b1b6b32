//! Where something is.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a file or a directory is: what messages call it by, and its path if it has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Location {
    /// A path of this machine's file system.
    Path(PathBuf),
    /// What something is called that has no path: a URL, a name of what is in memory.
    Named(String),
}

impl Location {
    /// The path in this machine's file system, for what is there.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::Path(path) => Some(path),
            Location::Named(_) => None,
        }
    }

    /// The last component; empty if there is none.
    pub fn file_name(&self) -> String {
        match self {
            Location::Path(path) => {
                path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
            }
            Location::Named(name) => name.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }

    /// The location of `name` in this directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Location {
        match self {
            Location::Path(path) => Location::Path(path.join(name)),
            Location::Named(base) => Location::Named(format!("{base}/{name}")),
        }
    }

    /// The location of the file `name` beside this one.
    #[must_use]
    pub fn beside(&self, name: &str) -> Location {
        match self {
            Location::Path(path) => Location::Path(path.with_file_name(name)),
            Location::Named(this) => Location::Named(match this.rsplit_once('/') {
                Some((parent, _)) => format!("{parent}/{name}"),
                None => name.to_owned(),
            }),
        }
    }
}

impl Default for Location {
    /// The path that names nothing.
    fn default() -> Location {
        Location::Path(PathBuf::new())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Path(path) => path.display().fmt(f),
            Location::Named(name) => f.write_str(name),
        }
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Location {
        location.clone()
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Location {
        Location::Path(path.to_owned())
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Location {
        Location::Path(path)
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Location {
        Location::Path(path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_path_or_a_name() {
        let path = Location::from(Path::new("a/b.gguf"));
        let named = Location::Named("https://host/a/b.gguf".to_owned());
        for (location, shown, beside) in
            [(&path, "a/b.gguf", "a/c"), (&named, "https://host/a/b.gguf", "https://host/a/c")]
        {
            assert_eq!((location.to_string().as_str(), location.file_name().as_str()), (shown, "b.gguf"));
            assert_eq!(location.beside("c").to_string(), beside);
            assert_eq!(location.join("c").to_string(), format!("{shown}/c"));
        }
        assert_eq!((path.path(), named.path()), (Some(Path::new("a/b.gguf")), None));
    }
}
