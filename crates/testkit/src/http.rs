//! A server of files on loopback, as kind or as hostile as a test asks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Rng;

/// How a version of a file is told from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// By an `ETag`, which `If-Match` asks for.
    #[default]
    Strong,
    /// By an `ETag` that begins with `W/`.
    Weak,
    /// By `Last-Modified`.
    Time,
    /// Not at all.
    None,
}

/// What a server does wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// It waits before each answer.
    pub delay: Duration,
    /// One of this number of answers breaks off; none if 0.
    pub breaks: u64,
    /// One of this number of answers is a 503; none if 0.
    pub busy: u64,
    /// The kind of tags.
    pub tags: Tags,
    /// It answers with the whole file where a range was asked for.
    pub no_ranges: bool,
    /// Bytes that it sends beyond what it was asked for.
    pub surplus: usize,
    /// Bytes by which files are said to be longer than they are.
    pub longer: u64,
    /// It says that bodies are coded so: `gzip`.
    pub coding: Option<String>,
    /// It answers each request with a 400 whose body repeats it.
    pub repeats: bool,
    /// The answer about what is not there. Without it, a 404.
    pub missing: Option<Answer>,
}

/// An answer that has nothing to do with a file.
#[derive(Clone, Debug)]
pub struct Answer {
    /// `403 Forbidden`.
    pub status: &'static str,
    /// Lines, each with its end.
    pub headers: &'static str,
    /// Its body.
    pub body: &'static str,
}

/// What a server was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Bytes of bodies that were sent.
    pub bytes: u64,
    /// Most requests that were answered at the same time.
    pub at_once: u64,
    /// Answers that were broken off.
    pub broken: u64,
}

#[derive(Clone)]
enum Content {
    Bytes(Arc<[u8]>),
    Disk(PathBuf),
    /// It is at this URL.
    Elsewhere(String),
}

#[derive(Clone)]
struct Stored {
    content: Content,
    version: u64,
    /// Its tag, if it has one of its own.
    tag: Option<String>,
    /// More lines of its head.
    headers: String,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Stored>,
    versions: u64,
    faults: Faults,
    counts: Counts,
    now: u64,
    connections: u64,
    asked: Vec<String>,
    rng: Option<Rng>,
}

/// A server of files. It ends with the process.
#[derive(Clone)]
pub struct FileServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for FileServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileServer").field(&self.address).finish()
    }
}

