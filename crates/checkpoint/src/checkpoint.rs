//! An open checkpoint.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use storage::{ByteSource, Location};
use tensor::{FileId, TensorEntry};

use crate::contents::{Contents, File, Ignored};
use crate::error::{Error, Quoted};
use crate::fault::Fault;
use crate::format::ctranslate2::Ctranslate2Metadata;
use crate::format::gguf::GgufMetadata;
use crate::format::hf::HfMetadata;
use crate::format::openai::OpenaiMetadata;
use crate::index::NameIndex;

/// A checkpoint whose headers have been read and found sound.
///
/// Every entry's byte ranges lie inside their files and are as long as its shape, scheme and strides want; no
/// two entries share a name. In a PyTorch or CTranslate2 checkpoint entries may share bytes
/// ([`Checkpoint::ties`]), in no other format.
///
/// It is a handle: clones are the same checkpoint, and its files stay open as long as one clone lives.
/// [`Checkpoint::unchanged`] tells whether a file has been written to since.
#[derive(Clone, Debug)]
pub struct Checkpoint(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) location: Location,
    pub(crate) format: FormatName,
    pub(crate) contents: Contents,
    pub(crate) metadata: Arc<Metadata>,
}

impl Checkpoint {
    /// Tensors that are in memory already, each in a source of its own, whose planes lie in it from its start on;
    /// one that does not is an error when it is read.
    pub fn in_memory(tensors: Vec<(TensorEntry, Arc<dyn ByteSource>)>) -> Checkpoint {
        let (mut files, mut entries) = (Vec::new(), Vec::<TensorEntry>::new());
        let mut by_name = NameIndex::default();
        for (number, (mut entry, source)) in (0u32..).zip(tensors) {
            entry.planes.iter_mut().for_each(|plane| plane.file = FileId(number));
            entries.push(entry);
            by_name.insert(number, |i| entries.get(i as usize).map_or(&[][..], |e| e.name.as_bytes()));
            files.push(File::new(Location::Named("memory".to_owned()), source));
        }
        let contents = Contents { files, entries, by_name, ignored: Vec::new() };
        let format = FormatName::new("memory");
        Checkpoint::new(Location::Named("memory".to_owned()), format, contents, Metadata::None)
    }

    /// Where it is: a file or a directory. [`Location::path`] is its path, if it is in the file system.
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// The format of its files.
    pub fn format(&self) -> FormatName {
        self.0.format
    }

    /// Its tensors, in the order of its files and of the data in each.
    pub fn entries(&self) -> &[TensorEntry] {
        &self.0.contents.entries
    }

    /// The tensor called `name`.
    pub fn entry(&self, name: &str) -> Option<&TensorEntry> {
        self.entries().get(self.0.contents.find(name)? as usize)
    }

    /// Its files that hold tensor data.
    pub fn files(&self) -> &[File] {
        &self.0.contents.files
    }

    /// The file that a plane of one of its entries names.
    ///
    /// # Panics
    /// If `id` is not of this checkpoint.
    #[expect(clippy::indexing_slicing, reason = "documented: the caller's bug, and no file content")]
    pub fn file(&self, id: FileId) -> &File {
        &self.0.contents.files[id.0 as usize]
    }

    /// The metadata: everything that the format says beside tensors.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Objects in its files that mean nothing here, beside the tensors; at most 4096 of a file.
    pub fn ignored(&self) -> &[Ignored] {
        &self.0.contents.ignored
    }

    /// Whether both are handles of the same opened checkpoint. Opening a path twice gives two.
    pub fn is(&self, other: &Checkpoint) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks that its files are unchanged since it was opened.
    ///
    /// # Errors
    /// The first file that has changed.
    pub fn unchanged(&self) -> Result<(), Error> {
        self.files().iter().try_for_each(File::unchanged)
    }

    /// Checks that all that was read is of the files that were opened: looks at those whose reads do not tell.
    ///
    /// # Errors
    /// As [`Checkpoint::unchanged`].
    pub fn read_unchanged(&self) -> Result<(), Error> {
        self.files().iter().try_for_each(File::read_unchanged)
    }

