//! Linux, macOS and other Unixes.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;

/// Opens a file for reading and writing, or makes it; follows no link.
pub(in crate::write) fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

/// Renames `from` to `to`, which must not exist.
pub(in crate::write) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems know no flags: there the check at the start has to do.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(from, to),
        other => Ok(other?),
    }
}

/// Exchanges the directories `from` and `to` atomically.
pub(in crate::write) fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?)
}

/// Bytes that a file takes on its disk.
pub(in crate::write) fn allocated(file: &Metadata) -> u64 {
    file.blocks().saturating_mul(512)
}

/// Returns true if the user of this process owns it.
pub(in crate::write) fn is_ours(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}
