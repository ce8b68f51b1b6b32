//! The place where a checkpoint is written, and how it gets its name: all at once, or not at all.
//!
//! Beside the path `DIR/NAME` a directory `.NAME.partial` holds a journal and, in `output`, the unfinished result. Its
//! name is always the same, so that the next process finds the files of one that was killed, and continues or removes
//! them. Files get their names only when everything is durable and recorded in the journal. If a process is killed
//! between two names, the next one gives the others.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use storage::Location;
use storage::platform::{self, Room, sync};

use super::OutFile;
use super::journal::Journal;
use super::system::{self, Identity};
use super::writer::WriteOptions;
use crate::error::Error;
use crate::fault::Fault;
use crate::format::{hf, npy, squish};
use crate::numbered::Numbered;

/// The meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DestinationKind {
    /// A file. Others of the same result are beside it, and their names are its own with an ending.
    File,
    /// A file `NAME.gguf`, or its parts `NAME-00001-of-00003.gguf`: one of the two replaces either.
    Parts,
    /// A directory.
    Folder,
}

/// The name of the journal in its directory.
pub(super) const JOURNAL: &str = "journal";

/// The ending of the names of parts.
const GGUF: &str = ".gguf";

/// A place that is being written to. Dropped, it is removed if it holds nothing that could be continued.
#[derive(Debug)]
pub(super) struct OutputPlace {
    path: PathBuf,
    kind: DestinationKind,
    overwrite: bool,
    work: PathBuf,
    output: PathBuf,
    /// Where each file of the draft is while it is written.
    files: Vec<PathBuf>,
    /// Files that get a name at the end: from, to.
    names: Vec<(PathBuf, PathBuf)>,
    pub(super) journal: Journal,
    done: bool,
}

impl OutputPlace {
    /// The place for `files` with `tensors` tensors. An interrupted result with the same `fingerprint` is continued, any other
    /// is removed.
    pub(super) fn open(
        path: &Path,
        kind: DestinationKind,
        files: &[OutFile],
        tensors: usize,
        fingerprint: &str,
        options: &WriteOptions,
    ) -> Result<OutputPlace, Error> {
        let Some(name) = path.file_name() else {
            return Err(Error::whole(path, Fault::NoFileName));
        };
        let overwrite = options.overwrite;
        let work = work_of(path);
        let output = work.join("output");
        let (mut inner, mut names) = (vec![], vec![]);
        for file in files {
            let to = match kind {
                DestinationKind::File | DestinationKind::Parts if file.name.is_empty() => path.to_owned(),
                DestinationKind::File => {
                    let mut beside = name.to_owned();
                    beside.push(&file.name);
                    path.with_file_name(beside)
                }
                DestinationKind::Parts => {
                    path.with_file_name(named(kind, &name.to_string_lossy(), &file.name))
                }
                DestinationKind::Folder => output.join(&file.name),
            };
            if kind == DestinationKind::Folder {
                inner.push(to);
                continue;
            }
            let from = output.join(to.file_name().unwrap_or(name));
            inner.push(from.clone());
            names.push((from, to));
        }
        if kind == DestinationKind::Folder {
            names.push((output.clone(), path.to_owned()));
        }
        if !parent(path).is_dir() {
            return Err(Error::whole(parent(path), Fault::NoFolder));
        }
        let parts = if kind == DestinationKind::Parts { parts_at(path)? } else { vec![] };
        if let Some(taken) = source_at(names.iter().map(|(_, to)| to).chain(&parts), &options.sources) {
            return Err(Error::whole(taken, Fault::Source));
        }
        let fresh = fs::symlink_metadata(&work).is_err();
        if fresh {
            // Before anything is made, for nothing is to be left behind.
            refuse(path, kind, overwrite, &names, &[])?;
            room(path, files, &output)?;
        }
        let (journal, same) = begin(&work, fingerprint)?;
        let mut place = OutputPlace {
            path: path.to_owned(),
            kind,
            overwrite,
            work,
            output,
            files: inner,
            names,
            journal,
            done: false,
        };
        // Again, as another process may have been at work until now.
        {
            let (placed, rest): (Vec<_>, Vec<_>) =
                (0..).zip(&place.names).partition(|(i, _)| place.is_placed(*i));
            let names = |list: Vec<(usize, &(PathBuf, PathBuf))>| -> Vec<_> {
                list.into_iter().map(|(_, names)| names.clone()).collect()
            };
            refuse(path, kind, overwrite, &names(rest), &names(placed))?;
        }
        if !same || !place.is_sound(tensors) {
            place.clear().map_err(|e| Error::io(&place.work, "remove", e))?;
            place.journal.restart(0)?;
        }
        if place.journal.complete.is_none() {
            room(path, files, &place.output)?;
            for folder in place.folders() {
                make(folder)?;
            }
        }
        Ok(place)
    }

