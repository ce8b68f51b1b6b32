//! A result that has its names, and whose journal is kept until what follows is done.
//!
//! Removing the files that a result was made from takes several steps. They are listed in the journal before the first is
//! removed. If the process is ended on the way, [`Removal::pending`] finds the list, and another process removes the rest.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use storage::Identity;
use storage::platform::sync;

use super::journal::{Journal, Removing};
use super::place::{self, JOURNAL, work_of};
use super::system;
use super::writer::{Inner, Writer};
use super::zstd::Zstd;
use crate::error::Error;
use crate::fault::Fault;

/// A result that has its names. Dropped, it leaves the journal, and the next process that writes the same continues here.
pub struct Held {
    writer: Writer,
    bytes: u64,
    zstd: Zstd,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Held {
    pub(super) fn new(writer: Writer, bytes: u64, zstd: Zstd) -> Held {
        Held { writer, bytes, zstd }
    }

    /// The arrays that are compressed.
    pub fn zstd(&self) -> Zstd {
        self.zstd
    }

    /// The length of the files with tensors, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the journal: nothing follows. Returns the length of the files with tensors, in bytes.
    ///
    /// # Errors
    /// If the system fails.
    pub fn release(mut self) -> Result<u64, Error> {
        match &mut self.writer.0 {
            Inner::Files(files) => files.place.release()?,
            Inner::Bucket(bucket) => bucket.release()?,
        }
        Ok(self.bytes)
    }

    /// Removes `files`, which the result was made from, and then the journal. If one of them is not what its identity says, all stay.
    /// `note` is for the process that continues this.
    ///
    /// # Errors
    /// If a file is another now, the result is in a bucket, or the system fails.
    pub fn remove(mut self, files: &[(PathBuf, Identity)], note: Value) -> Result<(), Error> {
        let absolute = |path: &Path| std::path::absolute(path).map_err(|e| Error::io(path, "look at", e));
        let place = match &mut self.writer.0 {
            Inner::Files(files) => &mut files.place,
            Inner::Bucket(bucket) => {
                let what = "the source of a result in a bucket is not removed";
                let refused = io::Error::new(io::ErrorKind::Unsupported, what);
                return bucket.release().and(Err(Error::io(bucket.destination(), "release", refused)));
            }
        };
        let places = place.places().map(absolute).collect::<Result<_, _>>()?;
        let stamped = |(path, was): &(PathBuf, Identity)| Ok((absolute(path)?, stamp(was)));
        let files = files.iter().map(stamped).collect::<Result<_, Error>>()?;
        let removing = Removing { places, files, note };
        let complete = place.journal.complete.as_deref().unwrap_or_default();
        match left(complete, &removing) {
            Ok(left) => {
                let left: Vec<PathBuf> = left.into_iter().map(Path::to_owned).collect();
                place.journal.remove(removing)?;
                remove_files(left.iter().map(PathBuf::as_path))?;
                place.release()
            }
            // It would be the same the next time.
            Err(error) => place.release().and(Err(error)),
        }
    }
}

/// A removal of files that a process was ended in. Dropped, it stays for another process.
#[derive(Debug)]
pub struct Removal {
    work: PathBuf,
    journal: Journal,
}

impl Removal {
    /// Returns the removal that is to be continued once the result at `path` was complete, if there is one.
    ///
    /// # Errors
    /// If another process is writing there, or the system fails.
    pub fn pending(path: &Path) -> Result<Option<Removal>, Error> {
        let work = work_of(path);
        let journal = Journal::existing(&work.join(JOURNAL))?;
        let journal = journal.filter(|journal| journal.complete.is_some() && journal.removing.is_some());
        Ok(journal.map(|journal| Removal { work, journal }))
    }

    /// The note that it was begun with.
    pub fn note(&self) -> &Value {
        self.journal.removing.as_ref().map_or(&Value::Null, |removing| &removing.note)
    }

    /// Removes the files that are still there, and then the journal.
    ///
    /// # Errors
    /// If the result is no longer there, a file is another now, or the system fails.
    pub fn finish(self) -> Result<(), Error> {
        let Removal { work, journal } = self;
        let (Some(complete), Some(removing)) = (&journal.complete, &journal.removing) else { return Ok(()) };
        let hint = || format!("to keep what is left, remove `{}`", work.display());
        let left = left(complete, removing).map_err(|error| error.with_hint(hint()))?;
        remove_files(left.into_iter())?;
        place::remove(&work).map_err(|e| Error::io(&work, "remove", e))
    }
}

/// The files to remove that are still there. The result must be there, and each of them be what it was.
fn left<'a>(complete: &[system::Identity], removing: &'a Removing) -> Result<Vec<&'a Path>, Error> {
    let Removing { places, files, .. } = removing;
    let is_there = |(i, path): (usize, &PathBuf)| {
        complete.get(i).is_some_and(|was| system::Identity::of(path).as_ref() == Some(was))
    };
    if let Some((_, gone)) = places.iter().enumerate().find(|place| !is_there(*place)) {
        return Err(Error::whole(gone, Fault::Gone));
    }
    let mut left = vec![];
    for (path, was) in files {
        match now(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(path, "look at", e)),
            Ok(is) if is == *was => left.push(path.as_path()),
            Ok(_) => return Err(Error::whole(path, Fault::Another)),
        }
    }
    Ok(left)
}

/// Removes `files`, and makes that durable.
fn remove_files<'a>(files: impl Iterator<Item = &'a Path>) -> Result<(), Error> {
    let mut folders: Vec<&Path> = vec![];
    for path in files {
        fs::remove_file(path).map_err(|e| Error::io(path, "remove", e))?;
        folders.extend(path.parent().filter(|folder| folders.last() != Some(folder)));
    }
    folders.into_iter().try_for_each(|folder| sync(folder).map_err(|e| Error::io(folder, "write", e)))
}

/// The stamp of the file at `path`.
fn now(path: &Path) -> io::Result<Value> {
    Identity::now(&File::open(path)?).map(|identity| stamp(&identity))
}

/// The numbers that identify a file, whatever its name.
fn stamp(identity: &Identity) -> Value {
    match identity {
        Identity::File { len, modified, device, inode, .. } => {
            json!([len, modified.0, modified.1, device, inode])
        }
        other => json!(format!("{other:?}")),
    }
}