    /// The groups of entries that are one tensor under several names: the same bytes, read in the same way.
    pub fn ties(&self) -> Vec<Vec<&TensorEntry>> {
        let place = |e: &&TensorEntry| e.planes.first().map(|p| (p.file.0, p.bytes.start, p.bytes.end));
        let mut entries: Vec<&TensorEntry> = self.entries().iter().filter(|e| e.byte_len() > 0).collect();
        // They are nearly in that order. Equal ones stay in theirs.
        entries.sort_by_key(place);
        let mut groups: Vec<Vec<&TensorEntry>> = Vec::new();
        for at_one_place in entries.chunk_by(|a, b| place(a) == place(b)).filter(|same| same.len() > 1) {
            let before = groups.len();
            for &entry in at_one_place {
                let same = |group: &&mut Vec<&TensorEntry>| {
                    group.first().is_some_and(|e| {
                        (&e.scheme.name, &e.shape, &e.strides)
                            == (&entry.scheme.name, &entry.shape, &entry.strides)
                    })
                };
                match groups.iter_mut().skip(before).find(same) {
                    Some(group) => group.push(entry),
                    None => groups.push(vec![entry]),
                }
            }
        }
        groups.retain(|group| group.len() > 1);
        groups
    }

    /// The tensors below `key` alone, called by what follows it.
    pub(crate) fn below(&self, key: &str) -> Result<Checkpoint, Error> {
        let under = |name: &str| Some(name.strip_prefix(key)?.strip_prefix('.')?.to_owned());
        let Contents { files, entries, ignored, .. } = &self.0.contents;
        let first: BTreeSet<&str> = entries.iter().map(|e| e.name.split('.').next().unwrap_or("")).collect();
        let hint = match tensor::nearest(key, first.iter().copied()) {
            Some(near) => format!("did you mean {}?", Quoted(near)),
            None => {
                let some: Vec<_> = first.iter().take(8).map(|key| Quoted(key).to_string()).collect();
                format!("the first keys are {}", some.join(", "))
            }
        };
        let kept = |e: &TensorEntry| Some(TensorEntry { name: under(&e.name)?, ..e.clone() });
        let below: Vec<TensorEntry> = entries.iter().filter_map(kept).collect();
        if below.is_empty() {
            let fault = Fault::NoKey { key: key.to_owned() };
            return Err(Error::whole(self.location(), fault).with_hint(hint));
        }
        let kept = |i: &Ignored| Some(Ignored { name: under(&i.name)?, ..i.clone() });
        let ignored = ignored.iter().filter_map(kept).collect();
        let files = files.clone();
        let contents = Contents { files, entries: below, ignored, ..Contents::default() }.reindexed();
        let Inner { location, format, metadata, .. } = &*self.0;
        Ok(Checkpoint(Arc::new(Inner {
            location: location.clone(),
            format: *format,
            contents,
            metadata: Arc::clone(metadata),
        })))
    }

    pub(crate) fn of(inner: Inner) -> Checkpoint {
        Checkpoint(Arc::new(inner))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.0.contents
    }

    /// The checkpoint at `location`.
    pub(crate) fn new(
        location: Location,
        format: FormatName,
        contents: Contents,
        metadata: Metadata,
    ) -> Checkpoint {
        Checkpoint(Arc::new(Inner { location, format, contents, metadata: Arc::new(metadata) }))
    }
}

/// The name of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatName(&'static str);

impl FormatName {
    /// `gguf`; `hf` for safetensors or PyTorch files with a `config.json`; `safetensors` and `pytorch` for files
    /// without one; `npz`; `npy` for an array or a directory of them; `squish`;
    /// `ctranslate2`; `ggml` for whisper.cpp's files.
    pub const fn name(self) -> &'static str {
        self.0
    }

    pub(crate) const fn new(name: &'static str) -> FormatName {
        FormatName(name)
    }
}

impl fmt::Display for FormatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Everything that a format says beside tensors.
#[derive(Debug)]
#[non_exhaustive]
pub enum Metadata {
    /// The key-value pairs of a GGUF file.
    Gguf(GgufMetadata),
    /// The JSON files beside the weights, as Hugging Face lays them out.
    Hf(HfMetadata),
    /// The attributes of a CTranslate2 model, and the files beside it.
    Ctranslate2(Ctranslate2Metadata),
    /// The sizes of a model of OpenAI.
    Openai(OpenaiMetadata),
    /// No metadata: there are tensors alone.
    None,
}

impl Metadata {
    /// The GGUF metadata, if it is that.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        match self {
            Metadata::Gguf(metadata) => Some(metadata),
            _ => None,
        }
    }

    /// The HF metadata, if it is that.
    pub fn hf(&self) -> Option<&HfMetadata> {
        match self {
            Metadata::Hf(metadata) => Some(metadata),
            _ => None,
        }
    }
}
