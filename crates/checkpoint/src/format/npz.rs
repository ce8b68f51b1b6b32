//! npz: numpy arrays in a zip archive whose members are stored, not compressed.
//!
//! It rejects what [`super::npy`] rejects, and compressed members, which could not be mapped or read in part.

mod write;

use std::sync::Arc;

use storage::{ByteSource, Location};
use tensor::{FileId, PlaneData, TensorEntry};

use super::archive::{self, Member};
use super::npy::{Array, SUFFIX, array};
use super::{Format, Found};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File, name_of};
use crate::error::{Error, Problem, Problems, Quoted, Subject};
use crate::fault::Fault;
use crate::index::NameIndex;
pub(crate) use write::form;

/// The npz format.
#[derive(Debug)]
pub(crate) struct Npz;

const NAME: &str = "npz";

impl Format for Npz {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["npz"]
    }

    /// PyTorch's files are zip archives too: the first member's name tells.
    fn sniff(&self, head: &[u8]) -> bool {
        let arrays = archive::first_name(head).is_some_and(|name| name.ends_with(SUFFIX.as_bytes()));
        // An archive of nothing is one of no arrays.
        arrays || head.starts_with(b"PK\x05\x06")
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        let (location, file) = match found {
            Found::File(file) => (file.location(), file),
            Found::Folder(folder) => return Err(super::explain_folder(&folder)),
        };
        let source = file.into_source();
        let (entries, by_name) = read(&location, &source)?;
        let contents = Contents::of_file(File::new(location.clone(), source), entries, by_name);
        Ok(Checkpoint::new(location, FormatName::new(NAME), contents, Metadata::None))
    }
}

fn read(location: &Location, source: &Arc<dyn ByteSource>) -> Result<(Vec<TensorEntry>, NameIndex), Error> {
    let mut problems = Problems::default();
    let mut entries: Vec<TensorEntry> = Vec::new();
    for Member { name: full, data, stored } in archive::members(location, source)? {
        let (start, len) = (data.start, data.end - data.start);
        let Some(name) = full.strip_suffix(SUFFIX).map(str::to_owned) else {
            let what = format!("holds {}, which is no array", Quoted(&full));
            let subject = Subject::Whole;
            problems.push(Problem { at: None, subject, fault: Fault::Unsupported { what } });
            continue;
        };
        let subject = Subject::Tensor(name.clone());
        let found = match Fault::of_name(name.as_bytes(), "tensor name") {
            Some(fault) => Err(fault),
            None if !stored => {
                let what = "is compressed, which is not read: save it with `numpy.savez`".to_owned();
                Err(Fault::Unsupported { what })
            }
            None => array(&**source, start, len),
        };
        match found {
            Ok(Array { scheme, shape, bytes, strides }) => {
                let planes = vec![PlaneData { file: FileId(0), bytes }];
                entries.push(TensorEntry { name, shape, scheme, planes, strides });
            }
            Err(fault) => problems.push(Problem { at: Some(start), subject, fault }),
        }
        if problems.enough() {
            return Err(problems.into_error(location));
        }
    }
    entries.sort_by_key(|e| e.planes.first().map_or(0, |p| p.bytes.start));
    let mut by_name = NameIndex::default();
    for (id, entry) in (0..).zip(&entries) {
        let bytes = entry.planes.first().map_or(0..0, |p| p.bytes.clone());
        let subject = || Subject::Tensor(entry.name.clone());
        if let Some(first) = by_name.insert(id, |i| name_of(&entries, i)) {
            let first =
                entries.get(first as usize).and_then(|e| e.planes.first()).map_or(0, |p| p.bytes.start);
            let fault = Fault::Duplicate { first };
            problems.push(Problem { at: Some(bytes.start), subject: subject(), fault });
        }
    }
    problems.check(location)?;
    Ok((entries, by_name))
}
