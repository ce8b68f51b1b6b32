//! Tensors to files, one after the other, and never more lost than was written since the last time all was durable.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use storage::platform::{read_exact_at, sync_range, write_all_at};

use super::journal::Done;
use super::place::{DestinationKind, OutputPlace};
use super::zstd::{Packed, Zstd};
use super::{Draft, OutFile, Outgoing, Spot, WriteOptions};
use crate::error::Error;

/// Files that are open at one time.
const OPEN: usize = 64;

/// Bytes that are read at once to see whether a tensor is on the disk.
const READ: u64 = 4 << 20;

/// A checkpoint that is being written. Dropped before [`FileWriter::finish`], it leaves what is worth continuing in a
/// hidden directory beside the path, and nothing else.
pub(super) struct FileWriter {
    pub(super) place: OutputPlace,
    tensors: Vec<Outgoing>,
    spots: Vec<Vec<Spot>>,
    files: Vec<OutFile>,
    sync_every: u64,
    compared_later: bool,
    /// The tensor that is next.
    next: usize,
    /// Tensors that an earlier process says are on the disk.
    claimed: usize,
    /// Bytes written since all was durable.
    ahead: Vec<Done>,
    bytes_ahead: u64,
    /// The file that was written to last.
    current: Option<(usize, Arc<File>)>,
    /// Others that were written to since all was durable.
    others: Vec<Arc<File>>,
    /// Files whose head has been written.
    begun: Vec<bool>,
    failed: bool,
}

impl fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWriter").field("kept", &self.kept()).finish_non_exhaustive()
    }
}

impl FileWriter {
    pub(super) fn new(draft: Draft, path: &Path, options: &WriteOptions) -> Result<FileWriter, Error> {
        let fingerprint = draft.fingerprint(&options.identity);
        let Draft { tensors, kind, files, spots, .. } = draft;
        let place = OutputPlace::open(path, kind, &files, tensors.len(), &fingerprint, options)?;
        let claimed = place.journal.done.len();
        let begun = vec![false; files.len()];
        let sync_every = options.sync_every;
        Ok(FileWriter {
            place,
            tensors,
            spots,
            files,
            sync_every,
            compared_later: options.compared_later,
            next: 0,
            claimed,
            ahead: vec![],
            bytes_ahead: 0,
            current: None,
            others: vec![],
            begun,
            failed: false,
        })
    }

    /// As [`super::Writer::again`].
    pub(super) fn again(&mut self) -> Result<Option<Value>, Error> {
        if self.next >= self.claimed {
            return Ok(None);
        }
        let Some(done) = self.place.journal.done.get(self.next).cloned() else { return Ok(None) };
        if self.place.journal.complete.is_some() {
            self.next += 1;
            return Ok(Some(done.note));
        }
        if !self.compared_later && !self.is_there(&done)? {
            self.forget()?;
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(done.note))
    }

    /// Writes anew what an earlier process has written from the next tensor on.
    fn forget(&mut self) -> Result<(), Error> {
        self.claimed = self.next;
        self.place.journal.restart(self.next)
    }

    /// True if the next tensor is on the disk as the journal says.
    fn is_there(&mut self, done: &Done) -> Result<bool, Error> {
        let (Some(tensor), Some(spots)) = (self.tensors.get(self.next), self.spots.get(self.next).cloned())
        else {
            return Ok(false);
        };
        let bytes: Vec<u64> = tensor.plane_lengths().collect();
        // A frame wants the planes themselves.
        let framed = |spot: &Spot| self.files.get(spot.file).is_some_and(|file| file.frame.is_some());
        let whole = spots.iter().any(framed);
        let longest = bytes.iter().copied().max().unwrap_or(0);
        let step = if whole { longest } else { longest.min(READ) };
        let (mut hash, mut planes) = (blake3::Hasher::new(), vec![]);
        let mut buffer = vec![0; usize::try_from(step).unwrap_or(0)];
        for (bytes, spot) in bytes.iter().zip(&spots) {
            if let Some(packed) = self.packed(spot.file) {
                let head = self.files.get(spot.file).map_or(&[][..], |file| &file.head);
                if !packed.holds(head, *bytes, &mut hash)? {
                    return Ok(false);
                }
                continue;
            }
            let file = self.file(spot.file)?;
            let mut read = 0;
            while read < *bytes {
                let part = usize::try_from(step.min(bytes - read)).unwrap_or(0);
                let part = buffer.get_mut(..part).unwrap_or_default();
                match read_exact_at(&file, part, spot.at.saturating_add(read)) {
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                    other => other.map_err(|e| Error::io(self.place.path(), "read", e))?,
                }
                hash.update(part);
                read += part.len() as u64;
            }
            if whole {
                planes.push(buffer.get(..usize::try_from(*bytes).unwrap_or(0)).unwrap_or_default().to_vec());
            }
        }
        if hash.finalize().to_hex().as_str() != done.digest {
            return Ok(false);
        }
        let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
        self.lead(&spots, &planes)?;
        Ok(true)
    }

