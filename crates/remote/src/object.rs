//! A file of a server.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt};
use storage::{ByteSource, Fill, Identity, Pace};

use crate::place::{Names, Place};
use crate::reactor::Reactor;
use crate::refusal::{changed, into_io, said};

/// Bytes that are fetched with the length when a file is opened: the header of most, all of a configuration.
const HEAD: u64 = 16 << 10;
/// Reads of fewer bytes that follow each other are parts of a header: they take a window.
const SMALL: usize = 16 << 10;
/// Bytes of a window.
const WINDOW: u64 = 128 << 10;
/// How many answers after each other may break off before this many bytes.
const MOST_BREAKS: u32 = 8;
const LEAST: usize = 1 << 10;

/// How long the end of an answer may take whose bytes are all there.
const END: Duration = Duration::from_secs(1);
/// Seconds after which an answer must have come at a rate.
const PATIENCE: u64 = 60;
/// That rate, in bytes a second.
const LEAST_RATE: u64 = 1024;

/// How servers are read at speed: docs/performance.md has what was measured.
const PACE: Pace = Pace { gap: 512 << 10, longest: 8 << 20, beside: 512 << 10, depth: 32, block: 1 };

/// A file of a server, in the version that was opened.
pub(crate) struct Object {
    reactor: Arc<Reactor>,
    store: Arc<dyn ObjectStore>,
    path: Path,
    kind: &'static str,
    /// The server leads to another, whose tags it does not know.
    is_elsewhere: bool,
    /// A hash of what the URL has that is not shown.
    secret: Option<u64>,
    meta: ObjectMeta,
    head: Bytes,
    /// Where the last small read ended.
    next: AtomicU64,
    /// Bytes of the file, and where they begin.
    window: Mutex<(u64, Vec<u8>)>,
}

impl Object {
    /// Asks for the file and its first bytes.
    pub(crate) async fn open(
        reactor: &Arc<Reactor>,
        store: &Arc<dyn ObjectStore>,
        path: Path,
        place: &Place,
    ) -> Result<Object, object_store::Error> {
        let (meta, head) = first(store, &path, HEAD).await?;
        let next = AtomicU64::new(head.len() as u64);
        let (reactor, store) = (Arc::clone(reactor), Arc::clone(store));
        let is_elsewhere = matches!(place.names, Names::Known(_));
        let (kind, secret) = (place.kind, place.secret);
        Ok(Object {
            reactor,
            store,
            path,
            kind,
            is_elsewhere,
            secret,
            meta,
            head,
            next,
            window: Mutex::default(),
        })
    }

    /// The version that was opened, where the server names it.
    fn tag(&self) -> Option<&str> {
        self.meta.e_tag.as_deref()
    }

    /// An answer about another version is an error.
    fn same(&self, now: &ObjectMeta) -> io::Result<()> {
        let was = &self.meta;
        // Servers without a clock say the time of the answer.
        let times = was.e_tag.is_some() || was.last_modified == now.last_modified;
        if was.size == now.size && was.e_tag == now.e_tag && times { Ok(()) } else { Err(changed()) }
    }

    async fn ask(&self, from: u64, to: u64) -> io::Result<GetResult> {
        // A weak tag does not match itself (RFC 9110, 13.1.1): the answer's is compared.
        let if_match =
            self.tag().filter(|tag| !self.is_elsewhere && !tag.starts_with("W/")).map(str::to_owned);
        let options =
            GetOptions { range: Some(GetRange::Bounded(from..to)), if_match, ..GetOptions::default() };
        let answer = self.store.get_opts(&self.path, options).await.map_err(|e| into_io(&e))?;
        self.same(&answer.meta)?;
        plain(&answer)?;
        Ok(answer)
    }

    /// Fills `buf`, and goes on where an answer breaks off.
    async fn fill(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let (mut at, mut breaks) = (0, 0);
        while at < buf.len() {
            let mut stream = self.ask(offset + at as u64, end).await?.into_stream();
            let (before, began) = (at, Instant::now());
            let broke = loop {
                // The end of an answer, which a server need not send.
                let next = if at == buf.len() {
                    tokio::time::timeout(END, stream.next()).await.unwrap_or_default()
                } else {
                    stream.next().await
                };
                match next {
                    Some(Ok(chunk)) => {
                        let to = buf.get_mut(at..).and_then(|rest| rest.get_mut(..chunk.len()));
                        let to =
                            to.ok_or_else(|| io::Error::other("the server sent more than was asked for"))?;
                        to.copy_from_slice(&chunk);
                        at += chunk.len();
                        in_time(began, at - before)?;
                    }
                    Some(Err(error)) => break Some(into_io(&error)),
                    None => break None,
                }
            };
            // Next to nothing is no progress, but near the end.
            let least = LEAST.min((buf.len() - before) / 16).max(1);
            breaks = if at - before >= least { 0 } else { breaks + 1 };
            if at < buf.len() && breaks > MOST_BREAKS {
                return Err(broke.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(())
    }

    /// Fills `buf` from a window of the file, if it goes on from the read before.
    fn by_window(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<()>> {
        let end = offset + buf.len() as u64;
        let follows = self.next.swap(end, Ordering::Relaxed) == offset;
        let mut window = self.window.try_lock().ok()?;
        let (start, bytes) = &mut *window;
        let inside = |start: u64, bytes: &[u8]| offset >= start && end <= start + bytes.len() as u64;
        if !inside(*start, bytes) {
            if !follows {
                return None;
            }
            let len = WINDOW.min(self.meta.size - offset);
            bytes.resize(usize::try_from(len).unwrap_or_default(), 0);
            *start = offset;
            if let Err(error) = self.reactor.wait(self.fill(offset, bytes)) {
                bytes.clear();
                return Some(Err(error));
            }
        }
        let from = usize::try_from(offset - *start).unwrap_or_default();
        buf.copy_from_slice(bytes.get(from..)?.get(..buf.len())?);
        Some(Ok(()))
    }

    /// Checks that a range is in the file.
    fn check(&self, offset: u64, bytes: usize) -> io::Result<()> {
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.meta.size => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "{bytes} bytes at offset {offset} reach past the end, which is at {}",
                    self.meta.size
                ),
            )),
        }
    }
}

