//! The copies of all ranks of one mesh, as one.

use std::fs;

use load::Plan;

use crate::manifest::Manifest;
use crate::record::write_whole;
use crate::{Cache, Error, Key, Ranks, State};

/// The copies of all ranks of one mesh. It is ready when all of them are, and none is used before; they are listed, verified and removed
/// together.
///
/// Each rank builds and reads its own copy. What they have in common is a file that names all their keys, which whoever builds the first
/// of them writes.
#[derive(Debug)]
pub struct RankSet {
    cache: Cache,
    key: Key,
    manifest: Manifest,
    members: Vec<Key>,
    bytes: u64,
}

impl RankSet {
    /// The set of `plans`, one for each rank, for an instruction set. `None` if it is of one rank, or a plan has no copy.
    ///
    /// # Errors
    /// If a file cannot hold a plan's parameters.
    pub fn of(cache: &Cache, plans: &[Plan], isa: &str) -> Result<Option<RankSet>, Error> {
        let (mut members, mut bytes, mut common) = (vec![], 0u64, None);
        for plan in plans {
            let Some(entry) = cache.entry(plan, isa) else { return Ok(None) };
            bytes = bytes.saturating_add(entry.bytes()?);
            members.push(entry.key());
            common = Some((plan, entry.parts().clone()));
        }
        let Some((plan, parts)) = common.filter(|_| members.len() > 1) else { return Ok(None) };
        let (source, layout) =
            (plan.checkpoint().location().to_string(), plan.arrangement().layout.to_string());
        let manifest =
            Manifest { members: members.iter().map(Key::to_string).collect(), source, layout, parts };
        Ok(Some(RankSet { cache: cache.clone(), key: manifest.key(), manifest, members, bytes }))
    }

    /// The key of the set.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The length of all copies together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many copies are ready.
    pub fn ranks(&self) -> Ranks {
        self.cache.ranks_of(&self.members)
    }

    /// Whether all copies are ready, after those that must be verified first were.
    ///
    /// # Errors
    /// If a copy cannot be read.
    pub fn is_ready(&self) -> Result<bool, Error> {
        for key in &self.members {
            match self.cache.state(*key) {
                State::Ready => {}
                State::Doubtful if self.cache.verify(*key)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Names the copies as one set, before the first is built. Returns the limit of the cache if that is less than all of them take.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(&self) -> Result<Option<u64>, Error> {
        let (cache, folder) = (&self.cache, self.cache.folder());
        fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
        let limit = cache.limit();
        if self.bytes > limit {
            return Ok(Some(limit));
        }
        let path = cache.manifest(self.key);
        if Manifest::read(&path, self.key).is_none() {
            write_whole(&path, &self.manifest)?;
        }
        Ok(None)
    }
}