    /// The path that it will have.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The first path that gets a name.
    pub(super) fn first(&self) -> &Path {
        self.names.first().map_or(&self.path, |(_, to)| to)
    }

    /// The directory beside it that all is in until then.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// Where file `index` of the draft is while it is written.
    pub(super) fn path_of(&self, index: usize) -> &Path {
        self.files.get(index).map_or(&*self.output, PathBuf::as_path)
    }

    /// Opens file `index` of the draft for reading and writing, and makes it if it is not there.
    pub(super) fn file(&self, index: usize) -> Result<File, Error> {
        let path = self.path_of(index);
        system::open(path).map_err(|e| Error::io(path, "create", e))
    }

    /// The directories that hold files, outer ones first.
    fn folders(&self) -> Vec<&Path> {
        let mut folders: Vec<&Path> = self.files.iter().filter_map(|file| file.parent()).collect();
        folders.push(&self.output);
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// Makes the names of all files that are there durable.
    pub(super) fn sync_names(&self) -> Result<(), Error> {
        let folders = self.folders().into_iter().chain([&*self.work, parent(&self.path)]);
        folders.into_iter().try_for_each(|folder| sync(folder).map_err(|e| Error::io(folder, "write", e)))
    }

    /// Whether name `index` stands for what was written.
    fn is_placed(&self, index: usize) -> bool {
        let complete = self.journal.complete.as_ref().and_then(|c| c.get(index));
        complete.is_some_and(|id| self.names.get(index).and_then(|(_, to)| Identity::of(to)) == Some(*id))
    }

    /// Whether the files that the journal lists as complete exist, with or without their names.
    fn is_sound(&self, tensors: usize) -> bool {
        let done = self.journal.done.len();
        let Some(complete) = &self.journal.complete else { return done <= tensors };
        let there = |(id, (from, to)): (&Identity, &(PathBuf, PathBuf))| {
            Identity::of(from) == Some(*id) || Identity::of(to) == Some(*id)
        };
        done == tensors && complete.len() == self.names.len() && complete.iter().zip(&self.names).all(there)
    }

    /// Gives all files their names. Everything must be durable.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        if self.journal.complete.is_none() {
            self.sync_names()?;
            let identity = |(from, _): &(PathBuf, PathBuf)| Identity::of(from);
            let complete: Option<Vec<Identity>> = self.names.iter().map(identity).collect();
            let gone = || Error::io(&self.output, "find", io::ErrorKind::NotFound.into());
            self.journal.complete(complete.ok_or_else(gone)?)?;
        }
        let complete = format!(
            "what was written is complete, in `{}`: the same again only gives the names",
            self.work.display()
        );
        // The directory may have changed since it was checked.
        let is_replaced = self.kind == DestinationKind::Folder && self.overwrite && self.path.is_dir();
        if is_replaced
            && !self.is_placed(0)
            && let Some(fault) = only_a_checkpoint(&self.path)?
        {
            return Err(Error::whole(&self.path, fault).with_hint(complete));
        }
        self.rename().map_err(|(path, e)| {
            if e.kind() == io::ErrorKind::AlreadyExists {
                let error =
                    Error::whole(&path, Fault::Exists { what: "something has come to be there meanwhile" });
                error.with_hint(complete)
            } else {
                Error::io(&path, "rename", e)
            }
        })?;
        let parent = parent(&self.path);
        sync(parent).map_err(|e| Error::io(parent, "write", e))
    }

    /// Removes the journal, and what was replaced. All files must have their names.
    pub(super) fn release(&mut self) -> Result<(), Error> {
        self.done = true;
        self.remove().map_err(|e| Error::io(&self.work, "remove", e))
    }

    /// Removes all that was written, and the journal.
    pub(super) fn abandon(&mut self) {
        self.done = true;
        // The error has no one to go to, and the name says that the files are temporary.
        let _ = self.remove();
    }

    /// The paths of the result.
    pub(super) fn places(&self) -> impl Iterator<Item = &Path> {
        self.names.iter().map(|(_, to)| to.as_path())
    }

    /// Renames what has not got its name yet: of several files the first comes last, as readers begin with it.
    fn rename(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let stale =
            if self.kind == DestinationKind::Parts && self.overwrite { self.stale()? } else { vec![] };
        let order = (1..self.names.len()).chain([0]).filter(|i| !self.is_placed(*i));
        let order: Vec<&(PathBuf, PathBuf)> = order.filter_map(|i| self.names.get(i)).collect();
        if let (true, [_, .., (_, first)]) = (self.overwrite, &order[..]) {
            // Parts of what was and of what will be must not be taken for one: without its first part, what
            // was is refused by every reader.
            let removed = fs::remove_file(first).or_else(|e| ignore(e, io::ErrorKind::NotFound));
            removed.map_err(|e| (first.clone(), e))?;
        }
        for (n, (from, to)) in order.iter().enumerate() {
            if let Err(e) = self.rename_one(from, to) {
                // Someone else has made one of them meanwhile: the others go back.
                for (from, to) in order.iter().take(n).filter(|_| !self.overwrite) {
                    let _ = fs::rename(to, from);
                }
                return Err((to.clone(), e));
            }
        }
        stale.into_iter().try_for_each(|path| fs::remove_file(&path).map_err(|e| (path, e)))
    }

    fn rename_one(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.overwrite {
            return system::rename_new(from, to);
        }
        if self.kind == DestinationKind::Folder && to.is_dir() {
            // A directory that is not empty cannot be replaced, but exchanged; the old one goes with the rest.
            return system::exchange(from, to);
        }
        fs::rename(from, to)
    }

    /// Returns files of the same checkpoint under names that it will not have.
    fn stale(&self) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let family = family(&self.path).map_err(|e| (self.path.clone(), e))?;
        Ok(family.into_iter().filter(|path| self.names.iter().all(|(_, to)| to != path)).collect())
    }

    fn clear(&self) -> io::Result<()> {
        clear(&self.work)
    }

    fn remove(&self) -> io::Result<()> {
        remove(&self.work)
    }
}

