//! Builds a copy, beside what the process does otherwise.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use checkpoint::{Checkpoint, Draft, Identity, WriteOptions};
use load::{Plan, Tensor};

use crate::entry::open;
use crate::key::Parts;
use crate::record::{Record, Verified};
use crate::{Cache, Error, Key, State};

/// Bytes that are written at once: from its beginning on, a huge page of the page cache. Linux then maps it as such (ext4 from 6.16 on,
/// XFS), and products read it as fast as memory of the process's own.
const PIECE: usize = 2 << 20;

/// Bytes after which what is written is made durable. The end of the process waits for one such step at most.
const STEP: u64 = 8 << 20;

/// How a builder ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Built {
    /// The copy is ready.
    Ready {
        /// Its length.
        bytes: u64,
    },
    /// It is longer than the cache may be.
    TooLong {
        /// Its length.
        bytes: u64,
        /// The limit of the cache.
        limit: u64,
    },
    /// The source has changed meanwhile, so that nobody will look for this copy.
    SourceChanged,
}

/// Builds the copy of one entry.
#[derive(Debug)]
pub struct Builder {
    cache: Cache,
    key: Key,
    parts: Parts,
    checkpoint: Checkpoint,
    layout: String,
    image: Image,
}

impl Builder {
    pub(crate) fn new(cache: Cache, (key, parts): (Key, Parts), plan: &Plan, image: Image) -> Builder {
        let (checkpoint, layout) = (plan.checkpoint().clone(), plan.arrangement().layout.to_string());
        Builder { cache, key, parts, checkpoint, layout, image }
    }

    /// Length of the copy in bytes.
    pub fn bytes(&self) -> u64 {
        self.image.bytes
    }

    /// Builds on a thread of its own, which gives way to all others. If the process ends before, the next builder continues.
    pub fn spawn(self) -> JoinHandle<Result<Built, Error>> {
        background(move || self.run())
    }

    /// [Spawns](Builder::spawn) it, and waits for nothing. If it fails, the next start finds no copy, and loads as this one did.
    pub fn leave(self) {
        drop(self.spawn());
    }

    /// Builds, or continues what was left unfinished; then compares the file with what is in memory, byte by byte.
    ///
    /// # Errors
    /// If the file cannot be written, the disk lacks the space, or another builder is at work.
    pub fn run(self) -> Result<Built, Error> {
        let Builder { cache, key, image, .. } = &self;
        let bytes = image.bytes;
        if cache.state(*key) == State::Ready {
            return Ok(Built::Ready { bytes });
        }
        let folder = cache.folder();
        fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
        if let Some(limit) = cache.make_room(*key, bytes)? {
            return Ok(Built::TooLong { bytes, limit });
        }
        // One that was ended between the last name and the record has left a file to be looked at.
        if let Some(built) = self.verify()? {
            return Ok(built);
        }
        let path = cache.file(*key);
        let options = WriteOptions {
            overwrite: true,
            sync_every: STEP,
            compared_later: true,
            ..WriteOptions::default()
        };
        let mut writer = Draft::pieces(bytes, PIECE as u64).create_with(&path, &options)?;
        let mut piece = Vec::new();
        for start in (0..bytes).step_by(PIECE) {
            if writer.again()?.is_none() {
                image.put(start..bytes.min(start + PIECE as u64), &mut piece);
                writer.tensor(&[&piece])?;
            }
        }
        if !self.is_of_its_source() {
            drop(writer);
            cache.remove(*key)?;
            return Ok(Built::SourceChanged);
        }
        writer.finish()?;
        if let Some(built) = self.verify()? {
            return Ok(built);
        }
        cache.remove(*key)?;
        Err(Error::io(&path, "verify")(io::Error::other("it holds other bytes than were written to it")))
    }

