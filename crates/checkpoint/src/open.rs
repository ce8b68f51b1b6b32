//! Opens a path, or a name in a storage: finds out which format is there, and reads it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::{Io, LocalFiles, Location, Name, Resolver, Storage, url_scheme};

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::file::OpenFile;
use crate::folder::Folder;
use crate::format::{self, Found, hf};
use crate::more::More;

/// How a checkpoint is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// How files of the file system are reached. Other storages have ways of their own.
    pub io: Io,
    /// Only the tensors below this key, joined of several with dots, and called by what follows it: with
    /// `state_dict`, `state_dict.norm.weight` is `norm.weight`. Everything must be sound all the same.
    pub key: Option<String>,
    /// A directory of files that vLLM's ranks hold is opened as the files of all of them: tensor `NAME` of rank `R` of
    /// stage `S` is called `S.R.NAME`. Without it, such a directory is rejected: its names are those of parts on
    /// several ranks.
    pub all_ranks: bool,
    /// Other checkpoints whose tensors join these, in this order: see [`Checkpoint::with_more`].
    pub more: Vec<More>,
    /// Resolvers of locations that are not paths, such as URLs. The first that knows a location opens it.
    pub resolvers: Vec<Arc<dyn Resolver>>,
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

    /// The same, with the tensors of the checkpoint at `path` too, with `prefix` in front of their names.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), weighbridge_checkpoint::Error> {
    /// # use weighbridge_checkpoint as checkpoint;
    /// let options = checkpoint::OpenOptions::default().with_more("vision_tower.", "clip/");
    /// let both = checkpoint::open_with("language-model/", &options)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_more(mut self, prefix: impl Into<String>, path: impl Into<PathBuf>) -> OpenOptions {
        self.more.push(More::new(prefix, path));
        self
    }

    /// The same, with locations that `resolver` knows, such as URLs, wherever a path is taken.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> OpenOptions {
        self.resolvers.push(resolver);
        self
    }
}

/// Opens the checkpoint at `path` with the default options. See [`open_with`].
///
/// # Errors
/// As [`open_with`].
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
    open_with(path, &OpenOptions::default())
}

/// Opens the checkpoint at `path`: a GGUF, safetensors, npz, npy (`.npy.zst` too), PyTorch or CTranslate2 file, or a
/// directory. A directory may hold `config.json` and safetensors or PyTorch files, one GGUF file or the parts of a
/// split one, npy files, a CTranslate2 `model.bin`, or squish's files; the first of these that exists is read,
/// safetensors before PyTorch. Any part of a split GGUF model opens the whole, and so does the index of a sharded one;
/// a shard opened by its own path has only its own tensors.
///
/// Reads headers only. The content of a file determines its format. Its extension decides only where the content does
/// not, and is an error where it contradicts the content.
///
/// # Errors
/// [`Error::Malformed`] if a file breaks its format, [`Error::Mismatch`] if parts are missing, a name contradicts the
/// content, or two checkpoints have a tensor of one name, [`Error::Unsupported`] for a file that is recognised but not
/// read, [`Error::Misuse`] for a path that is a pipe or a device and for a key that leads to nothing, [`Error::Io`] if
/// the system fails.
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint, Error> {
    let (files, name) = files_at(path, options)?;
    open_from(files, &name, options)
}

/// The files around `path`, and its name among them, for [`open_from`]. `path` may be what a resolver of `options` knows.
///
/// # Errors
/// If there is no such path, with a name that is near; and for a URL that no resolver knows.
pub fn files_at(path: impl AsRef<Path>, options: &OpenOptions) -> Result<(Arc<dyn Storage>, Name), Error> {
    let path = path.as_ref();
    if let Some(text) = path.to_str() {
        if let Some(found) = options.resolvers.iter().find_map(|resolver| resolver.resolve(text)) {
            return Ok(found?);
        }
        if let Some(scheme) = url_scheme(text).filter(|_| !path.exists()) {
            let location = Location::Named(storage::shown(text));
            let why = io::Error::new(io::ErrorKind::Unsupported, format!("URLs of `{scheme}:` are not read"));
            return Err(Error::io(location, "open", why));
        }
    }
    let (files, name) = LocalFiles::at(path).map_err(|error| missing_path(path, error))?;
    Ok((Arc::new(files.with_io(options.io)), name))
}