/// Makes the directory `work`, or finds it, and opens its journal.
fn begin(work: &Path, fingerprint: &str) -> Result<(Journal, bool), Error> {
    let mut tries = 0;
    loop {
        make(work)?;
        match Journal::open(&work.join(JOURNAL), fingerprint) {
            // A process that is done removes the directory.
            Err(error) if error.is_not_found() && tries < 100 => tries += 1,
            other => return other,
        }
    }
}

fn clear(work: &Path) -> io::Result<()> {
    fs::remove_dir_all(work.join("output")).or_else(|e| ignore(e, io::ErrorKind::NotFound))
}

/// Removes a directory `work`, whose journal this process has locked.
pub(super) fn remove(work: &Path) -> io::Result<()> {
    clear(work)?;
    // In this order: whoever finds a journal waits for its lock, and sees then that it is gone.
    fs::remove_file(work.join(JOURNAL))?;
    // Another process may have come since, which has a journal of its own now.
    fs::remove_dir(work)
        .or_else(|e| ignore(e, io::ErrorKind::DirectoryNotEmpty))
        .or_else(|e| ignore(e, io::ErrorKind::NotFound))
}

impl Drop for OutputPlace {
    fn drop(&mut self) {
        if !self.done && self.journal.done.is_empty() && self.journal.complete.is_none() {
            // The error has no one to go to, and the name says that the files are temporary.
            let _ = self.remove();
        }
    }
}

