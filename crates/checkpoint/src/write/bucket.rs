//! Tensors to the files of a bucket, which are sent in parts.
//!
//! A file of a bucket cannot be written to at an offset, nor be longer tomorrow than today: it is sent in parts, and comes to
//! be when they are all there. So a part is kept in memory until its last byte is known, and then sent, several at a time.
//! Nothing has a name before everything has been sent; the file that readers begin with gets its name last.
//!
//! Beside the result `DIR/NAME` a file `.NAME.partial/journal` says what has been sent, so that another process, on another
//! machine too, continues. Buckets know no locks. The journal is only ever written over the version that this process wrote:
//! where two processes write one result, the later has it, and the earlier ends with an error.

mod journal;
mod names;
mod parts;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use serde_json::Value;
use storage::{Bucket, Location, Name, Over, PartLimits, Sending};

use super::place::DestinationKind;
use super::{Draft, OutFile, Outgoing, Spot, WriteOptions};
use crate::error::Error;
use crate::fault::Fault;
use crate::format::{hf, squish};
use journal::Journal;
use names::{below, family, is_taken, names, partial, refuse, source_at};
use parts::{Part, Parts};

/// The journal is written when this many times its own length has been sent since.
const PER_JOURNAL: u64 = 32;

/// A checkpoint that is being written to a bucket.
pub(super) struct BucketWriter {
    bucket: Arc<dyn Bucket>,
    /// The result in the bucket.
    name: Name,
    kind: DestinationKind,
    overwrite: bool,
    sync_every: u64,
    /// Bytes that may be on their way at once.
    under_way: u64,
    tensors: Vec<Outgoing>,
    spots: Vec<Vec<Spot>>,
    files: Vec<OutFile>,
    /// The name of each file.
    names: Vec<Name>,
    /// The parts of each file that has tensors.
    parts: Vec<Option<Parts>>,
    journal: Journal,
    /// The tensor that is next.
    next: usize,
    /// Bytes that were sent since the journal was written.
    ahead: u64,
    /// Parts on their way, the oldest first.
    sending: VecDeque<OnItsWay>,
    /// The result is complete, or what there was is gone.
    done: bool,
}

/// A part of a file on its way.
struct OnItsWay {
    file: usize,
    part: usize,
    bytes: u64,
    sending: Sending,
}

impl fmt::Debug for BucketWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketWriter").field("name", &self.location()).finish_non_exhaustive()
    }
}

