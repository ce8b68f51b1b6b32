//! The directory of a checkpoint: what is in it, and opening that without being led out of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, a_few};
use crate::fault::Fault;
use crate::source::{OpenFile, Trust};

/// A directory and the names in it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    names: Vec<String>,
}

impl Folder {
    /// More names than any checkpoint has.
    pub(crate) const MOST: u32 = 100_000;

    /// Lists `path`. Names that are not UTF-8 are none of ours, and left out.
    pub(crate) fn list(path: &Path) -> Result<Folder, Error> {
        let failed = |e| Error::io(path, "list", e);
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let limit = u64::from(Self::MOST);
            if names.len() as u64 == limit {
                let what = "number of directory entries";
                return Err(Error::whole(path, Fault::Limit { what, found: limit + 1, limit }));
            }
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(Folder { path: path.to_owned(), names })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.binary_search_by(|n| n.as_str().cmp(name)).is_ok()
    }

    /// Whether `name` is one component of a path, on any system.
    pub(crate) fn is_plain(name: &str) -> bool {
        !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '\\', '\0'])
    }

    /// The names that end with `suffix`, which includes the dot. Hidden ones are not meant.
    pub(crate) fn ending(&self, suffix: &str) -> Vec<&str> {
        self.names().filter(|n| !n.starts_with('.') && n.ends_with(suffix)).collect()
    }

    /// What is in it, in words, a few names at most.
    pub(crate) fn describe(&self) -> String {
        if self.names.is_empty() {
            return "an empty directory".to_owned();
        }
        a_few(self.names.iter().map(String::as_str))
    }

    /// Where the regular file `name` of this directory really is.
    ///
    /// A symbolic link may point to a file in the directory itself, or anywhere in the `models--*`
    /// directory of the Hugging Face cache that the directory is in, where `snapshots/REV/NAME` is a link
    /// to `../../blobs/DIGEST` (huggingface_hub, `file_download.py`, `_create_symlink`). No other is
    /// followed, and `name` is one plain component.
    pub(crate) fn resolve(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        let failed = |e| Error::io(&path, "open", e);
        if !fs::symlink_metadata(&path).map_err(failed)?.file_type().is_symlink() {
            return Ok(path);
        }
        let target = fs::canonicalize(&path).map_err(failed)?;
        let home = fs::canonicalize(&self.path).map_err(|e| Error::io(&self.path, "open", e))?;
        let allowed = home.ancestors().find(|a| is_hub_model(a)).unwrap_or(&home);
        if target.starts_with(allowed) {
            return Ok(target);
        }
        let fault = Fault::Outside { member: name.to_owned(), target: target.display().to_string() };
        Err(Error::whole(&self.path, fault).with_hint("copy the file into the directory"))
    }

    /// Lists the directory `name` of this directory.
    pub(crate) fn inner(&self, name: &str) -> Result<Folder, Error> {
        let real = self.resolve(name)?;
        if !real.is_dir() {
            let (wants, found) = ("a directory".to_owned(), "a file".to_owned());
            return Err(Error::whole(&self.path.join(name), Fault::Missing { wants, found }));
        }
        Folder::list(&self.path.join(name))
    }

    /// Opens the regular file `name` of this directory.
    pub(crate) fn open(&self, name: &str) -> Result<OpenFile, Error> {
        let file = OpenFile::open(&self.resolve(name)?, Trust::Folder)?;
        Ok(file.known_as(self.path.join(name)))
    }
}

fn is_hub_model(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("models--"))
}