/// Why nothing may be written to `path`, where `names` are to be given, and those in `placed` have been.
fn refuse(
    path: &Path,
    kind: DestinationKind,
    overwrite: bool,
    names: &[(PathBuf, PathBuf)],
    placed: &[(PathBuf, PathBuf)],
) -> Result<(), Error> {
    let mut there: Vec<PathBuf> = names.iter().map(|(_, to)| to.clone()).collect();
    if kind == DestinationKind::Parts && !names.is_empty() {
        there.extend(parts_at(path)?);
        there.sort_unstable();
        there.dedup();
    }
    for path in there.into_iter().filter(|path| placed.iter().all(|(_, to)| to != path)) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let exists = |what| Some(Fault::Exists { what });
        let refused = match (kind == DestinationKind::Folder, found.is_dir()) {
            _ if !overwrite => exists("already exists"),
            (true, true) => only_a_checkpoint(&path)?,
            (false, false) => None,
            (true, false) => exists("a file is there, where a directory is to be"),
            (false, true) => exists("a directory is there, where a file is to be"),
        };
        if let Some(fault) = refused {
            return Err(Error::whole(&path, fault));
        }
    }
    Ok(())
}

/// The directory beside `path` that all is in until then.
pub(super) fn work_of(path: &Path) -> PathBuf {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(".partial");
    path.with_file_name(hidden)
}

/// Whether the disk has room for `files`, but for what of them is there already.
fn room(path: &Path, files: &[OutFile], output: &Path) -> Result<(), Error> {
    let parent = parent(path);
    let disk = platform::room(parent).map_err(|e| Error::io(parent, "look at", e))?;
    let Some(Room { free, block }) = disk else { return Ok(()) };
    let whole = |len: u64| len.div_ceil(block).saturating_mul(block);
    let bytes = files.iter().fold(0u64, |sum, file| sum.saturating_add(whole(file.len)));
    let wants = bytes.saturating_sub(allocated(output));
    if wants <= free {
        return Ok(());
    }
    let what = format!("{wants} bytes are needed, {free} are free on its disk");
    Err(Error::io(path, "write", io::Error::new(io::ErrorKind::StorageFull, what)))
}

/// Bytes that the files below `folder` take on the disk; 0 of what is not there.
fn allocated(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let taken = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => allocated(&entry.path()),
        Ok(found) => system::allocated(&found),
        Err(_) => 0,
    };
    entries.flatten().map(taken).fold(0, u64::saturating_add)
}

fn parts_at(path: &Path) -> Result<Vec<PathBuf>, Error> {
    family(path).map_err(|e| Error::io(parent(path), "list", e))
}

/// The first of `paths` at which, or below which, one of `sources` is.
fn source_at<'a>(mut paths: impl Iterator<Item = &'a PathBuf>, sources: &[Location]) -> Option<&'a Path> {
    let sources: Vec<PathBuf> =
        sources.iter().filter_map(|source| source.path()?.canonicalize().ok()).collect();
    let holds = |path: &Path| sources.iter().any(|source| source.starts_with(path));
    paths.find(|path| path.canonicalize().is_ok_and(|path| holds(&path))).map(PathBuf::as_path)
}

/// Makes a directory, or finds one that is ours.
fn make(path: &Path) -> Result<(), Error> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path).map_err(|e| Error::io(path, "look at", e))?;
            if found.is_dir() && system::is_ours(&found) {
                return Ok(());
            }
            let what = "something is there that is not ours, where the unfinished result is to be";
            Err(Error::whole(path, Fault::Exists { what }))
        }
        other => other.map_err(|e| Error::io(path, "create", e)),
    }
}

