//! Windows: type-checked, never run (docs/platforms.md).

use std::fs::{self, File, Metadata};
use std::io;
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a symbolic link itself (CreateFileW).
const LINK_ITSELF: u32 = 0x0020_0000;

/// Opens a file for reading and writing, or makes it; follows no link.
pub(in crate::write) fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(LINK_ITSELF);
    let file = options.open(path)?;
    if file.metadata()?.file_type().is_symlink() {
        return Err(io::Error::other("it is a symbolic link"));
    }
    Ok(file)
}

/// Renames `from` to `to`, which must not exist. Another process may create it between the check and the rename.
pub(in crate::write) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

/// Exchanges the directories `from` and `to` in three steps. A process killed after the first leaves nothing at `to`,
/// and its former contents beside `from`, as `output.old`.
pub(in crate::write) fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    let between = from.with_extension("old");
    fs::rename(to, &between)?;
    if let Err(error) = fs::rename(from, to) {
        fs::rename(&between, to)?;
        return Err(error);
    }
    fs::rename(&between, from)
}

/// Bytes that a file takes on its disk, near enough.
pub(in crate::write) fn allocated(file: &Metadata) -> u64 {
    file.file_size()
}

/// Returns true: on Windows the access list decides who may write to a place.
pub(in crate::write) fn is_ours(_found: &Metadata) -> bool {
    true
}
