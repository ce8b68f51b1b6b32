//! The record beside a copy: which file was verified, and what it is of.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoint::Identity;
use serde::{Deserialize, Serialize};
use storage::platform;

use crate::Error;
use crate::key::Parts;

/// A longer record is not ours.
const LONGEST: u64 = 1 << 16;

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the copy is of, as the name of its file says.
    pub(crate) key: String,
    /// The BLAKE3 of the whole file, in hexadecimal digits.
    pub(crate) blake3: String,
    /// The file that was verified.
    pub(crate) file: Verified,
    /// Where the checkpoint was.
    pub(crate) source: String,
    /// The layout.
    pub(crate) layout: String,
    /// When it was built: seconds since 1970.
    pub(crate) built: u64,
    /// What the key was made of; `None` in a record of an earlier version.
    #[serde(default)]
    pub(crate) parts: Option<Parts>,
}

/// What tells a file from another, and from what it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verified {
    pub(crate) len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl Verified {
    /// `None` for what is no local file.
    pub(crate) fn of(identity: &Identity) -> Option<Verified> {
        match *identity {
            Identity::File { len, modified, changed, inode, .. } => {
                Some(Verified { len, modified, changed, inode })
            }
            _ => None,
        }
    }
}

impl Record {
    /// Reads the record at `path`; `None` if none is there, or what is there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Record>, Error> {
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(Error::io(path, "open"))?,
        };
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(Error::io(path, "read"))?;
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Writes it to `path`, whole or not at all. It is durable then.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        write_whole(path, self)
    }
}

/// Writes a document to `path`, whole or not at all. It is durable then.
pub(crate) fn write_whole(path: &Path, document: &impl Serialize) -> Result<(), Error> {
    let failed = || Error::io(path, "write");
    let partial = partial(path);
    let text = serde_json::to_vec_pretty(document).map_err(io::Error::from).map_err(failed())?;
    let write = || {
        let mut file = File::create(&partial)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), platform::sync)
    };
    write().inspect_err(|_| _ = fs::remove_file(&partial)).map_err(failed())
}

/// A name of its own for what becomes `path`: no other process and no other thread has it.
pub(crate) fn partial(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    path.with_extension(format!("{process}.{number}.partial"))
}
