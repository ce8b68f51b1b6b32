//! Linux, macOS and other Unixes.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, IoSliceMut};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::{About, Room};

/// Reads some bytes at `offset`; 0 at the end.
pub(crate) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Writes some bytes at `offset`.
pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(buf, offset)
}

/// Reads some bytes at `offset` into several buffers, one after the other; 0 at the end.
pub(crate) fn read_vectored_at(file: &File, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::preadv(file, bufs, offset)?)
}

/// Looks at an open file.
pub(crate) fn about(file: &File) -> io::Result<About> {
    let about = file.metadata()?;
    let (device, inode) = number_of(&about);
    Ok(About {
        len: about.len(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
        device,
        inode,
    })
}

pub(super) fn number_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|about| number_of(&about))
}

fn number_of(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

pub(super) fn room(path: &Path) -> io::Result<Option<Room>> {
    let disk = rustix::fs::statvfs(path)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Ok(Some(Room { free, block: disk.f_frsize.max(1) }))
}

pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(target_os = "linux")]
pub(super) fn sync_range(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let number = |n: u64| libc::off64_t::try_from(n).map_err(io::Error::other);
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open as long as `file` is; no memory is passed.
    let code = unsafe { libc::sync_file_range(file.as_raw_fd(), number(offset)?, number(bytes)?, flags) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a file for reading without waiting for a writer, as a pipe would; a symbolic link at `path` itself only with
/// `follow`.
pub(crate) fn open_to_read(path: &Path, follow: bool) -> io::Result<File> {
    let flags = if follow { OFlags::NONBLOCK } else { OFlags::NONBLOCK | OFlags::NOFOLLOW };
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Names the kind of an entry that is neither a file nor a directory.
pub(crate) fn describe(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "something else"
    }
}
