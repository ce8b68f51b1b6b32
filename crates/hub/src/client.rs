//! Requests to the hub: who may see the token, which redirects are followed, what a refusal means.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderValue, LOCATION, RANGE,
    RETRY_AFTER,
};
use reqwest::{Method, Response, StatusCode, Url};

use crate::digest::Digest;
use crate::retry::{self, LONGEST, Patience};
use crate::settings::Token;
use crate::{Error, Repo};

/// A server that accepts no connection in this time is not there.
const CONNECT: Duration = Duration::from_secs(10);
/// A server that sends nothing for this long has gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The most redirects of one request.
const REDIRECTS: usize = 10;
/// The longest text of a server in a message.
const TEXT: usize = 200;

/// Why a request brought nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It may go better later, or after the time that the server asks for.
    Passing(Error, Option<Duration>),
    /// It will not.
    Lasting(Error),
}

impl Fault {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Fault::Passing(error, _) | Fault::Lasting(error) => error,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Lasting(error)
    }
}

/// What the hub says about a file before its bytes are read.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    /// What the cache calls the file by.
    pub(crate) etag: String,
    pub(crate) size: Option<u64>,
    /// Where the bytes are.
    pub(crate) location: Url,
}

/// A client of one hub.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    endpoint: Url,
    token: Option<Arc<Token>>,
    patience: Patience,
}

impl Client {
    /// A client. It must be used in the runtime that it is made in.
    pub(crate) fn new(endpoint: &str, token: Option<&Token>, patience: Patience) -> Result<Client, Error> {
        // Another provider that the program has chosen is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let setting = |what: String| Error::Setting { what };
        let wrong = || {
            setting(
                "`HF_ENDPOINT` is no address of a hub: wanted one like `https://huggingface.co`".to_owned(),
            )
        };
        let endpoint = Url::parse(endpoint).map_err(|_| wrong())?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host_str().is_none() {
            return Err(wrong());
        }
        if let Some(token) = token {
            HeaderValue::from_str(&token.bearer())
                .map_err(|_| setting("the token has characters that no header can hold".to_owned()))?;
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("weighbridge/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .build()
            .map_err(|e| setting(format!("cannot set up TLS: {}", causes(&e))))?;
        Ok(Client { http, endpoint, token: token.cloned().map(Arc::new), patience })
    }

    /// The host of the hub.
    pub(crate) fn host(&self) -> String {
        host(&self.endpoint)
    }

    /// The URL of the hub with `parts` as the segments of its path, escaped.
    pub(crate) fn url<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    /// The URL of a file.
    fn file_url(&self, repo: &Repo, commit: &str, file: &str) -> Url {
        let path = repo.as_str().split('/').chain(["resolve", commit]).chain(file.split('/'));
        self.url(path)
    }

    /// Gets `url`. `of` says what a refusal is about.
    pub(crate) async fn get(
        &self,
        url: &Url,
        range: Option<(u64, u64)>,
        of: &About<'_>,
    ) -> Result<Response, Fault> {
        let response = self.follow(Method::GET, url, range, true).await?;
        self.accepted(response, of)
    }

    /// Asks for the metadata of a file.
    pub(crate) async fn metadata(&self, repo: &Repo, commit: &str, file: &str) -> Result<Metadata, Fault> {
        let url = self.file_url(repo, commit, file);
        let response = self.follow(Method::HEAD, &url, None, false).await?;
        let location =
            if response.status().is_redirection() { Some(self.location(&response)?) } else { None };
        let response = match location {
            Some(_) => response,
            None => self.accepted(response, &About { repo, revision: commit, file: Some(file) })?,
        };
        let malformed = |what: String| self.malformed(&url, what);
        let headers = response.headers();
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, ETAG.as_str()));
        let etag = etag.map(normal).ok_or_else(|| malformed("wanted an `ETag`, found none".to_owned()))?;
        if !is_file_name(&etag) {
            return Err(malformed(format!(
                "wanted an `ETag` that can name a file, found `{}`",
                etag.escape_debug()
            ))
            .into());
        }
        match text(headers, "x-repo-commit") {
            Some(found) if found != commit => {
                return Err(malformed(format!(
                    "wanted the commit {commit}, found `{}`",
                    found.escape_debug()
                ))
                .into());
            }
            _ => {}
        }
        let length = || text(headers, CONTENT_LENGTH.as_str()).filter(|_| location.is_none());
        let size = text(headers, "x-linked-size").or_else(length).and_then(|size| size.parse().ok());
        let location = location.unwrap_or_else(|| response.url().clone());
        Ok(Metadata { etag, size, location })
    }

