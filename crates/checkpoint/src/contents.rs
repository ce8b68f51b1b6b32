//! The tensors of one file, or of several as one list.

use tensor::{FileId, TensorEntry};

use crate::checkpoint::{File, Ignored, name_of};
use crate::error::{Problem, Problems, Subject};
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
    /// Those of one file: every plane names `FileId(0)`, and `by_name` indexes `entries`.
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
