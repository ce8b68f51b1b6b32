//! Directories as Hugging Face lays them out: `config.json`, tokenizer files, safetensors.

mod index;
mod ranks;
mod shards;
mod weights;
mod write;

use std::sync::Arc;

use serde_json::Value;
use storage::{Identity, Location, Name, Storage};

use super::{FileContents, Format, Found, companions, safetensors};
use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::error::{Error, Problem, Subject};
use crate::fault::Fault;
use crate::file::{OpenFile, Parent};
use crate::folder::Folder;
pub use ranks::RankFiles;
pub(crate) use ranks::rank_parts;
pub(crate) use shards::{INDEX, shards};
pub(crate) use weights::is_index;
pub use write::{HfFiles, plain_config};
pub(crate) use write::{config_for, is_written, pairs, pretty};

/// The HF directory format.
#[derive(Debug)]
pub(crate) struct Hf;

pub(super) const NAME: &str = "hf";
/// The file that makes a directory a model.
pub(crate) const CONFIG: &str = "config.json";

/// A `config.json` is at most this long; real ones are some kB.
const MAX_CONFIG: u64 = 16 << 20;
/// Any other member is at most this long; the largest real ones, tokenizers, are some tens of MB.
const MAX_MEMBER: u64 = 256 << 20;

impl Format for Hf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn claims(&self, folder: &Folder) -> bool {
        let other = || folder.ending(".safetensors").is_empty() && !folder.ending(".gguf").is_empty();
        folder.has(CONFIG) && !other()
    }

    fn open(&self, found: Found) -> Result<Checkpoint, Error> {
        match found {
            Found::Folder(folder) => open_folder(&folder),
            Found::File(file) => safetensors::Safetensors.open(Found::File(file)),
        }
    }
}

/// Opens a directory that has a `config.json`.
pub(super) fn open_folder(folder: &Folder) -> Result<Checkpoint, Error> {
    let metadata = HfMetadata::read(folder)?;
    let part = weights::open(folder)?;
    checkpoint(folder.location(), part, metadata)
}

