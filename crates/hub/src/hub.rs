//! The hub, as a program uses it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use storage::platform;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cache::{Folder, not_cached};
use crate::choice::{self, Choice, HubFile, is_safe};
use crate::client::Client;
use crate::download::{Shared, fetch, listed_etag};
use crate::listing::{self, Files};
use crate::part::Part;
use crate::retry::Patience;
use crate::settings::{Settings, Token};
use crate::{Error, HubName};

/// How often a caller hears of progress.
const TICK: Duration = Duration::from_millis(50);
/// Files that are looked after at a time; connections are counted apart.
const FILES: usize = 8;
/// The most tries for the first answer: whether there is a network shows soon.
const FIRST: u32 = 3;
/// The most bytes of an index.
const INDEX: u64 = 64 << 20;

/// How far a pull is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that this pull has downloaded.
    pub done: u64,
    /// Bytes that were missing when it began.
    pub total: u64,
    /// Files that another process downloads, and this one waits for.
    pub waiting: usize,
    /// Files that have arrived, and whose digest is being computed.
    pub checking: usize,
}

/// A model that is on this machine now.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The directory of the model, or its file, in the cache.
    pub path: PathBuf,
    /// The commit.
    pub commit: String,
    /// The files of the model.
    pub files: Vec<HubFile>,
    /// The bytes that were downloaded.
    pub bytes_downloaded: u64,
    /// The other bytes of the files: in the cache before, or pulled by another process meanwhile.
    pub bytes_there: u64,
    /// Why the hub was not asked or did not answer, if the cache has answered for it.
    pub from_cache: Option<String>,
}

/// Where a model is read.
#[derive(Clone)]
pub enum Look {
    /// All of it is in the cache: its directory, or its file.
    Cached(PathBuf),
    /// On the hub.
    #[non_exhaustive]
    Remote {
        /// The directory of its commit.
        url: String,
        /// The header `Authorization` of each request to that host, which is secret.
        authorization: Option<String>,
        /// Its files.
        names: Vec<String>,
        /// The one file to open; `None` if it is the directory.
        entry: Option<String>,
    },
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Look::Cached(path) => f.debug_tuple("Cached").field(path).finish(),
            Look::Remote { url, names, entry, .. } => f
                .debug_struct("Remote")
                .field("url", url)
                .field("names", names)
                .field("entry", entry)
                .finish_non_exhaustive(),
        }
    }
}

/// Whether `path` may be one of the files that an index names.
fn is_shard(path: &str) -> bool {
    [".safetensors", ".bin"].iter().any(|end| path.ends_with(end)) && is_safe(path)
}

/// The Hugging Face Hub, and the cache of its models on this machine.
///
/// Its functions block. Call them outside of asynchronous tasks, or in `spawn_blocking`.
#[derive(Clone, Debug)]
pub struct Hub {
    settings: Settings,
    connections: usize,
    patience: Patience,
}

/// Makes a [`Hub`] with other settings than those of the environment.
#[derive(Clone, Debug)]
pub struct HubBuilder(Hub);

impl Hub {
    /// The hub that the environment names: `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `HF_HUB_CACHE`,
    /// `HF_HUB_OFFLINE` and `XDG_CACHE_HOME`, as huggingface_hub reads them.
    ///
    /// # Errors
    /// If there is a token in a file that cannot be read.
    pub fn from_env() -> Result<Hub, Error> {
        Ok(Hub::builder()?.build())
    }

    /// Begins with what [`Hub::from_env`] takes.
    ///
    /// # Errors
    /// As [`Hub::from_env`].
    pub fn builder() -> Result<HubBuilder, Error> {
        let patience = Patience { tries: 6, first: Duration::from_millis(500) };
        Ok(HubBuilder(Hub { settings: Settings::of_process()?, connections: 8, patience }))
    }

    /// The folder of the cache.
    pub fn cache(&self) -> &Path {
        &self.settings.cache
    }

