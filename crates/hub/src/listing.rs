//! The files of a repository at a revision, as the hub lists them.

use reqwest::{Response, Url};
use serde::Deserialize;

use crate::choice::HubFile;
use crate::client::{About, Client, Fault};
use crate::digest::Digest;
use crate::{Error, HubName};

/// The largest list that is read.
const MOST_BYTES: usize = 64 << 20;
/// The most files that a repository may have.
const MOST_FILES: usize = 100_000;

/// The files of a repository at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The commit: 40 hexadecimal digits.
    pub commit: String,
    /// All files, in the order of the hub.
    pub files: Vec<HubFile>,
}

/// The part of the hub's answer that is read. Source: the API's `GET /api/models/{repo}/revision/{revision}?blobs=true`.
#[derive(Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Asks the hub for the files of `name`, up to `tries` times.
pub(crate) async fn files(client: &Client, name: &HubName, tries: u32) -> Result<Files, Error> {
    let repo = name.repo();
    let path =
        ["api", "models"].into_iter().chain(repo.as_str().split('/')).chain(["revision", name.revision()]);
    let mut url = client.url(path);
    url.set_query(Some("blobs=true"));
    let about = About { repo, revision: name.revision(), file: None };
    let mut tries = client.tries(tries);
    let (url, body) = loop {
        match answer(client, &url, &about).await {
            Ok(answer) => break answer,
            Err(fault) => tries.after(fault).await?,
        }
    };
    let malformed = |what: String| client.malformed(&url, what);
    let info: Info =
        serde_json::from_slice(&body).map_err(|e| malformed(format!("wanted a list of files, {e}")))?;
    if !is_commit(&info.sha) {
        return Err(malformed(format!("wanted a commit as `sha`, found `{}`", info.sha.escape_debug())));
    }
    if info.siblings.len() > MOST_FILES {
        return Err(malformed(format!("wanted at most {MOST_FILES} files, found {}", info.siblings.len())));
    }
    Ok(Files { commit: info.sha, files: info.siblings.into_iter().map(file).collect() })
}

/// One try: the address that answered, and its answer.
async fn answer(client: &Client, url: &Url, about: &About<'_>) -> Result<(Url, Vec<u8>), Fault> {
    let response = client.get(url, None, about).await?;
    let url = response.url().clone();
    Ok((url, body(client, response, MOST_BYTES).await?))
}

fn file(sibling: Sibling) -> HubFile {
    let digest = |text: Option<String>, is: fn(&Digest) -> bool| {
        text.and_then(|text| Digest::parse(&text)).filter(is).map(|digest| digest.text().to_owned())
    };
    let (sha256, large) = sibling.lfs.map_or((None, None), |lfs| (lfs.sha256, lfs.size));
    HubFile {
        path: sibling.rfilename,
        size: sibling.size.or(large),
        sha256: digest(sha256, |digest| matches!(digest, Digest::Sha256(_))),
        blob: digest(sibling.blob, |digest| matches!(digest, Digest::Blob(_))),
    }
}

/// Reads a body of at most `most` bytes.
async fn body(client: &Client, mut response: Response, most: usize) -> Result<Vec<u8>, Fault> {
    let url = response.url().clone();
    let mut body = vec![];
    while let Some(chunk) = response.chunk().await.map_err(|e| client.broken(&url, e))? {
        if body.len() + chunk.len() > most {
            return Err(client.malformed(&url, format!("wanted at most {most} bytes, found more")).into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Whether `text` is the full hash of a commit.
pub(crate) fn is_commit(text: &str) -> bool {
    matches!(Digest::parse(text), Some(Digest::Blob(_)))
}
