//! A source read from one place on, as the standard library's traits want it.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use crate::ByteSource;

/// The bytes of a source from a place on.
#[derive(Debug)]
pub struct Reader {
    source: Arc<dyn ByteSource>,
    at: u64,
}

impl Reader {
    /// Reads `source` from byte `at` on.
    pub fn new(source: Arc<dyn ByteSource>, at: u64) -> Reader {
        Reader { source, at }
    }
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.len().saturating_sub(self.at);
        let n = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        self.source.read_at(self.at, buf.get_mut(..n).unwrap_or_default())?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.source.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
