//! One file: from the hub to a blob of the cache.

use std::fs::{self, File};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Response, StatusCode, Url};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cache::Folder;
use crate::choice::HubFile;
use crate::client::{self, About, Client, Fault, Metadata, digest_of};
use crate::digest::Digest;
use crate::part::Part;
use crate::{Error, Repo};

/// How long to wait before a lock that another process has is tried again.
const LOCKED: Duration = Duration::from_millis(100);
/// How often a file is begun anew because the server has another one now.
const CHANGES: u32 = 3;

/// What all downloads of a pull count, and share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) folder: Folder,
    pub(crate) repo: Repo,
    pub(crate) commit: String,
    /// One permit for each request of bytes that may run at a time.
    pub(crate) connections: Semaphore,
    /// Bytes that arrived in this pull, and are still wanted.
    pub(crate) bytes: AtomicU64,
    /// Files that another process downloads.
    pub(crate) waiting: AtomicUsize,
    /// Files whose digest is being computed.
    pub(crate) checking: AtomicUsize,
}

/// What the cache calls a file by, if the list of files says so.
pub(crate) fn listed_etag(file: &HubFile) -> Option<&str> {
    file.sha256.as_deref().or(file.blob.as_deref())
}

/// Why a download of a file ended.
enum Ended {
    /// The server has another file now: it is begun anew.
    Changed,
    /// The server gives no ranges. The response is the whole file.
    Whole(Box<Response>),
    Failed(Fault),
}

impl<E: Into<Fault>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

/// Makes sure that the snapshot has `file`.
pub(crate) async fn fetch(shared: Arc<Shared>, file: HubFile) -> Result<(), Error> {
    let mut restarts = 0;
    loop {
        match (Download { shared: &shared, file: &file }).run(restarts == CHANGES).await {
            Ok(()) => return Ok(()),
            Err(Ended::Failed(fault)) => return Err(fault.into_error()),
            Err(Ended::Changed | Ended::Whole(_)) if restarts == CHANGES => {
                let url = shared.client.url([file.path.as_str()]);
                return Err(shared.client.malformed(&url, "the file changes while it is read".to_owned()));
            }
            Err(Ended::Changed | Ended::Whole(_)) => restarts += 1,
        }
    }
}

struct Download<'a> {
    shared: &'a Arc<Shared>,
    file: &'a HubFile,
}

