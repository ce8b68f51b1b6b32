//! Opening a file without being trapped: no blocking on a pipe, no device, no link out of a directory.

use std::fs::{self, File, FileType};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::Io;
use super::direct::Direct;
use super::mmap::Mapped;
use super::pread::Pread;
use super::system::is_remote;
use crate::{ByteSource, Error, Identity};

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
                Error::NotAFile { location, found: describe(kind) }
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
        let mut flags = OFlags::NONBLOCK;
        if trust == Trust::Folder {
            flags |= OFlags::NOFOLLOW;
        }
        let flags = i32::try_from(flags.bits()).map_err(|e| failed(std::io::Error::other(e)))?;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let after = file.metadata().map_err(failed)?;
        if !after.is_file() {
            return Err(refuse(after.file_type()));
        }
        Ok(OpenFile { path: known.to_owned(), file, was: Identity::of(&after) })
    }

    /// The file as a source, reached as `io` says.
    pub(super) fn into_source(self, io: Io) -> Result<Arc<dyn ByteSource>, Error> {
        let OpenFile { path, file, was } = self;
        let remote = is_remote(&file);
        // Nothing of an empty file can be mapped.
        let io = if io == Io::Auto && remote || was.is_empty() { Io::Pread } else { io };
        Ok(match io {
            Io::Auto | Io::Mmap => {
                Arc::new(Mapped::new(file, was, &path, remote).map_err(|e| Error::io(&path, "map", e))?)
            }
            Io::Pread => Arc::new(Pread::new(file, was, remote)),
            Io::Direct => match Direct::new(file, was.clone(), remote) {
                Ok(source) => Arc::new(source),
                Err(file) => Arc::new(Pread::instead_of_direct(file, was, remote)),
            },
        })
    }
}

fn describe(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "something else"
    }
}
