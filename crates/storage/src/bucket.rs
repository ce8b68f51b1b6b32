//! Storages that files are written to by sending them in parts.

use crate::{Error, Name, Storage};

/// A part that is on its way: waits until the bucket has it, and returns the tag by which [`Bucket::complete`] knows it.
pub type Sending = Box<dyn FnOnce() -> Result<String, Error> + Send>;

/// A storage that takes files: a bucket of a server.
///
/// A file comes to be all at once, when its last part has been sent and [`Bucket::complete`] names them all. Until then
/// nobody can read it, and an earlier file of its name stays. What was sent stays too, when the process that sent it ends:
/// another can go on with the same `upload`.
pub trait Bucket: Storage {
    /// How files are cut.
    fn part_limits(&self) -> PartLimits;

    /// What is called `name` now; `None` if nothing is.
    ///
    /// # Errors
    /// If the server refuses.
    fn version(&self, name: &Name) -> Result<Option<Version>, Error>;

    /// The bytes of the small file `name` now, and their version; `None` if nothing is there.
    ///
    /// # Errors
    /// If the server refuses, or the file is larger than `most` bytes.
    fn get(&self, name: &Name, most: u64) -> Result<Option<(Vec<u8>, Version)>, Error>;

    /// Makes the small file `name` of `bytes`, over what `over` says. Returns its tag.
    ///
    /// # Errors
    /// If the server refuses; of kind [`std::io::ErrorKind::AlreadyExists`] if something else is there than `over` says.
    fn put(&self, name: &Name, bytes: Vec<u8>, over: Over<'_>) -> Result<String, Error>;

    /// Begins to send the file `name`. Returns what the server calls this upload.
    ///
    /// # Errors
    /// If the server refuses.
    fn begin(&self, name: &Name) -> Result<String, Error>;

    /// Sends part `index` of an upload, counted from 0. Parts may be sent in any order, several at a time, and again.
    fn send(&self, name: &Name, upload: &str, index: usize, bytes: Vec<u8>) -> Sending;

    /// Makes the file `name` of all parts of an upload, whose tags are in their order. Returns its tag.
    ///
    /// # Errors
    /// If the server refuses; of kind [`std::io::ErrorKind::NotFound`] if it knows no such upload, for instance because it is
    /// complete.
    fn complete(&self, name: &Name, upload: &str, parts: &[String]) -> Result<(), Error>;

    /// Removes the parts of an upload, if the server knows it.
    ///
    /// # Errors
    /// If the server refuses.
    fn abort(&self, name: &Name, upload: &str) -> Result<(), Error>;

    /// Removes the file `name`, if it is there.
    ///
    /// # Errors
    /// If the server refuses.
    fn remove(&self, name: &Name) -> Result<(), Error>;
}

/// How a bucket wants files to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartLimits {
    /// The usual bytes of a part, and what longer ones are multiples of.
    pub bytes: u64,
    /// The most parts of a file. A longer file has longer parts.
    pub count: u64,
    /// How many bytes are best under way at once.
    pub under_way: u64,
    /// How many bytes its connections keep beside them.
    pub beside: u64,
}

/// A file of a bucket, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its length, in bytes.
    pub len: u64,
    /// What the server calls this version: another file of the same name has another tag.
    pub tag: String,
}

/// What a small file may take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over<'a> {
    /// Nothing may be there.
    Nothing,
    /// The version with this tag.
    Tag(&'a str),
    /// Whatever is there.
    Anything,
}
