//! The zip form: `NAME/data.pkl`, and each storage in a member `NAME/data/KEY`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use storage::{ByteSource, Location};

use super::super::archive::{Member, members};
use super::super::big_endian;
use super::value::{Storage, Wrong};
use super::{MOST_PICKLE, Parts, Pickle, machine};
use crate::error::{Error, Problem, Quoted, Subject};
use crate::fault::Fault;

/// Versions of the archive that there are.
///
/// Source: caffe2/serialize/versions.h of torch 2.15, `kMinSupportedFileFormatVersion` and
/// `kMaxSupportedFileFormatVersion`.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=10;

/// Reads `source`, the zip archive at `location`.
pub(super) fn read(location: &Location, source: &Arc<dyn ByteSource>) -> Result<Parts, Error> {
    let members = members(location, source)?;
    let root = members.first().and_then(|m| m.name.split_once('/')).map_or("", |(root, _)| root);
    let records: HashMap<&str, &Member> =
        members.iter().filter_map(|m| Some((m.name.strip_prefix(root)?.strip_prefix('/')?, m))).collect();
    let Some(data) = records.get("data.pkl") else {
        let what = match members.first() {
            Some(first) => format!(
                "a zip archive without PyTorch's `data.pkl`, that starts with {}",
                Quoted(&first.name)
            ),
            None => "a zip archive of nothing".to_owned(),
        };
        return Err(Error::whole(location, Fault::Unsupported { what }));
    };
    if records.contains_key("constants.pkl") {
        let what = "a TorchScript program, not a checkpoint".to_owned();
        return Err(Error::whole(location, Fault::Unsupported { what })
            .with_hint("save its weights: `torch.save(torch.jit.load(PATH).state_dict(), …)`"));
    }
    let mut big = false;
    check_mark(location, source, records.get("byteorder").copied(), |mark| match mark {
        b"little" => Ok(()),
        b"big" => {
            big = true;
            Ok(())
        }
        other => Err(Fault::Value { wants: "`little` or `big`", found: found(other) }),
    })?;
    check_mark(location, source, records.get("version").copied(), |mark| {
        let number = std::str::from_utf8(mark).ok().and_then(|text| text.trim_ascii().parse::<u32>().ok());
        match number {
            Some(version) if VERSIONS.contains(&version) => Ok(()),
            Some(version) => {
                Err(Fault::Unsupported { what: format!("version {version} of PyTorch's archives") })
            }
            None => Err(Fault::Value { wants: "a number", found: found(mark) }),
        }
    })?;
    let bytes = content(location, source, data, MOST_PICKLE)?;
    let pickle = Pickle { location, bytes: &bytes, start: data.data.start };
    let described = machine::run(&bytes, 0).map_err(|Wrong { at, fault }| {
        // The archive says how long the pickle is: it is not the file that is cut.
        let fault = match fault {
            Fault::Ends { what, wants, found } => {
                Fault::Pickle { why: format!("it ends inside {what}: {wants} bytes wanted, {found} left") }
            }
            other => other,
        };
        pickle.error(Wrong { at, fault })
    })?;
    let mut parts = pickle.parts(&described, |storage| record(&records, storage, &bytes))?;
    if big {
        // As torch swaps them (torch/serialization.py, `_load`, `load_tensor`).
        parts.entries.iter_mut().for_each(|entry| entry.scheme = big_endian(&entry.scheme));
    }
    Ok(parts)
}

/// The member that holds `storage`.
fn record(records: &HashMap<&str, &Member>, storage: &Storage, pickle: &[u8]) -> Result<Range<u64>, Fault> {
    let key = storage.key.text(pickle);
    let member = records.get(format!("data/{key}").as_str());
    let Some(member) = member else {
        return Err(Fault::NoRecord { key });
    };
    if !member.stored {
        return Err(compressed(member));
    }
    Ok(member.data.clone())
}

fn compressed(member: &Member) -> Fault {
    let what = format!(
        "{} is compressed or encrypted, which is not read: make the archive anew with `zip -0`",
        Quoted(&member.name)
    );
    Fault::Unsupported { what }
}

/// The content of `member`, at most `most` bytes.
fn content(
    location: &Location,
    source: &Arc<dyn ByteSource>,
    member: &Member,
    most: u64,
) -> Result<Vec<u8>, Error> {
    let refuse = |fault| {
        Problem { at: Some(member.data.start), subject: Subject::Key(member.name.clone()), fault }
            .of(location)
    };
    if !member.stored {
        return Err(Error::whole(location, compressed(member)));
    }
    let found = member.data.end - member.data.start;
    if found > most {
        return Err(refuse(Fault::Limit { what: "length in bytes", found, limit: most }));
    }
    let mut bytes = vec![0; usize::try_from(found).unwrap_or(0)];
    source.read_at(member.data.start, &mut bytes).map_err(|e| Error::io(location, "read", e))?;
    Ok(bytes)
}

/// Checks a member of a few bytes, if it is there.
fn check_mark(
    location: &Location,
    source: &Arc<dyn ByteSource>,
    member: Option<&Member>,
    mut check: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Error> {
    const MOST: u64 = 64;
    let Some(member) = member else { return Ok(()) };
    let mark = content(location, source, member, MOST)?;
    let (at, subject) = (Some(member.data.start), Subject::Key(member.name.clone()));
    check(&mark).map_err(|fault| Problem { at, subject, fault }.of(location))
}

fn found(mark: &[u8]) -> String {
    Quoted(&String::from_utf8_lossy(mark)).to_string()
}
