//! Directories as Hugging Face lays them out: `config.json`, tokenizer files, safetensors.

mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Format, Found, safetensors};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Problem, Subject};
use crate::fault::Fault;
use crate::folder::Folder;
use crate::open::OpenOptions;
use crate::source::{OpenFile, Trust};
pub(crate) use write::{config_for, pairs};

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

    fn extensions(&self) -> &'static [&'static str] {
        &[]
    }

    fn sniff(&self, _: &[u8]) -> bool {
        false
    }

    fn claims(&self, folder: &Folder) -> bool {
        let other = || folder.ending(".safetensors").is_empty() && !folder.ending(".gguf").is_empty();
        folder.has(CONFIG) && !other()
    }

    fn open(&self, found: Found, options: &OpenOptions) -> Result<Checkpoint, Error> {
        match found {
            Found::Folder(folder) => open_folder(&folder, options),
            Found::File(file) => safetensors::Safetensors.open(Found::File(file), options),
        }
    }
}

/// Opens a directory that has a `config.json`.
pub(super) fn open_folder(folder: &Folder, options: &OpenOptions) -> Result<Checkpoint, Error> {
    let name = weights(folder)?;
    let metadata = HfMetadata::read(folder)?;
    let file = folder.open(name)?;
    let path = file.path().to_owned();
    if file.len() == 0 {
        return Err(Error::whole(&path, Fault::Empty));
    }
    let head = file.head(super::HEAD)?;
    // A member is sniffed as any file: a pointer or a page in its place is refused by what it is.
    super::of_file(&path, &head)?;
    let source = file.into_source(options.io)?;
    safetensors::checkpoint(folder.path().to_owned(), path, source, metadata)
}

/// The one file with the weights.
///
/// `model.safetensors` goes before shards and before other names, as in transformers
/// (modeling_utils.py, `_get_resolved_checkpoint_files`).
fn weights(folder: &Folder) -> Result<&str, Error> {
    const USUAL: &str = "model.safetensors";
    let refuse = |fault| Error::whole(folder.path(), fault);
    let found = folder.ending(".safetensors");
    if found.contains(&USUAL) {
        return Ok(USUAL);
    }
    if let Some(index) = folder.ending(".safetensors.index.json").first() {
        let what = format!("the weights are split in several files (`{index}`), which is not read yet");
        return Err(refuse(Fault::Unsupported { what }).with_hint("join them in one `model.safetensors`"));
    }
    match found[..] {
        [only] => Ok(only),
        [first, ..] => {
            let wants = "`model.safetensors`, or one file of another name".to_owned();
            let found = format!("{} safetensors files", found.len());
            let hint = format!("name the file itself: `{}`", folder.path().join(first).display());
            Err(refuse(Fault::Missing { wants, found }).with_hint(hint))
        }
        [] => {
            let pickles = [".bin", ".pt", ".pth"].map(|suffix| folder.ending(suffix)).concat();
            if let Some(name) = pickles.first() {
                let what = format!("the weights are in `{name}`, a PyTorch file, which is not read");
                return Err(refuse(Fault::Unsupported { what })
                    .with_hint("convert the weights to safetensors with the tool that wrote them"));
            }
            let wants = "`model.safetensors` beside `config.json`".to_owned();
            Err(refuse(Fault::Missing { wants, found: folder.describe() }))
        }
    }
}

/// The JSON files beside the weights.
#[derive(Debug)]
pub struct HfMetadata {
    dir: PathBuf,
    config: Option<Value>,
    tokenizer: Option<Member>,
    tokenizer_config: Option<Member>,
    generation_config: Option<Member>,
    chat_template: Option<Member>,
    safetensors: Vec<(String, String)>,
}

impl HfMetadata {
    /// The metadata of a directory that has a `config.json`.
    pub(super) fn read(folder: &Folder) -> Result<HfMetadata, Error> {
        let member = |name| Member::find(folder, name);
        Ok(HfMetadata {
            dir: folder.path().to_owned(),
            config: Some(config(folder)?),
            tokenizer: member("tokenizer.json")?,
            tokenizer_config: member("tokenizer_config.json")?,
            generation_config: member("generation_config.json")?,
            chat_template: member("chat_template.jinja")?,
            safetensors: Vec::new(),
        })
    }

    /// The metadata of a safetensors file in `dir` without a `config.json`: nothing beside it is read.
    pub(super) fn alone(dir: &Path) -> HfMetadata {
        HfMetadata {
            dir: dir.to_owned(),
            config: None,
            tokenizer: None,
            tokenizer_config: None,
            generation_config: None,
            chat_template: None,
            safetensors: Vec::new(),
        }
    }

    pub(super) fn with_safetensors(self, safetensors: Vec<(String, String)>) -> HfMetadata {
        HfMetadata { safetensors, ..self }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `config.json`, always an object; `None` for a safetensors file that has none beside it.
    pub fn config(&self) -> Option<&Value> {
        self.config.as_ref()
    }

    /// `tokenizer.json`.
    pub fn tokenizer(&self) -> Option<&Member> {
        self.tokenizer.as_ref()
    }

    /// `tokenizer_config.json`.
    pub fn tokenizer_config(&self) -> Option<&Member> {
        self.tokenizer_config.as_ref()
    }

    /// `generation_config.json`.
    pub fn generation_config(&self) -> Option<&Member> {
        self.generation_config.as_ref()
    }

    /// `chat_template.jinja`.
    pub fn chat_template(&self) -> Option<&Member> {
        self.chat_template.as_ref()
    }

    /// `__metadata__` of the safetensors file, in its order; no key twice.
    pub fn safetensors(&self) -> &[(String, String)] {
        &self.safetensors
    }
}

/// A file of a checkpoint's directory: regular, and not led out of it by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    path: PathBuf,
}

impl Member {
    fn find(folder: &Folder, name: &str) -> Result<Option<Member>, Error> {
        if !folder.has(name) {
            return Ok(None);
        }
        folder.open(name)?;
        Ok(Some(Member { path: folder.resolve(name)? }))
    }

    /// Where it really is, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its content.
    ///
    /// # Errors
    /// If it is over 256 MiB, is no longer a regular file, or cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        OpenFile::open(&self.path, Trust::Folder)?.read_all(MAX_MEMBER)
    }
}

fn config(folder: &Folder) -> Result<Value, Error> {
    let file = folder.open(CONFIG)?;
    let path = file.path().to_owned();
    let json = file.read_all(MAX_CONFIG)?;
    let problem = |at, fault| Problem { at, subject: Subject::Whole, fault }.of(&path);
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
