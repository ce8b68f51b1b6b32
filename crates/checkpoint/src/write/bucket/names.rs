//! The names that a result will have in a bucket, and what has them now.

use std::io;

use storage::{Bucket, Location, Name, url_scheme};

use crate::error::Error;
use crate::fault::Fault;
use crate::format::squish;
use crate::write::OutFile;
use crate::write::place::{
    DestinationKind, Entry, EntryKind, is_array, is_part_of, is_written, named, not_replaced,
};

/// The name of each of `files` of a result called `whole`.
pub(super) fn names(kind: DestinationKind, whole: &Name, files: &[OutFile]) -> Result<Vec<Name>, Error> {
    let dir = if kind == DestinationKind::Folder { whole.clone() } else { whole.parent() };
    let name =
        |file: &OutFile| dir.join(&named(kind, whole.file_name(), &file.name)).map_err(Error::of_member);
    files.iter().map(name).collect()
}

/// The directory beside `whole` in which the journal is.
pub(super) fn partial(whole: &Name) -> Result<Name, Error> {
    whole.parent().join(&format!(".{}.partial", whole.file_name())).map_err(Error::of_member)
}

/// A location at which, or below which, one of `sources` is.
pub(super) fn source_at(
    whole: &Location,
    mut names: impl Iterator<Item = Location>,
    sources: &[Location],
) -> Option<Location> {
    let whole = whole.to_string();
    // Of a path nothing is in a bucket.
    let sources: Vec<String> =
        sources.iter().map(Location::to_string).filter(|source| url_scheme(source).is_some()).collect();
    let below = |source: &String| {
        source.strip_prefix(&whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if sources.iter().any(below) {
        return Some(Location::Named(whole));
    }
    names.find(|name| sources.contains(&name.to_string()))
}

pub(super) fn is_taken(error: &storage::Error) -> bool {
    matches!(error, storage::Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}

/// Why nothing may be written to `whole`, where files will have `names`.
pub(super) fn refuse(
    bucket: &dyn Bucket,
    whole: &Name,
    kind: DestinationKind,
    overwrite: bool,
    names: &[Name],
) -> Result<(), Error> {
    let exists = |name: &Name, what| Error::whole(bucket.location(name), Fault::Exists { what });
    let taken = |name: &Name| Ok::<_, Error>(bucket.version(name).map_err(Error::of_member)?.is_some());
    if kind == DestinationKind::Folder {
        if taken(whole)? {
            return Err(exists(whole, "a file is there, where a directory is to be"));
        }
        let there = listed(bucket, whole)?;
        let fault = match (overwrite, there.is_empty()) {
            (_, true) => None,
            (false, _) => Some(Fault::Exists { what: "already exists" }),
            (true, _) => {
                let arrays = || listed(bucket, &whole.join(squish::TENSORS).map_err(Error::of_member)?);
                not_replaced(&there, arrays)?
            }
        };
        return fault.map_or(Ok(()), |fault| Err(Error::whole(bucket.location(whole), fault)));
    }
    if overwrite {
        return Ok(());
    }
    let family = if kind == DestinationKind::Parts { family(bucket, whole)? } else { vec![] };
    for name in names.iter().chain(&family) {
        if taken(name)? {
            return Err(exists(name, "already exists"));
        }
    }
    Ok(())
}

/// The names in the directory `dir`; none if there is no such directory.
fn listed(bucket: &dyn Bucket, dir: &Name) -> Result<Vec<Entry>, Error> {
    match bucket.list(dir) {
        Err(error) if error.is_not_found() => Ok(vec![]),
        Err(error) => Err(Error::of_member(error)),
        Ok(names) => Ok(names.into_iter().map(|name| (name, EntryKind::Unknown)).collect()),
    }
}

/// The files of a GGUF checkpoint `whole`: its own, or its parts.
pub(super) fn family(bucket: &dyn Bucket, whole: &Name) -> Result<Vec<Name>, Error> {
    let dir = whole.parent();
    let own = whole.file_name();
    let there = listed(bucket, &dir)?.into_iter().filter(|(name, _)| name == own || is_part_of(name, own));
    there.map(|(name, _)| dir.join(&name).map_err(Error::of_member)).collect()
}

/// The files of a checkpoint in the directory `dir`, and in its directory of arrays: those that have names that a conversion gives.
pub(super) fn below(bucket: &dyn Bucket, dir: &Name) -> Result<Vec<Name>, Error> {
    let arrays = dir.join(squish::TENSORS).map_err(Error::of_member)?;
    let mut found = vec![];
    for (dir, is_ours) in [(dir, is_written as fn(&str) -> bool), (&arrays, is_array)] {
        for (name, _) in listed(bucket, dir)?.into_iter().filter(|(name, _)| is_ours(name)) {
            found.push(dir.join(&name).map_err(Error::of_member)?);
        }
    }
    Ok(found)
}
