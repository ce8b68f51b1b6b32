//! Opening one file of a directory after another, and keeping what is wrong with them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

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
        let opened = open(self.folder, name, read);
        self.keep(name, opened)
    }

    /// Opens all files `names`, as many at once as is best for the storage, and returns the results in their order, as
    /// [`Members::open`] does.
    pub(crate) fn open_all<T: Send>(
        &mut self,
        names: &[String],
        read: impl Fn(OpenFile) -> Result<T, Error> + Sync,
    ) -> Result<Vec<Option<T>>, Error> {
        let (folder, threads) = (self.folder, self.folder.opens_at_once().min(names.len()));
        if threads < 2 {
            return names.iter().map(|name| self.open(name, &read)).collect();
        }
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(names.len())));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((no, name)) = {
                        let no = next.fetch_add(1, Ordering::Relaxed);
                        names.get(no).map(|name| (no, name))
                    } {
                        let opened = open(folder, name, &read);
                        // Others need not open theirs.
                        if matches!(opened, Err(Error::Io { .. })) {
                            next.store(names.len(), Ordering::Relaxed);
                        }
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((no, opened));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_unstable_by_key(|&(no, _)| no);
        names.iter().zip(results).map(|(name, (_, opened))| self.keep(name, opened)).collect()
    }

    /// The file `name` if it was opened; keeps what is wrong with it.
    fn keep<T>(&mut self, name: &str, opened: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
        match opened {
            Ok(None) => {
                let fault = Fault::Absent { name: name.to_owned() };
                self.problems.push(Problem { at: None, subject: Subject::Whole, fault });
                Ok(None)
            }
            Ok(read) => Ok(read),
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

/// Opens the file `name` of `folder`; `None` if it is not there.
fn open<T>(
    folder: &Folder,
    name: &str,
    read: impl FnOnce(OpenFile) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let below = name.contains('/');
    if !below && !folder.has(name) {
        return Ok(None);
    }
    match folder.open(name).and_then(OpenFile::not_empty).and_then(read) {
        Ok(read) => Ok(Some(read)),
        // Directories below are not listed.
        Err(Error::Io { source, .. }) if below && is_absent(source.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error says that there is no file of a name.
fn is_absent(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}