impl Download<'_> {
    /// Links the file into the snapshot, after it was downloaded if no blob has it yet.
    async fn run(&self, is_last: bool) -> Result<(), Ended> {
        let Shared { folder, commit, .. } = &**self.shared;
        let pointer = folder.snapshot(commit).join(&self.file.path);
        if let Ok(about) = fs::metadata(&pointer) {
            return self.there(pointer, about.len()).map_err(Ended::from);
        }
        let metadata = match listed_etag(self.file).filter(|etag| folder.blob(etag).exists()) {
            Some(etag) => {
                return Ok(self.link(etag)?);
            }
            None => self.metadata().await?,
        };
        let etag = metadata.etag.clone();
        let Some(_lock) = self.locked(&etag).await? else {
            return Ok(self.link(&etag)?);
        };
        let size = self.size(&metadata)?;
        let blob = folder.blob(&etag);
        let part = Arc::new(Part::open(&blob, size)?);
        let resumed = part.complete() > 0;
        let counted = Arc::new(AtomicU64::new(0));
        let result = Bytes {
            shared: self.shared,
            file: self.file,
            part: &part,
            counted: &counted,
            location: Location::new(metadata),
        }
        .read()
        .await;
        let Ok(part) = Arc::try_unwrap(part) else {
            // Tasks that were aborted may still hold it: there is nothing to rename.
            return Err(Ended::Failed(Error::Interrupted.into()));
        };
        match result {
            Ok(()) => {}
            Err(Ended::Changed) => {
                self.forget(&counted);
                part.discard()?;
                return Err(Ended::Changed);
            }
            Err(ended) => return Err(ended),
        }
        match self.checked(&part, &etag).await? {
            None => {}
            // What an earlier process left may be wrong, for instance after the power failed.
            Some(_) if resumed && !is_last => {
                self.forget(&counted);
                part.discard()?;
                return Err(Ended::Changed);
            }
            Some(error) => {
                part.discard()?;
                return Err(error.into());
            }
        }
        part.become_blob(&blob)?;
        Ok(self.link(&etag)?)
    }

    /// A file that the snapshot has already.
    fn there(&self, path: PathBuf, found: u64) -> Result<(), Error> {
        match self.file.size {
            Some(wanted) if wanted != found => Err(Error::Damaged { path, wanted, found }),
            _ => Ok(()),
        }
    }

    fn link(&self, etag: &str) -> Result<(), Error> {
        let Shared { folder, commit, .. } = &**self.shared;
        if let Ok(about) = fs::metadata(folder.blob(etag)) {
            self.there(folder.blob(etag), about.len())?;
        }
        folder.link(commit, &self.file.path, etag)
    }

    /// What the hub says of the file. It must be what the list said.
    async fn metadata(&self) -> Result<Metadata, Error> {
        let Shared { client, repo, commit, .. } = &**self.shared;
        let mut tries = client.tries(u32::MAX);
        let metadata = loop {
            match client.metadata(repo, commit, &self.file.path).await {
                Ok(metadata) => break metadata,
                Err(fault) => tries.after(fault).await?,
            }
        };
        let agrees = |listed: &Option<String>| listed.as_ref().is_none_or(|listed| *listed == metadata.etag);
        let is_listed = match (&self.file.sha256, digest_of(&metadata.etag)) {
            (sha256 @ Some(_), Some(Digest::Sha256(_))) => agrees(sha256),
            (None, Some(Digest::Blob(_))) => agrees(&self.file.blob),
            // An address that is no digest is a mirror's: the list's digest counts.
            (_, None) => true,
            _ => self.file.blob.is_none() && self.file.sha256.is_none(),
        };
        if !is_listed {
            let listed = listed_etag(self.file).unwrap_or_default();
            let what = format!("wanted the `ETag` of the list, {listed}, found {}", metadata.etag);
            return Err(client.malformed(&metadata.location, format!("`{}`: {what}", self.file.path)));
        }
        Ok(metadata)
    }

    /// The size, which list and server must agree on.
    fn size(&self, metadata: &Metadata) -> Result<u64, Error> {
        let client = &self.shared.client;
        match (self.file.size, metadata.size) {
            (Some(wanted), Some(found)) if wanted != found => {
                let what = format!("`{}`: wanted {wanted} bytes as listed, found {found}", self.file.path);
                Err(client.malformed(&metadata.location, what))
            }
            (Some(size), _) | (None, Some(size)) => Ok(size),
            (None, None) => Err(client
                .malformed(&metadata.location, format!("`{}`: wanted a size, found none", self.file.path))),
        }
    }

    /// Waits for the lock of the blob; `None` if another process has downloaded it meanwhile.
    async fn locked(&self, etag: &str) -> Result<Option<File>, Error> {
        let Shared { folder, waiting, .. } = &**self.shared;
        let mut is_counted = false;
        let lock = loop {
            match folder.try_lock(etag) {
                Ok(Some(lock)) => break Ok(lock),
                Ok(None) => {
                    if !is_counted {
                        waiting.fetch_add(1, Ordering::Relaxed);
                        is_counted = true;
                    }
                    tokio::time::sleep(LOCKED).await;
                }
                Err(error) => break Err(error),
            }
        };
        if is_counted {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(Some(lock?).filter(|_| !folder.blob(etag).exists()))
    }

    /// Compares the bytes with the digest that the hub names.
    async fn checked(&self, part: &Part, etag: &str) -> Result<Option<Error>, Error> {
        let listed = self.file.sha256.as_deref().and_then(Digest::parse);
        // Without a SHA-256, the blob's SHA-1 in the list is that of the file.
        let listed = listed.or_else(|| self.file.blob.as_deref().and_then(Digest::parse));
        let Some(wanted) = digest_of(etag).or(listed) else { return Ok(None) };
        let path = part.path().to_owned();
        self.shared.checking.fetch_add(1, Ordering::Relaxed);
        let of = wanted.clone();
        let found =
            tokio::task::spawn_blocking(move || of.of_file(&path).map_err(Error::io(path, "read"))).await;
        self.shared.checking.fetch_sub(1, Ordering::Relaxed);
        let found = found.map_err(|_| Error::Interrupted)??;
        Ok((found != wanted).then(|| Error::Digest {
            file: self.file.path.clone(),
            kind: wanted.kind(),
            wanted: wanted.text().to_owned(),
            found: found.text().to_owned(),
        }))
    }

    /// Takes back what was counted of this file.
    fn forget(&self, counted: &AtomicU64) {
        self.shared.bytes.fetch_sub(counted.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Where the bytes of a file are. An address with a signature expires, and is asked for again.
#[derive(Debug)]
struct Location {
    etag: String,
    now: Mutex<Url>,
}

impl Location {
    fn new(metadata: Metadata) -> Arc<Location> {
        Arc::new(Location { etag: metadata.etag, now: Mutex::new(metadata.location) })
    }

    fn get(&self) -> Url {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, url: Url) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = url;
    }
}

/// The reading of a file's bytes.
struct Bytes<'a> {
    shared: &'a Arc<Shared>,
    file: &'a HubFile,
    part: &'a Arc<Part>,
    /// Those of the shared count that are of this file.
    counted: &'a Arc<AtomicU64>,
    location: Arc<Location>,
}

impl Bytes<'_> {
    /// Reads all pieces that are missing.
    async fn read(self) -> Result<(), Ended> {
        let mut missing = self.part.missing().into_iter();
        let Some((first, bytes)) = missing.next() else { return Ok(()) };
        // The first shows whether the server gives ranges.
        match self.reader().piece(first, bytes).await {
            Ok(()) => {}
            Err(Ended::Whole(response)) => return self.whole(response).await,
            Err(ended) => return Err(ended),
        }
        let mut tasks = JoinSet::new();
        for (piece, bytes) in missing {
            let reader = self.reader();
            tasks.spawn(async move { reader.piece(piece, bytes).await });
        }
        let mut failed = Ok(());
        while let Some(result) = tasks.join_next().await {
            let result = match result {
                Ok(result) => result,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(Ended::Failed(Error::Interrupted.into())),
            };
            if let Err(ended) = result
                && failed.is_ok()
            {
                failed = Err(ended);
                tasks.abort_all();
            }
        }
        failed
    }

    fn reader(&self) -> Reader {
        Reader {
            shared: self.shared.clone(),
            path: self.file.path.clone(),
            part: self.part.clone(),
            counted: self.counted.clone(),
            location: self.location.clone(),
        }
    }

    /// Reads the whole file from a server without ranges, from its beginning at each try.
    async fn whole(&self, response: Box<Response>) -> Result<(), Ended> {
        let (client, reader) = (&self.shared.client, self.reader());
        let size = self.part.size();
        let mut next = Some(response);
        let mut tries = client.tries(u32::MAX);
        loop {
            let mut at = 0;
            let result = match next.take() {
                Some(response) => reader.copy(*response, &mut at, size).await,
                None => match reader.get(None).await {
                    Ok(response) => reader.copy(response, &mut at, size).await,
                    Err(ended) => Err(ended),
                },
            };
            match result {
                Ok(()) => break,
                Err(Ended::Failed(fault)) => {
                    reader.uncount(at);
                    tries.after(fault).await?;
                }
                Err(ended) => return Err(ended),
            }
        }
        self.part.missing().into_iter().try_for_each(|(piece, _)| self.part.finish(piece))?;
        Ok(())
    }
}

