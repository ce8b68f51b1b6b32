//! Checkpoints on servers: `https://` and `http://`, `s3://`, `gs://` and `az://`.
//!
//! [`Servers`] finds the [`storage::Storage`] of a URL. Files are read by ranges: opening a checkpoint reads its headers, a
//! load reads what it needs. Every read asks for the version that was opened, so a file that is replaced meanwhile is an
//! error. Requests that fail are made again, with growing and random delays, and an answer that breaks off is asked for
//! from where it broke off.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use weighbridge_remote as remote;
//! let servers = remote::Servers::from_env();
//! let (files, name) = servers.at("s3://bucket/models/llama/")?;
//! println!("{:?}", files.list(&name)?);
//! # Ok(())
//! # }
//! ```
//!
//! A result is written to a bucket in parts, several of them at a time: [`storage::Bucket`].
//!
//! # Credentials
//!
//! Those of the environment, as `object_store` reads them:
//!
//! | | |
//! |---|---|
//! | `s3://` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`; else the profile `AWS_PROFILE` of `~/.aws/credentials` and `~/.aws/config`; web identity, containers and instances of AWS. `AWS_REGION`, `AWS_ENDPOINT_URL`. `AWS_SKIP_SIGNATURE=true` for public buckets |
//! | `gs://` | `GOOGLE_APPLICATION_CREDENTIALS`, or what `gcloud auth application-default login` has left. `GOOGLE_SKIP_SIGNATURE=true` for public buckets; `STORAGE_EMULATOR_HOST` |
//! | `az://` | `AZURE_STORAGE_ACCOUNT_NAME`, and `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN` or `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET`, `AZURE_TENANT_ID`. `AZURE_STORAGE_USE_EMULATOR=true` |
//! | `https://` | a name and a password in the URL, or a signed URL of one file |
//!
//! # Directories
//!
//! Buckets are listed. A server of files is not: the usual names of a checkpoint are asked for ([`USUAL`]), and what an index
//! names. A file of another name is opened by its own URL. A URL that ends with a slash, or whose last part has no dot, may
//! be a directory.

#![forbid(unsafe_code)]

mod aws;
mod azure;
mod bucket;
mod client;
mod cloud;
mod files;
mod google;
mod object;
mod objects;
mod place;
mod reactor;
mod refusal;
mod usual;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use storage::{Error, Found, Location, Resolver, Storage, url_scheme};

use crate::bucket::Uploads;

use crate::objects::Objects;
use crate::place::Place;
use crate::reactor::Reactor;
pub use crate::usual::USUAL;

/// Returns true for a URL of a bucket, which results can be written to.
pub fn is_bucket(url: &str) -> bool {
    url_scheme(url).is_some_and(place::is_written)
}

/// Finds the storage of a URL. Threads for its connections are started with the first.
#[derive(Debug, Default)]
pub struct Servers {
    reactor: Mutex<Option<Arc<Reactor>>>,
}

impl Servers {
    /// With the credentials that the environment has when a URL is opened.
    pub fn from_env() -> Servers {
        Servers::default()
    }

    /// The storage that `url` is in, and its name there. Nothing is asked of the server yet.
    ///
    /// # Errors
    /// If it is no URL of a scheme that is read here, or credentials cannot be read.
    pub fn at(&self, url: &str) -> Result<Found, Error> {
        let reactor = self.reactor();
        let place = Place::parse(url)?;
        let reactor = reactor.map_err(|e| Error::io(Location::Named(place.shown.clone()), "open", e))?;
        let name = place.name.clone();
        Ok((Arc::new(Objects::new(reactor, place)), name))
    }

    /// The directory at `url`, a server of files, whose `names` are known: all files in it and below. `authorization` is the header
    /// of each request, which other hosts do not get. Messages call the directory `shown`.
    ///
    /// # Errors
    /// If `url` or `authorization` is none.
    pub fn directory(
        &self,
        url: &str,
        authorization: Option<&str>,
        names: impl IntoIterator<Item = String>,
        shown: impl Into<String>,
    ) -> Result<Arc<dyn Storage>, Error> {
        let shown = shown.into();
        let reactor = self.reactor().map_err(|e| Error::io(Location::Named(shown.clone()), "open", e))?;
        let place = Place::known(url, authorization, names.into_iter().collect(), shown)?;
        Ok(Arc::new(Objects::new(reactor, place)))
    }

    /// The bucket that a result at `url` is written to, and its name there. Nothing is asked of the server yet.
    fn written(&self, url: &str) -> Result<storage::FoundBucket, Error> {
        let reactor = self.reactor();
        let (cloud, place) = place::written(url)?;
        let reactor = reactor.map_err(|e| Error::io(Location::Named(place.shown.clone()), "open", e))?;
        let name = place.name.clone();
        Ok((Arc::new(Uploads::new(reactor, cloud, place)), name))
    }

    fn reactor(&self) -> io::Result<Arc<Reactor>> {
        let mut reactor = self.reactor.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*reactor {
            Some(reactor) => Arc::clone(reactor),
            None => Arc::clone(reactor.insert(Arc::new(Reactor::start()?))),
        })
    }
}

impl Resolver for Servers {
    fn resolve(&self, location: &str) -> Option<Result<Found, Error>> {
        let scheme = url_scheme(location)?;
        place::is_known(scheme).then(|| self.at(location))
    }

    fn bucket(&self, location: &str) -> Option<Result<storage::FoundBucket, Error>> {
        let scheme = url_scheme(location)?;
        place::is_written(scheme).then(|| self.written(location))
    }
}