fn ignore(error: io::Error, kind: io::ErrorKind) -> io::Result<()> {
    if error.kind() == kind { Ok(()) } else { Err(error) }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."))
}

/// `name` without the extension of GGUF.
fn stem(name: &str) -> &str {
    name.strip_suffix(GGUF).unwrap_or(name)
}

/// Returns true if `name` is that of a part of the checkpoint called `whole`.
pub(super) fn is_part_of(name: &str, whole: &str) -> bool {
    Numbered::parse(name).is_some_and(|part| part.prefix == stem(whole) && part.suffix == GGUF)
}

/// The name of a file of the draft beside or in what is called `whole`, as it is of `kind`.
pub(super) fn named(kind: DestinationKind, whole: &str, file: &str) -> String {
    match kind {
        DestinationKind::File | DestinationKind::Parts if file.is_empty() => whole.to_owned(),
        DestinationKind::File => format!("{whole}{file}"),
        DestinationKind::Parts => format!("{}{file}{GGUF}", stem(whole)),
        DestinationKind::Folder => file.to_owned(),
    }
}

/// Returns the paths that exist at `path` and beside it under the names of its parts, sorted.
fn family(path: &Path) -> io::Result<Vec<PathBuf>> {
    let own = path.file_name().unwrap_or_default();
    let mut found = vec![];
    for entry in fs::read_dir(parent(path))? {
        let name = entry?.file_name();
        let is_part = |name: &str| is_part_of(name, &own.to_string_lossy());
        if name == own || name.to_str().is_some_and(is_part) {
            found.push(path.with_file_name(name));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Why the directory at `path` must not be replaced.
fn only_a_checkpoint(path: &Path) -> Result<Option<Fault>, Error> {
    let listed = |path: &Path| -> Result<Vec<Entry>, Error> {
        let failed = |e| Error::io(path, "list", e);
        let entry = |entry: io::Result<fs::DirEntry>| -> io::Result<Entry> {
            let entry = entry?;
            let kind = if entry.file_type()?.is_dir() { EntryKind::Folder } else { EntryKind::File };
            Ok((entry.file_name().to_string_lossy().into_owned(), kind))
        };
        let entries = fs::read_dir(path).map_err(failed)?.map(entry);
        entries.collect::<io::Result<_>>().map_err(failed)
    };
    not_replaced(&listed(path)?, || listed(&path.join(squish::TENSORS)))
}

/// A name in a directory, and what it is.
pub(super) type Entry = (String, EntryKind);

/// The kind of what has a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Folder,
    /// The storage does not tell.
    Unknown,
}

/// Returns true for the name of a file that a conversion writes to the directory of a checkpoint.
pub(super) fn is_written(name: &str) -> bool {
    hf::is_written(name) || name == squish::MANIFEST
}

/// The same of a directory of arrays.
pub(super) fn is_array(name: &str) -> bool {
    name == squish::READY || name.strip_suffix(npy::ZSTD).unwrap_or(name).ends_with(npy::SUFFIX)
}

/// Why a directory of `entries` must not be replaced: it is no checkpoint, or holds what is not of one. All files of a checkpoint
/// have names that a conversion gives. `arrays` lists its directory of arrays.
pub(super) fn not_replaced(
    entries: &[Entry],
    arrays: impl FnOnce() -> Result<Vec<Entry>, Error>,
) -> Result<Option<Fault>, Error> {
    let is_model = entries.iter().any(|(name, _)| name == hf::CONFIG || name == squish::MANIFEST);
    let has_arrays = |(name, kind): &&Entry| name == squish::TENSORS && *kind != EntryKind::File;
    let mut foreign: Vec<String> = vec![];
    if entries.iter().any(|entry| has_arrays(&entry)) {
        let no_array = |(name, kind): &Entry| *kind == EntryKind::Folder || !is_array(name);
        let others = arrays()?.into_iter().filter(no_array);
        foreign.extend(others.map(|(name, _)| format!("{}/{name}", squish::TENSORS)));
    }
    let others = entries.iter().filter(|entry| {
        let (name, kind) = *entry;
        !has_arrays(entry) && (*kind == EntryKind::Folder || !is_written(name))
    });
    foreign.extend(others.map(|(name, _)| name.clone()));
    foreign.sort_unstable();
    Ok(match (is_model || entries.is_empty(), foreign.is_empty()) {
        (false, _) => Some(Fault::Exists { what: "the directory there is no model, so it is not replaced" }),
        (true, false) => Some(Fault::Foreign { names: foreign }),
        (true, true) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with `files` written, as [`super::super::Writer`] writes them.
    fn written(path: &Path, kind: DestinationKind, files: &[OutFile], overwrite: bool) -> OutputPlace {
        let options = WriteOptions { overwrite, ..WriteOptions::default() };
        let place = OutputPlace::open(path, kind, files, 0, "abc", &options).unwrap();
        if place.journal.complete.is_none() {
            for (i, file) in files.iter().enumerate() {
                place.file(i).unwrap();
                fs::write(&place.files[i], &file.head).unwrap();
            }
        }
        place
    }

    fn finish(mut place: OutputPlace) {
        place.commit().unwrap();
        place.release().unwrap();
    }

    fn list(dir: &Path) -> Vec<String> {
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
        names.sort_unstable();
        names
    }

    /// Killed after the new directory has got its name and before the old one is gone: it does not come back.
    #[test]
    fn an_exchange_is_not_done_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let content = |text: &str| [OutFile::whole(hf::CONFIG, text.as_bytes().to_vec())];
        finish(written(&path, DestinationKind::Folder, &content("old"), true));
        let mut place = written(&path, DestinationKind::Folder, &content("new"), true);
        place.journal.complete(vec![Identity::of(&place.output).unwrap()]).unwrap();
        place.rename().unwrap();
        drop(place);
        assert_eq!(list(dir.path()), [".m.partial", "m"]);
        assert_eq!(fs::read(path.join(hf::CONFIG)).unwrap(), b"new");
        assert_eq!(fs::read(dir.path().join(".m.partial/output/config.json")).unwrap(), b"old");
        finish(written(&path, DestinationKind::Folder, &content("new"), true));
        assert_eq!(list(dir.path()), ["m"]);
        assert_eq!(fs::read(path.join(hf::CONFIG)).unwrap(), b"new");
    }

    /// Killed after each of the renames: no reader ever finds a first part with others that are not its own, and the
    /// next process gives the remaining names.
    #[test]
    fn parts_get_the_rest_of_their_names() {
        let files = |text: &str| -> Vec<OutFile> {
            let name = |i: u32| format!("-{i:05}-of-00003");
            (1..=3).map(|i| OutFile::whole(name(i), format!("{text}{i}").into_bytes())).collect()
        };
        for (done, overwrite) in (0..=3).flat_map(|done| [(done, false), (done, true)]) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.gguf");
            if overwrite {
                finish(written(&path, DestinationKind::Parts, &files("old"), true));
            }
            let mut place = written(&path, DestinationKind::Parts, &files("new"), overwrite);
            place
                .journal
                .complete(place.names.iter().filter_map(|(n, _)| Identity::of(n)).collect())
                .unwrap();
            let names = place.names.clone();
            if done > 0 && overwrite {
                fs::remove_file(&names[0].1).unwrap();
            }
            for i in [1, 2, 0].into_iter().take(done) {
                fs::rename(&names[i].0, &names[i].1).unwrap();
            }
            drop(place);
            let text = |i: usize| fs::read_to_string(&names[i].1).ok();
            match (done, text(0).as_deref()) {
                (0, first) => assert_eq!(first, overwrite.then_some("old1")),
                (3, first) => assert_eq!(first, Some("new1")),
                (_, first) => assert_eq!(first, None),
            }
            finish(written(&path, DestinationKind::Parts, &files("new"), overwrite));
            assert_eq!((0..3).map(|i| text(i).unwrap()).collect::<Vec<_>>(), ["new1", "new2", "new3"]);
            assert_eq!(list(dir.path()).len(), 3);
        }
    }
}
