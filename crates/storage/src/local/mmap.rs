//! A mapped file.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::guard::Registration;
use super::{system, vectored};
use crate::source::past_the_end;
use crate::{ByteSource, Fill, Identity, Pace, platform};

/// Files that are kept open for reading beside their maps: others' descriptors have to find room too (1024 is the usual
/// limit), and directories of a thousand arrays are real.
#[cfg(unix)]
const KEPT: i32 = 512;

/// A file mapped into memory.
///
/// The map lends. Long runs are copied by reading the file: that costs no page faults, what was copied does not count as
/// this process's memory, and a file that shrinks is an error.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Goes before the map does: the addresses may be another's at once.
    _registered: Option<Registration>,
    map: Map,
    /// Where it is, if too many are open to keep it so.
    file: Result<File, PathBuf>,
    was: Identity,
    remote: bool,
}

impl Mapped {
    /// `map` of the whole of `file`, `was` that when it was opened, which is called `path` should its pages go.
    pub(super) fn new(map: Map, file: File, was: Identity, path: &Path, remote: bool) -> Mapped {
        let registered = Registration::new(map.as_ptr(), map.len(), path);
        let file = if is_kept(&file) { Ok(file) } else { Err(path.to_owned()) };
        Mapped { _registered: registered, map, file, was, remote }
    }
}

/// The pages of a file.
#[derive(Debug)]
pub(super) enum Map {
    /// Read-only, and the system's, which other processes share.
    Shared(memmap2::Mmap),
    /// A page that is written to becomes this process's own.
    Private(memmap2::MmapMut),
}

impl Map {
    /// The whole of `file`, which must be regular and not empty.
    pub(super) fn of(file: &File, private: bool) -> io::Result<Map> {
        // SAFETY: the map belongs to the `Mapped` that it goes to, and lives as long as the slices that it gives.
        // What cannot be promised is that no other process writes to or shortens the file meanwhile: the
        // bytes may then change under a reader, a `&str` that was checked may stop being UTF-8, and touching
        // a page past the new end raises SIGBUS, which `Io::guard_maps` makes an error. What parses the mapped
        // header checks every bound on each access, so that such a writer can cause wrong values, but no access
        // out of bounds. Who must survive a hostile writer uses `Io::Pread`. A private map is written to by those alone
        // who keep what `ByteSource::is_private` asks for.
        Ok(unsafe {
            if private {
                // Most pages are never written to: no memory is set aside for them.
                Map::Private(memmap2::MmapOptions::new().no_reserve_swap().map_copy(file)?)
            } else {
                Map::Shared(memmap2::Mmap::map(file)?)
            }
        })
    }

    /// A hint about `part` of it.
    #[cfg(target_os = "linux")]
    fn advise(&self, advice: memmap2::Advice, part: Range<usize>) {
        let _ = match self {
            Map::Shared(map) => map.advise_range(advice, part.start, part.len()),
            Map::Private(map) => map.advise_range(advice, part.start, part.len()),
        };
    }
}

impl std::ops::Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Map::Shared(map) => map,
            Map::Private(map) => map,
        }
    }
}

impl Mapped {
    /// Asks for huge pages: a hint, which systems without them refuse.
    pub(super) fn in_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            self.map.advise(memmap2::Advice::HugePage, 0..self.map.len());
        }
    }
}

/// Whether there is room to keep `file` open.
#[cfg(unix)]
fn is_kept(file: &File) -> bool {
    file.as_raw_fd() < KEPT
}

/// Windows has no such limit.
#[cfg(windows)]
fn is_kept(_: &File) -> bool {
    true
}

impl ByteSource for Mapped {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|s| Some(s..s.checked_add(buf.len())?));
        match (range.and_then(|r| self.map.get(r)), &self.file) {
            (None, _) => Err(past_the_end(offset, buf.len(), self.len())),
            (Some(_), Ok(file)) => platform::read_exact_at(file, buf, offset),
            (Some(bytes), Err(_)) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn read_many(&self, fills: &mut [Fill<'_>]) -> io::Result<()> {
        match &self.file {
            Ok(file) => vectored::read(file, self.len(), fills),
            Err(_) => fills.iter_mut().try_for_each(|fill| self.read_at(fill.offset, fill.buf)),
        }
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&self.map)
    }

    fn is_private(&self) -> bool {
        matches!(self.map, Map::Private(_))
    }

    #[cfg(target_os = "linux")]
    fn prefetch(&self, range: Range<u64>) {
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else { return };
        if self.map.get(start..end).is_none() {
            return;
        }
        // All of it is asked of the disk before any of it is waited for. Both are hints: what they leave out is read when it is touched.
        self.map.advise(memmap2::Advice::WillNeed, start..end);
        self.map.advise(memmap2::Advice::PopulateRead, start..end);
    }

    #[cfg(target_os = "linux")]
    fn leave(&self, range: Range<u64>) {
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else { return };
        // What was written to private pages would be lost.
        let Map::Shared(map) = &self.map else { return };
        let Some(part) = map.get(start..end) else { return };
        // SAFETY: the range is inside the map. It is one of a file, shared and never written through, so that this only
        // takes pages out of the table: who touches them later, slices of them that are lent included, finds the file's
        // bytes again. It is a hint, whose failure costs memory alone.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, part.len()) };
    }

    fn kind(&self) -> &'static str {
        "mmap"
    }

    fn pace(&self) -> Pace {
        system::pace(self.remote)
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.was.clone())
    }

    fn identity_now(&self) -> io::Result<Option<Identity>> {
        let now = match &self.file {
            Ok(file) => Identity::now(file),
            Err(path) => platform::open_to_read(path, true).and_then(|file| Identity::now(&file)),
        };
        now.map(Some)
    }
}