impl ByteSource for Object {
    fn len(&self) -> u64 {
        self.meta.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let is_small = buf.len() < SMALL;
        let known = usize::try_from(offset).ok().and_then(|from| self.head.get(from..)).unwrap_or_default();
        let known = known.get(..buf.len()).unwrap_or(known);
        let (first, rest) = buf.split_at_mut(known.len());
        first.copy_from_slice(known);
        let at = offset + known.len() as u64;
        if !known.is_empty() {
            self.next.store(at, Ordering::Relaxed);
        }
        if rest.is_empty() {
            return Ok(());
        }
        match is_small.then(|| self.by_window(at, rest)).flatten() {
            Some(done) => done,
            None => self.reactor.wait(self.fill(at, rest)),
        }
    }

    fn read_many(&self, fills: &mut [Fill<'_>]) -> io::Result<()> {
        for fill in &*fills {
            self.check(fill.offset, fill.buf.len())?;
        }
        let reads = fills.iter_mut().map(|fill| self.fill(fill.offset, fill.buf));
        self.reactor.wait(async {
            let mut reads = futures::stream::iter(reads).buffer_unordered(PACE.depth);
            while let Some(read) = reads.next().await {
                read?;
            }
            Ok(())
        })
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn pace(&self) -> Pace {
        PACE
    }

    fn identity(&self) -> Option<Identity> {
        identity(&self.meta, self.secret)
    }

    fn is_pinned(&self) -> bool {
        // Without a name for the version only its length is compared.
        self.identity().is_some()
    }

    fn identity_now(&self) -> io::Result<Option<Identity>> {
        let (meta, _) = self.reactor.wait(first(&self.store, &self.path, 1)).map_err(|e| into_io(&e))?;
        Ok(identity(&meta, self.secret))
    }
}

/// Ends reads from a server that sends next to nothing.
fn in_time(began: Instant, bytes: usize) -> io::Result<()> {
    let seconds = began.elapsed().as_secs();
    if seconds < PATIENCE || bytes as u64 / seconds >= LEAST_RATE {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("the server sent {bytes} bytes in {seconds} s")))
}

/// Refuses an answer whose bytes are not those of the file.
fn plain(answer: &GetResult) -> io::Result<()> {
    match answer.attributes.get(&Attribute::ContentEncoding).map(AsRef::as_ref) {
        None | Some("identity" | "") => Ok(()),
        Some(coding) => {
            let coding: String = coding.chars().take(30).collect();
            Err(io::Error::other(format!("the server sends it compressed ({})", coding.escape_debug())))
        }
    }
}

/// What a file is, and its first bytes, at most `most`. Not by `HEAD`, which signed URLs and some servers refuse.
async fn first(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    most: u64,
) -> Result<(ObjectMeta, Bytes), object_store::Error> {
    let failed = |source: io::Error| object_store::Error::Generic { store: "server", source: source.into() };
    let began = Instant::now();
    let options = GetOptions { range: Some(GetRange::Bounded(0..most)), ..GetOptions::default() };
    let answer = match store.get_opts(path, options).await {
        Ok(answer) => answer,
        // An empty file has no range.
        Err(error @ object_store::Error::Generic { .. }) if said(&error).contains(" 416") => {
            return match store.head(path).await {
                Ok(meta) if meta.size == 0 => Ok((meta, Bytes::new())),
                _ => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    plain(&answer).map_err(failed)?;
    let meta = answer.meta.clone();
    let want = usize::try_from(meta.size.min(most)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(want);
    let mut stream = answer.into_stream();
    while bytes.len() < want
        && let Some(chunk) = stream.next().await
    {
        bytes.extend_from_slice(&chunk?);
        in_time(began, bytes.len()).map_err(failed)?;
    }
    bytes.truncate(want);
    Ok((meta, bytes.into()))
}

/// The version: the server's tag, or when it was last written to; `None` if the server says neither.
/// `secret` stands for what the URL has that is not shown.
fn identity(meta: &ObjectMeta, secret: Option<u64>) -> Option<Identity> {
    let written = || (meta.last_modified.timestamp() != 0).then(|| meta.last_modified.to_rfc3339());
    let tag = meta.e_tag.clone().or_else(written)?;
    let tag = secret.map(|secret| format!("{tag}?{secret:016x}")).unwrap_or(tag);
    Some(Identity::Tagged { len: meta.size, tag: tag.into() })
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("path", &self.path)
            .field("len", &self.meta.size)
            .finish_non_exhaustive()
    }
}