impl FileServer {
    /// Starts a server without files.
    ///
    /// # Panics
    /// If loopback has no port.
    #[allow(clippy::missing_panics_doc, reason = "said above")]
    pub fn start() -> FileServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let server = FileServer { address, state: Arc::default() };
        server.state().rng = Some(Rng(1));
        let accepts = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepts.clone();
                server.state().connections += 1;
                thread::spawn(move || {
                    server.serve(stream);
                    server.state().connections -= 1;
                });
            }
        });
        server
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Puts `bytes` at `path`, as a new version.
    pub fn put(&self, path: &str, bytes: impl Into<Arc<[u8]>>) {
        self.insert(path, Content::Bytes(bytes.into()), None, "");
    }

    /// Puts `bytes` at `path`, with the ETag `"TAG"` and more lines of its head, each with its end.
    pub fn put_with(&self, path: &str, bytes: impl Into<Arc<[u8]>>, tag: &str, headers: &str) {
        self.insert(path, Content::Bytes(bytes.into()), Some(format!("\"{tag}\"")), headers);
    }

    /// Puts the file of this machine at `path`, as a new version.
    pub fn put_file(&self, path: &str, file: impl Into<PathBuf>) {
        self.insert(path, Content::Disk(file.into()), None, "");
    }

    /// Answers requests for `path` with a redirect to `url`.
    pub fn redirect(&self, path: &str, url: impl Into<String>) {
        self.insert(path, Content::Elsewhere(url.into()), None, "");
    }

    fn insert(&self, path: &str, content: Content, tag: Option<String>, headers: &str) {
        let mut state = self.state();
        state.versions += 1;
        let version = state.versions;
        state.files.insert(path.to_owned(), Stored { content, version, tag, headers: headers.to_owned() });
    }

    /// From now on it does this wrong.
    pub fn fail(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// What it was asked for since it was last asked.
    pub fn counts(&self) -> Counts {
        std::mem::take(&mut self.state().counts)
    }

    /// The heads of the requests since it was last asked.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    /// Connections that are open.
    pub fn connections(&self) -> u64 {
        self.state().connections
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the requests of one connection. What the client breaks off is of no interest.
    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(reading) = stream.try_clone() else { return };
        let mut reader = BufReader::new(reading);
        let mut writer = stream;
        loop {
            let mut head = String::new();
            while let Ok(n @ 1..) = reader.read_line(&mut head) {
                if n <= 2 {
                    break;
                }
            }
            if head.trim().is_empty() {
                return;
            }
            let delay = {
                let mut state = self.state();
                state.now += 1;
                state.counts.requests += 1;
                state.counts.at_once = state.counts.at_once.max(state.now);
                state.asked.push(head.clone());
                state.faults.delay
            };
            thread::sleep(delay);
            let goes_on = self.answer(&head, &mut writer);
            self.state().now -= 1;
            if goes_on != Some(true) {
                return;
            }
        }
    }

    /// Answers one request; `Some(true)` if the connection can take another.
    fn answer(&self, head: &str, writer: &mut TcpStream) -> Option<bool> {
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ');
        let (method, target) = (first.next()?, first.next()?);
        let path = target.split('?').next()?.trim_start_matches('/').to_owned();
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let (found, faults, breaks, busy) = {
            let mut state = self.state();
            let faults = state.faults.clone();
            let rng = state.rng.as_mut()?;
            let mut one_of = |n: u64| n > 0 && rng.below(n) == 0;
            let (breaks, busy) = (one_of(faults.breaks), one_of(faults.busy));
            let found = state.files.get(&path).cloned();
            (found, faults, breaks, busy)
        };
        let mut plain = |status: &str, more: &str, body: &str| {
            let body = if method == "HEAD" { "" } else { body };
            let len = body.len();
            write!(writer, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{more}\r\n{body}")
                .ok()
                .map(|()| true)
        };
        if faults.repeats {
            return plain("400 Bad Request", "", head);
        }
        if busy {
            return plain("503 Service Unavailable", "", "busy");
        }
        let Some(Stored { content, version, tag, headers }) = found else {
            let missing = Answer { status: "404 Not Found", headers: "", body: "" };
            let answer = faults.missing.unwrap_or(missing);
            return plain(answer.status, answer.headers, answer.body);
        };
        let tag = tag.or(match faults.tags {
            Tags::Strong => Some(format!("\"v{version}\"")),
            Tags::Weak => Some(format!("W/\"v{version}\"")),
            Tags::Time | Tags::None => None,
        });
        if let Some(wanted) = header("if-match")
            && tag.as_ref().is_some_and(|tag| tag.starts_with("W/") || *tag != wanted)
        {
            return plain("412 Precondition Failed", "", "");
        }
        let len = match &content {
            Content::Elsewhere(url) => return plain("302 Found", &format!("Location: {url}\r\n"), ""),
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Disk(path) => path.metadata().ok()?.len(),
        };
        let range = header("range").filter(|_| !faults.no_ranges);
        let (from, to) = match range.as_deref().and_then(|r| r.strip_prefix("bytes=")?.split_once('-')) {
            Some((from, to)) => (from.parse().ok()?, to.parse().map_or(len, |to: u64| len.min(to + 1))),
            None => (0, len),
        };
        if range.is_some() && from >= len {
            return plain("416 Range Not Satisfiable", &format!("Content-Range: bytes */{len}\r\n"), "");
        }
        let sent = to - from + faults.surplus as u64;
        let said = len + faults.longer;
        let status = match &range {
            Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{said}", to - 1),
            None => "200 OK".to_owned(),
        };
        let coding =
            faults.coding.map(|coding| format!("Content-Encoding: {coding}\r\n")).unwrap_or_default();
        let version = match (&tag, faults.tags) {
            (Some(tag), _) => format!("ETag: {tag}\r\n"),
            (None, Tags::Time) => {
                format!("Last-Modified: Thu, 01 Jan 2026 00:00:{:02} GMT\r\n", version % 60)
            }
            (None, _) => String::new(),
        };
        write!(writer, "HTTP/1.1 {status}\r\nContent-Length: {sent}\r\n{version}{coding}{headers}\r\n")
            .ok()?;
        if method == "HEAD" {
            return Some(true);
        }
        let stop = if breaks { self.state().rng.as_mut()?.below(to - from + 1) } else { to - from };
        self.state().counts.bytes += stop;
        match content {
            Content::Elsewhere(_) => {}
            Content::Bytes(bytes) => {
                let from = usize::try_from(from).ok()?;
                writer.write_all(bytes.get(from..from + usize::try_from(stop).ok()?)?).ok()?;
            }
            Content::Disk(path) => {
                let mut file = File::open(path).ok()?;
                file.seek(SeekFrom::Start(from)).ok()?;
                std::io::copy(&mut file.take(stop), writer).ok()?;
            }
        }
        if breaks {
            self.state().counts.broken += 1;
            return Some(false);
        }
        writer.write_all(&vec![0; faults.surplus]).ok()?;
        Some(true)
    }
}
