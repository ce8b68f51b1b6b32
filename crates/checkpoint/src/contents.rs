//! The tensors of one file, or of several as one list.

use std::sync::Arc;

use storage::{ByteSource, Location};
use tensor::{FileId, TensorEntry};

use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::index::NameIndex;

/// Files, and the tensors in them; no name twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) files: Vec<File>,
    /// In the order of the files, and of the data in them. Planes name files by their place in `files`.
    pub(crate) entries: Vec<TensorEntry>,
    /// Positions in `entries`.
    pub(crate) by_name: NameIndex,
    /// Objects in the files that mean nothing.
    pub(crate) ignored: Vec<Ignored>,
}

impl Contents {
    /// Creates the contents of one file: every plane names `FileId(0)`, and `by_name` indexes `entries`.
    pub(crate) fn of_file(file: File, entries: Vec<TensorEntry>, by_name: NameIndex) -> Contents {
        Contents { files: vec![file], entries, by_name, ignored: Vec::new() }
    }

    /// `parts` as one. A name that is in two of them is a problem.
    pub(crate) fn join(parts: Vec<Contents>, problems: &mut Problems) -> Contents {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            // Files are few: directories are listed up to 100,000 names.
            let before = u32::try_from(all.files.len()).unwrap_or(u32::MAX);
            all.files.extend(part.files);
            all.ignored.extend(part.ignored);
            for mut entry in part.entries {
                entry.planes.iter_mut().for_each(|p| p.file = FileId(p.file.0.saturating_add(before)));
                all.push(entry, problems);
            }
        }
        all
    }

    /// The same with `entries`, whose planes name its files. A name that is there twice is a problem.
    pub(crate) fn and_entries(mut self, entries: Vec<TensorEntry>, problems: &mut Problems) -> Contents {
        for entry in entries {
            self.push(entry, problems);
        }
        self
    }

    /// Adds an entry of a file that is there already.
    fn push(&mut self, entry: TensorEntry, problems: &mut Problems) {
        self.entries.push(entry);
        let id = u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX);
        if let Some(first) = self.by_name.insert(id, |i| name_of(&self.entries, i)) {
            let fault = Fault::InTwo { first: self.home(first), second: self.home(id) };
            let name = self.entries.last().map(|e| e.name.clone()).unwrap_or_default();
            problems.push(Problem { at: None, subject: Subject::Tensor(name), fault });
        }
    }

    /// The same with `by_name` made anew, after the entries were changed; they share no name.
    pub(crate) fn reindexed(self) -> Contents {
        let mut by_name = NameIndex::default();
        for (id, _) in (0..).zip(&self.entries) {
            by_name.insert(id, |i| name_of(&self.entries, i));
        }
        Contents { by_name, ..self }
    }

    /// The same with `prefix` in front of every name.
    pub(crate) fn prefixed(&self, prefix: &str) -> Contents {
        let long = |name: &str| format!("{prefix}{name}");
        let entries = self.entries.iter().map(|e| TensorEntry { name: long(&e.name), ..e.clone() });
        let ignored = self.ignored.iter().map(|i| Ignored { name: long(&i.name), ..i.clone() });
        let (entries, ignored, files) = (entries.collect(), ignored.collect(), self.files.clone());
        Contents { files, entries, ignored, ..Contents::default() }.reindexed()
    }

    /// The position of the tensor called `name`.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.find(name.as_bytes(), |i| name_of(&self.entries, i))
    }

    /// The name of the file that holds the entry at a position.
    pub(crate) fn home(&self, id: u32) -> String {
        let entry = self.entries.get(id as usize);
        let file = entry.and_then(|e| e.planes.first()).and_then(|p| self.files.get(p.file.0 as usize));
        file.map(File::name).unwrap_or_default()
    }
}

/// The name at a position of `entries`, as [`NameIndex`] asks for it.
pub(crate) fn name_of(entries: &[TensorEntry], id: u32) -> &[u8] {
    entries.get(id as usize).map_or(&[][..], |e| e.name.as_bytes())
}

/// One file that holds tensor data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct File {
    /// Where it is.
    pub location: Location,
    /// Its length in bytes.
    pub len: u64,
    /// Its bytes.
    pub source: Arc<dyn ByteSource>,
    /// Its name within the checkpoint's directory.
    pub(crate) name: String,
}

impl File {
    pub(crate) fn new(location: Location, source: Arc<dyn ByteSource>) -> File {
        File { name: location.file_name(), location, len: source.len(), source }
    }

    /// Checks that the file is unchanged since it was opened.
    ///
    /// # Errors
    /// [`Error::Changed`] if it has changed, [`Error::Io`] if the system cannot tell.
    pub fn unchanged(&self) -> Result<(), Error> {
        let now = self.source.identity_now().map_err(|e| Error::io(&self.location, "look at", e))?;
        match self.source.identity().zip(now).and_then(|(was, now)| was.changed_to(&now)) {
            Some(how) => Err(Error::Changed { location: self.location.clone(), how }),
            None => Ok(()),
        }
    }

    /// Checks that all that was read of it is of the file that was opened. A file of a server is not asked for again, since each
    /// read asks for that version.
    ///
    /// # Errors
    /// As [`File::unchanged`].
    pub fn read_unchanged(&self) -> Result<(), Error> {
        if self.source.is_pinned() { Ok(()) } else { self.unchanged() }
    }

    /// Reads the bytes from `at` on into `out`.
    ///
    /// # Errors
    /// [`Error::Io`] if they cannot be read.
    pub fn read_at(&self, at: u64, out: &mut [u8]) -> Result<(), Error> {
        self.source.read_at(at, out).map_err(|e| Error::io(&self.location, "read", e))
    }

    /// Its name within the checkpoint's directory: the last component of its location, or more where it is in a directory
    /// of that.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }
}

/// An object in a checkpoint of a class that means nothing here. It was not made, and nothing of it was run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ignored {
    /// The keys that lead to it, joined with dots; empty if it is the whole.
    pub name: String,
    /// Its class, or the function that would have made it: `omegaconf.listconfig.ListConfig`.
    pub class: String,
    /// Tensors in it that have no name elsewhere, and so are no entries.
    pub tensors: u64,
}