/// What a task needs to read a piece.
struct Reader {
    shared: Arc<Shared>,
    path: String,
    part: Arc<Part>,
    counted: Arc<AtomicU64>,
    location: Arc<Location>,
}

impl Reader {
    /// Counts bytes that arrived.
    fn count(&self, bytes: u64) {
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back bytes that will be read again.
    fn uncount(&self, bytes: u64) {
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.counted.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reads one piece. A try that brought bytes is continued where it ended.
    async fn piece(&self, piece: u64, bytes: Range<u64>) -> Result<(), Ended> {
        let mut tries = self.shared.client.tries(u32::MAX);
        let mut at = bytes.start;
        loop {
            let before = at;
            match self.range(&mut at, bytes.end).await {
                Ok(()) => return Ok(self.part.finish(piece)?),
                Err(Ended::Failed(fault)) => {
                    if at > before {
                        tries.restart();
                    }
                    tries.after(fault).await?;
                }
                Err(ended) => {
                    self.uncount(at - bytes.start);
                    return Err(ended);
                }
            }
        }
    }

    /// Reads `at..end`, and moves `at` as bytes arrive.
    async fn range(&self, at: &mut u64, end: u64) -> Result<(), Ended> {
        let _permit = self.shared.connections.acquire().await.map_err(|_| Error::Interrupted)?;
        let client = &self.shared.client;
        let is_all = *at == 0 && end == self.part.size();
        let response = self.get((!is_all).then_some((*at, end))).await?;
        let url = response.url().clone();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let found = client::text(response.headers(), "content-range").unwrap_or_default();
                let wanted = format!("bytes {at}-{}/{}", end - 1, self.part.size());
                if found != wanted {
                    let what = format!("wanted the range `{wanted}`, found `{}`", found.escape_debug());
                    return Err(client.malformed(&url, what).into());
                }
            }
            _ if is_all => {}
            _ => return Err(Ended::Whole(Box::new(response))),
        }
        self.copy(response, at, end).await
    }

