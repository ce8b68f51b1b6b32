//! A file of a storage that is open for reading.

use std::sync::Arc;

use storage::{ByteSource, Location, Name, Storage};

use crate::error::Error;
use crate::fault::Fault;
use crate::folder::Folder;

/// An open file, and where it is from.
#[derive(Debug)]
pub(crate) struct OpenFile {
    storage: Arc<dyn Storage>,
    name: Name,
    source: Arc<dyn ByteSource>,
}

impl OpenFile {
    pub(crate) fn new(storage: &Arc<dyn Storage>, name: Name, source: Arc<dyn ByteSource>) -> OpenFile {
        OpenFile { storage: Arc::clone(storage), name, source }
    }

    /// The same file, if there is anything in it.
    pub(crate) fn not_empty(self) -> Result<OpenFile, Error> {
        if self.source.is_empty() { Err(Error::whole(self.location(), Fault::Empty)) } else { Ok(self) }
    }

    /// Its name in reports.
    pub(crate) fn location(&self) -> Location {
        self.storage.location(&self.name)
    }

    /// Its name within its directory.
    pub(crate) fn file_name(&self) -> &str {
        self.name.file_name()
    }

    /// The directory it is in, not listed yet.
    pub(crate) fn parent(&self) -> Parent {
        Parent { storage: Arc::clone(&self.storage), dir: self.name.parent() }
    }

    /// The first bytes, at most `most` of them.
    pub(crate) fn head(&self, most: usize) -> Result<Vec<u8>, Error> {
        let mut head = vec![0; usize::try_from(self.source.len()).map_or(most, |len| len.min(most))];
        self.source.read_at(0, &mut head).map_err(|e| Error::io(self.location(), "read", e))?;
        Ok(head)
    }

    /// The whole content, if it is at most `most` bytes.
    pub(crate) fn read_all(self, most: u64) -> Result<Vec<u8>, Error> {
        let found = self.source.len();
        if found > most {
            return Err(Error::whole(
                self.location(),
                Fault::Limit { what: "length in bytes", found, limit: most },
            ));
        }
        // At most `most`, which is little.
        let mut content = vec![0; usize::try_from(found).unwrap_or(0)];
        self.source.read_at(0, &mut content).map_err(|e| Error::io(self.location(), "read", e))?;
        Ok(content)
    }

    /// The storage, its name there, and its bytes.
    pub(crate) fn into_parts(self) -> (Arc<dyn Storage>, Name, Arc<dyn ByteSource>) {
        (self.storage, self.name, self.source)
    }

    /// Its bytes.
    pub(crate) fn into_source(self) -> Arc<dyn ByteSource> {
        self.source
    }
}

/// The directory of a file, which may be one that cannot be listed.
#[derive(Debug)]
pub(crate) struct Parent {
    storage: Arc<dyn Storage>,
    dir: Name,
}

impl Parent {
    /// Lists it.
    pub(crate) fn list(&self) -> Result<Folder, Error> {
        Folder::list(&self.storage, self.dir.clone())
    }

    /// Where it is.
    pub(crate) fn location(&self) -> Location {
        self.storage.location(&self.dir)
    }
}
