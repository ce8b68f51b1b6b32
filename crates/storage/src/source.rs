//! An open file. It gives any byte range, at any time, from any thread.

use std::fmt;
use std::io;
use std::ops::Range;

use crate::Identity;

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

    /// Fills every buffer with the bytes from its offset on. The ranges may lie anywhere, in any order.
    ///
    /// By default they are read one after the other. A source that can do better with several at once does: a local file
    /// reads ranges that touch in one call, a server answers several in one request.
    ///
    /// # Errors
    /// As [`ByteSource::read_at`]; what the buffers hold then is not said.
    fn read_many(&self, fills: &mut [Fill<'_>]) -> io::Result<()> {
        fills.iter_mut().try_for_each(|fill| self.read_at(fill.offset, fill.buf))
    }

    /// All bytes, if the source is mapped into memory, or is there already.
    fn mapped(&self) -> Option<&[u8]>;

    /// Whether the mapped bytes are this source's alone and their memory may be written to, by who has made sure that nobody reads
    /// them meanwhile: the file stays as it is, and later readers of the map see what was written.
    fn is_private(&self) -> bool {
        false
    }

    /// Brings `range` of the map into memory: who touches it next waits for nothing.
    fn prefetch(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Says that nobody is about to use `range` of the map again: its pages need not count as this process's memory any
    /// more. They stay in the page cache, and what still looks there finds the same bytes.
    fn leave(&self, range: Range<u64>) {
        let _ = range;
    }

    /// What it is, for reports: `mmap`, `pread`, `direct`, `zstd`, `memory`.
    fn kind(&self) -> &'static str;

    /// How it is read at speed.
    fn pace(&self) -> Pace {
        Pace::LOCAL
    }

    /// Which file it was when it was opened; `None` for what nobody else can change.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// True if each read is of the version that was opened, or fails: then nobody need ask again.
    fn is_pinned(&self) -> bool {
        false
    }

    /// Which file it is now.
    ///
    /// # Errors
    /// If the system does not say.
    fn identity_now(&self) -> io::Result<Option<Identity>> {
        Ok(self.identity())
    }
}

/// A range of a source, and where its bytes go.
#[derive(Debug)]
pub struct Fill<'b> {
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// As long as the range is.
    pub buf: &'b mut [u8],
}

/// How a source is read at speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Ranges at most this many bytes apart are better read as one, or copied out of a map.
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

/// The error of a read past the end.
pub(crate) fn past_the_end(offset: u64, bytes: usize, len: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{bytes} bytes at offset {offset} reach past the end, which is at {len}"),
    )
}
