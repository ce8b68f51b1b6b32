//! Opening a file without being trapped: no blocking on a pipe, no device, no link out of a directory.

use std::fs::{self, File, FileType};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Io;
#[cfg(target_os = "linux")]
use super::direct::Direct;
use super::mmap::{Map, Mapped};
use super::pread::Pread;
use super::system::is_remote;
use crate::{ByteSource, Error, Identity, platform};

/// Who chose the path of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The caller, who may name a symbolic link.
    Caller,
    /// The content of a directory: the path is already resolved, and a link there by now is refused.
    Folder,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// What its user knows it by.
    path: PathBuf,
    file: File,
    was: Identity,
}

impl OpenFile {
    /// Opens the regular file at `path`, which its user knows as `known`.
    pub(super) fn open(path: &Path, known: &Path, trust: Trust) -> Result<OpenFile, Error> {
        let refuse = |kind: FileType| {
            let location = known.into();
            if kind.is_dir() {
                Error::Directory { location }
            } else {
                Error::NotAFile { location, found: platform::describe(kind) }
            }
        };
        let failed = |e| Error::io(known, "open", e);
        let before = match trust {
            Trust::Caller => fs::metadata(path),
            Trust::Folder => fs::symlink_metadata(path),
        };
        // Looked at before opening, since opening a device can act on it; and after, since it may have
        // been replaced between the two.
        let kind = before.map_err(failed)?.file_type();
        if !kind.is_file() {
            return Err(refuse(kind));
        }
        let file = platform::open_to_read(path, trust == Trust::Caller).map_err(failed)?;
        let after = file.metadata().map_err(failed)?;
        if !after.is_file() {
            return Err(refuse(after.file_type()));
        }
        let was = Identity::now(&file).map_err(failed)?;
        Ok(OpenFile { path: known.to_owned(), file, was })
    }

    /// The file as a source, reached as `io` says, and if that is a map, in `huge` pages.
    pub(super) fn into_source(self, io: Io, huge: bool) -> Result<Arc<dyn ByteSource>, Error> {
        let OpenFile { path, file, was } = self;
        let remote = is_remote(&file);
        // Nothing of an empty file can be mapped.
        let slow = remote && matches!(io, Io::Auto | Io::CopyOnWrite);
        let io = if slow || was.is_empty() { Io::Pread } else { io };
        Ok(match io {
            Io::Auto | Io::Mmap | Io::CopyOnWrite => {
                let map = Map::of(&file, io == Io::CopyOnWrite).map_err(|e| Error::io(&path, "map", e))?;
                let map = Mapped::new(map, file, was, &path, remote);
                if huge {
                    map.in_huge_pages();
                }
                Arc::new(map)
            }
            Io::Pread => Arc::new(Pread::new(file, was, remote)),
            Io::Direct => direct(file, was, remote),
        })
    }
}

/// `file` read past the page cache, if its file system takes part.
#[cfg(target_os = "linux")]
fn direct(file: File, was: Identity, remote: bool) -> Arc<dyn ByteSource> {
    match Direct::new(file, was.clone(), remote) {
        Ok(source) => Arc::new(source),
        Err(file) => Arc::new(Pread::instead_of_direct(file, was, remote)),
    }
}

/// `file` read through the page cache: it is passed by on Linux alone.
#[cfg(not(target_os = "linux"))]
fn direct(file: File, was: Identity, remote: bool) -> Arc<dyn ByteSource> {
    Arc::new(Pread::instead_of_direct(file, was, remote))
}
