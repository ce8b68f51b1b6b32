//! What has been sent to a bucket, written down beside the result.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use storage::{Bucket, Name, Over};

use super::names::is_taken;
use crate::error::Error;
use crate::fault::Fault;
use crate::write::place::JOURNAL;

/// A longer journal is not ours.
const LONGEST: u64 = 1 << 30;

/// The journal of a result, as this process knows it.
pub(super) struct Journal {
    name: Name,
    fingerprint: String,
    /// The version that was written or read last.
    tag: Option<String>,
    /// The length of that version, in bytes.
    len: u64,
    /// The upload of each file, if it was begun.
    pub(super) uploads: Vec<Option<Upload>>,
    /// Uploads of another result, which are of no use.
    others: Vec<Upload>,
    /// The caller's notes on tensors.
    pub(super) notes: BTreeMap<usize, Value>,
    /// Once everything is sent: the versions that the files replace.
    pub(super) finishing: Option<Vec<Option<String>>>,
}

/// A file that is being sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Upload {
    name: Name,
    id: String,
    /// The tags of its parts.
    pub(super) tags: Vec<Option<String>>,
}

impl Journal {
    /// Reads the journal in the directory `dir` of a result with `tensors` tensors, whose files have `counts` parts. One of another
    /// result says only what [`Journal::abort_others`] removes.
    pub(super) fn open(
        bucket: &dyn Bucket,
        dir: &Name,
        fingerprint: &str,
        counts: &[usize],
        tensors: usize,
    ) -> Result<Journal, Error> {
        let name = dir.join(JOURNAL).map_err(Error::of_member)?;
        let mut journal = Journal {
            name,
            fingerprint: fingerprint.to_owned(),
            tag: None,
            len: 0,
            uploads: vec![None; counts.len()],
            others: vec![],
            notes: BTreeMap::new(),
            finishing: None,
        };
        let Some((bytes, version)) = bucket.get(&journal.name, LONGEST).map_err(Error::of_member)? else {
            return Ok(journal);
        };
        (journal.tag, journal.len) = (Some(version.tag), version.len);
        let Some(same) = serde_json::from_slice(&bytes).ok().and_then(|value| journal.read(&value)) else {
            let what = "something is there that is not ours, where the unfinished result is to be";
            return Err(Error::whole(bucket.location(&journal.name), Fault::Exists { what }));
        };
        if !(same && journal.is_sound(counts, tensors)) {
            journal.others = journal.uploads.drain(..).flatten().collect();
            journal.uploads = vec![None; counts.len()];
            (journal.notes, journal.finishing) = (BTreeMap::new(), None);
        }
        Ok(journal)
    }

    /// True if it says of each file and each tensor what it has to. Anyone may have written it.
    fn is_sound(&self, counts: &[usize], tensors: usize) -> bool {
        let fits = |(upload, count): (&Option<Upload>, &usize)| match upload {
            Some(upload) => upload.tags.len() == *count,
            None => true,
        };
        let is_whole = |(index, count): (usize, &usize)| *count == 0 || self.sent(index).is_some();
        self.uploads.len() == counts.len()
            && self.uploads.iter().zip(counts).all(fits)
            && self.finishing.as_ref().is_none_or(|was| {
                was.len() == counts.len()
                    && counts.iter().enumerate().all(is_whole)
                    && (0..tensors).all(|index| self.notes.contains_key(&index))
            })
    }

    /// Removes what was sent for another result.
    pub(super) fn abort_others(&mut self, bucket: &dyn Bucket) {
        for Upload { name, id, .. } in self.others.drain(..) {
            let _ = bucket.abort(&name, &id);
        }
    }

    /// Takes over what `value` says. True if it is of the same result; `None` if it is no journal.
    fn read(&mut self, value: &Value) -> Option<bool> {
        let same = value.get("fingerprint")?.as_str()? == self.fingerprint;
        let tag = |value: &Value| match value {
            Value::Null => Some(None),
            other => other.as_str().map(|tag| Some(tag.to_owned())),
        };
        let tags = |value: &Value| value.as_array()?.iter().map(tag).collect::<Option<Vec<_>>>();
        let name = |value: &Value| Name::parse(value.as_str()?).ok();
        let upload = |value: &Value| match value {
            Value::Null => Some(None),
            value => Some(Some(Upload {
                name: name(value.get("name")?)?,
                id: value.get("id")?.as_str()?.to_owned(),
                tags: tags(value.get("parts")?)?,
            })),
        };
        let uploads: Option<Vec<_>> = value.get("uploads")?.as_array()?.iter().map(upload).collect();
        let note = |note: &Value| Some((usize::try_from(note.get(0)?.as_u64()?).ok()?, note.get(1)?.clone()));
        let notes: Option<BTreeMap<_, _>> = value.get("tensors")?.as_array()?.iter().map(note).collect();
        let finishing = match value.get("finishing")? {
            Value::Null => None,
            value => Some(tags(value)?),
        };
        (self.uploads, self.notes, self.finishing) = (uploads?, notes?, finishing);
        Some(same)
    }