    /// Lists the files of a repository. The part of the name does not matter.
    ///
    /// # Errors
    /// If there is no such repository or revision, or the hub does not answer.
    pub fn files(&self, name: &HubName) -> Result<Files, Error> {
        if self.settings.offline {
            return self.listed(name);
        }
        let runtime = runtime()?;
        let _context = runtime.enter();
        let client = self.client()?;
        runtime.block_on(listing::files(&client, name, FIRST))
    }

    /// Chooses the files of `name`; see [`choice::choose`]. Files that an index names come with [`Choice::with_shards`].
    ///
    /// # Errors
    /// As [`choice::choose`].
    pub fn choose(&self, name: &HubName, files: &Files) -> Result<Choice, Error> {
        choice::choose(name, &files.files)
    }

    /// Makes sure that a model is in the cache. `watch` hears of progress, and may stop it; what has arrived is kept for the next pull.
    ///
    /// # Errors
    /// If there is no such model, or the hub, the network, the disk or `watch` prevents it.
    pub fn pull(&self, name: &HubName, watch: &dyn Fn(Progress) -> ControlFlow<()>) -> Result<Pulled, Error> {
        if self.settings.offline {
            return self.cached(name, "offline");
        }
        let runtime = runtime()?;
        let _context = runtime.enter();
        let pulled = runtime.block_on(self.pull_from_hub(name, watch));
        // Names that are looked up, and files that are read, must not delay an error.
        runtime.shutdown_background();
        match pulled {
            Err(error) if error.is_outage() => self.cached(name, &error.to_string()).map_err(|_| error),
            pulled => pulled,
        }
    }

    /// Where a model is read without downloading it, for a look at its headers.
    ///
    /// # Errors
    /// As [`Hub::pull`], but for what happens to files.
    pub fn look(&self, name: &HubName) -> Result<Look, Error> {
        let cached = |why: &str| self.cached(name, why).map(|pulled| Look::Cached(pulled.path));
        if self.settings.offline {
            return cached("offline");
        }
        let files = match self.files(name) {
            Err(error) if error.is_outage() => return cached(&error.to_string()).map_err(|_| error),
            files => files?,
        };
        if let Ok(pulled) = self.cached(name, "it has all files")
            && pulled.commit == files.commit
        {
            return Ok(Look::Cached(pulled.path));
        }
        let choice = self.choose(name, &files)?;
        let mut names: Vec<String> = choice.files.into_iter().map(|file| file.path).collect();
        if choice.index.is_some() {
            // Which of them it names is not known yet.
            names.extend(files.files.into_iter().map(|file| file.path).filter(|path| is_shard(path)));
        }
        let url = self.client()?.url(name.repo().as_str().split('/').chain(["resolve", &files.commit]));
        let authorization = self.settings.token.as_ref().map(Token::bearer);
        Ok(Look::Remote { url: url.into(), authorization, names, entry: choice.entry })
    }

    fn client(&self) -> Result<Client, Error> {
        Client::new(&self.settings.endpoint, self.settings.token.as_ref(), self.patience)
    }

    fn folder(&self, name: &HubName) -> Folder {
        Folder::of(&self.settings.cache, name.repo())
    }

    async fn pull_from_hub(
        &self,
        name: &HubName,
        watch: &dyn Fn(Progress) -> ControlFlow<()>,
    ) -> Result<Pulled, Error> {
        let client = self.client()?;
        let files = listing::files(&client, name, FIRST).await?;
        let choice = self.choose(name, &files)?;
        let folder = self.folder(name);
        let pull = Pull {
            watch,
            shared: Arc::new(Shared {
                client,
                folder: folder.clone(),
                repo: name.repo().clone(),
                commit: files.commit.clone(),
                connections: Semaphore::new(self.connections),
                bytes: AtomicU64::new(0),
                waiting: AtomicUsize::new(0),
                checking: AtomicUsize::new(0),
            }),
        };
        let choice = pull.index(name, &files, choice).await?;
        pull.room(&choice.files, &self.settings.cache)?;
        folder.make()?;
        pull.all(choice.files.clone()).await?;
        folder.set_commit(name.revision(), &files.commit)?;
        let bytes_downloaded = pull.shared.bytes.load(Ordering::Relaxed);
        let all = choice.files.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
        Ok(Pulled {
            path: path(&folder, &files.commit, &choice),
            commit: files.commit,
            bytes_downloaded,
            bytes_there: all.saturating_sub(bytes_downloaded),
            files: choice.files,
            from_cache: None,
        })
    }

