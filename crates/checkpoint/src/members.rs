//! Opening one file of a directory after another, and keeping what is wrong with them.

use std::io;

use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::file::OpenFile;
use crate::folder::Folder;

/// The files of a directory that make one checkpoint, as they are opened.
pub(crate) struct Members<'f> {
    folder: &'f Folder,
    /// Problems of the checkpoint as a whole.
    pub(crate) problems: Problems,
    failed: Vec<(String, Error)>,
}

impl<'f> Members<'f> {
    pub(crate) fn of(folder: &'f Folder) -> Members<'f> {
        Members { folder, problems: Problems::default(), failed: Vec::new() }
    }

    /// Opens the file `name` and returns the result of `read`; `None` if the file is wrong, in which case its error is
    /// kept. Only errors of the system are returned at once.
    pub(crate) fn open<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(OpenFile) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let below = name.contains('/');
        let mut absent = || {
            let fault = Fault::Absent { name: name.to_owned() };
            self.problems.push(Problem { at: None, subject: Subject::Whole, fault });
            Ok(None)
        };
        if !below && !self.folder.has(name) {
            return absent();
        }
        match self.folder.open(name).and_then(OpenFile::not_empty).and_then(read) {
            Ok(read) => Ok(Some(read)),
            // Directories below are not listed.
            Err(Error::Io { source, .. }) if below && is_absent(source.kind()) => absent(),
            Err(error @ Error::Io { .. }) => Err(error),
            Err(error) => {
                self.failed.push((name.to_owned(), error));
                Ok(None)
            }
        }
    }

    /// Keeps what is wrong with the file `name` among the others.
    pub(crate) fn wrong(&mut self, name: &str, problem: Problem) {
        let fault = Fault::Member { name: name.to_owned(), problem: Box::new(problem) };
        self.problems.push(Problem { at: None, subject: Subject::Whole, fault });
    }

    /// `Ok` if nothing is wrong. One broken file alone is reported as if it had been opened by its own path.
    pub(crate) fn check(mut self) -> Result<(), Error> {
        if self.problems.is_empty() && self.failed.len() == 1 {
            return self.failed.pop().map_or(Ok(()), |(_, error)| Err(error));
        }
        for (name, error) in self.failed {
            self.problems.member(&name, error);
        }
        self.problems.check(self.folder.location())
    }
}

/// Whether an error says that there is no file of a name.
fn is_absent(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}
