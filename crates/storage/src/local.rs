//! Files of the file system.

#[cfg(target_os = "linux")]
mod direct;
mod file;
#[cfg_attr(windows, path = "local/guard_windows.rs")]
mod guard;
mod mmap;
mod pread;
mod system;
mod vectored;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::file::{OpenFile, Trust};
use crate::{ByteSource, Error, Location, MOST_NAMES, Name, Storage};

/// How the bytes of a checkpoint are reached.
///
/// Whatever it is, what is copied is read with positioned reads; a map only lends what stays in it, and what is cut so
/// finely that reading it would read along what lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// [`Io::Mmap`] on a local file system, [`Io::Pread`] with longer reads on one behind a network or a user-space
    /// server (NFS, SMB, FUSE, 9P, Ceph, Lustre, …), where page faults are slow and may fail. Never [`Io::Direct`],
    /// which only wins if the file is not in the page cache and is not read again.
    #[default]
    Auto,
    /// The file is mapped, and lends what needs no copy, and runs that lie near each other. If another process shortens it meanwhile, touching the lost
    /// pages ends this one: by a signal, or with an error that names the file if the program called
    /// [`Io::guard_maps`].
    Mmap,
    /// As [`Io::Auto`], with maps that may be written to ([`ByteSource::is_private`]): the file stays as it is, and a page that is
    /// written to becomes this process's own. For programs whose tensors are changed in place, as PyTorch's are.
    CopyOnWrite,
    /// The file is read with positioned reads. A file that shrinks is an error.
    Pread,
    /// The same past the page cache (`O_DIRECT`, on Linux): what is read once does not push out what others need. Elsewhere, and
    /// where the file system refuses, it is [`Io::Pread`], and [`ByteSource::kind`] says so.
    Direct,
}

/// A directory of the file system, or one file and the directory that it is in.
///
/// A symbolic link in it may lead to a file in the directory itself, or anywhere in the `models--*` directory of the
/// Hugging Face cache that the directory is in, where `snapshots/REV/NAME` is a link to `../../blobs/DIGEST`
/// (huggingface_hub, `file_download.py`, `_create_symlink`), or in the store of blobs that the models of that cache share
/// (`utils/_shared_blobs.py`). No other is followed. Only the file that the caller chose,
/// [`LocalFiles::at`], may be a link to anywhere.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    dir: PathBuf,
    chosen: Option<(Name, PathBuf)>,
    io: Io,
    huge: bool,
}

impl LocalFiles {
    /// The directory `dir`. Nothing is looked at yet.
    pub fn new(dir: impl Into<PathBuf>) -> LocalFiles {
        LocalFiles { dir: dir.into(), chosen: None, io: Io::Auto, huge: false }
    }

    /// What is at `path`: of a directory, that and [`Name::ROOT`]; of anything else, the directory that it is in, and its
    /// name there.
    ///
    /// # Errors
    /// If nothing is there, or the system does not say what.
    pub fn at(path: impl AsRef<Path>) -> Result<(LocalFiles, Name), Error> {
        let path = path.as_ref();
        let about = fs::metadata(path).map_err(|e| Error::io(path, "open", e))?;
        let name = path.file_name().filter(|_| !about.is_dir());
        let Some(name) = name.map(|name| Name::lossy(&name.to_string_lossy())) else {
            return Ok((LocalFiles::new(path), Name::ROOT));
        };
        let parent = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
        let files = LocalFiles { chosen: Some((name.clone(), path.to_owned())), ..LocalFiles::new(parent) };
        Ok((files, name))
    }

    /// The same, with files reached as `io` says.
    #[must_use]
    pub fn with_io(self, io: Io) -> LocalFiles {
        LocalFiles { io, ..self }
    }

    /// The same, with maps in huge pages where the system has them of files, and files read as much at once: for those that are used
    /// from beginning to end.
    #[must_use]
    pub fn in_huge_pages(self) -> LocalFiles {
        LocalFiles { huge: true, ..self }
    }

    fn path(&self, name: &Name) -> PathBuf {
        if name.is_root() { self.dir.clone() } else { self.dir.join(name.as_str()) }
    }

    /// The path that the caller chose, if `name` is that.
    fn chosen(&self, name: &Name) -> Option<&Path> {
        self.chosen.as_ref().filter(|(chosen, _)| chosen == name).map(|(_, path)| &**path)
    }

    /// Where `name` really is: a path whose last component is no link.
    fn resolve(&self, name: &Name) -> Result<PathBuf, Error> {
        let path = self.path(name);
        let failed = |e| Error::io(&path, "open", e);
        let mut part = self.dir.clone();
        let mut linked = false;
        for component in name.components() {
            part.push(component);
            linked |= fs::symlink_metadata(&part).map_err(failed)?.file_type().is_symlink();
        }
        if !linked {
            return Ok(path);
        }
        let target = fs::canonicalize(&path).map_err(failed)?;
        let home = fs::canonicalize(&self.dir).map_err(|e| Error::io(&self.dir, "open", e))?;
        let model = home.ancestors().find(|a| is_hub_model(a));
        if target.starts_with(model.unwrap_or(&home)) {
            return Ok(target);
        }
        let shared = model.and_then(Path::parent).map(|cache| cache.join("blobs"));
        if shared.is_some_and(|blobs| target.starts_with(&blobs) && blobs.join(SHARED_BLOBS).is_file()) {
            return Ok(target);
        }
        let (location, target) = (Location::from(&self.dir), target.display().to_string());
        Err(Error::Outside { location, name: name.to_string(), target })
    }

    fn open_as(&self, name: &Name, io: Io) -> Result<Arc<dyn ByteSource>, Error> {
        let file = match self.chosen(name) {
            Some(path) => OpenFile::open(path, path, Trust::Caller)?,
            None => OpenFile::open(&self.resolve(name)?, &self.path(name), Trust::Folder)?,
        };
        file.into_source(io, self.huge)
    }
}

impl Storage for LocalFiles {
    fn list(&self, dir: &Name) -> Result<Vec<String>, Error> {
        let path = self.path(dir);
        let failed = |e| Error::io(&path, "list", e);
        if !dir.is_root() && !self.resolve(dir)?.is_dir() {
            return Err(Error::NotADirectory { location: path.into() });
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let limit = u64::from(MOST_NAMES);
            if names.len() as u64 == limit {
                return Err(Error::TooMany { location: path.into(), limit });
            }
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        self.open_as(name, self.io)
    }

    /// Neither mapped nor read past the page cache.
    fn open_small(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        self.open_as(name, Io::Pread)
    }

    fn location(&self, name: &Name) -> Location {
        Location::Path(self.chosen(name).map_or_else(|| self.path(name), Path::to_owned))
    }
}

/// The mark of a store of blobs that models share.
const SHARED_BLOBS: &str = ".huggingface-shared-blobs";

fn is_hub_model(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("models--"))
}
