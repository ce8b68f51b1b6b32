//! Arrays that are compressed with zstd where that makes them smaller: `NAME.npy.zst` instead of `NAME.npy`.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use storage::zstd::{read_frame, write_frame};

use super::system;
use crate::error::Error;
use crate::format::npy::ZSTD;

/// Bytes that are compared at once.
const STEP: usize = 128 << 10;

/// The arrays of a result that are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zstd {
    /// How many.
    pub arrays: usize,
    /// By how many bytes their files are smaller.
    pub saved: u64,
}

/// The place of a compressed array.
pub(super) struct Packed {
    path: PathBuf,
}

impl Packed {
    /// That of the array that is at `plain` if it is not compressed.
    pub(super) fn at(plain: &Path) -> Packed {
        let mut path = plain.as_os_str().to_owned();
        path.push(ZSTD);
        Packed { path: path.into() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.len().is_some()
    }

    /// Length of the file, in bytes.
    pub(super) fn len(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|found| found.len())
    }

    /// Writes `parts`, one after the other, if they take fewer than `limit` bytes; else there is no file.
    pub(super) fn write(&self, parts: &[&[u8]], limit: u64) -> Result<Option<File>, Error> {
        let file = system::open(&self.path).map_err(|e| Error::io(&self.path, "create", e))?;
        let written = file.set_len(0).and_then(|()| {
            let mut out = BufWriter::with_capacity(STEP, &file);
            let written = write_frame(parts, &mut out, limit)?;
            out.flush()?;
            Ok(written)
        });
        if written.map_err(|e| Error::io(&self.path, "write", e))?.is_some() && self.is(parts)? {
            return Ok(Some(file));
        }
        drop(file);
        fs::remove_file(&self.path).map_err(|e| Error::io(&self.path, "remove", e))?;
        Ok(None)
    }

    /// Returns true if it holds `parts`, one after the other: the encoder is much younger than the decoder.
    fn is(&self, parts: &[&[u8]]) -> Result<bool, Error> {
        let Some(mut content) = self.content()? else { return Ok(false) };
        let mut buffer = vec![0; STEP];
        for step in parts.iter().flat_map(|part| part.chunks(STEP)) {
            let found = buffer.get_mut(..step.len()).unwrap_or_default();
            if content.read_exact(found).is_err() || found != step {
                return Ok(false);
            }
        }
        Ok(is_at_its_end(&mut content))
    }

    /// Returns true if it holds `head` and then `bytes` bytes, which go into `hash`.
    pub(super) fn holds(&self, head: &[u8], bytes: u64, hash: &mut blake3::Hasher) -> Result<bool, Error> {
        let Some(mut content) = self.content()? else { return Ok(false) };
        let mut found = vec![0; head.len()];
        if content.read_exact(&mut found).is_err() || found != head {
            return Ok(false);
        }
        let hashed = io::copy(&mut (&mut content).take(bytes), hash);
        Ok(hashed.is_ok_and(|hashed| hashed == bytes) && is_at_its_end(&mut content))
    }

    /// Its content; `None` if that cannot be read.
    fn content(&self) -> Result<Option<impl Read + use<>>, Error> {
        let file = File::open(&self.path).map_err(|e| Error::io(&self.path, "open", e))?;
        Ok(read_frame(BufReader::with_capacity(STEP, file)).ok())
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(|e| Error::io(&self.path, "write", e))
    }

    /// Removes what a process that was ended has left of the array at `plain`, not compressed.
    pub(super) fn remove_plain(plain: &Path) -> Result<(), Error> {
        match fs::remove_file(plain) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(plain, "remove", e)),
            _ => Ok(()),
        }
    }
}

fn is_at_its_end(content: &mut impl Read) -> bool {
    content.read(&mut [0]).is_ok_and(|n| n == 0)
}
