//! A bucket that results are written to.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion};
use storage::{Bucket, ByteSource, Error, Location, Name, Over, PartLimits, Sending, Storage, Version};

use crate::cloud::Cloud;
use crate::objects::Objects;
use crate::place::Place;
use crate::reactor::Reactor;
use crate::refusal::{again, said};

/// Parts of S3 have at least 5 MiB, and there are at most 10,000 of them; so it is in Google's protocol. Azure takes more.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>
const PARTS: PartLimits = PartLimits { bytes: 8 << 20, count: 10_000, under_way: 64 << 20, beside: 16 << 20 };

/// Between the two names that a version may have: that of HTTP, and a number that Google knows it by.
const AND: char = '\u{1f}';

/// A directory of a bucket, for reading and for writing.
pub(crate) struct Uploads {
    reactor: Arc<Reactor>,
    cloud: Cloud,
    kind: &'static str,
    objects: Objects,
}

impl Uploads {
    pub(crate) fn new(reactor: Arc<Reactor>, cloud: Cloud, place: Place) -> Uploads {
        let kind = place.kind;
        Uploads { reactor: Arc::clone(&reactor), cloud, kind, objects: Objects::new(reactor, place) }
    }

    fn path(&self, name: &Name) -> Result<Path, Error> {
        self.objects.path(name)
    }

    fn failed(&self, name: &Name, doing: &'static str, error: &object_store::Error) -> Error {
        self.objects.failed(name, doing, error)
    }

    fn io(&self, name: &Name, doing: &'static str, kind: io::ErrorKind, why: &str) -> Error {
        Error::io(self.location(name), doing, io::Error::new(kind, why))
    }
}

impl Storage for Uploads {
    fn list(&self, dir: &Name) -> Result<Vec<String>, Error> {
        // Whoever writes must see all that is there: names that are asked for one by one will not do.
        self.objects.there(dir, self.objects.all_names(dir)?)
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        self.objects.open(name)
    }

    fn opens_at_once(&self) -> usize {
        self.objects.opens_at_once()
    }

    fn location(&self, name: &Name) -> Location {
        self.objects.location(name)
    }
}

impl Bucket for Uploads {
    fn part_limits(&self) -> PartLimits {
        PARTS
    }

    fn version(&self, name: &Name) -> Result<Option<Version>, Error> {
        let path = self.path(name)?;
        match self.reactor.wait(again(async || self.cloud.store.head(&path).await)) {
            Ok(meta) => Ok(Some(version(meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, "look at", &error)),
        }
    }

    fn get(&self, name: &Name, most: u64) -> Result<Option<(Vec<u8>, Version)>, Error> {
        let path = self.path(name)?;
        let read = async || {
            let answer = self.cloud.store.get(&path).await?;
            let version = version(answer.meta.clone());
            let bytes = if version.len > most { Bytes::new() } else { answer.bytes().await? };
            Ok((bytes, version))
        };
        let read = self.reactor.wait(again(read));
        match read {
            Ok((_, version)) if version.len > most => {
                let why = format!("it has {} bytes, and at most {most} are read", version.len);
                Err(self.io(name, "read", io::ErrorKind::FileTooLarge, &why))
            }
            Ok((bytes, version)) => Ok(Some((bytes.into(), version))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, "read", &error)),
        }
    }

