//! A file read with positioned reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{ByteSource, Pace, past_the_end, system};

/// A file read with `pread`.
#[derive(Debug)]
pub(crate) struct Pread {
    file: File,
    len: u64,
    remote: bool,
    kind: &'static str,
}

impl Pread {
    /// Reads `file`, of `len` bytes.
    pub(crate) fn new(file: File, len: u64, remote: bool) -> Pread {
        Pread { file, len, remote, kind: "pread" }
    }

    /// Reads `file`, for which the page cache cannot be passed by.
    pub(crate) fn instead_of_direct(file: File, len: u64, remote: bool) -> Pread {
        Pread { kind: "pread (O_DIRECT is refused)", ..Pread::new(file, len, remote) }
    }
}

impl ByteSource for Pread {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_the_end(offset, buf.len(), self.len));
        }
        self.file.read_exact_at(buf, offset)
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn pace(&self) -> Pace {
        system::pace(self.remote)
    }
}
