//! A record of the tensors that are written and durable. It is beside the result, so that another process can continue.
//!
//! Lines of JSON. The first identifies the result by its fingerprint. Each of the others records that a tensor is on
//! the disk, with the digest of its bytes; another that everything is, with the file system's numbers for it. If files of the
//! source go then, the last line lists them. A line is written only once it is true of the disk; a truncated line is ignored.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::system::{self, Identity};
use crate::error::Error;
use crate::fault::Fault;

/// A longer line is not ours: the whole journal of 500,000 tensors is shorter.
const LONGEST: u64 = 1 << 30;

/// A tensor that is on the disk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Done {
    /// The BLAKE3 of its planes, one after the other, in hexadecimal digits.
    pub(super) digest: String,
    /// The caller's note, returned when the result is continued.
    pub(super) note: Value,
}

/// Files that go once a result has its names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Removing {
    /// Where the files of the result are, in the order of [`Journal::complete`].
    pub(super) places: Vec<PathBuf>,
    /// The files that go, each with its stamp: a file with another stamp is another file, and stays.
    pub(super) files: Vec<(PathBuf, Value)>,
    /// The caller's note.
    pub(super) note: Value,
}

impl Removing {
    /// `None` if a path is not Unicode: such a removal is not recorded.
    fn line(&self) -> Option<Value> {
        let places = self.places.iter().map(|path| path.to_str()).collect::<Option<Vec<_>>>()?;
        let files = self.files.iter().map(|(path, stamp)| Some(json!([path.to_str()?, stamp])));
        let files = files.collect::<Option<Vec<_>>>()?;
        Some(json!({"removes": files, "places": places, "note": self.note}))
    }

    fn parse(line: &Value) -> Option<Removing> {
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let file = |value: &Value| Some((path(value.get(0)?)?, value.get(1)?.clone()));
        Some(Removing {
            places: line.get("places")?.as_array()?.iter().map(path).collect::<Option<_>>()?,
            files: line.get("removes")?.as_array()?.iter().map(file).collect::<Option<_>>()?,
            note: line.get("note")?.clone(),
        })
    }
}

/// The journal, open and locked: as long as it lives, no other process has it.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    fingerprint: String,
    /// Tensors that are on the disk, in order.
    pub(super) done: Vec<Done>,
    /// Once everything is durable, the files that get the names of the result.
    pub(super) complete: Option<Vec<Identity>>,
    /// Files of the source that go then.
    pub(super) removing: Option<Removing>,
    /// Lines of tensors in the file.
    written: usize,
}

impl Journal {
    /// Opens or creates the journal at `path` in an existing directory. Its records are dropped if they are of another
    /// result than `fingerprint`'s; the second value says whether they were of the same.
    pub(super) fn open(path: &Path, fingerprint: &str) -> Result<(Journal, bool), Error> {
        let file = system::open(path).map_err(|e| Error::io(path, "create", e))?;
        let (mut journal, text) = Journal::lock(file, path, fingerprint)?;
        let valid = journal.parse(&text);
        // The next line follows the last one that counts.
        let same = valid.is_some();
        let failed = |e| Error::io(path, "write", e);
        if let Some(valid) = valid.filter(|valid| *valid < text.len()) {
            journal.file.set_len(valid as u64).map_err(failed)?;
        }
        journal.file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((journal, same))
    }