    /// Sends a request, and follows redirects: to other hosts only if `leaves`. Otherwise the redirect is the response.
    async fn follow(
        &self,
        method: Method,
        url: &Url,
        range: Option<(u64, u64)>,
        leaves: bool,
    ) -> Result<Response, Fault> {
        let mut url = url.clone();
        for _ in 0..REDIRECTS {
            let response = self.send(method.clone(), &url, range).await?;
            let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if !is_redirect {
                return Ok(response);
            }
            let next = self.location(&response)?;
            // A mirror may send to another hub before it says anything of the file.
            if !leaves && !self.is_hub(&next) && etag(response.headers()).is_some() {
                return Ok(response);
            }
            url = next;
        }
        Err(self.malformed(&url, format!("more than {REDIRECTS} redirects")).into())
    }

    async fn send(&self, method: Method, url: &Url, range: Option<(u64, u64)>) -> Result<Response, Fault> {
        let mut request = self.http.request(method, url.clone());
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(url)) {
            let mut value = HeaderValue::from_str(&token.bearer())
                .map_err(|_| self.malformed(url, "token".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        // Ranges and sizes are of the file itself.
        request = request.header(ACCEPT_ENCODING, "identity");
        if let Some((from, to)) = range {
            request = request.header(RANGE, format!("bytes={from}-{}", to.saturating_sub(1)));
        }
        request.send().await.map_err(|e| self.broken(url, e))
    }

    /// Whether the token may be sent there.
    pub(crate) fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    /// Where a redirect leads.
    fn location(&self, response: &Response) -> Result<Url, Error> {
        let from = response.url();
        let to = text(response.headers(), LOCATION.as_str()).and_then(|to| from.join(&to).ok());
        let to = to.filter(|to| matches!(to.scheme(), "http" | "https") && to.host_str().is_some());
        match to {
            None => Err(self.malformed(from, "a redirect to no address".to_owned())),
            Some(to) if from.scheme() == "https" && to.scheme() == "http" => {
                Err(self.malformed(from, format!("a redirect from https to http, to {}", host(&to))))
            }
            Some(to) => Ok(to),
        }
    }

    /// Turns a status that is no success into what it means.
    fn accepted(&self, response: Response, of: &About<'_>) -> Result<Response, Fault> {
        let (status, headers) = (response.status(), response.headers());
        if status.is_success() {
            return Ok(response);
        }
        let url = response.url();
        let code = text(headers, "x-error-code").unwrap_or_default();
        let said = text(headers, "x-error-message").map(|said| self.shown(&said));
        let repo = of.repo.to_string();
        let token = self.token.is_some();
        let no_repository =
            |denied| Error::NoRepository { repo: repo.clone(), host: self.host(), token, denied };
        let passing = || {
            let asked = text(headers, RETRY_AFTER.as_str());
            asked.and_then(|asked| retry::after(&asked, SystemTime::now()))
        };
        let plain = || Error::Status {
            host: host(url),
            path: url.path().to_owned(),
            status: status.as_u16(),
            text: said.clone(),
        };
        if !self.is_hub(url) {
            // Signed addresses expire. Nothing that another host says is about the repository.
            return Err(Fault::Passing(plain(), passing()));
        }
        Err(Fault::Lasting(match (status, code.as_str()) {
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT, _) => match passing() {
                Some(asked) if asked > LONGEST => plain(),
                asked => return Err(Fault::Passing(plain(), asked)),
            },
            (status, _) if status.is_server_error() => match passing() {
                Some(asked) if asked > LONGEST => plain(),
                asked => return Err(Fault::Passing(plain(), asked)),
            },
            (_, "RepoNotFound") => no_repository(false),
            (_, "GatedRepo") => {
                let page = format!("{}/{repo}", origin(&self.endpoint));
                Error::Gated { repo, page, token }
            }
            (_, "RevisionNotFound") => Error::NoRevision { repo, revision: of.revision.to_owned() },
            (_, "EntryNotFound") => {
                let file = of.file.unwrap_or_default().escape_debug().to_string();
                Error::NoFile { repo, file, hint: None }
            }
            // The hub does not tell strangers that a private repository exists.
            (StatusCode::UNAUTHORIZED, _) => no_repository(true),
            (StatusCode::FORBIDDEN, _) => {
                Error::Forbidden { repo, status: status.as_u16(), text: said, token }
            }
            (StatusCode::NOT_FOUND, _) if of.file.is_none() => no_repository(false),
            _ => plain(),
        }))
    }

    /// A text of the server as messages show it: in one line, not long, without the token.
    fn shown(&self, said: &str) -> String {
        let said = self.token.as_ref().map_or_else(|| said.to_owned(), |token| token.hidden_in(said));
        said.chars().filter(|c| !c.is_control()).take(TEXT).collect()
    }

    /// A connection that failed or broke.
    pub(crate) fn broken(&self, url: &Url, error: reqwest::Error) -> Fault {
        let error = error.without_url();
        let why = if error.is_timeout() && !error.is_connect() {
            format!("it sent nothing for {} seconds", SILENCE.as_secs())
        } else {
            self.shown(&causes(&error))
        };
        Fault::Passing(Error::Unreachable { host: host(url), why }, None)
    }

    /// An answer that breaks the protocol.
    pub(crate) fn malformed(&self, url: &Url, what: String) -> Error {
        Error::Malformed { host: host(url), path: self.shown(url.path()), what: self.shown(&what) }
    }

    /// Tries of one request: as many as the client has patience for, and at most `most`.
    pub(crate) fn tries(&self, most: u32) -> Tries {
        Tries { patience: self.patience, most: self.patience.tries.min(most), tried: 0 }
    }
}

/// Tries of one request that brought nothing, in a row.
#[derive(Debug)]
pub(crate) struct Tries {
    patience: Patience,
    most: u32,
    tried: u32,
}

impl Tries {
    /// Waits until it is time for the next try.
    ///
    /// # Errors
    /// The fault, if it will not pass or was the last that is put up with.
    pub(crate) async fn after(&mut self, fault: Fault) -> Result<(), Error> {
        self.tried += 1;
        match fault {
            Fault::Lasting(error) => Err(error),
            Fault::Passing(error, _) if self.tried >= self.most => Err(error),
            Fault::Passing(_, asked) => {
                tokio::time::sleep(self.patience.wait(self.tried, asked)).await;
                Ok(())
            }
        }
    }