    /// Asks for bytes, where the hub says that they are.
    async fn get(&self, range: Option<(u64, u64)>) -> Result<Response, Ended> {
        let Shared { client, repo, commit, .. } = &*self.shared;
        let url = self.location.get();
        let about = About { repo, revision: commit, file: Some(&self.path) };
        let response = match client.get(&url, range, &about).await {
            Ok(response) => response,
            Err(fault) => {
                let is_expired = matches!(
                    &fault,
                    Fault::Passing(Error::Status { status: 400 | 401 | 403 | 404 | 410, .. }, _)
                );
                if is_expired {
                    let metadata = client.metadata(repo, commit, &self.path).await?;
                    if metadata.etag != self.location.etag {
                        return Err(Ended::Changed);
                    }
                    self.location.set(metadata.location);
                }
                return Err(fault.into());
            }
        };
        // Of other hosts, only the digest of the whole file counts.
        let is_other = client::etag(response.headers()).is_some_and(|etag| etag != self.location.etag);
        if client.is_hub(response.url()) && is_other {
            return Err(Ended::Changed);
        }
        Ok(response)
    }

    /// Writes a body that ends at `end`.
    async fn copy(&self, mut response: Response, at: &mut u64, end: u64) -> Result<(), Ended> {
        let client = &self.shared.client;
        let url = response.url().clone();
        while let Some(chunk) = response.chunk().await.map_err(|e| client.broken(&url, e))? {
            let count = chunk.len() as u64;
            if count > end - *at {
                return Err(client
                    .malformed(&url, format!("more bytes than the {end} that were wanted"))
                    .into());
            }
            self.part.write(*at, &chunk)?;
            *at += count;
            self.count(count);
        }
        if *at < end {
            let why = format!("the connection ended {} bytes early", end - *at);
            return Err(Ended::Failed(Fault::Passing(
                Error::Unreachable { host: client::host(&url), why },
                None,
            )));
        }
        Ok(())
    }
}
