//! A file read past the page cache, on Linux.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use memmap2::MmapMut;

use super::system;
use crate::source::past_the_end;
use crate::{ByteSource, Identity, Pace, platform};

/// Bytes that are read at once into a buffer of ours, where those of the caller do not lie as the disk wants it: a huge
/// page, which goes to the disk as one run of memory, where small pages go as 512 (docs/performance.md).
const BOUNCE: u64 = 2 << 20;
/// Reads under way at once: nothing reads ahead of these. Measured on the virtual disk of docs/performance.md, 1.2 GB, medians of
/// 5: 1.04 GB/s with 2 threads of 2 MiB, 1.18 with 8, 1.43 with 16 of 1 MiB; io_uring of 16 and of 64 times 1 MiB 1.13 and 1.35, of
/// 32 times 2 MiB 1.33. Threads do as well, and are there.
const DEPTH: usize = 16;
/// What offsets and addresses are multiples of, if the system does not say more.
const ALIGN: u64 = 4096;
/// More than any disk wants.
const COARSEST: u64 = 1 << 16;

/// A file read with `pread` and `O_DIRECT`: at whole blocks, into memory that begins at one.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    was: Identity,
    remote: bool,
    /// A power of two, at most [`COARSEST`].
    align: u64,
    /// Buffers that nobody uses now: at most as many as threads have read at once.
    free: Mutex<Vec<Buffer>>,
}