    /// As [`super::Writer::tensor_with`].
    pub(super) fn tensor_with(&mut self, planes: &[&[u8]], note: Value) -> Result<(), Error> {
        let Some(tensor) = self.tensors.get(self.next) else { panic!("all tensors are written") };
        tensor.check(planes);
        if self.place.journal.complete.is_some() {
            // It is there, and perhaps has its name already.
            self.next += 1;
            return Ok(());
        }
        if self.next < self.claimed {
            self.forget()?;
        }
        let written = self.put(planes).and_then(|()| {
            self.ahead.push(Done { digest: digest(planes), note });
            self.next += 1;
            self.bytes_ahead += planes.iter().map(|p| p.len() as u64).sum::<u64>();
            if self.bytes_ahead >= self.sync_every { self.sync() } else { Ok(()) }
        });
        self.failed |= written.is_err();
        written.map_err(|error| match self.kept() {
            Some(kept) => error.with_hint(format!(
                "the tensors before are kept in `{}`: the same again continues there, once the cause is removed",
                kept.display()
            )),
            None => error,
        })
    }

    /// The path that opens the result when it is finished; of several files, the first.
    pub(super) fn destination(&self) -> &Path {
        self.place.first()
    }

    /// The directory that is left if the writer is dropped now, and holds what can be continued.
    pub(super) fn kept(&self) -> Option<&Path> {
        let kept = !self.place.journal.done.is_empty() || self.place.journal.complete.is_some();
        kept.then(|| self.place.work())
    }

    fn put(&mut self, planes: &[&[u8]]) -> Result<(), Error> {
        let Some(spots) = self.spots.get(self.next).cloned() else { return Ok(()) };
        self.lead(&spots, planes)?;
        for (plane, spot) in planes.iter().zip(&spots) {
            if self.pack(spot.file, plane)? {
                continue;
            }
            let file = self.file(spot.file)?;
            write_all_at(&file, plane, spot.at).map_err(|e| Error::io(self.place.path(), "write", e))?;
        }
        Ok(())
    }

    /// Writes what its file has right before the next tensor.
    fn lead(&mut self, spots: &[Spot], planes: &[&[u8]]) -> Result<(), Error> {
        let (index, Some(spot)) = (self.next, spots.first()) else { return Ok(()) };
        let lead =
            self.files.get_mut(spot.file).and_then(|f| f.frame.as_mut()).map(|f| f.lead(index, planes));
        let Some(lead) = lead else { return Ok(()) };
        let at = spot.at.saturating_sub(lead.len() as u64);
        let file = self.file(spot.file)?;
        let written = write_all_at(&file, &lead, at);
        written.map_err(|e| Error::io(self.place.path(), "write", e))
    }

    /// File `index`, with its head.
    fn file(&mut self, index: usize) -> Result<Arc<File>, Error> {
        if let Some((_, file)) = self.current.as_ref().filter(|(i, _)| *i == index) {
            return Ok(Arc::clone(file));
        }
        self.others.extend(self.current.take().map(|(_, file)| file));
        if self.others.len() >= OPEN {
            self.sync_files()?;
        }
        let file = Arc::new(self.place.file(index)?);
        if let (Some(begun), Some(out)) = (self.begun.get_mut(index), self.files.get(index))
            && !std::mem::replace(begun, true)
        {
            let between = out.between.iter().map(|(at, bytes)| (*at, bytes));
            let mut known = std::iter::once((0, &out.head)).chain(between);
            let written = known.try_for_each(|(at, bytes)| write_all_at(&file, bytes, at));
            written.map_err(|e| Error::io(self.place.path(), "write", e))?;
        }
        self.current = Some((index, Arc::clone(&file)));
        Ok(file)
    }

    /// File `index`, compressed, if it is there so.
    fn packed(&self, index: usize) -> Option<Packed> {
        self.files.get(index).filter(|file| file.zstd)?;
        let path = self.place.path_of(index);
        // With both, a process was ended between them.
        let packed = Packed::at(path);
        (packed.is_there() && !path.exists()).then_some(packed)
    }

    /// Writes file `index`, which holds `plane` after its head, if it is to be compressed and becomes smaller.
    fn pack(&mut self, index: usize, plane: &[u8]) -> Result<bool, Error> {
        let Some(OutFile { head, len, .. }) = self.files.get(index).filter(|file| file.zstd) else {
            return Ok(false);
        };
        let path = self.place.path_of(index);
        let Some(file) = Packed::at(path).write(&[head, plane], *len)? else { return Ok(false) };
        Packed::remove_plain(path)?;
        self.others.push(Arc::new(file));
        if self.others.len() >= OPEN {
            self.sync_files()?;
        }
        Ok(true)
    }

