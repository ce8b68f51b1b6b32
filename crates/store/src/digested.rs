//! A file that holds its own digest: the bytes, a digest of what they were made from, and the BLAKE3 of both.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use storage::platform;

use crate::Error;
use crate::record::partial;

/// Bytes of a digest.
pub(crate) const DIGEST: usize = 32;

/// A longer file is not ours.
const LONGEST: u64 = 1 << 30;

/// The file at a path.
pub(crate) enum Found {
    /// There is none.
    None,
    /// It is what was written.
    Whole {
        bytes: Vec<u8>,
        /// The digest of what they were made from.
        of: [u8; DIGEST],
    },
    /// It is something else.
    Broken,
}

/// Reads a file whole.
pub(crate) fn read(path: &Path) -> Result<Found, Error> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::None),
        file => file.map_err(Error::io(path, "open"))?,
    };
    let len = file.metadata().map_err(Error::io(path, "look at"))?.len();
    if len > LONGEST {
        return Ok(Found::Broken);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    Read::by_ref(&mut file).take(LONGEST).read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    let Some((rest, digest)) = bytes.split_last_chunk::<DIGEST>() else { return Ok(Found::Broken) };
    let Some((own, of)) = rest.split_last_chunk::<DIGEST>() else { return Ok(Found::Broken) };
    if blake3::hash(rest) != *digest {
        return Ok(Found::Broken);
    }
    let (own, of) = (own.len(), *of);
    bytes.truncate(own);
    Ok(Found::Whole { bytes, of })
}

/// Writes a file, whole or not at all. It is durable then.
pub(crate) fn write(path: &Path, bytes: &[u8], of: &[u8; DIGEST]) -> Result<(), Error> {
    let partial = partial(path);
    let digest = blake3::Hasher::new().update(bytes).update(of).finalize();
    let write = || {
        let mut file = File::create(&partial)?;
        for part in [bytes, of, digest.as_bytes()] {
            file.write_all(part)?;
        }
        file.sync_all()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), platform::sync)
    };
    write().inspect_err(|_| _ = fs::remove_file(&partial)).map_err(Error::io(path, "write"))
}
