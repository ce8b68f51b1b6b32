//! Windows: type-checked, never run (docs/platforms.md).

use std::fs::{File, FileType};
use std::io::{self, IoSliceMut};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use winapi_util::file::information;

use super::{About, Room};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a symbolic link itself (CreateFileW).
const LINK_ITSELF: u32 = 0x0020_0000;
/// `FILE_FLAG_BACKUP_SEMANTICS`: opens directories too (CreateFileW).
const DIRECTORIES_TOO: u32 = 0x0200_0000;
/// Seconds from 1601, when the clock of its files begins, to 1970.
const SECONDS_BEFORE_1970: i64 = 11_644_473_600;
/// Ticks of that clock in a second.
const TICKS: u64 = 10_000_000;

/// Reads some bytes at `offset`; 0 at the end. It moves the file's cursor, which nothing here goes by.
pub(crate) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buf, offset)
}

/// Writes some bytes at `offset`. It moves the cursor too.
pub(super) fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(buf, offset)
}

/// Reads some bytes at `offset` into the first buffer that is not empty: `ReadFileScatter` wants whole pages.
pub(crate) fn read_vectored_at(file: &File, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    match bufs.iter_mut().find(|buf| !buf.is_empty()) {
        Some(buf) => read_at(file, buf, offset),
        None => Ok(0),
    }
}

/// Looks at an open file.
pub(crate) fn about(file: &File) -> io::Result<About> {
    let about = information(file)?;
    let ticks = about.last_write_time().unwrap_or(0);
    let seconds = i64::try_from(ticks / TICKS).unwrap_or(0) - SECONDS_BEFORE_1970;
    let nanoseconds = i64::try_from(ticks % TICKS * 100).unwrap_or(0);
    Ok(About {
        len: about.file_size(),
        modified: (seconds, nanoseconds),
        changed: (seconds, nanoseconds),
        device: about.volume_serial_number(),
        inode: about.file_index(),
    })
}

pub(super) fn number_at(path: &Path) -> io::Result<(u64, u64)> {
    // Not even to read: only to be looked at.
    let file = File::options().access_mode(0).custom_flags(LINK_ITSELF | DIRECTORIES_TOO).open(path)?;
    super::number(&file)
}

#[expect(clippy::unnecessary_wraps, reason = "it may fail on Unix")]
pub(super) fn room(_path: &Path) -> io::Result<Option<Room>> {
    Ok(None)
}

#[expect(clippy::unnecessary_wraps, reason = "it may fail on Unix")]
pub(super) fn sync(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Opens a file for reading; a symbolic link at `path` itself only with `follow`: else what is opened is the link, which
/// is not a file.
pub(crate) fn open_to_read(path: &Path, follow: bool) -> io::Result<File> {
    let flags = if follow { 0 } else { LINK_ITSELF };
    File::options().read(true).custom_flags(flags).open(path)
}

/// Names the kind of an entry that is neither a file nor a directory.
pub(crate) fn describe(kind: FileType) -> &'static str {
    if kind.is_symlink() { "a symbolic link" } else { "something else" }
}
