//! A folder of copies.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use checkpoint::{ByteSource, Identity};
use load::Plan;
use storage::platform;

use crate::digested::{self, Found};
use crate::entry::{is_verified, open};
use crate::manifest::Manifest;
use crate::record::{Record, Verified};
use crate::{Entry, Error, Key, State};

/// The limit of a cache that is given none, in bytes.
const MOST: u64 = 20 << 30;

/// Of the disk's free space, a cache that is given no limit takes this part at most.
const PART: u64 = 10;

/// An unfinished copy that nobody continued for so long is not waited for.
const STALE: Duration = Duration::from_hours(7 * 24);

/// A small file that nobody wrote to for so long has no writer.
const LEFT: Duration = Duration::from_mins(1);

/// A folder of copies. Files in it that are not its own are left alone.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: Option<u64>,
    least: u64,
}

/// The copies of a [`RankSet`](crate::RankSet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// How many of them are ready.
    pub ready: usize,
    /// How many they are.
    pub of: usize,
}

/// An entry as a list shows it. The copies of all ranks of one mesh are one entry.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What it is a copy of.
    pub key: Key,
    /// Where it stands.
    pub state: State,
    /// Bytes on the disk, of what is unfinished too.
    pub bytes: u64,
    /// Where its checkpoint was when it was built; `None` if it is unfinished.
    pub source: Option<String>,
    /// The layout of its parameters; `None` if it is unfinished.
    pub layout: Option<String>,
    /// When it was built.
    pub built: Option<SystemTime>,
    /// When it was last used, or worked on.
    pub used: SystemTime,
    /// How many copies a set has; `None` for a single copy.
    pub ranks: Option<Ranks>,
}