    /// Forgets those before: the last one brought something.
    pub(crate) fn restart(&mut self) {
        self.tried = 0;
    }
}

/// What a request is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) repo: &'a Repo,
    pub(crate) revision: &'a str,
    pub(crate) file: Option<&'a str>,
}

/// The digest that an `ETag` of the hub is, or that the list of files names.
pub(crate) fn digest_of(etag: &str) -> Option<Digest> {
    Digest::parse(etag)
}

/// The `ETag` without quotes and without the mark of a weak one. Source: huggingface_hub 2.4.0, `_normalize_etag`.
pub(crate) fn normal(etag: impl AsRef<str>) -> String {
    etag.as_ref().trim_start_matches(['W', '/']).trim_matches('"').to_owned()
}

/// The normal `ETag` of a response.
pub(crate) fn etag(headers: &HeaderMap) -> Option<String> {
    text(headers, "x-linked-etag").or_else(|| text(headers, ETAG.as_str())).map(normal)
}

/// Whether the cache can have a blob with this name.
fn is_file_name(etag: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=128).contains(&etag.len()) && !etag.starts_with('.') && etag.chars().all(is_plain)
}

/// A header as text.
pub(crate) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The host and port of a URL, without user and password.
pub(crate) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The URL's scheme, host and port.
fn origin(url: &Url) -> String {
    format!("{}://{}", url.scheme(), host(url))
}

/// What an error says last: the cause of all. URLs are left out, because their queries may hold signatures.
fn causes(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
