//! What a URL says: which server, which directory there, which file.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use storage::{Error, Location, Name};
use url::Url;

use crate::aws;

/// The schemes that are read.
pub(crate) const SCHEMES: &[&str] = &["https", "http", "s3", "gs", "az"];

/// A directory of a server, and a name in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The scheme.
    pub(crate) kind: &'static str,
    /// The directory in the store.
    pub(crate) base: Path,
    /// The URL of the directory without what is secret in it.
    pub(crate) shown: String,
    /// The file or directory in it. [`Name::ROOT`] if the URL ends with a slash.
    pub(crate) name: Name,
    /// How the names of a directory are known.
    pub(crate) names: Names,
    /// A hash of the URL's query.
    pub(crate) query: Option<u64>,
    /// What an answer of no access may be helped by.
    pub(crate) access: &'static str,
}

/// How the names of a directory are known.
#[derive(Debug)]
pub(crate) enum Names {
    /// The server lists them.
    Listed,
    /// The usual ones are asked for.
    Usual,
    /// From elsewhere: these are all files, with their directories.
    Known(BTreeSet<String>),
}

impl Place {
    /// The directory at `url`, a server of files, which has the files `names`; `shown` is what messages call it.
    pub(crate) fn known(
        url: &str,
        authorization: Option<&str>,
        names: BTreeSet<String>,
        shown: String,
    ) -> Result<Place, Error> {
        let refuse = |why: String| {
            let why = io::Error::new(io::ErrorKind::InvalidInput, why);
            Error::io(Location::Named(shown.clone()), "open", why)
        };
        let base = Url::parse(url).map_err(|e| refuse(format!("it is no URL: {e}")))?;
        let mut headers = HeaderMap::new();
        if let Some(text) = authorization {
            let mut value =
                HeaderValue::from_str(text).map_err(|_| refuse("a credential is no header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let kind = if base.scheme() == "http" { "http" } else { "https" };
        let store = files(base, headers).map_err(|e| refuse(crate::refusal::said(&e)))?;
        let (base, name) = (Path::default(), Name::ROOT);
        Ok(Place {
            store,
            kind,
            base,
            shown,
            name,
            names: Names::Known(names),
            query: None,
            access: "the token may not read it",
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Place, Error> {
        let refuse = |shown: &str, why: String| {
            let why = io::Error::new(io::ErrorKind::InvalidInput, why);
            Error::io(Location::Named(shown.to_owned()), "open", why)
        };
        let safe = &*storage::shown(text);
        // Of what is no URL, all but the scheme may be a password.
        let bare = format!("{}://…", storage::url_scheme(text).unwrap_or_default());
        let url = Url::parse(text).map_err(|e| refuse(&bare, format!("it is no URL: {e}")))?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host
            .ok_or_else(|| refuse(safe, "wanted a server or a bucket after `://`".to_owned()))?
            .to_owned();
        let (folder, file) = split(&url).map_err(|why| refuse(safe, why))?;
        let name = Name::parse(file)?;
        let kind = SCHEMES.iter().find(|kind| **kind == url.scheme());
        let kind = *kind.ok_or_else(|| refuse(safe, format!("wanted a URL of {}", SCHEMES.join(", "))))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let shown =
            format!("{kind}://{host}{port}{}{}", if folder.is_empty() { "" } else { "/" }, folder.join("/"));
        let failed = |e: object_store::Error| refuse(&shown, crate::refusal::said(&e));
        let is_http = matches!(kind, "http" | "https");
        let (store, access): (Arc<dyn ObjectStore>, _) = match kind {
            "s3" => {
                let store = aws::store(&host, client(), retries()).map_err(|why| refuse(&shown, why))?;
                (Arc::new(store), aws::ACCESS)
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&host);
                if let Ok(emulator) = std::env::var("STORAGE_EMULATOR_HOST") {
                    let base = if emulator.contains("://") { emulator } else { format!("http://{emulator}") };
                    builder = builder.with_config(GoogleConfigKey::BaseUrl, base).with_skip_signature(true);
                    builder = builder.with_client_options(client().with_allow_http(true));
                } else {
                    builder = builder.with_client_options(client());
                }
                let access = "credentials are those of GOOGLE_APPLICATION_CREDENTIALS or of `gcloud auth application-default login`; GOOGLE_SKIP_SIGNATURE=true reads a public bucket";
                (Arc::new(builder.with_retry(retries()).build().map_err(failed)?), access)
            }
            "az" => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(&host);
                let plain = std::env::var("AZURE_STORAGE_USE_EMULATOR")
                    .is_ok_and(|on| on != "false" && on != "0")
                    || std::env::vars()
                        .any(|(key, value)| key.starts_with("AZURE_") && value.starts_with("http://"));
                let builder =
                    builder.with_client_options(client().with_allow_http(plain)).with_retry(retries());
                let access = "the account is AZURE_STORAGE_ACCOUNT_NAME, its credentials AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN";
                (Arc::new(builder.build().map_err(failed)?), access)
            }
            _ => {
                let mut base = url.clone();
                base.set_fragment(None);
                let mut headers = HeaderMap::new();
                if !url.username().is_empty() || url.password().is_some() {
                    // A URL without a host, the only one that has no place for them, was refused above.
                    let _ = base.set_username("").and_then(|()| base.set_password(None));
                    headers.insert(AUTHORIZATION, basic(&url));
                }
                if let Ok(mut segments) = base.path_segments_mut() {
                    segments.clear().extend(&folder);
                }
                (
                    files(base, headers).map_err(failed)?,
                    "the URL may need a signature, or a name and a password",
                )
            }
        };
        let base = if is_http {
            Path::default()
        } else {
            Path::parse(folder.join("/")).map_err(|e| refuse(&shown, e.to_string()))?
        };
        let names = if is_http { Names::Usual } else { Names::Listed };
        let query = url.query().map(|query| {
            let mut hasher = DefaultHasher::new();
            query.hash(&mut hasher);
            hasher.finish()
        });
        Ok(Place { store, kind, base, shown, name, names, query, access })
    }
}

/// A server of files, with these headers in each request. They are not sent to other hosts that an answer leads to.
fn files(base: Url, headers: HeaderMap) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    let options = client().with_allow_http(base.scheme() == "http").with_default_headers(headers);
    Ok(Arc::new(
        HttpBuilder::new().with_url(base).with_client_options(options).with_retry(retries()).build()?,
    ))
}

/// The header of a URL's name and password (RFC 7617).
fn basic(url: &Url) -> HeaderValue {
    let plain = |text| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [plain(url.username()), plain(url.password().unwrap_or_default())].join(&b':');
    let text = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// The directory and the file of a URL's path, without their percent signs.
fn split(url: &Url) -> Result<(Vec<String>, String), String> {
    let mut parts = Vec::new();
    for part in url.path_segments().into_iter().flatten() {
        let part = percent_encoding::percent_decode_str(part).decode_utf8();
        let part = part.map_err(|_| "its path is not UTF-8".to_owned())?;
        if matches!(&*part, "." | "..") || part.contains(['/', '\\', '\0']) {
            return Err(format!("`{}` is no part of a path", part.escape_debug()));
        }
        parts.push(part.into_owned());
    }
    let file = parts.pop().unwrap_or_default();
    if let Some(empty) = parts.iter().position(String::is_empty) {
        return Err(format!("part {} of its path is empty", empty + 1));
    }
    Ok((parts, file))
}

/// A connection that makes no progress ends, a long answer does not.
fn client() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(10))
        .with_read_timeout(Duration::from_secs(30))
        .with_pool_idle_timeout(Duration::from_mins(1))
}

/// Delays grow from 0.1 s, each of a random length.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        },
        max_retries: 8,
        retry_timeout: Duration::from_mins(2),
    }
}