impl Cache {
    /// The cache in `folder`, which is made when something is built. It keeps at most 20 GiB, or a tenth of what it and the free
    /// disk have together, if that is less.
    pub fn new(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into(), limit: None, least: 0 }
    }

    /// The same, with another limit in bytes.
    #[must_use]
    pub fn limited(self, bytes: u64) -> Cache {
        Cache { limit: Some(bytes), ..self }
    }

    /// The same without copies of less than `bytes`: such a model loads as fast.
    #[must_use]
    pub fn at_least(self, bytes: u64) -> Cache {
        Cache { least: bytes, ..self }
    }

    /// Whether there is to be a copy of `bytes`: neither too short to be worth it, nor longer than the limit, and in a folder that is
    /// there or can be made.
    pub fn takes(&self, bytes: u64) -> bool {
        bytes >= self.least && bytes <= self.limit() && fs::create_dir_all(&self.folder).is_ok()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entry of what `plan` loads for an instruction set; `None` if it has none, as [`Key::of`] says.
    pub fn entry<'a>(&'a self, plan: &'a Plan, isa: &str) -> Option<Entry<'a>> {
        Some(Entry::new(self, plan, Key::with_parts(plan, isa)?))
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.unwrap_or_else(|| {
            let there = self.folder.ancestors().find(|folder| folder.is_dir());
            let room = there.and_then(|folder| platform::room(folder).ok().flatten());
            let kept = self.list().map_or(0, |list| list.iter().map(|entry| entry.bytes).sum());
            room.map_or(MOST, |room| (room.free.saturating_add(kept) / PART).min(MOST))
        })
    }

    /// All entries, the last used first.
    ///
    /// # Errors
    /// If the folder cannot be listed. One that is not there has none.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut single: BTreeMap<Key, Listed> =
            self.keys()?.into_iter().map(|key| (key, self.listed(key))).collect();
        let mut list = vec![];
        for (key, manifest, members) in self.sets()? {
            let ranks = self.ranks_of(&members);
            let copies: Vec<Listed> = members.iter().filter_map(|member| single.remove(member)).collect();
            let states: Vec<State> = members.iter().map(|member| self.state(*member)).collect();
            let written = fs::metadata(self.manifest(key)).and_then(|about| about.modified()).ok();
            list.push(Listed {
                key,
                state: together(&states),
                bytes: copies.iter().map(|copy| copy.bytes).sum(),
                source: Some(manifest.source),
                layout: Some(manifest.layout),
                built: copies.iter().filter_map(|copy| copy.built).max(),
                used: copies
                    .iter()
                    .map(|copy| copy.used)
                    .chain(written)
                    .max()
                    .unwrap_or(SystemTime::UNIX_EPOCH),
                ranks: Some(ranks),
            });
        }
        list.extend(single.into_values());
        list.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        Ok(list)
    }

    /// A single copy.
    fn listed(&self, key: Key) -> Listed {
        let record = Record::read(&self.record(key)).ok().flatten();
        let paths = [self.record(key), self.file(key), self.journal(key)];
        let used = paths.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max();
        Listed {
            key,
            state: self.state(key),
            bytes: self.stored_bytes(key),
            built: record.as_ref().map(|r| SystemTime::UNIX_EPOCH + Duration::from_secs(r.built)),
            layout: record.as_ref().map(|r| r.layout.clone()),
            source: record.map(|r| r.source),
            used: used.unwrap_or(SystemTime::UNIX_EPOCH),
            ranks: None,
        }
    }

    /// All sets, with the keys of their copies.
    fn sets(&self) -> Result<Vec<(Key, Manifest, Vec<Key>)>, Error> {
        let keys = self.names()?.into_iter().filter_map(|name| name.strip_suffix(RANKS).and_then(Key::parse));
        let set = |key| {
            let manifest = Manifest::read(&self.manifest(key), key)?;
            let members = manifest.keys()?;
            Some((key, manifest, members))
        };
        let mut sets: Vec<_> = keys.filter_map(set).collect();
        sets.sort_by_key(|(key, ..)| *key);
        Ok(sets)
    }

    /// The copies that such a file names are single ones.
    fn remove_broken_manifests(&self) -> Result<(), Error> {
        let keys = self.names()?.into_iter().filter_map(|name| name.strip_suffix(RANKS).and_then(Key::parse));
        for path in keys.filter(|key| self.members(*key).is_none()).map(|key| self.manifest(key)) {
            ignore_absent(fs::remove_file(&path)).map_err(Error::io(&path, "remove"))?;
        }
        Ok(())
    }

    /// How many of the copies are ready.
    pub(crate) fn ranks_of(&self, members: &[Key]) -> Ranks {
        let ready = members.iter().filter(|key| self.state(**key) == State::Ready).count();
        Ranks { ready, of: members.len() }
    }

    /// Reads an entry whole, with its [`Companion`](crate::Companion): whether both are what was written. One that is not is removed. Of a
    /// set, all copies that are there are read, and if one is wrong, all are removed.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn verify(&self, key: Key) -> Result<bool, Error> {
        if let Some(members) = self.members(key) {
            for member in &members {
                let is_whole = matches!(self.state(*member), State::Ready | State::Doubtful);
                if is_whole && !self.verify(*member)? {
                    self.remove(key)?;
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let (Some(record), Some(source)) = (Record::read(&self.record(key))?, open(&self.file(key))?) else {
            return Ok(false);
        };
        if self.verified_whole(key, record, source)?.is_none() {
            return Ok(false);
        }
        let is_broken = matches!(digested::read(&self.beside(key))?, Found::Broken);
        if is_broken {
            self.remove(key)?;
        }
        Ok(!is_broken)
    }

    /// Removes the entries that were used least lately until all others take at most `bytes`, and what was left unfinished a week
    /// ago. Returns what was removed. What is being built stays.
    ///
    /// # Errors
    /// If the folder cannot be listed, or a file cannot be removed.
    pub fn prune(&self, bytes: u64) -> Result<Vec<Listed>, Error> {
        self.prune_beside(bytes, None)
    }

    /// The same, but the copy `own` and its set stay.
    fn prune_beside(&self, bytes: u64, own: Option<Key>) -> Result<Vec<Listed>, Error> {
        self.remove_broken_manifests()?;
        let mut list = self.list()?;
        let mut kept: u64 = list.iter().map(|entry| entry.bytes).sum();
        let is_own = |key| {
            own == Some(key) || own.is_some_and(|own| self.members(key).is_some_and(|all| all.contains(&own)))
        };
        list.retain(|entry| !is_own(entry.key));
        let mut removed = vec![];
        for entry in list.into_iter().rev().filter(|entry| entry.state != State::Building) {
            let old = SystemTime::now().duration_since(entry.used).is_ok_and(|ago| ago > STALE);
            if kept > bytes || (old && entry.state == State::Partial) {
                self.remove(entry.key)?;
                kept = kept.saturating_sub(entry.bytes);
                removed.push(entry);
            }
        }
        Ok(removed)
    }

    /// Removes an entry, or all copies of a set. A process that uses it keeps what it has mapped.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(&self, key: Key) -> Result<(), Error> {
        for member in self.members(key).into_iter().flatten() {
            self.remove_copy(member)?;
        }
        // Last, so that what is left if this is interrupted is still one set.
        let path = self.manifest(key);
        ignore_absent(fs::remove_file(&path)).map_err(Error::io(&path, "remove"))?;
        self.remove_copy(key)
    }

    /// The copies of the set `key`; `None` if it is none.
    fn members(&self, key: Key) -> Option<Vec<Key>> {
        Manifest::read(&self.manifest(key), key)?.keys()
    }

    fn remove_copy(&self, key: Key) -> Result<(), Error> {
        // The record first: without it the copy is not used.
        for path in [self.record(key), self.file(key), self.beside(key)] {
            ignore_absent(fs::remove_file(&path)).map_err(Error::io(&path, "remove"))?;
        }
        let partial = self.partial(key);
        ignore_absent(fs::remove_dir_all(&partial)).map_err(Error::io(&partial, "remove"))?;
        // Small files of processes that were killed before these had their name.
        for path in self.records_begun(key)? {
            ignore_absent(fs::remove_file(&path)).map_err(Error::io(&path, "remove"))?;
        }
        Ok(())
    }

    /// Where the entry `key` stands.
    pub fn state(&self, key: Key) -> State {
        let record = Record::read(&self.record(key)).ok().flatten();
        let now = File::open(self.file(key)).and_then(|file| Identity::now(&file));
        match (record, now) {
            (Some(record), Ok(now)) => {
                if Verified::of(&now) == Some(record.file) {
                    State::Ready
                } else {
                    State::Doubtful
                }
            }
            (None, Ok(_)) => State::Partial,
            (_, Err(_)) => match File::open(self.journal(key)) {
                Err(_) => State::Absent,
                Ok(journal) => match journal.try_lock_shared() {
                    Err(TryLockError::WouldBlock) => State::Building,
                    _ => State::Partial,
                },
            },
        }
    }

    /// The copy of `key`, if it is what was verified when it was built.
    pub(crate) fn verified(&self, key: Key) -> Result<Option<Arc<dyn ByteSource>>, Error> {
        let Some(record) = Record::read(&self.record(key))? else { return Ok(None) };
        let Some(source) = open(&self.file(key))? else { return Ok(None) };
        if record.key == key.to_string() && is_verified(&record, &*source) {
            return Ok(Some(source));
        }
        self.verified_whole(key, record, source)
    }

    /// The same, after it was read whole. Removed if it is another.
    fn verified_whole(
        &self,
        key: Key,
        record: Record,
        source: Arc<dyn ByteSource>,
    ) -> Result<Option<Arc<dyn ByteSource>>, Error> {
        let digest = source.mapped().map(|bytes| blake3::hash(bytes).to_hex().to_string());
        let file = source.identity().and_then(|identity| Verified::of(&identity));
        let now = source.identity_now().map_err(Error::io(&self.file(key), "look at"))?;
        // Whoever writes to it while it is read makes it another.
        let still = now.and_then(|identity| Verified::of(&identity)) == file;
        match file {
            Some(file)
                if still && record.key == key.to_string() && digest.as_ref() == Some(&record.blake3) =>
            {
                let record = Record { file, ..record };
                record.write(&self.record(key))?;
                Ok(Some(source))
            }
            _ => {
                self.remove(key)?;
                Ok(None)
            }
        }
    }

    /// Makes room for a copy of `bytes`. Returns the limit if it is less.
    pub(crate) fn make_room(&self, key: Key, bytes: u64) -> Result<Option<u64>, Error> {
        let limit = self.limit();
        if bytes > limit {
            return Ok(Some(limit));
        }
        let own = self.stored_bytes(key);
        self.touch(key);
        self.prune_beside(limit.saturating_sub(bytes.saturating_sub(own)), Some(key))?;
        Ok(None)
    }

    /// Records that the entry was used now. A failure makes it go earlier, no more.
    pub(crate) fn touch(&self, key: Key) {
        let now = SystemTime::now();
        for path in [self.record(key), self.journal(key)] {
            _ = File::options().append(true).open(path).and_then(|file| file.set_modified(now));
        }
    }

    /// Bytes on the disk, of what is unfinished too.
    pub(crate) fn stored_bytes(&self, key: Key) -> u64 {
        bytes_of(&self.file(key)) + bytes_of(&self.partial(key)) + bytes_of(&self.beside(key))
    }

    pub(crate) fn file(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}{FILE}"))
    }

    /// Where the manifest of a set is.
    pub(crate) fn manifest(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}{RANKS}"))
    }

    /// Where its companion is.
    pub(crate) fn beside(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}{BESIDE}"))
    }

    pub(crate) fn record(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}{RECORD}"))
    }

    /// Where the copy is while it is built.
    pub(crate) fn partial(&self, key: Key) -> PathBuf {
        checkpoint::Draft::partial(&self.file(key))
    }

    fn journal(&self, key: Key) -> PathBuf {
        self.partial(key).join("journal")
    }

    fn records_begun(&self, key: Key) -> Result<Vec<PathBuf>, Error> {
        let key = format!("{key}.");
        let begun = |name: &str| name.starts_with(&key) && name.ends_with(PARTIAL);
        Ok(self.names()?.into_iter().filter(|name| begun(name)).map(|name| self.folder.join(name)).collect())
    }

    /// Removes what processes that were killed have left beside a copy. A write takes less than a minute.
    pub(crate) fn remove_left(&self, key: Key) -> Result<(), Error> {
        let is_old = |path: &PathBuf| {
            let modified = fs::metadata(path).and_then(|about| about.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|ago| ago > LEFT))
        };
        for path in self.records_begun(key)?.into_iter().filter(is_old) {
            ignore_absent(fs::remove_file(&path)).map_err(Error::io(&path, "remove"))?;
        }
        Ok(())
    }

    /// The keys of all files that are the cache's own, sorted.
    fn keys(&self) -> Result<Vec<Key>, Error> {
        let key = |name: String| {
            let unfinished = name.strip_prefix('.').and_then(|name| name.strip_suffix(PARTIAL));
            let name = unfinished.unwrap_or(&name);
            [FILE, RECORD, BESIDE].into_iter().find_map(|end| name.strip_suffix(end)).and_then(Key::parse)
        };
        let mut keys: Vec<Key> = self.names()?.into_iter().filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// The names in the folder; none if it is not there.
    fn names(&self) -> Result<Vec<String>, Error> {
        let failed = || Error::io(&self.folder, "list");
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries.map_err(failed())?,
        };
        let names = entries.map(|entry| Ok(entry.map_err(failed())?.file_name().into_string().ok()));
        Ok(names.collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().collect())
    }
}

/// Where a set of copies stands.
fn together(states: &[State]) -> State {
    let any = |state| states.contains(&state);
    match () {
        () if any(State::Building) => State::Building,
        () if any(State::Absent) || any(State::Partial) => State::Partial,
        () if any(State::Doubtful) => State::Doubtful,
        () => State::Ready,
    }
}

/// How the names of manifests end, of companions, copies, records, and of the folders where copies are built.
const RANKS: &str = ".ranks";
const BESIDE: &str = ".tokenizer";
const FILE: &str = ".safetensors";
const RECORD: &str = ".json";
const PARTIAL: &str = ".partial";

fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Bytes of a file, or of all files below a folder; 0 of what is not there.
fn bytes_of(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| bytes_of(&entry.path())).sum()
        }
        Ok(about) => about.len(),
        Err(_) => 0,
    }
}
