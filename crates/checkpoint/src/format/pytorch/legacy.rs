//! The form of before 1.6: five pickles, then the storages.
//!
//! The pickles are a magic number, a version, facts about the machine that nothing depends on, the object, and
//! the keys of the storages in the order in which they follow: each as the number of its elements in 8 bytes,
//! and the elements.

use std::collections::HashMap;
use std::ops::Range;

use storage::{ByteSource, Location};

use super::value::{Heap, Node, Storage, Value, Wrong};
use super::{MOST_PICKLE, Parts, Pickle, machine};
use crate::error::{Error, Problem, Subject};
use crate::fault::Fault;

/// The number after the magic number. Source: torch/serialization.py, `PROTOCOL_VERSION`.
const VERSION: i64 = 1001;

/// The length of the magic number's pickle, if `head` starts with that.
///
/// `MAGIC_NUMBER`, 0x1950a86a20f9469cfc6c, as protocol 1 writes it, in digits, or as a later one does, in bytes,
/// from protocol 4 on in a frame.
pub(super) fn magic(head: &[u8]) -> Option<usize> {
    const DIGITS: &[u8] = b"L119547037146038801333356L\n.";
    const BYTES: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    const FRAME: usize = 9;
    if head.starts_with(DIGITS) {
        return Some(DIGITS.len());
    }
    let [0x80, 2..=5, rest @ ..] = head else { return None };
    let rest = if rest.first() == Some(&0x95) { rest.get(FRAME..)? } else { rest };
    rest.starts_with(BYTES).then(|| head.len() - rest.len() + BYTES.len())
}

/// Reads `source`, the file at `location`.
pub(super) fn read(location: &Location, source: &dyn ByteSource) -> Result<Parts, Error> {
    // Pickles say nowhere how long they are: more is read until they end.
    const FIRST: u64 = 1 << 20;
    let mut len = FIRST.min(source.len());
    loop {
        let mut buffer = Vec::new();
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        let bytes = if let Some(mapped) = source.mapped() {
            mapped.get(..size).unwrap_or_default()
        } else {
            buffer.resize(size, 0);
            source.read_at(0, &mut buffer).map_err(|e| Error::io(location, "read", e))?;
            &buffer
        };
        let pickle = Pickle { location, bytes, start: 0 };
        match pickles(bytes) {
            Ok(pickles) => return parts(&pickle, source, &pickles),
            Err(Wrong { fault: Fault::Ends { .. }, .. }) if len < source.len() && len < MOST_PICKLE => {
                len = (len * 8).min(source.len()).min(MOST_PICKLE);
            }
            Err(Wrong { fault: Fault::Ends { .. }, .. }) if len < source.len() => {
                let what = "length of the pickles in bytes";
                return Err(Error::whole(
                    location,
                    Fault::Limit { what, found: len + 1, limit: MOST_PICKLE },
                ));
            }
            Err(wrong) => return Err(pickle.error(wrong)),
        }
    }
}

/// The contents of the pickles.
struct Pickles {
    object: machine::Described,
    keys: machine::Described,
}

fn pickles(bytes: &[u8]) -> Result<Pickles, Wrong> {
    let start = magic(bytes).ok_or_else(|| Wrong::broken(0, "wanted torch's magic number"))?;
    let version = machine::run(bytes, start)?;
    if version.root != Value::Int(VERSION) {
        return Err(Wrong::broken(start, format!("wanted the version {VERSION}")));
    }
    let about = machine::run(bytes, version.end)?;
    let object = machine::run(bytes, about.end)?;
    let keys = machine::run(bytes, object.end)?;
    Ok(Pickles { object, keys })
}

fn parts(pickle: &Pickle<'_>, source: &dyn ByteSource, pickles: &Pickles) -> Result<Parts, Error> {
    let Pickles { object, keys } = pickles;
    let kinds = kinds(&object.heap, pickle.bytes);
    let Some(Node::List(listed)) = keys.heap.node(keys.root) else {
        let found = keys.heap.name(keys.root);
        return Err(
            pickle.error(Wrong::broken(object.end, format!("wanted a list of storages, found {found}")))
        );
    };
    let mut records: HashMap<&[u8], Range<u64>> = HashMap::with_capacity(listed.len());
    let mut at = keys.end as u64;
    for key in listed {
        let Value::Text(key) = key else {
            let why = format!("the key of a storage is {}, wanted text", keys.heap.name(*key));
            return Err(pickle.error(Wrong::broken(object.end, why)));
        };
        let key = key.of(pickle.bytes);
        let name = || String::from_utf8_lossy(key).into_owned();
        let refuse =
            |at, fault| Problem { at: Some(at), subject: Subject::Key(name()), fault }.of(pickle.location);
        let size = kinds.get(key).copied().flatten();
        let size = size.ok_or_else(|| {
            let why = "a storage that no tensor is made of, so that its length is not known".to_owned();
            refuse(object.end as u64, Fault::Pickle { why })
        })?;
        let left = source.len() - at;
        let mut count = [0; 8];
        if left < 8 {
            let what = "the length of a storage";
            return Err(refuse(at, Fault::Ends { what, wants: 8, found: left }));
        }
        source.read_at(at, &mut count).map_err(|e| Error::io(pickle.location, "read", e))?;
        let (count, left) = (u64::from_le_bytes(count), left - 8);
        let wants = count.saturating_mul(size);
        if wants > left {
            return Err(refuse(at, Fault::Ends { what: "a storage", wants, found: left }));
        }
        if records.insert(key, at + 8..at + 8 + wants).is_some() {
            return Err(refuse(at, Fault::Pickle { why: "a storage is listed twice".to_owned() }));
        }
        at += 8 + wants;
    }
    if at < source.len() {
        let fault = Fault::Trailing { found: source.len() - at };
        return Err(Problem { at: Some(at), subject: Subject::Whole, fault }.of(pickle.location));
    }
    pickle.parts(object, |storage| {
        let key = storage.key.of(pickle.bytes);
        let record = records.get(key).cloned();
        record.ok_or_else(|| Fault::NoRecord { key: storage.key.text(pickle.bytes) })
    })
}

/// Bytes of an element of each storage, where they are known; of several types, of the first one that is named.
fn kinds<'p>(heap: &Heap, pickle: &'p [u8]) -> HashMap<&'p [u8], Option<u64>> {
    let mut kinds = HashMap::new();
    for node in heap.nodes() {
        if let Node::Storage(storage) = node {
            let Storage { key, kind, .. } = **storage;
            kinds.entry(key.of(pickle)).or_insert(kind.bytes());
        }
    }
    kinds
}
