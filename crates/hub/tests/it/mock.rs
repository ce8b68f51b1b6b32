//! A hub on this machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use hub::{Hub, HubName, Pulled};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use tempfile::TempDir;
use weighbridge_hub as hub;

/// What pulls send if they have a token.
pub(crate) const TOKEN: &str = "hf_very_secret_token";
/// The size from which files are in large-file storage.
pub(crate) const LARGE: usize = 10_000;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// As git computes it.
pub(crate) fn blob(bytes: &[u8]) -> String {
    let whole = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
    hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &whole).as_ref())
}

/// Bytes that do not repeat.
pub(crate) fn random(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(count);
    bytes
}

/// What a server was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

impl Asked {
    /// Whether it asks for the bytes of a file.
    pub(crate) fn is_for_bytes(&self) -> bool {
        self.method == Method::GET && !self.path.starts_with("/api/")
    }
}

pub(crate) type Answer = Response<Body>;
/// What a test does with a request before the hub sees it; the number counts those with the same method and path, from 1.
pub(crate) type Before = Box<dyn FnMut(&Asked, usize) -> Option<Answer> + Send>;

/// What the hub has.
pub(crate) struct Content {
    pub(crate) repo: String,
    pub(crate) commit: String,
    pub(crate) revisions: Vec<String>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Where bytes of large files are, if elsewhere.
    pub(crate) cdn: Option<String>,
    /// Replaces the list of files.
    pub(crate) list: Option<Vec<u8>>,
    pub(crate) before: Option<Before>,
    pub(crate) asked: Vec<Asked>,
}

/// A hub on this machine, and a cache for it.
pub(crate) struct Mock {
    pub(crate) content: Arc<Mutex<Content>>,
    pub(crate) address: String,
    pub(crate) dir: TempDir,
    _runtime: tokio::runtime::Runtime,
}

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

impl Mock {
    /// A hub with the repository `o/n`.
    pub(crate) fn new(files: &[(&str, Vec<u8>)]) -> Mock {
        let content = Content {
            repo: "o/n".to_owned(),
            commit: "c0".repeat(20),
            revisions: vec!["main".to_owned()],
            files: files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect(),
            cdn: None,
            list: None,
            before: None,
            asked: vec![],
        };
        let content = Arc::new(Mutex::new(content));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().fallback(serve).with_state(content.clone());
        runtime.spawn(async move { axum::serve(listener, app).await });
        Mock { content, address, dir: tempfile::tempdir().unwrap(), _runtime: runtime }
    }

    /// The same, with `before` asked first.
    pub(crate) fn with(self, before: impl FnMut(&Asked, usize) -> Option<Answer> + Send + 'static) -> Mock {
        self.content().before = Some(Box::new(before));
        self
    }

    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap()
    }

    /// A client with a token and little patience.
    pub(crate) fn builder(&self) -> hub::HubBuilder {
        Hub::builder()
            .unwrap()
            .endpoint(&self.address)
            .cache(self.dir.path().join("cache"))
            .token(Some(TOKEN))
            .offline(false)
            .tries(4, Duration::from_millis(20))
    }

    pub(crate) fn pull(&self, name: &str) -> Result<Pulled, hub::Error> {
        self.builder().build().pull(&HubName::parse(name)?, &|_| std::ops::ControlFlow::Continue(()))
    }

    /// The error of a pull, hints included.
    pub(crate) fn fails(&self, name: &str) -> String {
        let said = self.pull(name).map(|pulled| pulled.path).unwrap_err().diagnostics().to_string();
        assert!(!said.contains(TOKEN), "{said}");
        let host = self.address.trim_start_matches("http://");
        said.replace(host, "HUB").replace(&self.dir.path().display().to_string(), "DIR")
    }

    /// Requests for bytes since the last call.
    pub(crate) fn asked_for_bytes(&self) -> usize {
        let asked = std::mem::take(&mut self.content().asked);
        asked.iter().filter(|asked| asked.is_for_bytes()).count()
    }

    /// All files below the cache, with the lengths of their content.
    pub(crate) fn files_of_cache(&self) -> Vec<String> {
        fn walk(dir: &std::path::Path, at: &str, out: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = format!("{at}{}", entry.file_name().to_string_lossy());
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), &format!("{name}/"), out);
                } else {
                    out.push(name);
                }
            }
        }
        let mut out = vec![];
        walk(self.dir.path(), "", &mut out);
        out.sort();
        out
    }
}

