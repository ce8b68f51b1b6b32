//! Where the bytes of a checkpoint come from. A source gives any byte range, at any time, from any thread.

mod direct;
mod file;
mod guard;
mod identity;
mod mmap;
mod pread;
mod reader;
mod system;
mod zstd;

use std::fmt;
use std::io;
use std::ops::Range;

pub(crate) use direct::Direct;
pub(crate) use file::{OpenFile, Trust};
pub use identity::{Changed, Identity};
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

    /// Says that nobody is about to use `range` of the map again: its pages need not count as this process's memory any
    /// more. They stay in the page cache, and what still looks there finds the same bytes.
    fn leave(&self, range: Range<u64>) {
        let _ = range;
    }

    /// What it is, for reports: `mmap`, `pread`, `direct`, `zstd`.
    fn kind(&self) -> &'static str;

    /// How it is read at speed.
    fn pace(&self) -> Pace {
        Pace::LOCAL
    }

    /// Which file it was when it was opened; `None` for what nobody else can change.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Which file it is now.
    ///
    /// # Errors
    /// If the system does not say.
    fn identity_now(&self) -> io::Result<Option<Identity>> {
        Ok(self.identity())
    }
}

/// How a source is read at speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Ranges at most so many bytes apart are better read as one, or copied out of a map.
    pub gap: u64,
    /// Bytes of one read, at most.
    pub longest: u64,
    /// Bytes of memory that one read takes beside what it fills.
    pub beside: u64,
    /// Reads that are best under way at once, if that is more than there are threads.
    pub depth: usize,
    /// A range goes straight to memory whose address differs from its offset by a multiple of this; elsewhere it is
    /// copied on the way. A power of two; 1 if it does not matter.
    pub block: u64,
}

impl Pace {
    /// A local disk.
    ///
    /// The gap is measured, on the virtual disk of docs/performance.md: the time for one of many runs of 4 KiB that
    /// are so far apart, each read alone or all as one with what is between.
    ///
    /// | apart by | in the page cache: alone, as one | not in it: alone, as one |
    /// |--:|--:|--:|
    /// | 4 KiB | 1.8 µs, 2.7 µs | 38 µs, 10 µs |
    /// | 16 KiB | 2.0 µs, 5.3 µs | 65 µs, 27 µs |
    /// | 64 KiB | 2.5 µs, 16 µs | 65 µs, 73 µs |
    ///
    /// The longest read is what two threads do best with that take turns: with 2 MiB each they stay near enough to each
    /// other for the system to read ahead of both, and never clear the same huge page. (Asking for what comes next with
    /// `POSIX_FADV_WILLNEED` was slower.)
    pub const LOCAL: Pace = Pace { gap: 16 << 10, longest: 2 << 20, beside: 0, depth: 1, block: 1 };
    /// A server: each read waits for it. Not measured: 1 MiB takes a millisecond at 1 GB/s, about as long as an answer.
    pub const REMOTE: Pace = Pace { gap: 1 << 20, longest: 16 << 20, beside: 0, depth: 1, block: 1 };
}

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
    /// The file is read with positioned reads. A file that shrinks is an error.
    Pread,
    /// The same past the page cache (`O_DIRECT`): what is read once does not push out what others need. Where the
    /// file system refuses, it is [`Io::Pread`], and [`ByteSource::kind`] says so.
    Direct,
}

/// The error of a read past the end.
fn past_the_end(offset: u64, bytes: usize, len: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{bytes} bytes at offset {offset} reach past the end, which is at {len}"),
    )
}
