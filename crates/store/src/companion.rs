//! Bytes beside a copy: what a start builds of other things than weights, such as its tokenizer.

use std::fs;
use std::time::SystemTime;

use checkpoint::Identity;

use crate::digested::{self, DIGEST, Found};
use crate::key::add_identity;
use crate::{Cache, Entry, Error, Key, State};

/// Bytes beside a copy, which belong to their sources and to one form. They are listed, verified and removed with the copy.
///
/// The file has the bytes, a digest of what they were made from, and the BLAKE3 of both. [`Companion::read`] checks both each time, so that
/// no byte is used that is not what was written.
#[derive(Clone, Debug)]
pub struct Companion {
    cache: Cache,
    key: Key,
    of: [u8; DIGEST],
}

impl Companion {
    /// The bytes beside `entry`, of a form and of files other than the plan's. `None` if such a file cannot be told from what it was before,
    /// as [`Key::of`] says.
    pub fn of(entry: &Entry<'_>, form: &str, sources: &[(&str, Identity)]) -> Option<Companion> {
        let (cache, key) = (entry.cache(), entry.key());
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"weighbridge companion");
        hasher.update(key.to_string().as_bytes());
        for text in [form].into_iter().chain(sources.iter().map(|(name, _)| *name)) {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        let now = SystemTime::now();
        sources.iter().try_for_each(|(_, identity)| add_identity(identity, now, &mut hasher))?;
        Some(Companion { cache: cache.clone(), key, of: hasher.finalize().into() })
    }

    /// The bytes, if they are there, of these sources and this form, and whole. A file that is not whole is removed.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.cache.beside(self.key);
        match digested::read(&path)? {
            Found::Whole { bytes, of } if of == self.of => Ok(Some(bytes)),
            Found::Broken => {
                fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
                Ok(None)
            }
            Found::Whole { .. } | Found::None => Ok(None),
        }
    }

    /// Writes them beside a copy that is ready, whole or not at all. Returns whether it did: if the copy is not ready, or the cache has no
    /// room, it does not.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, bytes: &[u8]) -> Result<bool, Error> {
        let Companion { cache, key, of } = self;
        let all = cache.stored_bytes(*key).saturating_add((bytes.len() + 2 * DIGEST) as u64);
        if cache.state(*key) != State::Ready || cache.make_room(*key, all)?.is_some() {
            return Ok(false);
        }
        cache.remove_left(*key)?;
        digested::write(&cache.beside(*key), bytes, of)?;
        // The copy was removed meanwhile: this goes too.
        if cache.state(*key) == State::Absent {
            cache.remove(*key)?;
            return Ok(false);
        }
        Ok(true)
    }
}
