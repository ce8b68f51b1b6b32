//! Reading a header front to back, from a map or from a buffer that grows as needed.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use storage::ByteSource;

use crate::error::{Problem, Subject};
use crate::fault::Fault;

/// The longest header that is read: keys, values and tensor infos. The longest real ones, with a large
/// vocabulary inside, are some tens of MB.
const LIMIT: u64 = 256 << 20;

/// Strings are at most this long (gguf.cpp, `GGUF_MAX_STRING_LENGTH`).
const MAX_STRING: u64 = 1 << 30;

/// How a file writes its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notation {
    /// The most significant byte comes first.
    pub(super) big: bool,
    /// Lengths, counts and dimensions have four bytes and not eight, as in version 1.
    pub(super) narrow: bool,
}

impl Notation {
    /// The bytes of a number, least significant first.
    pub(super) fn little<const N: usize>(self, mut bytes: [u8; N]) -> [u8; N] {
        if self.big {
            bytes.reverse();
        }
        bytes
    }

    /// Bytes of a length.
    pub(super) fn length_bytes(self) -> u64 {
        if self.narrow { 4 } else { 8 }
    }

    /// The length at the start of `bytes`, and what follows it.
    pub(super) fn length(self, bytes: &[u8]) -> Option<(u64, &[u8])> {
        if self.narrow {
            let (len, rest) = bytes.split_first_chunk()?;
            Some((u32::from_le_bytes(self.little(*len)).into(), rest))
        } else {
            let (len, rest) = bytes.split_first_chunk()?;
            Some((u64::from_le_bytes(self.little(*len)), rest))
        }
    }
}

/// Why reading stops here and now.
#[derive(Debug)]
pub(super) enum Stop {
    /// The rest cannot be made sense of.
    Problem(Box<Problem>),
    /// There are too many problems to go on reading.
    Enough,
    /// The system failed to read.
    Io(io::Error),
}

impl Stop {
    pub(super) fn at(at: u64, fault: Fault) -> Stop {
        Stop::Problem(Box::new(Problem { at: Some(at), subject: Subject::Whole, fault }))
    }

    /// The same, about a key or a tensor.
    pub(super) fn about(self, subject: impl FnOnce() -> Subject) -> Stop {
        match self {
            Stop::Problem(problem) => Stop::Problem(Box::new(Problem { subject: subject(), ..*problem })),
            other => other,
        }
    }
}

/// The bytes of a header: borrowed from a mapped source, or read into a buffer.
pub(super) struct Header {
    source: Arc<dyn ByteSource>,
    /// The first bytes of an unmapped source.
    owned: Vec<u8>,
}

impl fmt::Debug for Header {
    /// Without the bytes, which are megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Header {
    /// All bytes that are there without reading: at most [`LIMIT`].
    fn bytes(&self) -> &[u8] {
        let bytes = self.source.mapped().unwrap_or(&self.owned);
        bytes.get(..index(LIMIT)).unwrap_or(bytes)
    }

    /// The bytes of a range that a cursor has passed.
    pub(super) fn get(&self, range: &Range<u64>) -> &[u8] {
        self.bytes().get(index(range.start)..index(range.end)).unwrap_or(&[])
    }

    /// Reads on so that the bytes before `end`, which the source has, are there.
    fn ensure(&mut self, end: u64) -> io::Result<()> {
        const STEP: u64 = 256 << 10;
        let have = self.owned.len() as u64;
        if self.source.mapped().is_some() || end <= have {
            return Ok(());
        }
        // Doubling keeps the number of reads and copies small.
        let upto = end.max(have * 2).max(STEP).min(self.source.len()).min(LIMIT);
        self.owned.resize(index(upto), 0);
        let (_, fresh) = self.owned.split_at_mut(index(have));
        self.source.read_at(have, fresh)
    }
}

