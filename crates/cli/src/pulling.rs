//! Models of the Hugging Face Hub, fetched before they are read.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hub::{Hub, HubName, Look, Progress, Pulled};
use weighbridge::remote::Servers;
use weighbridge::storage::{self, Found, Io, LocalFiles, Location, Name, Resolver, Storage};
use weighbridge::tensor::{Bytes, counted};

use crate::progress::{Line, note, speed};

/// Pulls `name` while a line shows how far it is; and the seconds that it took.
pub(crate) fn pull(hub: &Hub, name: &HubName) -> Result<(Pulled, f64), hub::Error> {
    let (line, started) = (Line::new(), Instant::now());
    let watch = |progress: Progress| {
        show(&line, progress);
        ControlFlow::Continue(())
    };
    let pulled = hub.pull(name, &watch);
    line.clear();
    Ok((pulled?, started.elapsed().as_secs_f64()))
}

/// Names of the hub wherever a path is taken: pulled first, and then read from the cache as `io` says.
#[derive(Debug)]
pub(crate) struct HubPaths {
    pub(crate) io: Io,
    /// Headers are wanted alone: what is not in the cache is read from the hub.
    pub(crate) looks: bool,
}

impl HubPaths {
    fn open(&self, location: &str) -> Result<Found, storage::Error> {
        let failed =
            |e| storage::Error::io(Location::Named(location.to_owned()), "pull", io::Error::other(e));
        let name = HubName::parse(location).map_err(failed)?;
        let hub = Hub::from_env().map_err(failed)?;
        if self.looks {
            return match hub.look(&name).map_err(failed)? {
                Look::Remote { url, authorization, names, entry, .. } => {
                    let servers = Servers::from_env();
                    let files = servers.directory(&url, authorization.as_deref(), names, location)?;
                    Ok((files, Name::parse(entry.unwrap_or_default())?))
                }
                Look::Cached(path) => self.local(&path),
            };
        }
        let (pulled, seconds) = pull(&hub, &name).map_err(failed)?;
        if pulled.from_cache.is_some() || pulled.bytes_downloaded > 0 {
            note(&said(&pulled, seconds));
        }
        self.local(&pulled.path)
    }

    fn local(&self, path: &Path) -> Result<Found, storage::Error> {
        let (files, name) = LocalFiles::at(path)?;
        Ok((Arc::new(files.with_io(self.io)) as Arc<dyn Storage>, name))
    }
}

impl Resolver for HubPaths {
    fn resolve(&self, location: &str) -> Option<Result<Found, storage::Error>> {
        HubName::is_meant(location).then(|| self.open(location))
    }
}

fn show(line: &Line, progress: Progress) {
    let Progress { done, total, waiting, checking } = progress;
    if checking > 0 && done + PIECE >= total {
        line.show(|| format!("checking {}", counted(checking, "file")));
    } else if waiting > 0 && done == 0 {
        line.show(|| format!("another process downloads {}: waiting", counted(waiting, "file")));
    } else if total > 0 {
        line.bytes(done, total);
    }
}

/// Bytes that are too few to show.
const PIECE: u64 = 64 << 10;

/// Describes a pull in one line.
pub(crate) fn said(pulled: &Pulled, seconds: f64) -> String {
    let files = counted(pulled.files.len(), "file");
    let there = Bytes(pulled.bytes_there);
    let commit = pulled.commit.get(..12).unwrap_or(&pulled.commit);
    match (&pulled.from_cache, pulled.bytes_downloaded) {
        (Some(why), _) => format!("from the cache ({why}): commit {commit}, {files}, {there}"),
        (None, 0) => format!("commit {commit}: {files}, {there}, all in the cache"),
        (None, new) => {
            let there = if pulled.bytes_there == 0 {
                String::new()
            } else {
                format!(", {there} in the cache before")
            };
            format!("commit {commit}: {files}, {} downloaded, {}{there}", Bytes(new), speed(new, seconds))
        }
    }
}
