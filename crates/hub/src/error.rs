//! Why a model was not found or not pulled.

use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;

use tensor::{Bytes, Diagnostics, counted, nearest};

/// A model that a repository offers, and the name that pulls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The name to pull it by: `hf:owner/name/Q4_K_M`.
    pub name: String,
    /// The bytes of its files; `None` if the server does not say.
    pub bytes: Option<u64>,
}

/// Why a model was not found or not pulled.
///
/// Tokens never appear in it, nor do the queries of URLs, which may hold signatures.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is none of a model on the hub.
    #[error("`{}` names no model: wanted {wanted}, found {found}", text.escape_debug())]
    BadName {
        /// The name.
        text: String,
        /// What was wanted.
        wanted: &'static str,
        /// What was found.
        found: String,
    },
    /// A setting that cannot be used.
    #[error("{what}")]
    Setting {
        /// The setting, and what is wrong with it. Never its value if that is secret.
        what: String,
    },
    /// No such repository, or a private one.
    #[error("no repository `{repo}` at {host}")]
    NoRepository {
        /// The repository.
        repo: String,
        /// The hub's host.
        host: String,
        /// Whether a token was sent.
        token: bool,
        /// Whether the hub was asked for access, and did not say that the repository is missing.
        denied: bool,
    },
    /// A repository whose conditions the user has not accepted.
    #[error("`{repo}` is gated: its owner gives access to users who ask for it")]
    Gated {
        /// The repository.
        repo: String,
        /// Its page.
        page: String,
        /// Whether a token was sent.
        token: bool,
    },
    /// The token gives no access.
    #[error("the hub refuses access to `{repo}` with status {status}{}", said(text.as_ref()))]
    Forbidden {
        /// The repository.
        repo: String,
        /// The status of HTTP.
        status: u16,
        /// What the hub says.
        text: Option<String>,
        /// Whether a token was sent.
        token: bool,
    },
    /// No such branch, tag or commit.
    #[error("`{repo}` has no revision `{revision}`")]
    NoRevision {
        /// The repository.
        repo: String,
        /// The revision.
        revision: String,
    },
    /// No such file.
    #[error("`{repo}` has no file `{file}`")]
    NoFile {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// The nearest name, or why the file is wanted.
        hint: Option<String>,
    },
    /// No model, or more than one, has the quantisation or none was named.
    #[error("{}", choices(repo, wanted.as_deref(), *matches, offers))]
    Choose {
        /// The repository.
        repo: String,
        /// The quantisation that was named.
        wanted: Option<String>,
        /// How many models match it.
        matches: usize,
        /// What there is.
        offers: Vec<Offer>,
    },
    /// Parts of a split model are missing.
    #[error("`{repo}` has {} of the {of} parts of `{file}`", there)]
    Parts {
        /// The repository.
        repo: String,
        /// One of the parts.
        file: String,
        /// The number of parts that are there.
        there: usize,
        /// The number of parts that the name asks for.
        of: usize,
    },
    /// A repository without weights that can be opened.
    #[error("`{repo}` has no weights in safetensors, GGUF or PyTorch files among its {}", counted(*files, "file"))]
    NoWeights {
        /// The repository.
        repo: String,
        /// The number of its files.
        files: usize,
    },
    /// The hub may not be asked, or is not reached, and the cache does not have the model.
    #[error("`{name}` is not in the cache `{}`: {missing}", cache.display())]
    NotCached {
        /// The name.
        name: String,
        /// The cache.
        cache: PathBuf,
        /// What is missing.
        missing: String,
    },
    /// The hub was not reached.
    #[error("cannot reach {host}: {why}")]
    Unreachable {
        /// The host.
        host: String,
        /// What the network says.
        why: String,
    },
    /// The server gave up, or asks for more patience than there is.
    #[error("{host} answers with status {status} for `{path}`{}", said(text.as_ref()))]
    Status {
        /// The host.
        host: String,
        /// What was asked for.
        path: String,
        /// The status of HTTP.
        status: u16,
        /// What the server says.
        text: Option<String>,
    },
    /// The server breaks the protocol.
    #[error("{host} answers wrongly for `{}`: {what}", path.escape_debug())]
    Malformed {
        /// The host.
        host: String,
        /// What was asked for.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The bytes that arrived are not those of the file.
    #[error("`{file}` has the wrong {kind}: wanted {wanted}, found {found}")]
    Digest {
        /// The file.
        file: String,
        /// What was computed.
        kind: &'static str,
        /// The digest that the hub names.
        wanted: String,
        /// The digest of the bytes that arrived.
        found: String,
    },
    /// A file of the cache that is not as long as the hub says.
    #[error("`{}`: wanted {wanted} bytes, found {found}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The size that the hub names.
        wanted: u64,
        /// Its size.
        found: u64,
    },
    /// The disk is too small.
    #[error("the disk of `{}` has no room: wanted {} bytes ({}), free are {} bytes ({})", folder.display(), wanted, Bytes(*wanted), free, Bytes(*free))]
    Space {
        /// The folder.
        folder: PathBuf,
        /// The bytes that are wanted.
        wanted: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
    /// The system refused.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// Returns the message with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        Diagnostics::of(self, self.hints())
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        const LOG_IN: &str = "for a private repository, set `HF_TOKEN`, or log in with `hf auth login`";
        let hint = match self {
            Error::BadName { .. } => {
                "a name is `hf:owner/name`, then `@revision`, then `/file` or `/quantisation`, as in \
                 `hf:owner/name@main/Q4_K_M`"
            }
            Error::NoRepository { token: false, .. } | Error::Forbidden { token: false, .. } => LOG_IN,
            Error::NoRepository { denied: true, .. } | Error::Forbidden { .. } => {
                "check that the token is valid, and may read this repository"
            }
            Error::NoRepository { .. } => "check the name, and that the token may read this repository",
            Error::Gated { page, token, .. } => {
                let then = if *token { "the token must be of that user" } else { "then set `HF_TOKEN`" };
                return vec![format!("ask for access at {page}; {then}")];
            }
            Error::NoRevision { .. } => {
                "a revision is a branch, a tag or a commit; `%2F` stands for a `/` in its name"
            }
            Error::NoFile { hint, .. } => return hint.iter().cloned().collect(),
            Error::Choose { offers, .. } if offers.is_empty() => {
                "without a quantisation, all of the model is pulled"
            }
            Error::Choose { .. } => "use one of these names",
            Error::NoWeights { .. } => "add the name of a file to pull that file",
            Error::NotCached { .. } => "pull it once while the hub can be reached",
            Error::Unreachable { .. } => {
                "check the network, `HTTPS_PROXY` and `HF_ENDPOINT`; a model in the cache needs none of them"
            }
            Error::Status { status: 429, .. } => {
                "wait some minutes, or set `HF_TOKEN`: users may ask more often"
            }
            Error::Malformed { .. } => "check that `HF_ENDPOINT` is the address of a hub",
            Error::Digest { .. } => "the file was removed; pull it again",
            Error::Damaged { .. } => "something else has written to it: remove it, and pull it again",
            Error::Space { .. } => "free some space, or set `HF_HUB_CACHE` to a folder on another disk",
            _ => return vec![],
        };
        vec![hint.to_owned()]
    }

    /// Whether what the caller asked for is wrong, whatever the hub has.
    pub fn is_misuse(&self) -> bool {
        matches!(self, Error::BadName { .. } | Error::Setting { .. })
    }

    /// Whether the network or the hub failed, so that the cache may help.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Returns a closure for `map_err`: the system refused `doing` something to `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { path: path.into(), doing, source }
    }

    /// Says that a repository has no such file, with the nearest name.
    pub(crate) fn no_file<'a>(repo: &str, file: &str, files: impl IntoIterator<Item = &'a str>) -> Error {
        let hint = nearest(file, files).map(|name| format!("did you mean `{}`?", name.escape_debug()));
        Error::NoFile { repo: repo.to_owned(), file: file.escape_debug().to_string(), hint }
    }
}

/// What a server says, after a colon.
fn said(text: Option<&String>) -> String {
    text.map_or_else(String::new, |text| format!(": {text}"))
}

/// What can be chosen, a line for each.
fn choices(repo: &str, wanted: Option<&str>, matches: usize, offers: &[Offer]) -> String {
    let mut out = match (wanted, matches) {
        (None, _) => format!("`{repo}` has {}: choose one", counted(offers.len(), "model")),
        (Some(wanted), 0) => format!("`{repo}` has no model in `{}`", wanted.escape_debug()),
        (Some(wanted), n) => {
            format!("`{repo}` has {} in `{}`: choose one", counted(n, "model"), wanted.escape_debug())
        }
    };
    let size = |offer: &Offer| offer.bytes.map_or_else(|| "? B".to_owned(), |bytes| Bytes(bytes).to_string());
    let sizes: Vec<String> = offers.iter().map(size).collect();
    let width = sizes.iter().map(String::len).max().unwrap_or(0);
    for (offer, size) in offers.iter().zip(&sizes) {
        // Writing to a string does not fail.
        let _ = write!(out, "\n  {size:>width$}  {}", offer.name.escape_debug());
    }
    out
}
