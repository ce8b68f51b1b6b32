//! Where the bytes of checkpoints live.
//!
//! A [`Storage`] lists directories and opens files, both by [`Name`]. An open file is a [`ByteSource`]: it gives any byte
//! range, at any time, from any thread. Two storages are here:
//!
//! - [`LocalFiles`], a directory or a file of the file system, which is mapped or read as [`Io`] says;
//! - [`Memory`], a map from names to bytes: for tests, for files inside a program, for whatever has no file system.
//!
//! ```
//! # use weighbridge_storage as storage;
//! use storage::{Memory, Name, Storage};
//!
//! # fn main() -> Result<(), storage::Error> {
//! let files = Memory::new("a model")
//!     .with(Name::parse("config.json")?, b"{}".as_slice())
//!     .with(Name::parse("weights/a.bin")?, vec![1, 2, 3, 4]);
//! assert_eq!(files.list(&Name::ROOT)?, ["config.json", "weights"]);
//!
//! let source = files.open(&Name::parse("weights/a.bin")?)?;
//! let mut bytes = [0; 2];
//! source.read_at(2, &mut bytes).expect("the range is inside");
//! assert_eq!(bytes, [3, 4]);
//! # Ok(())
//! # }
//! ```
//!
//! Whoever has files elsewhere implements both traits. [`Storage`] says what a server's must do.
//!
//! What does not happen here: no file's content is understood, but for the frames of [`zstd`].
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod bucket;
mod error;
mod identity;
mod local;
mod location;
mod memory;
mod name;
pub mod platform;
mod reader;
mod source;
pub mod zstd;

use std::fmt;
use std::sync::Arc;

pub use bucket::{Bucket, Over, PartLimits, Sending, Version};
pub use error::Error;
pub use identity::{Changed, Identity};
pub use local::{Io, LocalFiles};
pub use location::Location;
pub use memory::Memory;
pub use name::Name;
pub use reader::Reader;
pub use source::{ByteSource, Fill, Pace};

/// A directory may not have more names than this: no checkpoint does.
pub const MOST_NAMES: u32 = 100_000;

/// Where files are: a directory tree, a bucket, a repository, a map in memory.
///
/// Nothing that reads checkpoints knows more of files than this. Names are relative to the storage and checked
/// ([`Name`]); an implementation makes sure that none leads out of it, through a symbolic link for instance.
///
/// # Remote storages
///
/// One that reads ranges from a server must also give:
/// - **pace**: [`ByteSource::pace`] with `gap`, `longest` and `depth` as measured. The loader reads ranges that are at
///   most `gap` bytes apart as one, none longer than `longest`, and keeps `depth` reads under way.
///   [`Pace::REMOTE`] is a guess to begin with.
/// - **identity**: [`ByteSource::identity`] is the file's length and its ETag when it was opened
///   ([`Identity::Tagged`]), and every read asks for that version (`If-Match`): a file that is replaced
///   while it is read is then an error. [`ByteSource::identity_now`] asks the server again.
/// - **vectors**: [`ByteSource::read_many`] where several ranges cost one request, or can be asked for at once.
/// - **errors**: a name that is not there is [`Error::Io`] with [`std::io::ErrorKind::NotFound`]; a
///   server has no directories, so a prefix of other names is [`Error::Directory`] when it is opened.
///
/// Opening may fetch the first bytes along with the length, since the header of a checkpoint is read next.
pub trait Storage: fmt::Debug + Send + Sync {
    /// What is in the directory `dir`, sorted: files and directories, without its own name before theirs. What is not
    /// UTF-8 is left out.
    ///
    /// # Errors
    /// If it cannot be listed, is not a directory, or has more than [`MOST_NAMES`] names.
    fn list(&self, dir: &Name) -> Result<Vec<String>, Error>;

    /// Opens the file `name`, of which ranges will be read.
    ///
    /// # Errors
    /// If it is not there, is not a file, or leads out of the storage; or if the system refuses.
    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error>;

    /// Opens the file `name`, which is small and will be read whole, once: a configuration, a tokenizer. A server may
    /// fetch all of it now.
    ///
    /// # Errors
    /// As [`Storage::open`].
    fn open_small(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        self.open(name)
    }

    /// Whether [`Storage::list`] gives every name of a directory. Servers of files that list none give those of the usual
    /// names that are there; another is found by opening it.
    fn lists_all(&self) -> bool {
        true
    }

    /// How many files are best opened at once. More than one where opening waits for a server.
    fn opens_at_once(&self) -> usize {
        1
    }

    /// Where `name` is, for messages and for those who can use a path. [`Name::ROOT`] is the storage itself. Nothing
    /// need be there.
    fn location(&self, name: &Name) -> Location;
}

/// A storage, and the name of a file or a directory in it.
pub type Found = (Arc<dyn Storage>, Name);

/// A bucket, and the name of a file or a directory in it.
pub type FoundBucket = (Arc<dyn Bucket>, Name);

/// Finds the storage of what is called by something else than a path: by a URL.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The storage of `location` and the name in it; `None` if this resolver knows nothing of the kind.
    fn resolve(&self, location: &str) -> Option<Result<Found, Error>>;

    /// The bucket that a result called `location` is written to, and its name there; `None` if this resolver writes nothing of
    /// the kind.
    fn bucket(&self, location: &str) -> Option<Result<FoundBucket, Error>> {
        let _ = location;
        None
    }
}

/// The scheme of a URL, if `location` is one: `https` of `https://host/path`. One letter is a drive of Windows.
pub fn url_scheme(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once("://")?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme.then_some(scheme)
}

/// `location` for messages: of a URL, without the name, the password, the query and the fragment, which may be secret.
pub fn shown(location: &str) -> String {
    let Some(scheme) = url_scheme(location) else { return location.to_owned() };
    let rest = location.get(scheme.len() + 3..).unwrap_or_default();
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    // What is no port may be the beginning of a password with a slash in it.
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    if !host.starts_with('[') && !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return format!("{scheme}://…");
    }
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme() {
        for (location, scheme) in [
            ("https://host/a", Some("https")),
            ("s3://bucket", Some("s3")),
            ("a/b.gguf", None),
            ("C://models/a.gguf", None),
            ("://x", None),
            ("a b://x", None),
            ("dir/a://x", None),
        ] {
            assert_eq!(url_scheme(location), scheme, "{location}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        for (location, said) in [
            ("https://me:x@host/a@b?sig=x#x", "https://host/a@b"),
            ("https://me:x@y@host", "https://host"),
            ("s3://bucket/a/", "s3://bucket/a/"),
            ("a?b@c", "a?b@c"),
            ("https://me:pa/ss@host/x", "https://…"),
            ("https://me:pa?ss@host/x", "https://…"),
            ("http://[::1]:80/x?s", "http://[::1]:80/x"),
            ("http://host:80/x?s", "http://host:80/x"),
        ] {
            assert_eq!(shown(location), said);
        }
    }
}