    fn sync_files(&mut self) -> Result<(), Error> {
        let files = self.others.drain(..);
        let failed = |e| Error::io(self.place.path(), "write", e);
        files.into_iter().try_for_each(|file| file.sync_data()).map_err(failed)?;
        match &self.current {
            Some((_, file)) => file.sync_data().map_err(failed),
            None => Ok(()),
        }
    }

    /// Makes all that was written durable, and writes that down.
    fn sync(&mut self) -> Result<(), Error> {
        if self.compared_later {
            self.place.journal.done.append(&mut self.ahead);
            self.bytes_ahead = 0;
            return self.place.journal.note();
        }
        self.sync_files()?;
        self.place.sync_names()?;
        self.place.journal.done.append(&mut self.ahead);
        self.bytes_ahead = 0;
        self.place.journal.append()
    }

    /// Makes everything durable and moves it to its place. Returns the length of the files with tensors, in bytes, and the arrays
    /// that are compressed.
    pub(super) fn finish(&mut self) -> Result<(u64, Zstd), Error> {
        assert_eq!(self.next, self.tensors.len(), "tensors written");
        if self.place.journal.complete.is_none() {
            let ended = (0..self.files.len()).try_for_each(|index| self.end(index));
            self.failed |= ended.is_err();
            ended?;
            self.place.journal.done.append(&mut self.ahead);
            self.place.journal.append()?;
        }
        // Whatever happens now, there is no more to be written.
        self.failed = true;
        self.place.commit()?;
        let mut zstd = Zstd::default();
        for file in self.files.iter_mut().filter(|file| file.zstd) {
            // The path is that of a directory.
            if let Some(len) = Packed::at(&self.place.path().join(&file.name)).len() {
                zstd.arrays += 1;
                zstd.saved += file.len.saturating_sub(len);
                file.len = len;
            }
        }
        let mut holds = vec![self.tensors.is_empty(); self.files.len()];
        for spot in self.spots.iter().flatten() {
            holds.iter_mut().skip(spot.file).take(1).for_each(|holds| *holds = true);
        }
        let bytes = self.files.iter().zip(holds).filter(|(_, holds)| *holds).map(|(file, _)| file.len).sum();
        Ok((bytes, zstd))
    }

    /// Removes all that was written, by this process or one before it: the tensors are not what they should be.
    pub(super) fn abandon(mut self) {
        self.failed = true;
        self.place.abandon();
    }

    /// Writes what is still missing of file `index`, and makes it durable.
    fn end(&mut self, index: usize) -> Result<(), Error> {
        if let Some(packed) = self.packed(index) {
            return packed.sync();
        }
        let Some(file) = self.files.get(index) else { return Ok(()) };
        let (len, tail) = (file.len, file.frame.as_ref().map(|f| f.tail()).unwrap_or_default());
        let file = self.file(index)?;
        let written = write_all_at(&file, &tail, len.saturating_sub(tail.len() as u64))
            .and_then(|()| file.set_len(len))
            .and_then(
                |()| if self.compared_later { sync_in_steps(&file, len, self.sync_every) } else { Ok(()) },
            )
            .and_then(|()| file.sync_all());
        written.map_err(|e| Error::io(self.place.path(), "write", e))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        // Makes a later continuation possible. An error has no one to go to.
        if !self.failed && !self.place.journal.done.is_empty() && self.place.journal.complete.is_none() {
            let _ = self.sync();
        }
    }
}

impl Draft {
    /// The identity of this result, in hexadecimal digits.
    pub(super) fn fingerprint(&self, identity: &[u8]) -> String {
        let mut hash = blake3::Hasher::new();
        let mut put = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        put(env!("CARGO_PKG_VERSION").as_bytes());
        put(identity);
        put(match self.kind {
            DestinationKind::File => b"file",
            DestinationKind::Parts => b"parts",
            DestinationKind::Folder => b"folder",
        });
        for OutFile { name, head, between, len, zstd, .. } in &self.files {
            put(name.as_bytes());
            if *zstd {
                put(b"zstd");
            }
            put(head);
            for (at, bytes) in between {
                put(&at.to_le_bytes());
                put(bytes);
            }
            put(&len.to_le_bytes());
        }
        for (Outgoing { name, shape, scheme }, spots) in self.tensors.iter().zip(&self.spots) {
            put(name.as_bytes());
            shape.iter().for_each(|n| put(&n.to_le_bytes()));
            put(scheme.name.as_bytes());
            for spot in spots {
                put(&(spot.file as u64).to_le_bytes());
                put(&spot.at.to_le_bytes());
            }
        }
        hash.finalize().to_hex().to_string()
    }
}

fn sync_in_steps(file: &File, len: u64, step: u64) -> io::Result<()> {
    let mut starts = (0..len).step_by(usize::try_from(step).unwrap_or(usize::MAX).max(1));
    starts.try_for_each(|start| sync_range(file, start, step))
}

fn digest(planes: &[&[u8]]) -> String {
    let mut hash = blake3::Hasher::new();
    for plane in planes {
        hash.update(plane);
    }
    hash.finalize().to_hex().to_string()
}