    /// Opens the journal at `path`, of whatever result it is; `None` if there is none.
    pub(super) fn existing(path: &Path) -> Result<Option<Journal>, Error> {
        let file = match File::options().read(true).write(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io(path, "open", e))?,
        };
        let (mut journal, text) = match Journal::lock(file, path, "") {
            // It is gone: whoever had it is done.
            Err(_) if Identity::of(path).is_none() => return Ok(None),
            other => other?,
        };
        let first = text.split(|b| *b == b'\n').next().unwrap_or_default();
        let first: Value = serde_json::from_slice(first).unwrap_or_default();
        let fingerprint = first.get("fingerprint").and_then(Value::as_str);
        fingerprint.unwrap_or_default().clone_into(&mut journal.fingerprint);
        journal.parse(&text);
        Ok(Some(journal))
    }

    /// Locks `file`, which was opened at `path`, and reads it.
    fn lock(mut file: File, path: &Path, fingerprint: &str) -> Result<(Journal, Vec<u8>), Error> {
        let failed = |doing| move |e: io::Error| Error::io(path, doing, e);
        let busy = || Error::whole(path.parent().unwrap_or(path), Fault::Busy);
        // A process that only looks at a journal locks it for a moment.
        let mut looks = 5;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if looks > 0 => {
                    looks -= 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(busy()),
                // Some file systems know no locks: there two at a time are not told apart.
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => break,
                Err(TryLockError::Error(e)) => return Err(failed("lock")(e)),
            }
        }
        // Between opening and locking, who had it may have ended and removed it.
        let (device, number) = storage::platform::number(&file).map_err(failed("read"))?;
        if Identity::of(path) != Some(Identity(device, number)) {
            return Err(busy());
        }
        let mut text = vec![];
        (&mut file).take(LONGEST).read_to_end(&mut text).map_err(failed("read"))?;
        let journal = Journal {
            file,
            path: path.to_owned(),
            fingerprint: fingerprint.to_owned(),
            done: vec![],
            complete: None,
            removing: None,
            written: 0,
        };
        Ok((journal, text))
    }

    /// Reads the records of `text`, up to the first line that is not valid. Returns the bytes before that; `None` if they are of
    /// another result.
    fn parse(&mut self, text: &[u8]) -> Option<usize> {
        let mut lines = text.split_inclusive(|b| *b == b'\n');
        let line = |line: &[u8]| -> Option<Value> { serde_json::from_slice(line.strip_suffix(b"\n")?).ok() };
        let first = lines.next()?;
        if line(first)? != head(&self.fingerprint) {
            return None;
        }
        let mut valid = first.len();
        for (bytes, value) in lines.map_while(|bytes| Some((bytes.len(), line(bytes)?))) {
            if let Some(digest) = value.get("blake3").and_then(Value::as_str) {
                if value.get("tensor").and_then(Value::as_u64) != Some(self.done.len() as u64) {
                    break;
                }
                let note = value.get("note").cloned().unwrap_or_default();
                self.done.push(Done { digest: digest.to_owned(), note });
            } else if let Some(complete) = value.get("complete").and_then(Value::as_array) {
                let number = |v: &Value, i: usize| v.get(i)?.as_u64();
                let identity = |v: &Value| Some(Identity(number(v, 0)?, number(v, 1)?));
                self.complete = complete.iter().map(identity).collect();
            } else {
                self.removing = Removing::parse(&value).or(self.removing.take());
            }
            valid += bytes;
        }
        self.written = self.done.len();
        Some(valid)
    }

    /// Drops all but the first `tensors` records; later records follow them.
    pub(super) fn restart(&mut self, tensors: usize) -> Result<(), Error> {
        self.done.truncate(tensors);
        (self.complete, self.removing, self.written) = (None, None, 0);
        let failed = |e| Error::io(&self.path, "write", e);
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(failed)?;
        let head = format!("{}\n", head(&self.fingerprint));
        self.file.write_all(head.as_bytes()).map_err(failed)?;
        self.append()
    }

    /// Writes down the tensors in `done` that it does not say yet; they are on the disk.
    pub(super) fn append(&mut self) -> Result<(), Error> {
        let lines = self.lines();
        self.put(&lines)
    }

    /// The same of tensors that may be lost with the machine's power, and this with them.
    pub(super) fn note(&mut self) -> Result<(), Error> {
        let lines = self.lines();
        self.file.write_all(lines.as_bytes()).map_err(|e| Error::io(&self.path, "write", e))
    }

    fn lines(&mut self) -> String {
        let new = self.done.iter().enumerate().skip(self.written);
        let line = |(i, d): (usize, &Done)| {
            format!("{}\n", json!({"tensor": i, "blake3": d.digest, "note": d.note}))
        };
        let lines = new.map(line).collect();
        self.written = self.done.len();
        lines
    }

    /// Writes down that all is on the disk.
    pub(super) fn complete(&mut self, what: Vec<Identity>) -> Result<(), Error> {
        let list: Vec<_> = what.iter().map(|Identity(dev, ino)| json!([dev, ino])).collect();
        self.complete = Some(what);
        self.put(&format!("{}\n", json!({"complete": list})))
    }

    /// Writes down that files go.
    pub(super) fn remove(&mut self, what: Removing) -> Result<(), Error> {
        let line = what.line();
        self.removing = Some(what);
        line.map_or(Ok(()), |line| self.put(&format!("{line}\n")))
    }

    fn put(&mut self, lines: &str) -> Result<(), Error> {
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|e| Error::io(&self.path, "write", e))
    }
}

fn head(fingerprint: &str) -> Value {
    json!({"weighbridge": 1, "fingerprint": fingerprint})
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn done(text: &str) -> Done {
        Done { digest: text.to_owned(), note: json!({"n": text}) }
    }

    #[test]
    fn a_line_that_was_cut_short_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let open = || Journal::open(&path, "abc").unwrap();
        let (mut journal, same) = open();
        assert!(!same);
        journal.restart(0).unwrap();
        journal.done = vec![done("a"), done("b")];
        journal.append().unwrap();
        journal.done.push(done("c"));
        journal.append().unwrap();
        journal.complete(vec![Identity(1, 2)]).unwrap();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').collect();
        assert_eq!(ends.len(), 5);
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (journal, same) = open();
            let lines = ends.iter().filter(|end| **end < cut).count();
            assert_eq!(same, lines > 0, "{cut}");
            assert_eq!(journal.done, [done("a"), done("b"), done("c")][..lines.saturating_sub(1).min(3)]);
            assert_eq!(journal.complete, (lines == 5).then(|| vec![Identity(1, 2)]));
        }
        // Who continues a line that was cut short, and then is continued, loses nothing.
        fs::write(&path, &whole[..ends[2] + 7]).unwrap();
        for (text, count) in [("c", 3), ("d", 4)] {
            let (mut journal, _) = open();
            assert_eq!(journal.done.len(), count - 1);
            journal.done.push(done(text));
            journal.append().unwrap();
            drop(journal);
            assert_eq!(open().0.done.last(), Some(&done(text)));
        }
        // After a restart at the second tensor, the journal has no record of the later ones.
        let (mut journal, _) = open();
        journal.restart(2).unwrap();
        journal.done.push(done("d"));
        journal.append().unwrap();
        drop(journal);
        let (journal, same) = open();
        assert_eq!((same, &journal.done[..]), (true, &[done("a"), done("b"), done("d")][..]));
        assert_eq!(journal.complete, None);
        drop(journal);
        let (journal, same) = Journal::open(&path, "abd").unwrap();
        assert!(!same && journal.done.is_empty());
        assert!(matches!(Journal::open(&path, "abd"), Err(Error::Misuse(_))), "it is locked");
    }
}
