//! What tells a file from another, and from what it was before.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// A file at one moment. Who writes to it in place changes its length or its time; who puts another in its place, the
/// inode.
///
/// A file system's clock ticks every few ms: this does not see a write in the same tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// Length in bytes.
    pub len: u64,
    /// When it was last written to: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl Identity {
    pub(crate) fn of(about: &Metadata) -> Identity {
        Identity {
            len: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
            device: about.dev(),
            inode: about.ino(),
        }
    }

    /// The identity that an open file has now.
    pub(crate) fn now(file: &File) -> io::Result<Identity> {
        Ok(Identity::of(&file.metadata()?))
    }

    /// How `now` differs from this; `None` if it does not.
    pub(crate) fn changed_to(&self, now: &Identity) -> Option<Changed> {
        if (self.device, self.inode) != (now.device, now.inode) {
            Some(Changed::Replaced)
        } else if self.len != now.len {
            Some(Changed::Length { was: self.len, is: now.len })
        } else {
            (self.modified != now.modified).then_some(Changed::Written)
        }
    }
}

/// In what a file is no longer what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// There is another file in its place.
    Replaced,
    /// It has another length.
    Length {
        /// Bytes when it was opened.
        was: u64,
        /// Bytes now.
        is: u64,
    },
    /// It was written to.
    Written,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Changed::Replaced => f.write_str("there is another file in its place"),
            Changed::Length { was, is } => write!(f, "it had {was} bytes, and has {is}"),
            Changed::Written => f.write_str("it was written to"),
        }
    }
}