    /// The files of a repository as the cache has them.
    fn listed(&self, name: &HubName) -> Result<Files, Error> {
        let cache = &self.settings.cache;
        let folder = self.folder(name);
        let commit = folder
            .commit(name.revision())
            .ok_or_else(|| not_cached(cache, name, format!("it has no revision `{}`", name.revision())))?;
        folder
            .files(&commit)
            .ok_or_else(|| not_cached(cache, name, format!("it has no files of the commit {commit}")))
    }

    /// Answers from the cache alone.
    fn cached(&self, name: &HubName, why: &str) -> Result<Pulled, Error> {
        let cache = &self.settings.cache;
        let folder = self.folder(name);
        let files = self.listed(name)?;
        let snapshot = folder.snapshot(&files.commit);
        let missing = |error: Error| not_cached(cache, name, error.to_string());
        let choice = self.choose(name, &files).map_err(missing)?;
        let choice = match &choice.index {
            Some(index) => {
                let text = fs::read(snapshot.join(index)).map_err(Error::io(snapshot.join(index), "read"));
                let text = text.map_err(missing)?;
                choice.with_shards(name, &text, &files.files).map_err(missing)?
            }
            None => choice,
        };
        if let Some(file) = choice.files.iter().find(|file| !snapshot.join(&file.path).exists()) {
            return Err(not_cached(cache, name, format!("it has no `{}`", file.path)));
        }
        Ok(Pulled {
            path: path(&folder, &files.commit, &choice),
            commit: files.commit,
            bytes_downloaded: 0,
            bytes_there: choice.files.iter().filter_map(|file| file.size).sum(),
            files: choice.files,
            from_cache: Some(why.to_owned()),
        })
    }
}

impl HubBuilder {
    /// The address of the hub.
    #[must_use]
    pub fn endpoint(mut self, endpoint: &str) -> HubBuilder {
        endpoint.trim_end_matches('/').clone_into(&mut self.0.settings.endpoint);
        self
    }

    /// The token to send; `None` or an empty one: none.
    #[must_use]
    pub fn token(mut self, token: Option<&str>) -> HubBuilder {
        self.0.settings.token = token.and_then(Token::clean);
        self
    }

    /// The folder of the cache.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> HubBuilder {
        self.0.settings.cache = folder.into();
        self
    }

    /// Whether the cache alone answers.
    #[must_use]
    pub fn offline(mut self, is_offline: bool) -> HubBuilder {
        self.0.settings.offline = is_offline;
        self
    }

    /// The requests of bytes that run at a time; at least 1.
    #[must_use]
    pub fn connections(mut self, n: usize) -> HubBuilder {
        self.0.connections = n.max(1);
        self
    }

    /// How often a request that brings nothing is tried, and the wait after the first try, which doubles.
    #[must_use]
    pub fn tries(mut self, tries: u32, first_wait: Duration) -> HubBuilder {
        self.0.patience = Patience { tries: tries.max(1), first: first_wait };
        self
    }

    /// The hub.
    #[must_use]
    pub fn build(self) -> Hub {
        self.0
    }
}

/// A pull under way.
struct Pull<'a> {
    watch: &'a dyn Fn(Progress) -> ControlFlow<()>,
    shared: Arc<Shared>,
}

