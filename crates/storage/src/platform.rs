//! Files on each operating system: positioned reads and writes, and the numbers that identify a file.
//!
//! All of it works everywhere. Where a system has less than Unix, its file here says what takes the place
//! (docs/platforms.md).

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

pub(crate) use system::{about, describe, open_to_read, read_at, read_vectored_at};

/// Fills `buf` from byte `offset` of `file` on.
///
/// # Errors
/// If the system refuses, or the file ends before: [`io::ErrorKind::UnexpectedEof`].
pub fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match read_at(file, buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buf = buf.get_mut(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes all of `buf` to `file`, from byte `offset` on.
///
/// # Errors
/// If the system refuses.
pub fn write_all_at(file: &File, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match system::write_at(file, buf, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                buf = buf.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The number of an open file: that of its file system, and its own there. It stays the same when the file gets another
/// name, and no other file has it at the same time.
///
/// # Errors
/// If the system refuses.
pub fn number(file: &File) -> io::Result<(u64, u64)> {
    let about = about(file)?;
    Ok((about.device, about.inode))
}

/// The [`number`] of what is at `path`: a file, a directory, or a symbolic link, which is not followed.
///
/// # Errors
/// If nothing is there, or the system refuses.
pub fn number_at(path: &Path) -> io::Result<(u64, u64)> {
    system::number_at(path)
}

/// The free space of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes that files may still take.
    pub free: u64,
    /// The size of a block in bytes; a file takes whole blocks. Never 0.
    pub block: u64,
}

/// Returns the free space of the disk that holds `path`; `None` on Windows, where a lack of it shows when the disk is written to.
///
/// # Errors
/// If the system refuses.
pub fn room(path: &Path) -> io::Result<Option<Room>> {
    system::room(path)
}

/// Makes the names in a directory durable. Does nothing on Windows, which flushes no directories; NTFS keeps a journal of names.
///
/// # Errors
/// If the system refuses.
pub fn sync(directory: &Path) -> io::Result<()> {
    system::sync(directory)
}

/// Waits until a range of bytes is on the disk, so that a later `sync_all` has less to wait for. Does nothing where there is no such call.
///
/// # Errors
/// If the system refuses.
pub fn sync_range(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return system::sync_range(file, offset, bytes);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, bytes);
        Ok(())
    }
}

/// The facts of a file that the file system keeps.
pub(crate) struct About {
    /// Length in bytes.
    pub(crate) len: u64,
    /// When it was last written to: seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, i64),
    /// When anything about it last changed, in the same way.
    pub(crate) changed: (i64, i64),
    /// The number of the file system.
    pub(crate) device: u64,
    /// The number of the file on it.
    pub(crate) inode: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_and_written_where_they_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        write_all_at(&file, b"world", 6).unwrap();
        write_all_at(&file, b"hello ", 0).unwrap();
        let mut buf = [0; 5];
        read_exact_at(&file, &mut buf, 3).unwrap();
        assert_eq!(&buf, b"lo wo");
        assert_eq!(read_exact_at(&file, &mut buf, 7).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_number_goes_with_the_file_and_not_with_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, link] = ["a", "b", "link"].map(|name| dir.path().join(name));
        std::fs::write(&a, "x").unwrap();
        let was = number_at(&a).unwrap();
        assert_eq!(number(&File::open(&a).unwrap()).unwrap(), was);
        std::fs::rename(&a, &b).unwrap();
        std::fs::write(&a, "x").unwrap();
        assert_eq!(number_at(&b).unwrap(), was);
        assert_ne!(number_at(&a).unwrap(), was);
        assert_ne!(number_at(dir.path()).unwrap(), was);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&b, &link).unwrap();
            assert_ne!(number_at(&link).unwrap(), was);
        }
        assert!(number_at(&link.with_extension("none")).is_err());
    }
}
