//! A file read with positioned reads.

use std::fs::File;
use std::io;

use super::{system, vectored};
use crate::source::past_the_end;
use crate::{ByteSource, Fill, Identity, Pace, platform};

/// A file read with `pread`.
#[derive(Debug)]
pub(super) struct Pread {
    file: File,
    was: Identity,
    remote: bool,
    kind: &'static str,
}

impl Pread {
    /// Reads `file`, which `was` that when it was opened.
    pub(super) fn new(file: File, was: Identity, remote: bool) -> Pread {
        Pread { file, was, remote, kind: "pread" }
    }

    /// Reads `file`, for which the page cache cannot be passed by.
    pub(super) fn instead_of_direct(file: File, was: Identity, remote: bool) -> Pread {
        Pread { kind: "pread (O_DIRECT is refused)", ..Pread::new(file, was, remote) }
    }
}

impl ByteSource for Pread {
    fn len(&self) -> u64 {
        self.was.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(past_the_end(offset, buf.len(), self.len()));
        }
        platform::read_exact_at(&self.file, buf, offset)
    }

    fn read_many(&self, fills: &mut [Fill<'_>]) -> io::Result<()> {
        vectored::read(&self.file, self.len(), fills)
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

    fn identity(&self) -> Option<Identity> {
        Some(self.was.clone())
    }

    fn identity_now(&self) -> io::Result<Option<Identity>> {
        Identity::now(&self.file).map(Some)
    }
}
