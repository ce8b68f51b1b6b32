//! A directory of a storage: listing its files, and opening them.

use std::sync::Arc;

use storage::{Location, MOST_NAMES, Name, Storage};

use crate::error::{Error, a_few};
use crate::fault::Fault;
use crate::file::OpenFile;

/// A directory and the names in it.
#[derive(Debug)]
pub(crate) struct Folder {
    storage: Arc<dyn Storage>,
    dir: Name,
    names: Vec<String>,
    /// The files of several ranks are of one checkpoint.
    all_ranks: bool,
}

impl Folder {
    /// More names than any checkpoint has.
    pub(crate) const MOST: u32 = MOST_NAMES;

    /// Lists `dir`.
    pub(crate) fn list(storage: &Arc<dyn Storage>, dir: Name) -> Result<Folder, Error> {
        let mut names = storage.list(&dir)?;
        // Binary search needs the order that a storage promises.
        names.sort_unstable();
        Ok(Folder { storage: Arc::clone(storage), dir, names, all_ranks: false })
    }

    /// Returns the same folder, with the files of several ranks taken as one checkpoint.
    pub(crate) fn of_all_ranks(self) -> Folder {
        Folder { all_ranks: true, ..self }
    }

    /// Whether the files of several ranks are taken as one checkpoint.
    pub(crate) fn is_of_all_ranks(&self) -> bool {
        self.all_ranks
    }

    /// Where it is.
    pub(crate) fn location(&self) -> Location {
        self.storage.location(&self.dir)
    }

    /// Where the file `name` of it is, or would be.
    pub(crate) fn location_of(&self, name: &str) -> Location {
        self.dir.join(name).map_or_else(|_| self.location().join(name), |name| self.storage.location(&name))
    }

    /// The names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Whether `name`, one component, is in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.binary_search_by(|n| n.as_str().cmp(name)).is_ok()
            || (!self.storage.lists_all()
                && self.name(name).is_ok_and(|name| self.storage.open(&name).is_ok()))
    }

    /// Whether `name` is one component of a path, on any system.
    pub(crate) fn is_plain(name: &str) -> bool {
        Name::parse(name).is_ok_and(|name| name.components().count() == 1)
    }

    /// The names that end with `suffix`, which includes the dot. Hidden ones are not meant.
    pub(crate) fn ending(&self, suffix: &str) -> Vec<&str> {
        self.names().filter(|n| !n.starts_with('.') && n.ends_with(suffix)).collect()
    }

    /// Its contents in words, a few names at most.
    pub(crate) fn describe(&self) -> String {
        if self.names.is_empty() {
            return "an empty directory".to_owned();
        }
        a_few(self.names.iter().map(String::as_str))
    }

    /// Lists the directory `name` of this directory.
    pub(crate) fn inner(&self, name: &str) -> Result<Folder, Error> {
        Folder::list(&self.storage, self.name(name)?)
    }

    /// How many of its files are best opened at once.
    pub(crate) fn opens_at_once(&self) -> usize {
        self.storage.opens_at_once()
    }

    /// Opens the file `name`, of which ranges will be read: in this directory or below it.
    pub(crate) fn open(&self, name: &str) -> Result<OpenFile, Error> {
        let name = self.name(name)?;
        let source = self.storage.open(&name).map_err(Error::of_member)?;
        Ok(OpenFile::new(&self.storage, name, source))
    }

    /// Opens the file `name` of this directory, which is small and will be read whole.
    pub(crate) fn open_small(&self, name: &str) -> Result<OpenFile, Error> {
        let name = self.name(name)?;
        let source = self.storage.open_small(&name).map_err(Error::of_member)?;
        Ok(OpenFile::new(&self.storage, name, source))
    }

    fn name(&self, name: &str) -> Result<Name, Error> {
        self.dir
            .join(name)
            .map_err(|_| Error::whole(self.location(), Fault::NotPlain { name: name.to_owned() }))
    }
}
