//! Opening a file without being trapped: no blocking on a pipe, no device, no link out of a directory.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::system::is_remote;
use super::{ByteSource, Direct, Identity, Io, Mapped, Pread};
use crate::error::Error;
use crate::fault::Fault;

/// Who chose the path of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The caller, who may name a symbolic link.
    Caller,
    /// The content of a directory: the path is already resolved, and a link there by now is refused.
    Folder,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    file: File,
    was: Identity,
}

impl OpenFile {
    /// Opens the regular file at `path`.
    pub(crate) fn open(path: &Path, trust: Trust) -> Result<OpenFile, Error> {
        let refuse = |kind: FileType| {
            Error::whole(path, Fault::NotAFile { found: describe(kind), member: trust == Trust::Folder })
        };
        let failed = |e| Error::io(path, "open", e);
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
        let flags = i32::try_from(flags.bits()).map_err(|e| failed(io::Error::other(e)))?;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let after = file.metadata().map_err(failed)?;
        if !after.is_file() {
            return Err(refuse(after.file_type()));
        }
        Ok(OpenFile { path: path.to_owned(), file, was: Identity::of(&after) })
    }

    /// The same file, called by the path that its user knows.
    pub(crate) fn known_as(self, path: PathBuf) -> OpenFile {
        OpenFile { path, ..self }
    }

    /// The same file, if there is anything in it.
    pub(crate) fn not_empty(self) -> Result<OpenFile, Error> {
        if self.was.len > 0 { Ok(self) } else { Err(Error::whole(&self.path, Fault::Empty)) }
    }

    /// The path it is called by in reports.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it was when it was opened.
    pub(crate) fn identity(&self) -> Identity {
        self.was
    }

    /// The directory it is in.
    pub(crate) fn parent(&self) -> &Path {
        self.path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."))
    }

    /// The first bytes, at most `most` of them.
    pub(crate) fn head(&self, most: usize) -> Result<Vec<u8>, Error> {
        let mut head = vec![0; usize::try_from(self.was.len).map_or(most, |len| len.min(most))];
        self.file.read_exact_at(&mut head, 0).map_err(|e| Error::io(&self.path, "read", e))?;
        Ok(head)
    }

    /// The whole content, if it is at most `most` bytes.
    pub(crate) fn read_all(self, most: u64) -> Result<Vec<u8>, Error> {
        let too_long =
            |found| Error::whole(&self.path, Fault::Limit { what: "length in bytes", found, limit: most });
        if self.was.len > most {
            return Err(too_long(self.was.len));
        }
        let mut content = Vec::new();
        // One byte more shows whether it has grown since.
        let read = (&self.file).take(most.saturating_add(1)).read_to_end(&mut content);
        match read.map_err(|e| Error::io(&self.path, "read", e))? as u64 {
            n if n > most => Err(too_long(n)),
            _ => Ok(content),
        }
    }

    /// The file as a source, reached as `io` says.
    pub(crate) fn into_source(self, io: Io) -> Result<Arc<dyn ByteSource>, Error> {
        let OpenFile { path, file, was } = self;
        let remote = is_remote(&file);
        let io = if io == Io::Auto && remote { Io::Pread } else { io };
        Ok(match io {
            Io::Auto | Io::Mmap => {
                Arc::new(Mapped::new(file, was, &path, remote).map_err(|e| Error::io(&path, "map", e))?)
            }
            Io::Pread => Arc::new(Pread::new(file, was, remote)),
            Io::Direct => match Direct::new(file, was, remote) {
                Ok(source) => Arc::new(source),
                Err(file) => Arc::new(Pread::instead_of_direct(file, was, remote)),
            },
        })
    }
}

fn describe(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
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
