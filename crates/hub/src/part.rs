//! A file that is being downloaded: its bytes so far, and a journal of the pieces that are complete.
//!
//! Both lie beside the blob that they become: `ETAG.weighbridge.incomplete` and `ETAG.weighbridge.pieces`. huggingface_hub takes
//! neither for a blob, and writes to files of other names. A piece is in the journal once all its bytes were written, so a
//! process that is killed loses at most the pieces that it was reading.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use storage::platform;

use crate::Error;

/// The bytes of a piece, which is read in one request.
pub(crate) const PIECE: u64 = 8 << 20;

/// A file that is being downloaded.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    journal: PathBuf,
    file: File,
    size: u64,
    done: Mutex<(BTreeSet<u64>, File)>,
}

impl Part {
    /// The part of `blob`, with what an earlier process has left of the same size.
    pub(crate) fn open(blob: &Path, size: u64) -> Result<Part, Error> {
        let (path, journal) = Part::paths(blob);
        let done =
            pieces(&journal, size).filter(|_| fs::metadata(&path).is_ok_and(|about| about.len() == size));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(done.is_none());
        let file = options.open(&path).map_err(Error::io(&path, "open"))?;
        file.set_len(size).map_err(Error::io(&path, "make room in"))?;
        let done = match done {
            Some(done) => done,
            None => {
                fs::write(&journal, heading(size)).map_err(Error::io(&journal, "write"))?;
                BTreeSet::new()
            }
        };
        let mut kept =
            OpenOptions::new().read(true).append(true).open(&journal).map_err(Error::io(&journal, "open"))?;
        if !fs::read(&journal).is_ok_and(|text| text.ends_with(b"\n")) {
            // The number of a piece that was cut off must not be read as another.
            kept.write_all(b"?\n").map_err(Error::io(&journal, "write"))?;
        }
        Ok(Part { path, journal, file, size, done: Mutex::new((done, kept)) })
    }

    /// The bytes of `blob` that an earlier process has left.
    pub(crate) fn left(blob: &Path, size: u64) -> u64 {
        let (path, journal) = Part::paths(blob);
        let done =
            pieces(&journal, size).filter(|_| fs::metadata(&path).is_ok_and(|about| about.len() == size));
        done.into_iter().flatten().map(|piece| bytes(piece, size)).map(|range| range.end - range.start).sum()
    }

    fn paths(blob: &Path) -> (PathBuf, PathBuf) {
        let name = blob.file_name().unwrap_or_default().to_string_lossy();
        let beside = |what| blob.with_file_name(format!("{name}.weighbridge.{what}"));
        (beside("incomplete"), beside("pieces"))
    }

    /// Its size when it is complete.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where its bytes are.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of pieces that are complete.
    pub(crate) fn complete(&self) -> u64 {
        self.lock().0.iter().map(|piece| bytes(*piece, self.size)).map(|range| range.end - range.start).sum()
    }

    /// The pieces that are not, each with its bytes.
    pub(crate) fn missing(&self) -> Vec<(u64, Range<u64>)> {
        let done = self.lock();
        let all = 0..self.size.div_ceil(PIECE);
        all.filter(|piece| !done.0.contains(piece)).map(|piece| (piece, bytes(piece, self.size))).collect()
    }

    /// Writes `bytes` from byte `at` on.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        platform::write_all_at(&self.file, bytes, at).map_err(Error::io(&self.path, "write"))
    }

    /// Notes that all bytes of a piece were written.
    pub(crate) fn finish(&self, piece: u64) -> Result<(), Error> {
        let mut done = self.lock();
        done.1.write_all(format!("{piece}\n").as_bytes()).map_err(Error::io(&self.journal, "write"))?;
        done.0.insert(piece);
        Ok(())
    }

    /// Makes the bytes durable, and the file the blob.
    pub(crate) fn become_blob(self, blob: &Path) -> Result<(), Error> {
        self.file.sync_all().map_err(Error::io(&self.path, "write"))?;
        fs::rename(&self.path, blob).map_err(Error::io(blob, "write"))?;
        fs::remove_file(&self.journal).map_err(Error::io(&self.journal, "remove"))
    }

    /// Removes both files.
    pub(crate) fn discard(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::io(&self.path, "remove"))?;
        fs::remove_file(&self.journal).map_err(Error::io(&self.journal, "remove"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (BTreeSet<u64>, File)> {
        self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The first line of the journal: pieces of another size are other pieces.
fn heading(size: u64) -> String {
    format!("weighbridge pieces 1: {size} bytes in pieces of {PIECE}\n")
}

/// The bytes of a piece.
fn bytes(piece: u64, size: u64) -> Range<u64> {
    let start = piece.saturating_mul(PIECE).min(size);
    start..start.saturating_add(PIECE).min(size)
}

/// The pieces that a journal has for a file of this size. The last line counts only if it has its end.
fn pieces(journal: &Path, size: u64) -> Option<BTreeSet<u64>> {
    let text = fs::read_to_string(journal).ok()?;
    let lines = text.strip_prefix(&heading(size))?;
    let whole = lines.rfind('\n').map_or("", |end| lines.get(..end).unwrap_or_default());
    let count = size.div_ceil(PIECE);
    Some(whole.lines().filter_map(|line| line.parse().ok()).filter(|piece| *piece < count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_finished_is_not_asked_for_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let blob = dir.path().join("etag");
        let size = 2 * PIECE + 5;
        let missing = |part: &Part| part.missing().into_iter().map(|(piece, _)| piece).collect::<Vec<_>>();
        let part = Part::open(&blob, size).expect("a part");
        assert_eq!(missing(&part), [0, 1, 2]);
        part.write(2 * PIECE, b"12345").and_then(|()| part.finish(2)).expect("written");
        part.write(0, b"not all of it").expect("written");
        assert_eq!(part.complete(), 5);
        drop(part);
        assert_eq!((Part::left(&blob, size), Part::left(&blob, size + 1)), (5, 0));
        let part = Part::open(&blob, size).expect("a part");
        assert_eq!(missing(&part), [0, 1]);
        drop(part);
        // A line that was cut off does not count.
        let (_, journal) = Part::paths(&blob);
        OpenOptions::new().append(true).open(&journal).and_then(|mut f| f.write_all(b"1")).expect("written");
        let part = Part::open(&blob, size).expect("a part");
        assert_eq!(missing(&part), [0, 1]);
        part.finish(0).expect("written");
        assert_eq!(missing(&Part::open(&blob, size).expect("a part")), [1]);
        // Another size is another file.
        assert_eq!(missing(&Part::open(&blob, size + 1).expect("a part")), [0, 1, 2]);
        Part::open(&blob, 3).expect("a part").become_blob(&blob).expect("a blob");
        assert_eq!(fs::read(&blob).expect("read"), [0; 3]);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
        Part::open(&blob, 0).expect("a part").discard().expect("removed");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