    /// Compares the file that has the name with what is in memory, and writes its record. `None` if there is none, or it is another.
    fn verify(&self) -> Result<Option<Built>, Error> {
        let path = self.cache.file(self.key);
        let failed = |doing| Error::io(&path, doing);
        let Some(source) = open(&path)? else { return Ok(None) };
        let Some(mapped) = source.mapped().filter(|mapped| mapped.len() as u64 == self.image.bytes) else {
            return Ok(None);
        };
        let (mut hasher, mut wanted) = (blake3::Hasher::new(), Vec::new());
        for (found, start) in mapped.chunks(PIECE).zip((0..).step_by(PIECE)) {
            self.image.put(start..start + found.len() as u64, &mut wanted);
            if found != wanted {
                return Ok(None);
            }
            hasher.update(&wanted);
        }
        if !self.is_of_its_source() {
            self.cache.remove(self.key)?;
            return Ok(Some(Built::SourceChanged));
        }
        read_only(&path).map_err(failed("protect"))?;
        let now = File::open(&path).and_then(|file| Identity::now(&file)).map_err(failed("look at"))?;
        let was = source.identity();
        // Another file in its place, or bytes written meanwhile, are not what was compared.
        let file = Verified::of(&now).filter(|_| was.is_some_and(|was| was.changed_to(&now).is_none()));
        let Some(file) = file else { return Ok(None) };
        let built = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let record = Record {
            key: self.key.to_string(),
            blake3: hasher.finalize().to_hex().to_string(),
            file,
            source: self.checkpoint.location().to_string(),
            layout: self.layout.clone(),
            built,
            parts: Some(self.parts.clone()),
        };
        record.write(&self.cache.record(self.key))?;
        Ok(Some(Built::Ready { bytes: self.image.bytes }))
    }

    /// Whether each file of the checkpoint is still what the key says, to the last time that anything about it changed.
    fn is_of_its_source(&self) -> bool {
        let is_same = |file: &checkpoint::File| {
            file.source.identity_now().is_ok_and(|now| now.is_some() && now == file.source.identity())
        };
        self.checkpoint.files().iter().all(is_same)
    }
}

/// The file as it must be.
#[derive(Debug)]
pub(crate) struct Image {
    /// The bytes before all tensors.
    pub(crate) head: Vec<u8>,
    /// Parameters, which of their planes, and where in the file it begins; in the order of the file.
    pub(crate) planes: Vec<(Tensor, usize, u64)>,
    /// Length.
    pub(crate) bytes: u64,
}

impl Image {
    /// Puts the bytes of `range` into `piece`.
    fn put(&self, range: Range<u64>, piece: &mut Vec<u8>) {
        piece.clear();
        piece.resize(usize::try_from(range.end - range.start).unwrap_or(0), 0);
        let mut copy = |bytes: &[u8], at: u64| {
            let (from, to) = (at.max(range.start), (at + bytes.len() as u64).min(range.end));
            if let (Ok(len), Ok(skip), Ok(start)) = (
                usize::try_from(to.saturating_sub(from)),
                usize::try_from(from - at),
                usize::try_from(from - range.start),
            ) && len > 0
            {
                piece[start..start + len].copy_from_slice(&bytes[skip..skip + len]);
            }
        };
        copy(&self.head, 0);
        // Planes that end at or before the range, and those that begin after it, hold nothing of it.
        let first = self.planes.partition_point(|(_, _, at)| *at < range.start).saturating_sub(1);
        let held = self.planes[first..].iter().take_while(|(_, _, at)| *at < range.end);
        for (tensor, plane, at) in held {
            copy(tensor.planes().get(*plane).copied().unwrap_or_default(), *at);
        }
    }
}

/// Nobody writes to a copy by mistake. (On Windows a file that is read-only cannot be removed.)
#[cfg(unix)]
fn read_only(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "it may fail on Unix")]
fn read_only(_path: &std::path::Path) -> io::Result<()> {
    Ok(())
}

/// The priority of a builder. At 19 it got a few milliseconds of each second beside two threads on two processors, and a chat of a
/// minute left nothing; at 10 it takes a tenth from decoding, for a second or two.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Runs `work` on a thread of its own, which gives way to all others. The end of the process does not wait for it.
pub fn background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::spawn(move || {
        give_way();
        work()
    })
}

/// Lets all other threads go first. On Linux a thread has a priority of its own.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        _ = rustix::process::setpriority_process(None, NICE);
    }
}