impl Direct {
    /// Reads `file`, which `was` that when it was opened; gives it back if its file system does not take part.
    pub(super) fn new(file: File, was: Identity, remote: bool) -> Result<Direct, File> {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        let Some(align) = alignment(&file) else { return Err(file) };
        let Ok(flags) = fcntl_getfl(&file) else { return Err(file) };
        if fcntl_setfl(&file, flags | OFlags::DIRECT).is_err() {
            return Err(file);
        }
        let source = Direct { file, was, remote, align, free: Mutex::default() };
        // Some take the flag and refuse the reads.
        match source.read_at(0, &mut [0]) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                // What was set can be set back; else reading says what is wrong.
                let _ = fcntl_setfl(&source.file, flags);
                Err(source.file)
            }
            _ => Ok(source),
        }
    }

    /// Calls `read` until nothing interrupts it: how many bytes there are.
    fn once(
        &self,
        offset: u64,
        len: usize,
        mut read: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match read() {
                Ok(0) => return Err(past_the_end(offset, len, self.was.len())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Reads the first bytes of `buf` through `buffer`; returns their number.
    fn bounce(&self, offset: u64, buf: &mut [u8], buffer: &mut Buffer) -> io::Result<usize> {
        let within = offset % self.align;
        let part = buffer.room((within + buf.len() as u64).next_multiple_of(self.align), self.align)?;
        let read = self.once(offset, buf.len(), || platform::read_at(&self.file, part, offset - within))?;
        let found = part.get(size(within)?..read).filter(|found| !found.is_empty());
        let found = found.ok_or_else(|| past_the_end(offset, buf.len(), self.was.len()))?;
        Ok(copy(found, buf))
    }

    /// Reads the first bytes of `buf`, which lies to whole blocks as `offset` does: those blocks to where they belong, and
    /// the rest before and after through `buffer`, all in one read. Returns the number of bytes.
    fn straight(&self, offset: u64, buf: &mut [u8], buffer: &mut Buffer) -> io::Result<usize> {
        let (len, within, align) = (buf.len(), size(offset % self.align)?, size(self.align)?);
        let before = (align - within) % align;
        let (head, rest) = buf.split_at_mut_checked(before).unwrap_or_default();
        let (blocks, tail) = rest.split_at_mut(rest.len() - rest.len() % align);
        let (first, last) = buffer.ends(self.align)?;
        let (middle, wanted) = (blocks.len(), [!head.is_empty(), true, !tail.is_empty()]);
        let read = self.once(offset, len, || {
            let parts = [&mut *first, &mut *blocks, &mut *last].into_iter().zip(wanted);
            let mut parts: Vec<_> =
                parts.filter(|(_, wanted)| *wanted).map(|(p, _)| IoSliceMut::new(p)).collect();
            platform::read_vectored_at(&self.file, &mut parts, offset - within as u64)
        })?;
        let read = read.checked_sub(within).filter(|read| *read > 0);
        let read = read.ok_or_else(|| past_the_end(offset, len, self.was.len()))?;
        copy(first.get(within..).unwrap_or_default(), head);
        let behind = read.saturating_sub(before + middle);
        copy(last.get(..behind.min(align)).unwrap_or_default(), tail);
        Ok(read.min(len))
    }
}

/// Copies what fits; gives how many bytes.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let n = from.len().min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..n), from.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}

/// Memory that begins where a huge page does: one of these, and after it two blocks in small pages.
#[derive(Debug)]
struct Buffer {
    map: MmapMut,
    /// In the map.
    start: usize,
}

impl Buffer {
    /// Memory that is given page by page as it is touched: few bytes never touch the huge one.
    fn new() -> io::Result<Buffer> {
        let huge = size(BOUNCE)?;
        let map = MmapMut::map_anon(size(2 * BOUNCE + 2 * COARSEST)?)?;
        let start = map.as_ptr().align_offset(huge);
        // A hint: a system without huge pages refuses, and reads all the same.
        let _ = map.advise_range(memmap2::Advice::HugePage, start, huge);
        Ok(Buffer { map, start })
    }

    fn part(&mut self, range: Range<u64>) -> io::Result<&mut [u8]> {
        let range = self.start + size(range.start)?..self.start + size(range.end)?;
        self.map.get_mut(range).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Returns `bytes` bytes, or the most that are read at once.
    fn room(&mut self, bytes: u64, align: u64) -> io::Result<&mut [u8]> {
        let few = bytes <= 2 * align;
        self.part(if few { BOUNCE..BOUNCE + bytes } else { 0..bytes.min(BOUNCE + align) })
    }

    /// Two blocks.
    fn ends(&mut self, align: u64) -> io::Result<(&mut [u8], &mut [u8])> {
        let both = self.part(BOUNCE..BOUNCE + 2 * align)?;
        Ok(both.split_at_mut(both.len() / 2))
    }
}

fn size(n: u64) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// What offsets and addresses are multiples of; `None` if the file system says that it does not take part.
fn alignment(file: &File) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let said = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let said = said.filter(|s| s.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let align = said.map_or(ALIGN, |s| u64::from(s.stx_dio_mem_align.max(s.stx_dio_offset_align)));
    (align.is_power_of_two() && align <= COARSEST).then_some(align)
}

impl ByteSource for Direct {
    fn len(&self) -> u64 {
        self.was.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.was.len()) {
            return Err(past_the_end(offset, buf.len(), self.was.len()));
        }
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = free().pop();
        let mut buffer = taken.map_or_else(Buffer::new, Ok)?;
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            // Where whole blocks are, and there is one.
            let alike = (rest.as_ptr().addr() as u64).wrapping_sub(at).is_multiple_of(self.align);
            let whole = at.next_multiple_of(self.align) + self.align <= at + rest.len() as u64;
            let read = if alike && whole { Direct::straight } else { Direct::bounce };
            done += read(self, at, rest, &mut buffer)?;
        }
        free().push(buffer);
        Ok(())
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "direct"
    }

    fn pace(&self) -> Pace {
        let beside = BOUNCE + 2 * self.align;
        Pace { beside, depth: DEPTH, block: self.align, ..system::pace(self.remote) }
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.was.clone())
    }

    fn identity_now(&self) -> io::Result<Option<Identity>> {
        Identity::now(&self.file).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the offset, the length and where the caller's bytes lie.
    #[test]
    fn any_range_is_read() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory on a disk");
        let content: Vec<u8> = (0..3 * BOUNCE + 777).map(|i| ((i * i) >> 9).to_le_bytes()[0]).collect();
        let path = dir.path().join("file");
        std::fs::write(&path, &content).expect("written");
        let file = File::open(&path).expect("there");
        let was = Identity::now(&file).expect("there");
        let Ok(source) = Direct::new(file, was, false) else {
            // A file system without it: `Io::Direct` is `Io::Pread` there.
            return;
        };
        let mut memory = vec![0u8; content.len() + 8192];
        let base = 4096 - memory.as_ptr().addr() % 4096;
        let block = usize::try_from(source.pace().block).expect("small");
        let bounce = usize::try_from(BOUNCE).expect("small");
        for (offset, len) in [
            (0, 1),
            (0, content.len()),
            (1, content.len() - 1),
            (4096, 8192),
            (4095, 2),
            (512, bounce + 1),
            (content.len() - 1, 1),
            (content.len() - 778, 778),
            (7, 0),
            (block - 1, block + 2),
            (block - 1, 2 * block),
            (3 * block + 5, 2 * block - 10),
            (3 * block + 5, block - 5),
            (block + 8, 3 * bounce / 2),
            (5, content.len() - 5),
        ] {
            // The last: as the blocks lie.
            for shift in [0, 1, 512, offset % block] {
                memory.fill(0xa5);
                let buf = &mut memory[base + shift..][..len];
                source.read_at(offset as u64, buf).expect("read");
                assert!(buf == &content[offset..][..len], "{len} bytes at {offset}");
                assert_eq!((memory[base + shift + len], memory[base + shift - 1]), (0xa5, 0xa5));
            }
        }
        let past = source.read_at(content.len() as u64, &mut [0]).expect_err("past the end");
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        // The file shrinks.
        File::options().write(true).open(&path).and_then(|f| f.set_len(5000)).expect("shortened");
        let mut buf = vec![0; 2000];
        let lost = source.read_at(4000, &mut buf).expect_err("lost");
        assert_eq!(lost.kind(), io::ErrorKind::UnexpectedEof);
    }
}
