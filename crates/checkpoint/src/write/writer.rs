//! A checkpoint that is being written, on the disk or to a bucket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use storage::{Bucket, Location, Name};

use super::Draft;
use super::bucket::BucketWriter;
use super::files::FileWriter;
use super::held::Held;
use super::zstd::Zstd;
use crate::error::Error;

/// Where a result is written to.
#[derive(Clone, Debug)]
pub enum Output {
    /// A path of this machine.
    Path(PathBuf),
    /// A file or a directory of a bucket.
    Bucket {
        /// The bucket.
        bucket: Arc<dyn Bucket>,
        /// The name there.
        name: Name,
    },
}

impl Output {
    /// Where it will be.
    pub fn location(&self) -> Location {
        match self {
            Output::Path(path) => Location::Path(path.clone()),
            Output::Bucket { bucket, name } => bucket.location(name),
        }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Output {
    fn from(path: &P) -> Output {
        Output::Path(path.as_ref().to_owned())
    }
}

impl From<PathBuf> for Output {
    fn from(path: PathBuf) -> Output {
        Output::Path(path)
    }
}

/// How a [`Draft`] is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Replaces what is at the path.
    pub overwrite: bool,
    /// Files and directories that are read while it is written, and so are never replaced.
    pub sources: Vec<Location>,
    /// Bytes after which the result so far is made durable: if the process is interrupted later, the next one that writes
    /// the same to the same path continues from there. A shorter result leaves nothing behind.
    pub sync_every: u64,
    /// The caller compares the whole result with what it should be, and tolerates another: what an earlier process has written is not
    /// read before, and only becomes durable at the end, in steps of `sync_every` bytes, so that the end of the process waits
    /// for no more than one.
    pub compared_later: bool,
    /// Identity of the inputs that the bytes of the tensors depend on, beyond the draft. A result is only continued if
    /// it is the same.
    pub identity: Vec<u8>,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            overwrite: false,
            sources: vec![],
            sync_every: 256 << 20,
            compared_later: false,
            identity: vec![],
        }
    }
}

/// A checkpoint that is being written. Dropped before [`Writer::finish`], it leaves what is worth continuing in a
/// hidden directory beside the result, and nothing else.
#[derive(Debug)]
pub struct Writer(pub(super) Inner);

/// The writer, by where it writes.
pub(super) enum Inner {
    Files(Box<FileWriter>),
    Bucket(Box<BucketWriter>),
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inner::Files(files) => files.fmt(f),
            Inner::Bucket(bucket) => bucket.fmt(f),
        }
    }
}

impl Writer {
    pub(super) fn new(draft: Draft, output: &Output, options: &WriteOptions) -> Result<Writer, Error> {
        Ok(Writer(match output {
            Output::Path(path) => Inner::Files(Box::new(FileWriter::new(draft, path, options)?)),
            Output::Bucket { bucket, name } => {
                Inner::Bucket(Box::new(BucketWriter::new(draft, Arc::clone(bucket), name, options)?))
            }
        }))
    }

    /// Skips the next tensor if an earlier process has written it and it is unchanged. Returns the note that it was
    /// written with.
    ///
    /// # Errors
    /// If the system fails.
    pub fn again(&mut self) -> Result<Option<Value>, Error> {
        match &mut self.0 {
            Inner::Files(files) => files.again(),
            Inner::Bucket(bucket) => Ok(bucket.again()),
        }
    }

    /// Writes the planes of the next tensor of the draft, in its scheme's order.
    ///
    /// # Errors
    /// If the system fails.
    ///
    /// # Panics
    /// If there is no next tensor, or a plane is not as long as the scheme says: the caller's bugs.
    pub fn tensor(&mut self, planes: &[&[u8]]) -> Result<(), Error> {
        self.tensor_with(planes, Value::Null)
    }

    /// Writes the next tensor, with a note that [`Writer::again`] returns to a later process.
    ///
    /// # Errors
    /// If the system fails.
    ///
    /// # Panics
    /// As [`Writer::tensor`].
    pub fn tensor_with(&mut self, planes: &[&[u8]], note: Value) -> Result<(), Error> {
        match &mut self.0 {
            Inner::Files(files) => files.tensor_with(planes, note),
            Inner::Bucket(bucket) => bucket.tensor_with(planes, note),
        }
    }

    /// The path or the URL that opens the result when it is finished; of several files, that of the first.
    pub fn destination(&self) -> Location {
        match &self.0 {
            Inner::Files(files) => Location::Path(files.destination().to_owned()),
            Inner::Bucket(bucket) => bucket.destination(),
        }
    }

    /// The directory that is left if the writer is dropped now, and holds what can be continued.
    pub fn kept(&self) -> Option<Location> {
        match &self.0 {
            Inner::Files(files) => files.kept().map(|path| Location::Path(path.to_owned())),
            Inner::Bucket(bucket) => bucket.kept(),
        }
    }

    /// Makes everything durable and moves it to its place. Returns the length of the files with tensors, in bytes.
    ///
    /// # Errors
    /// If the system fails, or a file has appeared at the place meanwhile.
    ///
    /// # Panics
    /// If tensors are missing: the caller's bug.
    pub fn finish(self) -> Result<u64, Error> {
        self.finish_and_hold()?.release()
    }

    /// As [`Writer::finish`], but keeps the journal, and a path locked, until the result is released: if the process is ended
    /// before, the next one that writes the same to the same place comes to this point at once.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    ///
    /// # Panics
    /// As [`Writer::finish`].
    pub fn finish_and_hold(mut self) -> Result<Held, Error> {
        let (bytes, zstd) = match &mut self.0 {
            Inner::Files(files) => files.finish()?,
            Inner::Bucket(bucket) => (bucket.finish()?, Zstd::default()),
        };
        Ok(Held::new(self, bytes, zstd))
    }

    /// Removes all that was written, by this process or one before it: the tensors are not what they should be.
    pub fn abandon(self) {
        match self.0 {
            Inner::Files(files) => files.abandon(),
            Inner::Bucket(bucket) => bucket.abandon(),
        }
    }
}