/// A place in a header.
#[derive(Debug)]
pub(super) struct Cursor {
    header: Header,
    at: u64,
    /// How numbers are read from here on.
    pub(super) notation: Notation,
}

impl Cursor {
    pub(super) fn new(source: Arc<dyn ByteSource>) -> Cursor {
        Cursor { header: Header { source, owned: Vec::new() }, at: 0, notation: Notation::default() }
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn into_header(self) -> Header {
        self.header
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Length of the file.
    pub(super) fn file_len(&self) -> u64 {
        self.header.source.len()
    }

    /// Bytes of the file from here on.
    pub(super) fn left(&self) -> u64 {
        self.file_len().saturating_sub(self.at)
    }

    /// Returns `found`, the number of items of `least` bytes or more, if the file is long enough for them.
    pub(super) fn check_count(&self, what: &'static str, found: u64, least: u64) -> Result<u32, Stop> {
        let (left, room) = (self.left(), self.left() / least);
        if found > room {
            return Err(Stop::at(self.at, Fault::Count { what, found, left, room }));
        }
        let limit = u32::MAX.into();
        u32::try_from(found).map_err(|_| Stop::at(self.at, Fault::Limit { what, found, limit }))
    }

    /// Passes `bytes` bytes, which are part of `what`.
    pub(super) fn take(&mut self, bytes: u64, what: &'static str) -> Result<Range<u64>, Stop> {
        let (start, left) = (self.at, self.left());
        if bytes > left {
            return Err(Stop::at(start, Fault::Ends { what, wants: bytes, found: left }));
        }
        let end = start + bytes;
        if end > LIMIT {
            return Err(Stop::at(start, Fault::Limit { what: "header length", found: end, limit: LIMIT }));
        }
        self.header.ensure(end).map_err(Stop::Io)?;
        self.at = end;
        Ok(start..end)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, Stop> {
        let range = self.take(4, what)?;
        let bytes = self.header.get(&range).first_chunk();
        Ok(bytes.map_or(0, |b| u32::from_le_bytes(self.notation.little(*b))))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, Stop> {
        let range = self.take(8, what)?;
        let bytes = self.header.get(&range).first_chunk();
        Ok(bytes.map_or(0, |b| u64::from_le_bytes(self.notation.little(*b))))
    }

    /// A length, a count or a dimension.
    pub(super) fn length(&mut self, what: &'static str) -> Result<u64, Stop> {
        if self.notation.narrow { self.u32(what).map(u64::from) } else { self.u64(what) }
    }

    /// Skips a string (a length and that number of bytes) and returns its range.
    pub(super) fn string(&mut self, what: &'static str) -> Result<Range<u64>, Stop> {
        let at = self.at;
        let bytes = self.length(what)?;
        if bytes > MAX_STRING {
            let what = "string length in bytes";
            return Err(Stop::at(at, Fault::Limit { what, found: bytes, limit: MAX_STRING }));
        }
        self.take(bytes, what)
    }

    /// Passes `count` strings.
    pub(super) fn strings(&mut self, count: u64, what: &'static str) -> Result<(), Stop> {
        let mut left = count;
        while left > 0 {
            left -= self.whole_strings(left);
            if left > 0 {
                // At the end of the buffer: this one reads on, or finds out why not.
                self.string(what)?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// Passes at most `most` strings that lie wholly in the bytes at hand, and says how many.
    fn whole_strings(&mut self, most: u64) -> u64 {
        let mut rest = self.header.bytes().get(index(self.at)..).unwrap_or(&[]);
        let before = rest.len();
        let mut passed = 0;
        while passed < most {
            let Some((len, after)) = self.notation.length(rest) else { break };
            let Some(after) = usize::try_from(len).ok().and_then(|len| after.get(len..)) else { break };
            if len > MAX_STRING {
                break;
            }
            rest = after;
            passed += 1;
        }
        self.at += (before - rest.len()) as u64;
        passed
    }
}

/// An offset as an index; one past every slice if it does not fit.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
