//! Windows shortens no file that is mapped (ERROR_USER_MAPPED_FILE), so that there is nothing to guard against but a disk or a
//! server that fails.

use std::path::Path;

use super::Io;

impl Io {
    /// Installs nothing and returns `false`: on Unix, it names the file when a page of a map can no longer be read. Windows
    /// refuses to shorten a file that is mapped; where a disk or a server fails, it ends the process.
    pub fn guard_maps(_exit_code: u8, _hint: &'static str) -> bool {
        false
    }

    /// Does nothing and returns `false`: on Unix, it makes a write past the limit on the length of files an error. Windows has
    /// no such limit.
    pub fn guard_writes() -> bool {
        false
    }
}

/// A map that a handler could name: here nobody asks for one.
#[derive(Debug)]
pub(super) enum Registration {}

impl Registration {
    /// `None`: there is no handler.
    pub(super) fn new(_start: *const u8, _len: usize, _path: &Path) -> Option<Registration> {
        None
    }
}
