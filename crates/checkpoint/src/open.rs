//! From a path to a checkpoint: what is there, and who reads it.

use std::fs;
use std::io;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::folder::Folder;
use crate::format::{self, Found, hf};
use crate::source::{Io, OpenFile, Trust};

/// How a checkpoint is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// How its bytes are reached.
    pub io: Io,
    /// Only the tensors below this key, joined of several with dots, and called by what follows it: with
    /// `state_dict`, `state_dict.norm.weight` is `norm.weight`. Everything must be sound all the same.
    pub key: Option<String>,
}

impl OpenOptions {
    /// The defaults, with the bytes reached as `io` says.
    pub fn with_io(io: Io) -> OpenOptions {
        OpenOptions { io, ..OpenOptions::default() }
    }

    /// The same, with the tensors below `key` alone.
    #[must_use]
    pub fn with_key(self, key: impl Into<String>) -> OpenOptions {
        OpenOptions { key: Some(key.into()), ..self }
    }
}

/// Opens the checkpoint at `path` with the default options. See [`open_with`].
///
/// # Errors
/// As [`open_with`].
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
    open_with(path, &OpenOptions::default())
}

/// Opens the checkpoint at `path`: a GGUF, safetensors, npz, npy (`.npy.zst` too), PyTorch or CTranslate2 file, or a directory. In that may be
/// `config.json` and safetensors or PyTorch files, one GGUF file or the parts of a split one, npy files, a CTranslate2
/// `model.bin`, or what squish writes; the first that is there is read, safetensors before PyTorch. Any part of a split GGUF model opens
/// the whole, and so does the index of a sharded one; a shard by its own path is what it holds.
///
/// Reads headers only. The content of a file says what it is; its extension is believed where the content
/// says nothing, and is an error where it says another.
///
/// # Errors
/// [`Error::Malformed`] if a file breaks its format, [`Error::Mismatch`] if parts are missing or a name
/// belies the content, [`Error::Unsupported`] for what is recognised but not read, [`Error::Misuse`] for a
/// path that is a pipe or a device and for a key that leads to nothing, [`Error::Io`] if the system refuses.
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint, Error> {
    let path = path.as_ref();
    let about = fs::metadata(path).map_err(|e| missing(path, e))?;
    let checkpoint = if about.is_dir() { open_folder(path, options) } else { open_file(path, options) }?;
    match &options.key {
        Some(key) => checkpoint.below(key),
        None => Ok(checkpoint),
    }
}

fn open_file(path: &Path, options: &OpenOptions) -> Result<Checkpoint, Error> {
    if path.file_name().and_then(|n| n.to_str()).is_some_and(hf::is_index) {
        // The weights are in the files that it names, beside it.
        let parent = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
        return open_folder(parent, options);
    }
    let file = OpenFile::open(path, Trust::Caller)?.not_empty()?;
    let head = file.head(format::HEAD)?;
    format::of_file(path, &head)?.open(Found::File(file), options)
}

fn open_folder(path: &Path, options: &OpenOptions) -> Result<Checkpoint, Error> {
    let folder = Folder::list(path)?;
    match format::of_folder(&folder) {
        Some(format) => format.open(Found::Folder(folder), options),
        None => Err(format::explain_folder(&folder)),
    }
}

/// The error for a path that cannot be looked at, with the nearest name in its directory.
fn missing(path: &Path, error: io::Error) -> Error {
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let error = Error::io(path, "open", error);
    if !not_found {
        return error;
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let Some(wanted) = path.file_name().and_then(|n| n.to_str()) else { return error };
    let Ok(folder) = Folder::list(parent) else {
        if parent.exists() {
            return error;
        }
        return error.with_hint(format!("there is no directory `{}`", parent.display()));
    };
    match tensor::nearest(wanted, folder.names()) {
        Some(near) => error.with_hint(format!("did you mean `{}`?", parent.join(near).display())),
        None => error,
    }
}