impl Pull<'_> {
    /// Fetches the index, if there is one, and adds the files that it names.
    async fn index(&self, name: &HubName, files: &Files, choice: Choice) -> Result<Choice, Error> {
        let index =
            choice.index.as_ref().and_then(|index| choice.files.iter().find(|file| file.path == *index));
        let Some(index) = index.cloned() else { return Ok(choice) };
        if index.size.is_some_and(|size| size > INDEX) {
            let url = self.shared.client.url([index.path.as_str()]);
            let what = format!("wanted an index of at most {INDEX} bytes, found {}", index.size.unwrap_or(0));
            return Err(self.shared.client.malformed(&url, what));
        }
        self.room(std::slice::from_ref(&index), &self.shared.folder.snapshot("."))?;
        self.shared.folder.make()?;
        let path = self.shared.folder.snapshot(&self.shared.commit).join(&index.path);
        self.all(vec![index]).await?;
        let text = fs::read(&path).map_err(Error::io(path, "read"))?;
        choice.with_shards(name, &text, &files.files)
    }

    /// The bytes that each file still lacks; a blob is counted once.
    fn missing(&self, files: &[HubFile]) -> u64 {
        let Shared { folder, commit, .. } = &*self.shared;
        let mut blobs: BTreeMap<&str, u64> = BTreeMap::new();
        for file in files {
            let Some(size) = file.size else { continue };
            if folder.snapshot(commit).join(&file.path).exists() {
                continue;
            }
            match listed_etag(file) {
                Some(etag) if folder.blob(etag).exists() => {}
                Some(etag) => {
                    blobs.insert(etag, size.saturating_sub(Part::left(&folder.blob(etag), size)));
                }
                None => {
                    blobs.insert(&file.path, size);
                }
            }
        }
        blobs.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Checks that the disk has room for what is missing.
    fn room(&self, files: &[HubFile], folder: &Path) -> Result<(), Error> {
        let wanted = self.missing(files);
        let folder = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
        match platform::room(folder) {
            Ok(Some(room)) if room.free < wanted => {
                Err(Error::Space { folder: folder.to_owned(), wanted, free: room.free })
            }
            _ => Ok(()),
        }
    }

    /// Fetches files, several at a time.
    async fn all(&self, files: Vec<HubFile>) -> Result<(), Error> {
        let total = self.shared.bytes.load(Ordering::Relaxed).saturating_add(self.missing(&files));
        let mut files = files.into_iter();
        let mut tasks = JoinSet::new();
        let mut ticks = tokio::time::interval(TICK);
        loop {
            while tasks.len() < FILES
                && let Some(file) = files.next()
            {
                tasks.spawn(fetch(self.shared.clone(), file));
            }
            tokio::select! {
                biased;
                done = tasks.join_next() => match done {
                    None => break,
                    // A task that panicked must not pass for one that was stopped.
                    Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Some(Err(_)) => return Err(Error::Interrupted),
                    Some(Ok(done)) => done?,
                },
                _ = ticks.tick() => self.tell(total)?,
            }
        }
        self.tell(total)
    }

    fn tell(&self, total: u64) -> Result<(), Error> {
        let Shared { bytes, waiting, checking, .. } = &*self.shared;
        let progress = Progress {
            done: bytes.load(Ordering::Relaxed).min(total),
            total,
            waiting: waiting.load(Ordering::Relaxed),
            checking: checking.load(Ordering::Relaxed),
        };
        if (self.watch)(progress).is_break() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// What is opened of a model.
fn path(folder: &Folder, commit: &str, choice: &Choice) -> PathBuf {
    let snapshot = folder.snapshot(commit);
    choice.entry.as_ref().map_or(snapshot.clone(), |entry| snapshot.join(entry))
}

fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("hub")
        .enable_all()
        .build()
        .map_err(|e| Error::Setting { what: format!("cannot start threads: {e}") })
}