/// The metadata of the directory `parent` of a file, if that has a `config.json`.
pub(super) fn beside(parent: &Parent) -> Result<Option<HfMetadata>, Error> {
    match parent.list() {
        Ok(folder) if folder.has(CONFIG) => HfMetadata::read(&folder).map(Some),
        // A directory that this process may not list has no `config.json` for it either.
        Ok(_) | Err(Error::Io { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The checkpoint at `location`, whose weights are `part`.
pub(super) fn checkpoint(
    location: Location,
    part: FileContents,
    metadata: HfMetadata,
) -> Result<Checkpoint, Error> {
    let FileContents { mut contents, pairs, ranks } = part;
    let format = FormatName::new(if metadata.config.is_some() { NAME } else { safetensors::NAME });
    if let Some(config) = &metadata.config {
        let about = if let [only] = &contents.files[..] { only.location.clone() } else { location.clone() };
        contents = companions::gathered(&about, config, contents)?;
    }
    let metadata = Metadata::Hf(HfMetadata { safetensors: pairs, ranks, ..metadata });
    Ok(Checkpoint::new(location, format, contents, metadata))
}

/// The JSON files beside the weights.
#[derive(Debug)]
pub struct HfMetadata {
    dir: Location,
    config: Option<Value>,
    beside: Vec<(&'static str, Member)>,
    safetensors: Vec<(String, String)>,
    ranks: Option<RankFiles>,
}

/// The files beside the weights that say what these mean: the configuration, the tokenizer in its several forms, the chat
/// template, defaults of sampling, and how images and sound are prepared.
///
/// Source: `*_NAME` and `vocab_files_names` of transformers 5.23.
const BESIDE: &[&str] = &[
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
];

impl HfMetadata {
    /// The metadata of a directory that has a `config.json`.
    pub(super) fn read(folder: &Folder) -> Result<HfMetadata, Error> {
        let metadata = HfMetadata::read_with(folder, &[])?;
        // The reader reports missing bytes.
        let config = metadata.config.map_or_else(|| config(folder), Ok)?;
        Ok(HfMetadata { config: Some(config), ..metadata })
    }

    /// The metadata of a directory, with files called as in `more`.
    pub(super) fn read_with(folder: &Folder, more: &[&'static str]) -> Result<HfMetadata, Error> {
        let member = |name| Member::find(folder, name);
        Ok(HfMetadata {
            dir: folder.location(),
            config: folder.has(CONFIG).then(|| config(folder)).transpose()?,
            beside: BESIDE
                .iter()
                .chain(more)
                .filter_map(|name| member(name).map(|found| found.map(|m| (*name, m))).transpose())
                .collect::<Result<_, _>>()?,
            safetensors: Vec::new(),
            ranks: None,
        })
    }

    /// The metadata of a safetensors file in `dir` without a `config.json`: nothing beside it is read.
    pub(super) fn alone(dir: Location) -> HfMetadata {
        HfMetadata { dir, config: None, beside: Vec::new(), safetensors: Vec::new(), ranks: None }
    }

    /// The directory.
    pub fn dir(&self) -> &Location {
        &self.dir
    }

    /// The ranks of these files, if the directory was opened as the files of all ranks.
    pub fn ranks(&self) -> Option<RankFiles> {
        self.ranks
    }

    /// `config.json`, always an object; `None` for a safetensors file without one beside it.
    pub fn config(&self) -> Option<&Value> {
        self.config.as_ref()
    }

    /// `tokenizer.json`.
    pub fn tokenizer(&self) -> Option<&Member> {
        self.named("tokenizer.json")
    }

    /// `tokenizer.model`, a SentencePiece model.
    pub fn sentencepiece(&self) -> Option<&Member> {
        self.named("tokenizer.model")
    }

    /// `tokenizer_config.json`.
    pub fn tokenizer_config(&self) -> Option<&Member> {
        self.named("tokenizer_config.json")
    }

    /// `generation_config.json`.
    pub fn generation_config(&self) -> Option<&Member> {
        self.named("generation_config.json")
    }

    /// `preprocessor_config.json`.
    pub fn preprocessor_config(&self) -> Option<&Member> {
        self.named("preprocessor_config.json")
    }

    /// `chat_template.jinja`.
    pub fn chat_template(&self) -> Option<&Member> {
        self.named("chat_template.jinja")
    }

    /// The content of another small file of the directory, below it by `/`; `None` if it is not there.
    ///
    /// # Errors
    /// If the path leads out of the directory, or the file cannot be read or is over 16 MiB.
    pub fn file(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(config) = self.named(CONFIG) else { return Ok(None) };
        let mut name = config.name.parent();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            name = name.join(part)?;
        }
        match config.storage.open_small(&name) {
            Ok(source) => OpenFile::new(&config.storage, name, source).read_all(MAX_CONFIG).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Error::of_member(error)),
        }
    }

    fn named(&self, wanted: &str) -> Option<&Member> {
        self.beside().find(|(name, _)| *name == wanted).map(|(_, member)| member)
    }

    /// The files beside the weights that say what these mean, by name: all of those above, and others.
    pub fn beside(&self) -> impl Iterator<Item = (&'static str, &Member)> {
        self.beside.iter().map(|(name, member)| (*name, member))
    }

    /// `__metadata__` of the safetensors file, or of the first of several, in its order; no key twice.
    pub fn safetensors(&self) -> &[(String, String)] {
        &self.safetensors
    }
}

/// A file of a checkpoint's directory: regular, and not led out of it by a link.
#[derive(Clone, Debug)]
pub struct Member {
    storage: Arc<dyn Storage>,
    name: Name,
    was: Option<Identity>,
}

impl Member {
    fn find(folder: &Folder, name: &str) -> Result<Option<Member>, Error> {
        if !folder.has(name) {
            return Ok(None);
        }
        let (storage, name, source) = folder.open_small(name)?.into_parts();
        Ok(Some(Member { storage, name, was: source.identity() }))
    }

    /// Where it is.
    pub fn location(&self) -> Location {
        self.storage.location(&self.name)
    }

    /// Which file it was when the checkpoint was opened; `None` where storage does not say.
    pub fn identity(&self) -> Option<&Identity> {
        self.was.as_ref()
    }

    /// Its content.
    ///
    /// # Errors
    /// If it is over 256 MiB, is no longer the file that it was when the checkpoint was opened, or cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let source = self.storage.open_small(&self.name).map_err(Error::of_member)?;
        let now = source.identity();
        match self.was.as_ref().zip(now.as_ref()).and_then(|(was, now)| was.changed_to(now)) {
            Some(how) => Err(Error::Changed { location: self.location(), how }),
            None => OpenFile::new(&self.storage, self.name.clone(), source).read_all(MAX_MEMBER),
        }
    }
}

fn config(folder: &Folder) -> Result<Value, Error> {
    let file = folder.open_small(CONFIG)?;
    let location = file.location();
    let json = file.read_all(MAX_CONFIG)?;
    let problem = |at, fault| Problem { at, subject: Subject::Whole, fault }.of(&location);
    let config: Value = serde_json::from_slice(&json).map_err(|e| {
        let (at, fault) = Fault::json("not JSON", &json, 0, &e);
        problem(at, fault)
    })?;
    if config.is_object() {
        return Ok(config);
    }
    let found = match config {
        Value::Array(_) => "an array",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
        _ => "a bare word",
    };
    Err(problem(Some(0), Fault::Value { wants: "a JSON object", found: found.to_owned() }))
}
