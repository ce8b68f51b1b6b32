//! A model's folder in the cache: what makes it complete, and how files get into it.
//!
//! Files are written elsewhere, hashed, flushed to disk and renamed: nothing half-written ever has the name that a
//! reader looks for. A stamp, written last, says that all digests were checked.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::python;
use crate::table::Wanted;

/// How closely files that are there are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
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
        let paths: Vec<_> = self.wanted.iter().map(|file| self.folder.join(file.name)).collect();
        for ((file, path), found) in self.wanted.iter().zip(&paths).zip(python::digests(&paths)?) {
            if found != file.sha256 {
                bail!(
                    "`{}` has SHA-256 {found}, wanted {}\nhint: delete it and fetch it again",
                    path.display(),
                    file.sha256
                );
            }
        }
        self.seal()?;
        Ok(true)
    }

    /// Moves every wanted file from the folder `drafts`, on the same file system, into place, and stamps them.
    ///
    /// # Errors
    /// A size or a digest is not the one wanted; nothing is then put in place.
    pub(crate) fn fill(&self, drafts: &Path) -> Result<()> {
        let paths: Vec<_> = self.wanted.iter().map(|file| drafts.join(file.name)).collect();
        for (file, path) in self.wanted.iter().zip(&paths) {
            let found =
                fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?.len();
            if found > file.bytes {
                bail!("`{}` should be {} bytes and has more", file.name, file.bytes);
            }
            if found < file.bytes {
                bail!("`{}` should be {} bytes and ends after {found}", file.name, file.bytes);
            }
        }
        for (file, found) in self.wanted.iter().zip(python::digests(&paths)?) {
            if found != file.sha256 {
                bail!("`{}` has SHA-256 {found}, wanted {}", file.name, file.sha256);
            }
        }
        fs::create_dir_all(&self.folder)?;
        for (file, path) in self.wanted.iter().zip(&paths) {
            File::open(path)?.sync_all()?;
            let place = self.folder.join(file.name);
            place.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::rename(path, place)?;
        }
        self.seal()
    }

    /// Records that all files are there and were hashed. Only the holder of the model's lock may call it.
    fn seal(&self) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: Wanted = Wanted {
        name: "abc",
        bytes: 3,
        // FIPS 180-2, appendix B.1.
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };
    const EMPTY: Wanted = Wanted {
        name: "empty",
        bytes: 0,
        sha256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    };

    fn store(wanted: Vec<Wanted>) -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path(), "model", wanted);
        (root, store)
    }

    #[test]
    fn right_bytes_are_kept_and_stamped() {
        let (root, store) = store(vec![ABC]);
        assert!(!store.is_complete(Check::Stamp).unwrap());
        fs::write(root.path().join("abc"), b"abc").unwrap();
        store.fill(root.path()).unwrap();
        assert!(store.is_complete(Check::Stamp).unwrap());
        assert!(store.is_complete(Check::Digest).unwrap());
        assert_eq!(fs::read(store.entry()).unwrap(), b"abc");
    }

    #[test]
    fn wrong_bytes_are_never_put_in_place() {
        for wrong in [&b"abd"[..], b"ab", b"abcd", b""] {
            let (root, store) = store(vec![EMPTY, ABC]);
            fs::write(root.path().join("empty"), b"").unwrap();
            fs::write(root.path().join("abc"), wrong).unwrap();
            assert!(store.fill(root.path()).is_err());
            assert!(!store.folder.exists(), "{wrong:?}");
        }
    }

    #[test]
    fn a_changed_file_is_found_by_its_digest_and_a_short_one_by_its_size() {
        let (root, store) = store(vec![ABC]);
        fs::write(root.path().join("abc"), b"abc").unwrap();
        store.fill(root.path()).unwrap();
        fs::write(store.entry(), b"abd").unwrap();
        let error = store.is_complete(Check::Digest).unwrap_err().to_string();
        assert!(error.contains("abc` has SHA-256 a52d159f"), "{error}");
        fs::write(store.entry(), b"ab").unwrap();
        assert!(!store.is_complete(Check::Digest).unwrap());
    }

    #[test]
    fn files_without_a_stamp_are_hashed_once() {
        let (_root, store) = store(vec![ABC]);
        fs::create_dir_all(&store.folder).unwrap();
        fs::write(store.entry(), b"abd").unwrap();
        assert!(store.is_complete(Check::Stamp).is_err());
        fs::write(store.entry(), b"abc").unwrap();
        assert!(store.is_complete(Check::Stamp).unwrap());
        assert!(store.stamp().exists());
    }
}