impl BucketWriter {
    pub(super) fn new(
        draft: Draft,
        bucket: Arc<dyn Bucket>,
        name: &Name,
        options: &WriteOptions,
    ) -> Result<BucketWriter, Error> {
        let whole = bucket.location(name);
        if name.is_root() {
            return Err(Error::whole(whole, Fault::NoFileName));
        }
        if draft.files.iter().any(|file| file.zstd) {
            let why = "arrays are compressed with zstd in directories of this machine alone";
            return Err(Error::io(whole, "write", io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let limits = bucket.part_limits();
        let mut parts = all_parts(&draft, limits);
        let fingerprint = draft.fingerprint(&options.identity);
        let Draft { tensors, kind, files, spots, .. } = draft;
        let names = names(kind, name, &files)?;
        if let Some(taken) =
            source_at(&whole, names.iter().map(|name| bucket.location(name)), &options.sources)
        {
            return Err(Error::whole(taken, Fault::Source));
        }
        let partial = partial(name)?;
        let counts: Vec<usize> = parts.iter().map(|parts| parts.as_ref().map_or(0, Parts::count)).collect();
        let mut journal = Journal::open(&*bucket, &partial, &fingerprint, &counts, tensors.len())?;
        if journal.finishing.is_none() {
            refuse(&*bucket, name, kind, options.overwrite, &names)?;
        }
        // The later command has the place.
        journal.abort_others(&*bucket);
        for (file, (out, parts)) in files.iter().zip(&mut parts).enumerate() {
            // What depends on tensors that are not given again is not known again.
            if out.frame.is_some() && journal.finishing.is_none() {
                journal.restart(&*bucket, file);
            }
            if let (Some(parts), Some(Some(upload))) = (parts, journal.uploads.get_mut(file)) {
                parts.sent(&mut upload.tags);
            }
        }
        Ok(BucketWriter {
            bucket,
            name: name.clone(),
            kind,
            overwrite: options.overwrite,
            sync_every: options.sync_every,
            under_way: limits.under_way,
            tensors,
            spots,
            files,
            names,
            parts,
            journal,
            next: 0,
            ahead: 0,
            sending: VecDeque::new(),
            done: false,
        })
    }

    fn location(&self) -> Location {
        self.bucket.location(&self.name)
    }

    /// The URL that opens the result; of several files, that of the first.
    pub(super) fn destination(&self) -> Location {
        match (self.kind, self.names.first()) {
            (DestinationKind::File | DestinationKind::Parts, Some(first)) => self.bucket.location(first),
            _ => self.location(),
        }
    }

    /// Where the journal is, if another process can go on from it.
    pub(super) fn kept(&self) -> Option<Location> {
        let is_worth = self.journal.finishing.is_some()
            || self.journal.notes.iter().any(|(index, _)| self.is_sent(*index));
        (is_worth && self.journal.is_written()).then(|| self.bucket.location(&self.journal.name().parent()))
    }

    /// As [`super::Writer::again`].
    pub(super) fn again(&mut self) -> Option<Value> {
        if self.journal.finishing.is_none() && !self.is_sent(self.next) {
            return None;
        }
        let note = self.journal.notes.get(&self.next)?.clone();
        self.next += 1;
        Some(note)
    }

    /// Returns true if all parts with bytes of tensor `index` have been sent.
    fn is_sent(&self, index: usize) -> bool {
        let (Some(tensor), Some(spots)) = (self.tensors.get(index), self.spots.get(index)) else {
            return false;
        };
        tensor.plane_lengths().zip(spots).all(|(len, spot)| {
            let parts = self.parts.get(spot.file).and_then(Option::as_ref);
            parts.is_some_and(|parts| parts.has_sent(spot.at, len))
        })
    }

    /// As [`super::Writer::tensor_with`].
    pub(super) fn tensor_with(&mut self, planes: &[&[u8]], note: Value) -> Result<(), Error> {
        let Some(tensor) = self.tensors.get(self.next) else { panic!("all tensors are written") };
        tensor.check(planes);
        let written = if self.journal.finishing.is_some() { Ok(()) } else { self.put(planes, note) };
        self.next += 1;
        written.map_err(|error| self.kept_for(error))
    }

    fn put(&mut self, planes: &[&[u8]], note: Value) -> Result<(), Error> {
        let index = self.next;
        let spots = self.spots.get(index).cloned().unwrap_or_default();
        if let Some(Spot { file, at }) = spots.first().copied()
            && let Some(frame) = self.files.get_mut(file).and_then(|file| file.frame.as_mut())
        {
            let lead = frame.lead(index, planes);
            self.fill_up_to(file, at, &lead)?;
        }
        for (plane, spot) in planes.iter().zip(&spots) {
            self.fill(spot.file, spot.at, plane)?;
        }
        self.journal.notes.insert(index, note);
        if self.ahead >= self.sync_every.max(self.journal.len().saturating_mul(PER_JOURNAL)) {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Puts bytes into `file` that end at `end`, and zeros between them and the bytes before.
    fn fill_up_to(&mut self, file: usize, end: u64, bytes: &[u8]) -> Result<(), Error> {
        let from = self.parts.get(file).and_then(Option::as_ref).map_or(end, Parts::covered);
        let len = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut whole = vec![0; len.saturating_sub(bytes.len())];
        whole.extend(bytes);
        self.fill(file, from, &whole)
    }

    /// Puts bytes into the parts of `file`, from offset `at` on, and sends those that are full.
    fn fill(&mut self, file: usize, mut at: u64, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (Some(out), Some(Some(parts))) = (self.files.get(file), self.parts.get_mut(file)) else {
                return Ok(());
            };
            let (taken, full) = parts.put(out, at, bytes);
            at += taken as u64;
            bytes = bytes.get(taken..).unwrap_or_default();
            if let Some(part) = full {
                self.send(file, part)?;
            }
        }
        Ok(())
    }

    /// Sends a part, once there is room for it among those on their way.
    fn send(&mut self, file: usize, part: Part) -> Result<(), Error> {
        let bytes = part.bytes.len() as u64;
        while !self.sending.is_empty()
            && self.sending.iter().map(|on| on.bytes).sum::<u64>().saturating_add(bytes) > self.under_way
        {
            self.arrived()?;
        }
        let Some(name) = self.names.get(file).cloned() else { return Ok(()) };
        let upload = match self.journal.upload(file) {
            Some(upload) => upload.to_owned(),
            None => {
                let upload = self.bucket.begin(&name).map_err(Error::of_member)?;
                let parts = self.parts.get(file).and_then(Option::as_ref).map_or(0, Parts::count);
                self.journal.begun(file, &name, upload.clone(), parts);
                // The journal names the upload, so that another process finds it. A single part is not worth a request.
                if parts > 1 {
                    self.write_journal()?;
                }
                upload
            }
        };
        let sending = self.bucket.send(&name, &upload, part.index, part.bytes);
        self.sending.push_back(OnItsWay { file, part: part.index, bytes, sending });
        self.ahead += bytes;
        Ok(())
    }

    /// Waits for the oldest part.
    fn arrived(&mut self) -> Result<(), Error> {
        let Some(OnItsWay { file, part, sending, .. }) = self.sending.pop_front() else { return Ok(()) };
        let tag = sending().map_err(|error| {
            let forgotten = error.is_not_found();
            let error = Error::of_member(error);
            if !forgotten {
                return error;
            }
            let journal = self.bucket.location(self.journal.name());
            error.with_hint(format!(
                "the bucket has forgotten what was sent before: remove `{journal}`, and begin anew"
            ))
        })?;
        if let Some(Some(parts)) = self.parts.get_mut(file) {
            parts.arrived(part);
        }
        self.journal.arrived(file, part, tag);
        Ok(())
    }

    fn all_arrived(&mut self) -> Result<(), Error> {
        while !self.sending.is_empty() {
            self.arrived()?;
        }
        Ok(())
    }

    /// Writes down what has been sent.
    fn sync(&mut self) -> Result<(), Error> {
        self.all_arrived()?;
        self.write_journal()
    }

    fn write_journal(&mut self) -> Result<(), Error> {
        self.ahead = 0;
        self.journal.write(&*self.bucket)
    }

    fn kept_for(&self, error: Error) -> Error {
        match self.kept() {
            Some(kept) if error.hints().is_empty() => error.with_hint(format!(
                "the tensors before are kept, as `{kept}` says: the same again continues there, once the cause is removed"
            )),
            _ => error,
        }
    }

    /// Sends what is left, and gives all files their names. Returns the length of the files with tensors, in bytes.
    pub(super) fn finish(&mut self) -> Result<u64, Error> {
        assert_eq!(self.next, self.tensors.len(), "tensors written");
        let finished = self.send_rest().and_then(|()| self.commit());
        finished.map_err(|error| self.kept_for(error))?;
        Ok(self
            .files
            .iter()
            .zip(&self.parts)
            .filter(|(_, parts)| parts.is_some())
            .map(|(file, _)| file.len)
            .sum())
    }

    /// Sends the ends of the files, and parts in which there is no tensor.
    fn send_rest(&mut self) -> Result<(), Error> {
        if self.journal.finishing.is_some() {
            return Ok(());
        }
        for index in 0..self.files.len() {
            let Some(file) = self.files.get(index) else { continue };
            let (len, tail) = (file.len, file.frame.as_ref().map(|frame| frame.tail()));
            if let Some(tail) = tail {
                self.fill_up_to(index, len, &tail)?;
            }
            while let (Some(file), Some(Some(parts))) = (self.files.get(index), self.parts.get_mut(index))
                && let Some(part) = parts.rest(file)
            {
                self.send(index, part)?;
            }
        }
        self.all_arrived()
    }

    /// Gives all files their names.
    fn commit(&mut self) -> Result<(), Error> {
        if self.journal.finishing.is_none() {
            // The bucket may have changed since it was looked at.
            refuse(&*self.bucket, &self.name, self.kind, self.overwrite, &self.names)?;
            let was = self.names.iter().map(|name| self.version(name)).collect::<Result<_, Error>>()?;
            self.journal.finishing = Some(was);
            self.write_journal()?;
        }
        let was = self.journal.finishing.clone().unwrap_or_default();
        let order = self.order();
        if let (true, [_, .., first]) = (self.overwrite, &order[..]) {
            // Files of what was and of what will be must not be taken for one checkpoint: without the file that readers
            // begin with, neither is one.
            if let (Some(name), Some(Some(was))) = (self.names.get(*first), was.get(*first))
                && self.version(name)?.as_ref() == Some(was)
            {
                self.bucket.remove(name).map_err(Error::of_member)?;
            }
        }
        for index in order {
            self.place(index, was.get(index).and_then(Option::as_deref))?;
        }
        if self.overwrite {
            for name in self.stale()? {
                self.bucket.remove(&name).map_err(Error::of_member)?;
            }
        }
        self.done = true;
        Ok(())
    }

    fn version(&self, name: &Name) -> Result<Option<String>, Error> {
        Ok(self.bucket.version(name).map_err(Error::of_member)?.map(|version| version.tag))
    }

    /// Gives file `index` its name, under which the version `was` was.
    fn place(&self, index: usize, was: Option<&str>) -> Result<(), Error> {
        let (Some(name), Some(file)) = (self.names.get(index), self.files.get(index)) else { return Ok(()) };
        let exists = || {
            let what = "something has come to be there meanwhile";
            Error::whole(self.bucket.location(name), Fault::Exists { what })
        };
        if let Some((upload, tags)) = self.journal.sent(index) {
            let there = || self.bucket.version(name).map_err(Error::of_member);
            // An earlier process may have put it there; of another length it is another's.
            if !self.overwrite && there()?.is_some_and(|now| now.len != file.len) {
                return Err(exists());
            }
            return match self.bucket.complete(name, upload, &tags) {
                Err(error) if error.is_not_found() => match there()? {
                    Some(now) if now.len == file.len && Some(now.tag.as_str()) != was => Ok(()),
                    _ => Err(Error::of_member(error)),
                },
                other => other.map_err(Error::of_member),
            };
        }
        let over = if self.overwrite { Over::Anything } else { Over::Nothing };
        match self.bucket.put(name, file.head.clone(), over) {
            Err(error) if is_taken(&error) => {
                // The same bytes are those of an earlier process.
                let there = self.bucket.get(name, file.len).map_err(Error::of_member)?;
                if there.is_some_and(|(bytes, _)| bytes == file.head) {
                    return Ok(());
                }
                Err(exists())
            }
            other => other.map(drop).map_err(Error::of_member),
        }
    }

    /// The files in the order in which they get their names: the file that readers begin with comes last.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        let is_first = |index: usize| {
            let name = self.files.get(index).map_or("", |file| &file.name);
            match self.kind {
                DestinationKind::File | DestinationKind::Parts => index == 0,
                DestinationKind::Folder => [hf::CONFIG, squish::MANIFEST].contains(&name),
            }
        };
        let has_tensors = |index: usize| self.parts.get(index).is_some_and(Option::is_some);
        order.sort_by_key(|index| (is_first(*index), !has_tensors(*index)));
        order
    }

    /// Files of the checkpoint that is replaced, under names that the new one does not have. Others stay.
    fn stale(&self) -> Result<Vec<Name>, Error> {
        let own: BTreeSet<&Name> = self.names.iter().collect();
        let there = match self.kind {
            DestinationKind::File => vec![],
            DestinationKind::Parts => family(&*self.bucket, &self.name)?,
            DestinationKind::Folder => below(&*self.bucket, &self.name)?,
        };
        Ok(there.into_iter().filter(|name| !own.contains(name)).collect())
    }

    /// Removes the journal. All files must have their names.
    pub(super) fn release(&mut self) -> Result<(), Error> {
        self.done = true;
        self.journal.remove(&*self.bucket)
    }

    /// Removes all that was sent, and the journal.
    pub(super) fn abandon(mut self) {
        self.forget();
    }

    /// Removes what was sent, as far as the server lets us: the error has no one to go to.
    fn forget(&mut self) {
        self.done = true;
        // A part that arrives later would stay.
        while let Some(on) = self.sending.pop_front() {
            let _ = (on.sending)();
        }
        self.journal.forget(&*self.bucket);
    }
}

impl Drop for BucketWriter {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // Another process may have the journal by now.
        let _ = self.sync();
        if self.kept().is_none() {
            self.forget();
        }
    }
}

/// The parts of each file that has tensors.
fn all_parts(draft: &Draft, limits: PartLimits) -> Vec<Option<Parts>> {
    let mut planes: Vec<Vec<(u64, u64)>> = vec![vec![]; draft.files.len()];
    for (tensor, spots) in draft.tensors.iter().zip(&draft.spots) {
        for (len, spot) in tensor.plane_lengths().zip(spots) {
            if let Some(planes) = planes.get_mut(spot.file) {
                planes.push((spot.at, len));
            }
        }
    }
    let files = draft.files.iter().zip(planes);
    files
        .map(|(file, planes)| {
            let has_tensors = !planes.is_empty() || file.frame.is_some();
            // An empty file has no part.
            (has_tensors && file.len > 0).then(|| Parts::of(file, &planes, limits))
        })
        .collect()
}

/// The most bytes of parts that are in memory at once: those that wait for a tensor, and those on their way.
pub(super) fn buffers(draft: &Draft, limits: PartLimits) -> u64 {
    let mut parts = all_parts(draft, limits);
    let (mut now, mut most, mut longest) = (0u64, 0u64, 0u64);
    for (tensor, spots) in draft.tensors.iter().zip(&draft.spots) {
        for (len, spot) in tensor.plane_lengths().zip(spots) {
            if let Some(Some(parts)) = parts.get_mut(spot.file) {
                longest = longest.max(parts.part());
                let (opened, closed) = parts.passed(spot.at, len);
                // One of them is open at a time, the others were sent before.
                most = most.max(now.saturating_add(parts.part()));
                now = now.saturating_add(opened).saturating_sub(closed);
                most = most.max(now);
            }
        }
    }
    most.saturating_add(limits.under_way.max(longest)).saturating_add(limits.beside)
}