/// Opens the checkpoint called `name` in `storage`, a file or a directory, like [`open_with`] in the file system.
///
/// # Errors
/// As [`open_with`], and errors of the storage.
///
/// ```
/// # use weighbridge_checkpoint as checkpoint;
/// use std::sync::Arc;
///
/// use checkpoint::{Name, OpenOptions, open_from};
/// use storage::Memory;
///
/// # fn main() -> Result<(), checkpoint::Error> {
/// let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
/// let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &1f32.to_le_bytes()].concat();
/// let name = Name::parse("a.safetensors")?;
/// let files = Memory::new("memory").with(name.clone(), bytes);
///
/// let checkpoint = open_from(Arc::new(files), &name, &OpenOptions::default())?;
/// assert_eq!(checkpoint.entries()[0].name, "a");
/// assert_eq!(checkpoint.location().to_string(), "memory/a.safetensors");
/// # Ok(())
/// # }
/// ```
pub fn open_from(storage: Arc<dyn Storage>, name: &Name, options: &OpenOptions) -> Result<Checkpoint, Error> {
    let checkpoint = match storage.open(name) {
        Ok(source) => open_file(OpenFile::new(&storage, name.clone(), source))?,
        Err(storage::Error::Directory { .. }) => {
            let folder = Folder::list(&storage, name.clone())?;
            open_folder(if options.all_ranks { folder.of_all_ranks() } else { folder })?
        }
        Err(error) => return Err(missing(&storage, name, error)),
    };
    let mut checkpoint = match &options.key {
        Some(key) => checkpoint.below(key)?,
        None => checkpoint,
    };
    for more in &options.more {
        let resolvers = options.resolvers.clone();
        let own = OpenOptions { io: options.io, resolvers, ..OpenOptions::default() };
        let opened = open_with(&more.path, &own)?;
        checkpoint = checkpoint.with_more(&more.prefix, &opened)?;
    }
    Ok(checkpoint)
}

fn open_file(file: OpenFile) -> Result<Checkpoint, Error> {
    if hf::is_index(file.file_name()) {
        // The weights are in the files that it names, beside it.
        return open_folder(file.parent().list()?);
    }
    let file = file.not_empty()?;
    let head = file.head(format::HEAD)?;
    format::of_file(&file.location(), file.file_name(), &head)?.open(Found::File(file))
}

fn open_folder(folder: Folder) -> Result<Checkpoint, Error> {
    match format::of_folder(&folder) {
        Some(format) => format.open(Found::Folder(folder)),
        None => Err(format::explain_folder(&folder)),
    }
}

/// The error for a path that cannot be looked at, with the nearest name in its directory.
fn missing_path(path: &Path, error: storage::Error) -> Error {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let Some(wanted) = path.file_name().and_then(|n| n.to_str()) else { return error.into() };
    let storage: Arc<dyn Storage> = Arc::new(LocalFiles::new(parent));
    nearest(&storage, Name::ROOT, wanted, error)
}

/// The error for a name that cannot be opened, with the nearest name in its directory.
fn missing(storage: &Arc<dyn Storage>, name: &Name, error: storage::Error) -> Error {
    nearest(storage, name.parent(), name.file_name(), error)
}

/// The first of `names` that is `wanted` with an extension.
fn with_extension<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let extended = |name: &&String| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
    names.iter().filter(extended).map(String::as_str).min()
}

/// `error`, which is about `wanted` in `dir`, with a hint if nothing is there.
fn nearest(storage: &Arc<dyn Storage>, dir: Name, wanted: &str, error: storage::Error) -> Error {
    if !error.is_not_found() {
        return error.into();
    }
    let error = Error::from(error);
    match storage.list(&dir) {
        Err(unlisted) if unlisted.is_not_found() => {
            error.with_hint(format!("there is no directory `{}`", storage.location(&dir)))
        }
        Err(_) => error,
        Ok(names) => match with_extension(wanted, &names)
            .or_else(|| tensor::nearest(wanted, names.iter().map(String::as_str)))
        {
            Some(near) => {
                let near = dir
                    .join(near)
                    .map_or_else(|_| near.to_owned(), |name| storage.location(&name).to_string());
                error.with_hint(format!("did you mean `{near}`?"))
            }
            None => error,
        },
    }
}
