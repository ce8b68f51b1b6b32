//! A file whose tensors are listed one after the other, each header before its data: it is read from its start to its end.

use storage::{ByteSource, Location};
use tensor::TensorEntry;

use crate::contents::name_of;
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::index::NameIndex;

/// The entries of such a file, as they are read. Numbers are little-endian.
pub(super) struct Listing<'f> {
    pub(super) location: &'f Location,
    pub(super) source: &'f dyn ByteSource,
    /// The offset of the next number.
    pub(super) at: u64,
    pub(super) entries: Vec<TensorEntry>,
    pub(super) by_name: NameIndex,
    /// The offset of each entry's header.
    pub(super) starts: Vec<u64>,
    pub(super) problems: Problems,
}

impl<'f> Listing<'f> {
    /// Begins at offset `at` of `source`.
    pub(super) fn new(location: &'f Location, source: &'f dyn ByteSource, at: u64) -> Listing<'f> {
        Listing {
            location,
            source,
            at,
            entries: Vec::new(),
            by_name: NameIndex::default(),
            starts: Vec::new(),
            problems: Problems::default(),
        }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        self.source.len().saturating_sub(self.at)
    }

    /// Adds an entry whose header is at `start`, and reports a second one of its name.
    pub(super) fn push(&mut self, start: u64, entry: TensorEntry) {
        self.entries.push(entry);
        self.starts.push(start);
        let id = u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX);
        if let Some(first) = self.by_name.insert(id, |i| name_of(&self.entries, i)) {
            let first = self.starts.get(first as usize).copied().unwrap_or_default();
            let name = self.entries.last().map(|e| e.name.clone()).unwrap_or_default();
            self.report(start, Subject::Tensor(name), Fault::Duplicate { first });
        }
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.take(what).map(u32::from_le_bytes)
    }

    /// The next `N` bytes, which are part of `what`.
    pub(super) fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// The next `len` bytes. Nothing is allocated for bytes that the file does not have.
    pub(super) fn take_many(&mut self, len: u64, what: &'static str) -> Result<Vec<u8>, Error> {
        let left = self.left();
        match usize::try_from(len).ok().filter(|_| len <= left) {
            Some(len) => {
                let mut bytes = vec![0; len];
                self.fill(&mut bytes, what)?;
                Ok(bytes)
            }
            None => Err(self.stop(self.at, Subject::Whole, Fault::Ends { what, wants: len, found: left })),
        }
    }

    fn fill(&mut self, out: &mut [u8], what: &'static str) -> Result<(), Error> {
        let (wants, found) = (out.len() as u64, self.left());
        if wants > found {
            return Err(self.stop(self.at, Subject::Whole, Fault::Ends { what, wants, found }));
        }
        self.source.read_at(self.at, out).map_err(|e| Error::io(self.location, "read", e))?;
        self.at += wants;
        Ok(())
    }

    pub(super) fn report(&mut self, at: u64, subject: Subject, fault: Fault) {
        self.problems.push(Problem { at: Some(at), subject, fault });
    }

    /// Returns the error of all problems and of this one, after which nothing can be read.
    pub(super) fn stop(&mut self, at: u64, subject: Subject, fault: Fault) -> Error {
        self.report(at, subject, fault);
        std::mem::take(&mut self.problems).into_error(self.location)
    }
}
