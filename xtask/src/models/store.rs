//! A model's folder in the cache: what makes it complete, and how a file gets into it.
//!
//! A file is written beside its place, hashed on the way, flushed to disk and renamed: nothing half-written
//! ever has the name that a reader looks for. A stamp, written last, says that all digests were checked.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::table::Wanted;

/// How closely files that are there are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Their sizes, and that the stamp names the digests wanted now.
    Stamp,
    /// Every byte.
    Digest,
}

/// The folder of one model.
pub(crate) struct Store {
    folder: PathBuf,
    wanted: Vec<Wanted>,
}

impl Store {
    /// The folder `name` under `root`, which must hold `wanted`.
    pub(crate) fn new(root: &Path, name: &str, wanted: Vec<Wanted>) -> Self {
        Self { folder: root.join(name), wanted }
    }

    /// The files that must be there.
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// What a user opens: the only file, or the folder of many.
    pub(crate) fn entry(&self) -> PathBuf {
        match self.wanted.as_slice() {
            [only] => self.folder.join(only.name),
            _ => self.folder.clone(),
        }
    }

    /// True when every file is there and passes `check`.
    ///
    /// Files of the right sizes without a stamp are hashed and stamped.
    ///
    /// # Errors
    /// A file has the right size and another digest: someone should know before it is replaced.
    pub(crate) fn is_complete(&self, check: Check) -> Result<bool> {
        let length = |file: &Wanted| fs::metadata(self.folder.join(file.name)).map(|meta| meta.len()).ok();
        if self.wanted.iter().any(|file| length(file) != Some(file.bytes)) {
            return Ok(false);
        }
        let stamped = fs::read_to_string(self.stamp()).is_ok_and(|text| text == self.stamp_text());
        if check == Check::Stamp && stamped {
            return Ok(true);
        }
        for file in &self.wanted {
            let path = self.folder.join(file.name);
            let found = copy_hashed(&mut File::open(&path)?, &mut io::sink())?;
            if found.sha256 != file.sha256 {
                bail!(
                    "`{}` has SHA-256 {}, wanted {}\nhint: delete it and fetch it again",
                    path.display(),
                    found.sha256,
                    file.sha256
                );
            }
        }
        self.seal()?;
        Ok(true)
    }

    /// Writes one file from `content`, through `scratch` on the same file system.
    ///
    /// # Errors
    /// The size or the digest is not the one wanted; nothing is then put in place.
    pub(crate) fn put(&self, file: &Wanted, content: &mut dyn Read, scratch: &Path) -> Result<()> {
        let draft = scratch.join(format!("{}.part", file.name));
        let mut out = File::create(&draft).with_context(|| format!("cannot write `{}`", draft.display()))?;
        // One byte more than wanted is enough to know that there is too much.
        let found = copy_hashed(&mut content.take(file.bytes + 1), &mut out)?;
        match found.bytes {
            bytes if bytes > file.bytes => {
                bail!("`{}` should be {} bytes and has more", file.name, file.bytes)
            }
            bytes if bytes < file.bytes => {
                bail!("`{}` should be {} bytes and ends after {bytes}", file.name, file.bytes)
            }
            _ => {}
        }
        if found.sha256 != file.sha256 {
            bail!("`{}` has SHA-256 {}, wanted {}", file.name, found.sha256, file.sha256);
        }
        out.sync_all()?;
        fs::create_dir_all(&self.folder)?;
        fs::rename(&draft, self.folder.join(file.name))?;
        Ok(())
    }

    /// Records that all files are there and were hashed. Only the holder of the model's lock may call it.
    pub(crate) fn seal(&self) -> Result<()> {
        let draft = self.folder.join("SHA256.part");
        let mut out = File::create(&draft)?;
        out.write_all(self.stamp_text().as_bytes())?;
        out.sync_all()?;
        fs::rename(&draft, self.stamp())?;
        Ok(())
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("SHA256")
    }

    fn stamp_text(&self) -> String {
        let line = |file: &Wanted| format!("{} {} {}\n", file.sha256, file.bytes, file.name);
        self.wanted.iter().map(line).collect::<Vec<_>>().concat()
    }
}

struct Hashed {
    bytes: u64,
    sha256: String,
}

fn copy_hashed(from: &mut dyn Read, to: &mut dyn Write) -> Result<Hashed> {
    let mut buffer = vec![0_u8; 1 << 18];
    let (mut bytes, mut hasher) = (0_u64, Sha256::new());
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
    Ok(Hashed { bytes, sha256: hexadecimal(&hasher.finalize()) })
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: Wanted = Wanted {
        name: "abc",
        bytes: 3,
        // FIPS 180-2, appendix B.1.
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };

    fn store() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path(), "model", vec![ABC]);
        (root, store)
    }

    #[test]
    fn right_bytes_are_kept_and_stamped() {
        let (root, store) = store();
        assert!(!store.is_complete(Check::Stamp).unwrap());
        store.put(&ABC, &mut &b"abc"[..], root.path()).unwrap();
        store.seal().unwrap();
        assert!(store.is_complete(Check::Stamp).unwrap());
        assert!(store.is_complete(Check::Digest).unwrap());
        assert_eq!(fs::read(store.entry()).unwrap(), b"abc");
    }

    #[test]
    fn wrong_bytes_are_never_put_in_place() {
        for wrong in [&b"abd"[..], b"ab", b"abcd", b""] {
            let (root, store) = store();
            assert!(store.put(&ABC, &mut &*wrong, root.path()).is_err());
            assert!(!store.entry().exists(), "{wrong:?}");
        }
    }

    #[test]
    fn a_changed_file_is_found_by_its_digest_and_a_short_one_by_its_size() {
        let (root, store) = store();
        store.put(&ABC, &mut &b"abc"[..], root.path()).unwrap();
        store.seal().unwrap();
        fs::write(store.entry(), b"abd").unwrap();
        let error = store.is_complete(Check::Digest).unwrap_err().to_string();
        assert!(error.contains("abc` has SHA-256 a52d159f"), "{error}");
        fs::write(store.entry(), b"ab").unwrap();
        assert!(!store.is_complete(Check::Digest).unwrap());
    }

    #[test]
    fn files_without_a_stamp_are_hashed_once() {
        let (_root, store) = store();
        fs::create_dir_all(&store.folder).unwrap();
        fs::write(store.entry(), b"abd").unwrap();
        assert!(store.is_complete(Check::Stamp).is_err());
        fs::write(store.entry(), b"abc").unwrap();
        assert!(store.is_complete(Check::Stamp).unwrap());
        assert!(store.stamp().exists());
    }
}
