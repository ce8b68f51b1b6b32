//! What a URL says: which server, which directory there, which file.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;
use storage::{Error, Location, Name};
use url::Url;

use crate::client::Calls;
use crate::cloud::Cloud;
use crate::{aws, azure, files, google};

/// Makes the store of a bucket.
type Open = fn(&str, Calls) -> Result<Cloud, String>;

/// Clouds, by the scheme of their URLs, and what an answer of no access may be helped by.
const CLOUDS: &[(&str, Open, &str)] = &[
    ("s3", aws::store, aws::ACCESS),
    ("gs", google::store, google::ACCESS),
    ("az", azure::store, azure::ACCESS),
];

/// Schemes of servers of files.
const FILES: &[&str] = &["https", "http"];

/// Whether URLs of `scheme` are read here.
pub(crate) fn is_known(scheme: &str) -> bool {
    schemes().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// Whether URLs of `scheme` are written to here.
pub(crate) fn is_written(scheme: &str) -> bool {
    CLOUDS.iter().any(|(known, ..)| known.eq_ignore_ascii_case(scheme))
}

fn schemes() -> impl Iterator<Item = &'static str> {
    FILES.iter().copied().chain(CLOUDS.iter().map(|(scheme, ..)| *scheme))
}

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
    /// A hash of what the URL has that is not shown.
    pub(crate) secret: Option<u64>,
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
        let url = Url::parse(url).map_err(|e| refused(&shown, format!("it is no URL: {e}")))?;
        let kind = FILES.iter().find(|kind| **kind == url.scheme());
        let kind = *kind.ok_or_else(|| refused(&shown, format!("wanted a URL of {}", FILES.join(", "))))?;
        let store = files::store(url, authorization).map_err(|why| refused(&shown, why))?;
        let access = "the token may not read it";
        let (base, name, names, secret) = (Path::default(), Name::ROOT, Names::Known(names), None);
        Ok(Place { store, kind, base, shown, name, names, secret, access })
    }

    pub(crate) fn parse(text: &str) -> Result<Place, Error> {
        // Of what is no URL, all but the scheme may be a password.
        let bare = format!("{}://…", storage::url_scheme(text).unwrap_or_default());
        let url = Url::parse(text).map_err(|e| refused(&bare, format!("it is no URL: {e}")))?;
        let safe = storage::shown(text);
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(refused(&safe, "wanted a server or a bucket after `://`".to_owned()));
        };
        let Some(kind) = schemes().find(|kind| *kind == url.scheme()) else {
            return Err(refused(
                &safe,
                format!("wanted a URL of {}", schemes().collect::<Vec<_>>().join(", ")),
            ));
        };
        let (folder, file) = split(&url).map_err(|why| refused(&safe, why))?;
        let name = Name::parse(file)?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let below: String = folder.iter().map(|part| format!("/{part}")).collect();
        let shown = format!("{kind}://{host}{port}{below}");
        let (store, base, names, access) = match CLOUDS.iter().find(|(scheme, ..)| *scheme == kind) {
            Some((_, bucket, access)) => {
                let base = Path::parse(folder.join("/")).map_err(|e| refused(&shown, e.to_string()))?;
                (bucket(host, Calls::Read).map(|cloud| cloud.store), base, Names::Listed, *access)
            }
            None => {
                let store = files::store(directory(&url, &folder), files::basic(&url).as_deref());
                (store, Path::default(), Names::Usual, files::ACCESS)
            }
        };
        let store = store.map_err(|why| refused(&shown, why))?;
        Ok(Place { store, kind, base, shown, name, names, secret: secret(&url), access })
    }
}

/// The bucket that `text` is in, for writing, and what is there.
pub(crate) fn written(text: &str) -> Result<(Cloud, Place), Error> {
    // A result has a name, whether it will be a file or a directory.
    let place = Place::parse(text.trim_end_matches('/'))?;
    let url = Url::parse(text).map_err(|e| refused(&place.shown, e.to_string()))?;
    let bucket = CLOUDS.iter().find(|(scheme, ..)| *scheme == place.kind);
    let bucket = bucket.ok_or_else(|| refused(&place.shown, "it is no bucket".to_owned()))?;
    let cloud = (bucket.1)(url.host_str().unwrap_or_default(), Calls::Write);
    Ok((cloud.map_err(|why| refused(&place.shown, why))?, place))
}

fn refused(shown: &str, why: String) -> Error {
    let why = io::Error::new(io::ErrorKind::InvalidInput, why);
    Error::io(Location::Named(shown.to_owned()), "open", why)
}

/// The URL of the directory `folder`, with the query of the file in it and without a name and a password.
fn directory(url: &Url, folder: &[String]) -> Url {
    let mut base = url.clone();
    base.set_fragment(None);
    // They fail for URLs that have no host or no path: those were refused.
    let _ = base.set_username("").and_then(|()| base.set_password(None));
    if let Ok(mut segments) = base.path_segments_mut() {
        segments.clear().extend(folder);
    }
    base
}

/// A hash of the query, the name and the password: a server may have another file behind others.
fn secret(url: &Url) -> Option<u64> {
    let parts = (url.query(), url.username(), url.password());
    (parts != (None, "", None)).then(|| {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        hasher.finish()
    })
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