async fn serve(State(content): State<Arc<Mutex<Content>>>, request: Request) -> Answer {
    let path = request.uri().path().to_owned();
    let asked = Asked { method: request.method().clone(), path, headers: request.headers().clone() };
    let mut content = content.lock().unwrap();
    content.asked.push(asked.clone());
    let same = |other: &&Asked| other.method == asked.method && other.path == asked.path;
    let count = content.asked.iter().filter(same).count();
    let mut before = content.before.take();
    let early = before.as_mut().and_then(|before| before(&asked, count));
    content.before = before;
    early.unwrap_or_else(|| content.answer(&asked))
}

impl Content {
    fn answer(&self, asked: &Asked) -> Answer {
        let path = asked.path.trim_start_matches('/');
        if let Some(rest) = path.strip_prefix("api/models/") {
            let Some(revision) = rest.strip_prefix(&format!("{}/revision/", self.repo)) else {
                return answer(
                    401,
                    &[("x-error-code", "RepoNotFound"), ("x-error-message", "Repository not found")],
                    "",
                );
            };
            let revision = revision.replace("%2F", "/");
            if revision != self.commit && !self.revisions.contains(&revision) {
                return answer(404, &[("x-error-code", "RevisionNotFound")], "");
            }
            return answer(
                200,
                &[("content-type", "application/json")],
                self.list.clone().unwrap_or_else(|| self.listed()),
            );
        }
        let file = path
            .strip_prefix(&format!("{}/resolve/{}/", self.repo, self.commit))
            .or_else(|| path.strip_prefix("cdn/"))
            .map(|file| file.replace("%20", " "));
        let Some((file, bytes)) = file.and_then(|file| self.files.get(&file).map(|bytes| (file, bytes)))
        else {
            return answer(404, &[("x-error-code", "EntryNotFound")], "");
        };
        let etag = if bytes.len() >= LARGE { sha256(bytes) } else { blob(bytes) };
        let (quoted, size) = (format!("\"{etag}\""), bytes.len().to_string());
        let is_cdn = path.starts_with("cdn/");
        if let Some(cdn) = self.cdn.as_ref().filter(|_| bytes.len() >= LARGE && !is_cdn) {
            let location = format!("{cdn}/cdn/{file}?X-Signature=abc");
            let headers = [
                ("location", location.as_str()),
                ("x-repo-commit", &self.commit),
                ("x-linked-etag", &quoted),
                ("x-linked-size", &size),
            ];
            return answer(302, &headers, "");
        }
        let mut headers = vec![
            ("x-repo-commit", self.commit.as_str()),
            ("etag", if is_cdn { "\"of-the-cdn\"" } else { &quoted }),
        ];
        if asked.method == Method::HEAD {
            headers.push(("content-length", &size));
            return answer(200, &headers, "");
        }
        let range = asked.headers.get("range").and_then(|range| {
            let (from, to) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
            Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?))
        });
        match range {
            None => answer(200, &headers, Bytes::copy_from_slice(bytes)),
            Some((from, to)) => {
                let range = format!("bytes {from}-{to}/{size}");
                headers.push(("content-range", &range));
                answer(
                    StatusCode::PARTIAL_CONTENT.as_u16(),
                    &headers,
                    Bytes::copy_from_slice(&bytes[from..=to]),
                )
            }
        }
    }

    /// The list of files.
    pub(crate) fn listed(&self) -> Vec<u8> {
        let files: Vec<String> = self
            .files
            .iter()
            .map(|(name, bytes)| {
                let (size, blob, sha256) = (bytes.len(), blob(bytes), sha256(bytes));
                let lfs = match size {
                    LARGE.. => {
                        format!(r#", "lfs": {{"sha256": "{sha256}", "size": {size}, "pointerSize": 130}}"#)
                    }
                    _ => String::new(),
                };
                format!(r#"{{"rfilename": "{name}", "size": {size}, "blobId": "{blob}"{lfs}}}"#)
            })
            .collect();
        format!(r#"{{"id": "{}", "sha": "{}", "siblings": [{}]}}"#, self.repo, self.commit, files.join(", "))
            .into_bytes()
    }
}