    fn value(&self) -> Value {
        let upload = |upload: &Option<Upload>| match upload {
            Some(Upload { name, id, tags }) => json!({"name": name.as_str(), "id": id, "parts": tags}),
            None => Value::Null,
        };
        let notes: Vec<Value> = self.notes.iter().map(|(index, note)| json!([index, note])).collect();
        let mut value = Map::new();
        value.insert("fingerprint".to_owned(), json!(self.fingerprint));
        value.insert("uploads".to_owned(), self.uploads.iter().map(upload).collect());
        value.insert("tensors".to_owned(), notes.into());
        value.insert("finishing".to_owned(), json!(self.finishing));
        value.into()
    }

    /// Where it is.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Its length when it was written last, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is one in the bucket.
    pub(super) fn is_written(&self) -> bool {
        self.tag.is_some()
    }

    /// The server's name of the upload of `file`, if it was begun.
    pub(super) fn upload(&self, file: usize) -> Option<&str> {
        Some(&self.uploads.get(file)?.as_ref()?.id)
    }

    /// The upload of `file` was begun, of `parts` parts.
    pub(super) fn begun(&mut self, file: usize, name: &Name, id: String, parts: usize) {
        if let Some(upload) = self.uploads.get_mut(file) {
            *upload = Some(Upload { name: name.clone(), id, tags: vec![None; parts] });
        }
    }

    /// The bucket has a part.
    pub(super) fn arrived(&mut self, file: usize, part: usize, tag: String) {
        let tags = self.uploads.get_mut(file).and_then(Option::as_mut).map(|upload| &mut upload.tags);
        if let Some(of) = tags.and_then(|tags| tags.get_mut(part)) {
            *of = Some(tag);
        }
    }

    /// The upload of `file`, all of which has been sent, and the tags of its parts.
    pub(super) fn sent(&self, file: usize) -> Option<(&str, Vec<String>)> {
        let upload = self.uploads.get(file)?.as_ref()?;
        Some((&upload.id, upload.tags.iter().cloned().collect::<Option<_>>()?))
    }

    /// Writes it over the version that this process knows.
    pub(super) fn write(&mut self, bucket: &dyn Bucket) -> Result<(), Error> {
        let bytes = serde_json::to_vec(&self.value()).unwrap_or_default();
        let over = self.tag.as_deref().map_or(Over::Nothing, Over::Tag);
        let len = bytes.len() as u64;
        let tag = match bucket.put(&self.name, bytes.clone(), over) {
            // Its answer may have been lost, and the request been made again: then it finds its own bytes.
            Err(error) if is_taken(&error) => {
                let there = bucket.get(&self.name, LONGEST).map_err(Error::of_member)?;
                there.filter(|(there, _)| *there == bytes).map(|(_, version)| version.tag)
            }
            other => Some(other.map_err(Error::of_member)?),
        };
        if tag.is_none() {
            // What it has is not ours to remove any more.
            (self.tag, self.uploads) = (None, vec![None; self.uploads.len()]);
            return Err(Error::whole(bucket.location(&self.name.parent()), Fault::Busy));
        }
        (self.tag, self.len) = (tag, len);
        Ok(())
    }

    /// Removes it.
    pub(super) fn remove(&mut self, bucket: &dyn Bucket) -> Result<(), Error> {
        if self.tag.take().is_some() {
            bucket.remove(&self.name).map_err(Error::of_member)?;
        }
        Ok(())
    }

    /// Removes what was sent, and the journal, as far as the server lets us.
    pub(super) fn forget(&mut self, bucket: &dyn Bucket) {
        self.abort(bucket);
        let _ = self.remove(bucket);
    }

    /// Drops the upload of `file`, whose parts are of no use.
    pub(super) fn restart(&mut self, bucket: &dyn Bucket, file: usize) {
        if let Some(Upload { name, id, .. }) = self.uploads.get_mut(file).and_then(Option::take) {
            let _ = bucket.abort(&name, &id);
        }
    }

    fn abort(&self, bucket: &dyn Bucket) {
        for Upload { name, id, .. } in self.uploads.iter().flatten() {
            let _ = bucket.abort(name, id);
        }
    }
}
