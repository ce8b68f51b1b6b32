//! Where the bytes of a checkpoint come from. A source gives any byte range, at any time, from any thread.

mod file;
mod guard;
mod mmap;
mod pread;
mod reader;
mod zstd;

use std::fmt;
use std::io;

pub(crate) use file::{OpenFile, Trust};
pub(crate) use mmap::Mapped;
pub(crate) use pread::Pread;
pub(crate) use reader::Reader;
pub(crate) use zstd::{Compressed, is_zstd};

/// The bytes of one file of a checkpoint.
pub trait ByteSource: fmt::Debug + Send + Sync {
    /// Length in bytes, as it was when the source was opened.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If the range is not wholly inside the source, or the system fails to read it.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// All bytes, if the source is mapped into memory.
    fn mapped(&self) -> Option<&[u8]>;

    /// What it is, for reports: `mmap`, `pread`, `zstd`.
    fn kind(&self) -> &'static str;
}

/// How the bytes of a checkpoint are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// [`Io::Mmap`] on a local file system, [`Io::Pread`] on one behind a network or a user-space server,
    /// where page faults are slow and may fail.
    #[default]
    Auto,
    /// The file is mapped. If another process shortens it meanwhile, touching the lost pages ends this one: by a
    /// signal, or with an error that names the file if the program called [`Io::guard_maps`].
    Mmap,
    /// The file is read with positioned reads. A file that shrinks is an error.
    Pread,
}

/// The error of a read past the end.
fn past_the_end(offset: u64, bytes: usize, len: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{bytes} bytes at offset {offset} reach past the end, which is at {len}"),
    )
}
