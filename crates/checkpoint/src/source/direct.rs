//! A file read past the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use super::{ByteSource, Pace, past_the_end, system};

/// Bytes that are read at once into a buffer of ours, where those of the caller do not lie as the disk wants it.
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
pub(crate) struct Direct {
    file: File,
    len: u64,
    remote: bool,
    /// A power of two, at most [`COARSEST`].
    align: u64,
    /// Buffers that nobody uses now: at most as many as threads have read at once.
    free: Mutex<Vec<Vec<u8>>>,
}

impl Direct {
    /// Reads `file`, of `len` bytes; gives it back if its file system does not take part.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(file: File, len: u64, remote: bool) -> Result<Direct, File> {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        let Some(align) = alignment(&file) else { return Err(file) };
        let Ok(flags) = fcntl_getfl(&file) else { return Err(file) };
        if fcntl_setfl(&file, flags | OFlags::DIRECT).is_err() {
            return Err(file);
        }
        let source = Direct { file, len, remote, align, free: Mutex::default() };
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

    /// Gives `file` back: this is done on Linux alone.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(file: File, _len: u64, _remote: bool) -> Result<Direct, File> {
        Err(file)
    }

    /// Reads into `buf`, whose start and length are aligned, from an aligned place on: as much as there is.
    fn blocks(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, offset) {
                Ok(0) => return Err(past_the_end(offset, buf.len(), self.len)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Reads the first bytes of `buf` by way of a buffer of ours; gives how many.
    fn bounce(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let within = offset % self.align;
        let bytes = (within + buf.len() as u64).next_multiple_of(self.align).min(BOUNCE);
        let mut buffer = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.resize(size(BOUNCE + self.align)?, 0);
        let start = misaligned(buffer.as_ptr(), self.align).map_or(Ok(0), |by| size(self.align - by))?;
        let part = buffer.get_mut(start..start + size(bytes)?).unwrap_or_default();
        let done = self.blocks(offset - within, part).and_then(|read| {
            let found = part.get(size(within)?..read).filter(|found| !found.is_empty());
            let found = found.ok_or_else(|| past_the_end(offset, buf.len(), self.len))?;
            let n = found.len().min(buf.len());
            let (to, from) = (buf.get_mut(..n), found.get(..n));
            if let (Some(to), Some(from)) = (to, from) {
                to.copy_from_slice(from);
            }
            Ok(n)
        });
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        done
    }
}

fn size(n: u64) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// By how many bytes `start` lies past a multiple of `align`, if it does.
fn misaligned(start: *const u8, align: u64) -> Option<u64> {
    Some(start.addr() as u64 % align).filter(|by| *by > 0)
}

/// What offsets and addresses are multiples of; `None` if the file system says that it does not take part.
#[cfg(target_os = "linux")]
fn alignment(file: &File) -> Option<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let said = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let said = said.filter(|s| s.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let align = said.map_or(ALIGN, |s| u64::from(s.stx_dio_mem_align.max(s.stx_dio_offset_align)));
    (align.is_power_of_two() && align <= COARSEST).then_some(align)
}

impl ByteSource for Direct {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_the_end(offset, buf.len(), self.len));
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            let whole = rest.len() - rest.len() % usize::try_from(self.align).unwrap_or(usize::MAX);
            let lies_right = at.is_multiple_of(self.align) && misaligned(rest.as_ptr(), self.align).is_none();
            done += match rest.get_mut(..whole) {
                Some(blocks) if lies_right && whole > 0 => self.blocks(at, blocks)?,
                _ => self.bounce(at, rest)?,
            };
        }
        Ok(())
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "direct"
    }

    fn pace(&self) -> Pace {
        Pace { beside: BOUNCE + self.align, depth: DEPTH, ..system::pace(self.remote) }
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
        let Ok(source) = Direct::new(file, content.len() as u64, false) else {
            // A file system without it: `Io::Direct` is `Io::Pread` there.
            return;
        };
        let mut memory = vec![0u8; content.len() + 8192];
        let base = 4096 - memory.as_ptr().addr() % 4096;
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
        ] {
            for shift in [0, 1, 512] {
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
