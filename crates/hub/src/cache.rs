//! The cache on this machine, shared with huggingface_hub.
//!
//! ```text
//! models--owner--name/refs/main                      the commit of a branch or tag
//! models--owner--name/snapshots/COMMIT/config.json   a link to ../../blobs/ETAG
//! models--owner--name/blobs/ETAG                     the bytes
//! models--owner--name/trees/COMMIT.json              all files of a commit, if huggingface_hub has asked for them
//! .locks/models--owner--name/ETAG.lock               held (flock) by who downloads the blob
//! ```
//!
//! Source: huggingface_hub 2.4.0, `file_download.py` and `_tree_cache.py`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;

use crate::choice::{HubFile, is_safe};
use crate::listing::{Files, is_commit};
use crate::{Error, HubName, Repo};

/// Tells the drafts of this process apart.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// The most entries that a snapshot on the disk may have.
const MOST_FILES: usize = 100_000;

/// Marks a folder for programs that make backups. Source: <https://bford.info/cachedir/>.
const TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# This is a cache of models from the Hugging Face Hub.\n";

/// The folder of one repository.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    cache: PathBuf,
    path: PathBuf,
    locks: PathBuf,
}

impl Folder {
    pub(crate) fn of(cache: &Path, repo: &Repo) -> Folder {
        let name = repo.folder();
        Folder { cache: cache.to_owned(), path: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// The directory of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.path.join("snapshots").join(commit)
    }

    /// A blob, whether it is there or not.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.path.join("blobs").join(etag)
    }

    /// Makes what a download needs.
    pub(crate) fn make(&self) -> Result<(), Error> {
        for folder in [self.path.join("blobs"), self.locks.clone()] {
            fs::create_dir_all(&folder).map_err(Error::io(&folder, "make the folder"))?;
        }
        let tag = self.cache.join("CACHEDIR.TAG");
        // Without the tag, the cache is as good.
        let _ = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(tag)
            .and_then(|mut f| f.write_all(TAG.as_bytes()));
        Ok(())
    }

    /// Takes the lock of a blob; `None` while another process has it. Dropping the file gives it back.
    ///
    /// The lock is that of `filelock` on Unix, `flock(2)`; its file stays, so that all wait for the same one.
    pub(crate) fn try_lock(&self, etag: &str) -> Result<Option<File>, Error> {
        let path = self.locks.join(format!("{etag}.lock"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o664);
        let file = options.open(&path).map_err(Error::io(&path, "open the lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            // A file system without locks: each download has bytes that are checked, whoever writes them.
            Err(fs::TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(Some(file)),
            Err(fs::TryLockError::Error(e)) => Err(Error::io(path, "lock")(e)),
        }
    }

    /// The commit that a revision had when it was last asked for.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let text = fs::read_to_string(self.path.join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|text| is_commit(text))
    }

    /// Remembers the commit of a revision.
    pub(crate) fn set_commit(&self, revision: &str, commit: &str) -> Result<(), Error> {
        if revision == commit || self.commit(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.path.join("refs").join(revision);
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let draft = path.with_file_name(format!("{name}.{}.tmp", std::process::id()));
        fs::write(&draft, commit).map_err(Error::io(&draft, "write"))?;
        fs::rename(&draft, &path).map_err(Error::io(path, "write"))
    }

    /// Makes the file of a snapshot a link to a blob.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), Error> {
        let path = self.snapshot(commit).join(file);
        if path.exists() {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder"))?;
        let up = "../".repeat(file.split('/').count() + 1);
        let target = format!("{up}blobs/{etag}");
        // Other tasks link other files with the same bytes.
        let no = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_file_name(format!(".{etag}.{}.{no}.tmp", std::process::id()));
        let _ = fs::remove_file(&draft);
        link(Path::new(&target), &self.blob(etag), &draft).map_err(Error::io(&draft, "make the link"))?;
        fs::rename(&draft, &path).map_err(Error::io(path, "make the link"))
    }

    /// The commits that have files here, each with the branches and tags that led to it last.
    pub(crate) fn commits(&self) -> BTreeMap<String, Vec<String>> {
        let mut commits: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in fs::read_dir(self.path.join("snapshots")).into_iter().flatten().flatten() {
            let commit = entry.file_name().into_string().ok().filter(|name| is_commit(name));
            if let Some(commit) = commit.filter(|_| entry.path().is_dir()) {
                commits.entry(commit).or_default();
            }
        }
        for file in there(&self.path.join("refs")) {
            if let Some(names) = self.commit(&file.path).and_then(|commit| commits.get_mut(&commit)) {
                names.push(file.path);
            }
        }
        commits
    }

    /// The files of a commit: all, if huggingface_hub has listed them, else those of the snapshot.
    pub(crate) fn files(&self, commit: &str) -> Option<Files> {
        let snapshot = self.snapshot(commit);
        if !snapshot.is_dir() {
            return None;
        }
        let files = self.tree(commit).unwrap_or_else(|| there(&snapshot));
        Some(Files { commit: commit.to_owned(), files })
    }

    /// The list that huggingface_hub has made.
    fn tree(&self, commit: &str) -> Option<Vec<HubFile>> {
        #[derive(Deserialize)]
        struct Tree {
            format_version: u32,
            files: BTreeMap<String, Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            size: u64,
            blob_id: Option<String>,
            lfs_sha256: Option<String>,
        }
        let text = fs::read(self.path.join("trees").join(format!("{commit}.json"))).ok()?;
        let tree: Tree = serde_json::from_slice(&text).ok().filter(|tree: &Tree| tree.format_version == 1)?;
        let file = |(path, entry): (String, Entry)| HubFile {
            path,
            size: Some(entry.size),
            sha256: entry.lfs_sha256,
            blob: entry.blob_id,
        };
        Some(tree.files.into_iter().map(file).collect())
    }
}

/// The files below a snapshot.
pub(crate) fn there(snapshot: &Path) -> Vec<HubFile> {
    let mut files = vec![];
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(snapshot.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            // A link that leads nowhere is no file.
            let Ok(about) = fs::metadata(entry.path()) else { continue };
            if files.len() + folders.len() >= MOST_FILES || !is_safe(&path) {
                continue;
            }
            if about.is_file() {
                files.push(HubFile { path, size: Some(about.len()), sha256: None, blob: None });
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The repositories of a cache.
pub(crate) fn repositories(cache: &Path) -> Vec<Repo> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut repos: Vec<Repo> =
        entries.filter_map(|entry| Repo::of_folder(entry.file_name().to_str()?)).collect();
    repos.sort();
    repos
}

#[cfg(unix)]
fn link(target: &Path, _blob: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

/// Links need a right that not every user has; without it, huggingface_hub copies too.
#[cfg(windows)]
fn link(target: &Path, blob: &Path, at: &Path) -> io::Result<()> {
    let target = PathBuf::from(target.to_string_lossy().replace('/', "\\"));
    std::os::windows::fs::symlink_file(target, at).or_else(|_| fs::copy(blob, at).map(drop))
}

/// The error for a model that the cache does not have whole.
pub(crate) fn not_cached(cache: &Path, name: &HubName, missing: impl Into<String>) -> Error {
    Error::NotCached { name: name.to_string(), cache: cache.to_owned(), missing: missing.into() }
}