    fn put(&self, name: &Name, bytes: Vec<u8>, over: Over<'_>) -> Result<String, Error> {
        let bytes = Bytes::from(bytes);
        let mode = match over {
            Over::Nothing => PutMode::Create,
            Over::Anything => PutMode::Overwrite,
            Over::Tag(tag) => PutMode::Update(update(tag)),
        };
        let path = self.path(name)?;
        let put = |mode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            self.reactor.wait(self.cloud.store.put_opts(&path, PutPayload::from(bytes.clone()), options))
        };
        let done = match put(mode) {
            // A server may know no conditions: then its answer to a question has to do.
            Err(error) if knows_none(&error) => {
                if over == Over::Nothing && self.version(name)?.is_some() {
                    return Err(self.io(name, "write", io::ErrorKind::AlreadyExists, "something is there"));
                }
                put(PutMode::Overwrite)
            }
            other => other,
        };
        match done {
            Ok(PutResult { e_tag, version, .. }) => Ok(tag(e_tag, version)),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. }
                | object_store::Error::NotModified { .. },
            ) => Err(self.io(name, "write", io::ErrorKind::AlreadyExists, "another version is there")),
            Err(object_store::Error::NotFound { .. }) if matches!(over, Over::Tag(_)) => {
                Err(self.io(name, "write", io::ErrorKind::AlreadyExists, "it is gone"))
            }
            Err(error) => Err(self.failed(name, "write", &error)),
        }
    }

    fn begin(&self, name: &Name) -> Result<String, Error> {
        let path = self.path(name)?;
        let begun = self.reactor.wait(again(async || self.cloud.parts.create_multipart(&path).await));
        begun.map_err(|error| self.failed(name, "write", &error))
    }

    fn send(&self, name: &Name, upload: &str, index: usize, bytes: Vec<u8>) -> Sending {
        let path = match self.path(name) {
            Ok(path) => path,
            Err(error) => return Box::new(move || Err(error)),
        };
        let (parts, upload) = (Arc::clone(&self.cloud.parts), upload.to_owned());
        let sending = self
            .reactor
            .spawn(async move { parts.put_part(&path, &upload, index, PutPayload::from(bytes)).await });
        let location = self.location(name);
        Box::new(move || {
            let failed = |why| Error::io(location.clone(), "write", why);
            match sending().map_err(failed)? {
                Ok(PartId { content_id }) => Ok(content_id),
                Err(error) => Err(failed(crate::refusal::into_io(&error))),
            }
        })
    }

    fn complete(&self, name: &Name, upload: &str, parts: &[String]) -> Result<(), Error> {
        let path = self.path(name)?;
        let parts: Vec<PartId> = parts.iter().map(|tag| PartId { content_id: tag.clone() }).collect();
        let upload = upload.to_owned();
        let complete = async || self.cloud.parts.complete_multipart(&path, &upload, parts.clone()).await;
        match self.reactor.wait(again(complete)) {
            Ok(_) => Ok(()),
            // Azure knows no uploads: blocks that are in a blob already are no blocks any more.
            Err(error) if self.kind == "az" && said(&error).contains(" 400") => {
                Err(self.io(name, "write", io::ErrorKind::NotFound, "the server does not know its parts"))
            }
            Err(error) => Err(self.failed(name, "write", &error)),
        }
    }

    fn abort(&self, name: &Name, upload: &str) -> Result<(), Error> {
        let path = self.path(name)?;
        match self.reactor.wait(self.cloud.parts.abort_multipart(&path, &upload.to_owned())) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(name, "remove", &error)),
        }
    }

    fn remove(&self, name: &Name) -> Result<(), Error> {
        match self.reactor.wait(self.cloud.store.delete(&self.path(name)?)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(name, "remove", &error)),
        }
    }
}

/// True if the server knows no conditions of requests, or was said to know none (`AWS_CONDITIONAL_PUT=disabled`).
fn knows_none(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::NotImplemented { .. } | E::NotSupported { .. }) || said(error).contains(" 501")
}

fn version(meta: ObjectMeta) -> Version {
    Version { len: meta.size, tag: tag(meta.e_tag, meta.version) }
}

/// Both names of a version as one.
fn tag(tag: Option<String>, version: Option<String>) -> String {
    format!("{}{AND}{}", tag.unwrap_or_default(), version.unwrap_or_default())
}

/// The way back.
fn update(tag: &str) -> UpdateVersion {
    let (tag, version) = tag.split_once(AND).unwrap_or((tag, ""));
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UpdateVersion { e_tag: given(tag), version: given(version) }
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uploads").field(&self.objects).finish()
    }
}
