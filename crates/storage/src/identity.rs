//! What tells a file from another, and from what it was before.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::platform;

/// A file at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Identity {
    /// A file of a file system. Whoever writes to it in place changes its length or its time; whoever puts another in its
    /// place, the inode.
    ///
    /// A file system's clock ticks every few ms: this does not see a write in the same tick.
    #[non_exhaustive]
    File {
        /// Length in bytes.
        len: u64,
        /// When it was last written to: seconds since 1970, and nanoseconds.
        modified: (i64, i64),
        /// When its bytes, its name, its owner or its rights last changed (`ctime`), which no program sets as it likes: seconds
        /// and nanoseconds. On Windows the same as `modified`. [`Identity::changed_to`] leaves it out: a file that gets another
        /// name stays what it was.
        changed: (i64, i64),
        /// The number of the device that it is on; of the volume, on Windows.
        device: u64,
        /// Its number there; its index, on Windows.
        inode: u64,
    },
    /// A file of a server, which tags each version.
    Tagged {
        /// Length in bytes.
        len: u64,
        /// The ETag, as the server wrote it, with its quotes (RFC 9110, 8.8.3). It must be a strong one: those that begin
        /// with `W/` stay the same where bytes differ.
        tag: Arc<str>,
    },
}

impl Identity {
    /// The identity that an open file has now.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn now(file: &File) -> io::Result<Identity> {
        let platform::About { len, modified, changed, device, inode } = platform::about(file)?;
        Ok(Identity::File { len, modified, changed, device, inode })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Identity::File { len, .. } | Identity::Tagged { len, .. } => *len,
        }
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How `now` differs from this; `None` if it does not.
    pub fn changed_to(&self, now: &Identity) -> Option<Changed> {
        let (was, is) = (self.len(), now.len());
        match (self, now) {
            (
                Identity::File { device, inode, .. },
                Identity::File { device: now_device, inode: now_inode, .. },
            ) if (device, inode) != (now_device, now_inode) => Some(Changed::Replaced),
            (Identity::File { .. }, Identity::Tagged { .. })
            | (Identity::Tagged { .. }, Identity::File { .. }) => Some(Changed::Replaced),
            _ if was != is => Some(Changed::Length { was, is }),
            (Identity::File { modified: was, .. }, Identity::File { modified: is, .. }) => {
                (was != is).then_some(Changed::Written)
            }
            (Identity::Tagged { tag: was, .. }, Identity::Tagged { tag: is, .. }) => {
                (was != is).then_some(Changed::Written)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_a_server_is_told_by_its_tag() {
        let at = |len, tag: &str| Identity::Tagged { len, tag: tag.into() };
        assert_eq!(at(7, "\"a\"").changed_to(&at(7, "\"a\"")), None);
        assert_eq!(at(7, "\"a\"").changed_to(&at(7, "\"b\"")), Some(Changed::Written));
        assert_eq!(at(7, "\"a\"").changed_to(&at(8, "\"b\"")), Some(Changed::Length { was: 7, is: 8 }));
    }

    #[test]
    fn a_file_is_told_by_its_inode_length_and_time() {
        let named = |inode, len, time, changed| {
            let (modified, changed) = ((time, 0), (changed, 0));
            Identity::File { len, modified, changed, device: 1, inode }
        };
        let at = |inode, len, time| named(inode, len, time, 9);
        assert_eq!(at(1, 7, 3).changed_to(&at(1, 7, 3)), None);
        assert_eq!(at(1, 7, 3).changed_to(&at(2, 7, 3)), Some(Changed::Replaced));
        assert_eq!(at(1, 7, 3).changed_to(&at(1, 7, 4)), Some(Changed::Written));
        assert_eq!(at(1, 7, 3).changed_to(&at(1, 9, 4)), Some(Changed::Length { was: 7, is: 9 }));
        let renamed = named(1, 7, 3, 10);
        assert_eq!((at(1, 7, 3).changed_to(&renamed), at(1, 7, 3) == renamed), (None, false));
        let tagged = Identity::Tagged { len: 7, tag: "\"a\"".into() };
        assert_eq!(at(1, 7, 3).changed_to(&tagged), Some(Changed::Replaced));
    }
}
