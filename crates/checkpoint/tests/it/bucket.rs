//! Checkpoints that are written to a bucket: the same files as on a disk, whatever fails on the way.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use checkpoint::{Checkpoint, Draft, Flavour, Location, Outgoing, Output, Split, WriteOptions, Writer};
use insta::assert_snapshot;
use serde_json::{Value, json};
use storage::{Bucket, ByteSource, Error, Name, Over, PartLimits, Sending, Storage, Version};
use testkit::golden;

use crate::Dir;
use crate::write::{bytes, files, outgoing, pairs};

/// The content of a bucket.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    files: BTreeMap<String, (Vec<u8>, u64)>,
    uploads: BTreeMap<String, (String, BTreeMap<usize, Vec<u8>>)>,
    count: u64,
}

impl Content {
    fn new_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn texts(&self) -> BTreeMap<String, Vec<u8>> {
        self.files.iter().map(|(name, (bytes, _))| (name.clone(), bytes.clone())).collect()
    }
}

/// A bucket that stops to answer after some calls, and counts bytes that are on their way.
#[derive(Debug, Default)]
struct Mock {
    content: Arc<Mutex<Content>>,
    /// Calls that are answered still.
    left: Mutex<Option<usize>>,
    under_way: Arc<Mutex<(u64, u64)>>,
}

const LIMITS: PartLimits = PartLimits { bytes: 4096, count: 1000, under_way: 3 * 4096, beside: 0 };

impl Mock {
    fn with(content: Content, left: Option<usize>) -> Arc<Mock> {
        Arc::new(Mock {
            content: Arc::new(Mutex::new(content)),
            left: Mutex::new(left),
            under_way: Arc::default(),
        })
    }

    fn content(&self) -> Content {
        self.content.lock().unwrap().clone()
    }

    fn call(&self, name: &Name) -> Result<(), Error> {
        match &mut *self.left.lock().unwrap() {
            Some(0) => Err(self.error(name, io::ErrorKind::ConnectionReset)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn error(&self, name: &Name, kind: io::ErrorKind) -> Error {
        Error::io(self.location(name), "write", kind.into())
    }
}

impl Storage for Mock {
    fn list(&self, dir: &Name) -> Result<Vec<String>, Error> {
        self.call(dir)?;
        let content = self.content();
        let below = |name: &String| {
            let rest =
                if dir.is_root() { name } else { name.strip_prefix(dir.as_str())?.strip_prefix('/')? };
            rest.split('/').next().map(str::to_owned)
        };
        let names: BTreeSet<String> = content.files.keys().filter_map(below).collect();
        if names.is_empty() {
            Err(self.error(dir, io::ErrorKind::NotFound))
        } else {
            Ok(names.into_iter().collect())
        }
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        Err(self.error(name, io::ErrorKind::Unsupported))
    }

    fn location(&self, name: &Name) -> Location {
        Location::Named(format!("mock://b/{name}", name = name.as_str()))
    }
}

impl Bucket for Mock {
    fn part_limits(&self) -> PartLimits {
        LIMITS
    }

    fn version(&self, name: &Name) -> Result<Option<Version>, Error> {
        self.call(name)?;
        let content = self.content.lock().unwrap();
        Ok(content
            .files
            .get(name.as_str())
            .map(|(bytes, tag)| Version { len: bytes.len() as u64, tag: tag.to_string() }))
    }

    fn get(&self, name: &Name, _: u64) -> Result<Option<(Vec<u8>, Version)>, Error> {
        let version = self.version(name)?;
        let content = self.content.lock().unwrap();
        Ok(version.map(|version| (content.files[name.as_str()].0.clone(), version)))
    }

    fn put(&self, name: &Name, bytes: Vec<u8>, over: Over<'_>) -> Result<String, Error> {
        self.call(name)?;
        let mut content = self.content.lock().unwrap();
        let was = content.files.get(name.as_str()).map(|(_, tag)| tag.to_string());
        let fits = match over {
            Over::Nothing => was.is_none(),
            Over::Tag(tag) => was.as_deref() == Some(tag),
            Over::Anything => true,
        };
        if !fits {
            return Err(self.error(name, io::ErrorKind::AlreadyExists));
        }
        let tag = content.new_number();
        content.files.insert(name.as_str().to_owned(), (bytes, tag));
        Ok(tag.to_string())
    }

    fn begin(&self, name: &Name) -> Result<String, Error> {
        self.call(name)?;
        let mut content = self.content.lock().unwrap();
        let id = content.new_number().to_string();
        content.uploads.insert(id.clone(), (name.as_str().to_owned(), BTreeMap::new()));
        Ok(id)
    }

    fn send(&self, name: &Name, upload: &str, index: usize, bytes: Vec<u8>) -> Sending {
        if let Err(error) = self.call(name) {
            return Box::new(move || Err(error));
        }
        let len = bytes.len() as u64;
        {
            let mut under_way = self.under_way.lock().unwrap();
            under_way.0 += len;
            under_way.1 = under_way.1.max(under_way.0);
        }
        let gone = self.error(name, io::ErrorKind::NotFound);
        let (content, under_way, upload) =
            (Arc::clone(&self.content), Arc::clone(&self.under_way), upload.to_owned());
        // It arrives when someone waits for it: the latest time at which it may.
        Box::new(move || {
            under_way.lock().unwrap().0 -= len;
            let mut content = content.lock().unwrap();
            let Some((_, parts)) = content.uploads.get_mut(&upload) else { return Err(gone) };
            parts.insert(index, bytes);
            Ok(format!("{upload}-{index}"))
        })
    }

    fn complete(&self, name: &Name, upload: &str, parts: &[String]) -> Result<(), Error> {
        self.call(name)?;
        let mut content = self.content.lock().unwrap();
        let Some((of, sent)) = content.uploads.remove(upload) else {
            return Err(self.error(name, io::ErrorKind::NotFound));
        };
        assert_eq!(of, name.as_str());
        let wanted: Vec<String> = sent.keys().map(|index| format!("{upload}-{index}")).collect();
        assert_eq!(wanted, parts);
        let lengths: Vec<usize> = sent.values().map(Vec::len).collect();
        let (last, others) = lengths.split_last().unwrap();
        assert!(others.iter().all(|len| len == lengths.first().unwrap()) && last <= lengths.first().unwrap());
        let bytes = sent.into_values().flatten().collect();
        let tag = content.new_number();
        content.files.insert(of, (bytes, tag));
        Ok(())
    }

    fn abort(&self, name: &Name, upload: &str) -> Result<(), Error> {
        self.call(name)?;
        self.content.lock().unwrap().uploads.remove(upload);
        Ok(())
    }

    fn remove(&self, name: &Name) -> Result<(), Error> {
        self.call(name)?;
        self.content.lock().unwrap().files.remove(name.as_str());
        Ok(())
    }
}

fn to(bucket: &Arc<Mock>, name: &str) -> Output {
    Output::Bucket { bucket: Arc::clone(bucket) as Arc<dyn Bucket>, name: Name::parse(name).unwrap() }
}

fn often(overwrite: bool) -> WriteOptions {
    WriteOptions { sync_every: 20_000, overwrite, ..WriteOptions::default() }
}

/// Writes the tensors that are not there yet; gives how many were.
fn rest(source: &Checkpoint, writer: &mut Writer) -> Result<usize, checkpoint::Error> {
    let mut there = 0;
    for (i, entry) in source.entries().iter().enumerate() {
        if let Some(note) = writer.again()? {
            assert_eq!(note, json!({ "tensor": i }));
            there += 1;
            continue;
        }
        let planes = bytes(source, entry);
        let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
        writer.tensor_with(&planes, json!({ "tensor": i }))?;
    }
    Ok(there)
}

/// Writes a draft, as a process that ends with the first error. Gives how many tensors were there.
fn written(
    source: &Checkpoint,
    draft: Draft,
    to: Output,
    overwrite: bool,
) -> Result<usize, checkpoint::Error> {
    let mut writer = draft.create_with(to, &often(overwrite))?;
    let there = rest(source, &mut writer)?;
    writer.finish()?;
    Ok(there)
}

const CASES: [&str; 6] = ["dir/x.npz", "x.gguf", "parts.gguf", "dir/shards", "arrays", "x.onnx"];

fn draft(case: &str, gguf: &Checkpoint, hf: &Checkpoint) -> Draft {
    let metadata = pairs(gguf.metadata().gguf().unwrap());
    match case {
        "dir/x.npz" => Draft::npz(outgoing(gguf)),
        "x.gguf" => Draft::gguf(outgoing(gguf), &metadata),
        "parts.gguf" => Draft::gguf_split(outgoing(gguf), &metadata, Split::Tensors(6)),
        "dir/shards" => Draft::directory(outgoing(hf), files(hf), Flavour::Hf, Some(60_000)),
        "arrays" => Draft::npy_dir(outgoing(gguf), None),
        _ => Draft::onnx(outgoing(gguf), vec![]),
    }
    .unwrap()
}

fn walk(dir: &std::path::Path, base: &std::path::Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, base, files);
        } else {
            let name = path.strip_prefix(base).unwrap().to_str().unwrap().replace('\\', "/");
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
}

/// The files of a draft on the disk, below `case`.
fn on_disk(case: &str, source: &Checkpoint, draft: Draft) -> BTreeMap<String, Vec<u8>> {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("dir")).unwrap();
    written(source, draft, Output::from(&dir.path(case)), false).unwrap();
    let mut files = BTreeMap::new();
    walk(&dir.path(""), &dir.path(""), &mut files);
    files
}

fn sources() -> (Checkpoint, Checkpoint) {
    let open = |name| checkpoint::open(golden(name)).unwrap();
    (open("models/llama-tiny/model.gguf"), open("models/llama-tiny"))
}

/// In each format a bucket gets the files that the disk gets, and no more is in memory than was foreseen.
#[test]
fn a_bucket_gets_the_files_that_a_disk_gets() {
    let (gguf, hf) = sources();
    for case in CASES {
        let source = if case == "dir/shards" { &hf } else { &gguf };
        let wanted = on_disk(case, source, draft(case, &gguf, &hf));
        let bucket = Mock::with(Content::default(), None);
        let draft = draft(case, &gguf, &hf);
        let foreseen = draft.buffers(&to(&bucket, case));
        assert_eq!(written(source, draft, to(&bucket, case), false).unwrap(), 0);
        let content = bucket.content();
        assert!(content.texts() == wanted, "{case}: {:?} and {:?}", content.texts().keys(), wanted.keys());
        assert_eq!(content.uploads, BTreeMap::new(), "{case}");
        let (_, most) = *bucket.under_way.lock().unwrap();
        assert!(
            most <= LIMITS.under_way.max(4096) && most < foreseen && foreseen < 200_000,
            "{case}: {most} {foreseen}"
        );
    }
}

/// Returns true if what readers find at `case` is nothing, or what was, or what is to be.
fn is_whole(case: &str, now: &BTreeMap<String, Vec<u8>>, states: [&BTreeMap<String, Vec<u8>>; 2]) -> bool {
    let first = |state: &BTreeMap<String, Vec<u8>>| {
        let first = |name: &&String| match case {
            "dir/shards" => name.as_str() == "dir/shards/config.json",
            "arrays" => name.as_str() == "arrays/manifest.json",
            "parts.gguf" => name.as_str() == "parts.gguf" || name.contains("-00001-of-"),
            case => name.as_str() == case,
        };
        state.keys().find(first).cloned()
    };
    let Some(found) = first(now) else { return true };
    states.iter().any(|state| {
        // Files that the new checkpoint does not name may be there a moment longer.
        first(state).as_ref() == Some(&found)
            && state.iter().all(|(name, bytes)| now.get(name) == Some(bytes))
    })
}

/// Ended at each call to the bucket: what is there is never half of one thing, and the next process makes the whole of it.
#[test]
fn a_process_that_ends_anywhere_is_continued() {
    let (gguf, hf) = sources();
    for case in CASES {
        let source = if case == "dir/shards" { &hf } else { &gguf };
        let wanted = on_disk(case, source, draft(case, &gguf, &hf));
        // Another checkpoint is there before, in one case of two.
        let old = match case {
            "x.gguf" | "parts.gguf" => Draft::gguf(outgoing(&gguf), &[]).unwrap(),
            "dir/shards" => Draft::directory(outgoing(&hf), files(&hf), Flavour::Hf, Some(30_000)).unwrap(),
            "x.onnx" => Draft::onnx(outgoing(&gguf), vec![("a".to_owned(), "b".to_owned())]).unwrap(),
            _ => draft(case, &gguf, &hf),
        };
        let before = Mock::with(Content::default(), None);
        written(source, old, to(&before, case), false).unwrap();
        for (before, overwrite) in [(Content::default(), false), (before.content(), true)] {
            let old = before.texts();
            let (mut most, mut calls) = (0, 0);
            loop {
                let bucket = Mock::with(before.clone(), Some(calls));
                let ended = written(source, draft(case, &gguf, &hf), to(&bucket, case), overwrite);
                let mut state = bucket.content();
                assert!(
                    is_whole(case, &state.texts(), [&old, &wanted]),
                    "{case}, {calls} calls: {:?}",
                    state.files.keys()
                );
                if ended.is_ok() {
                    break;
                }
                if overwrite && calls % 3 == 2 {
                    // The next ends too.
                    let bucket = Mock::with(state.clone(), Some(calls / 2));
                    let _ = written(source, draft(case, &gguf, &hf), to(&bucket, case), overwrite);
                    state = bucket.content();
                    assert!(
                        is_whole(case, &state.texts(), [&old, &wanted]),
                        "{case}, {calls} calls and half of them"
                    );
                }
                let bucket = Mock::with(state, None);
                let there = written(source, draft(case, &gguf, &hf), to(&bucket, case), overwrite);
                let there = there.unwrap_or_else(|e| panic!("{case} after {calls} calls: {e:?}"));
                most = most.max(there);
                let content = bucket.content();
                assert!(content.texts() == wanted, "{case} after {calls} calls: {:?}", content.files.keys());
                calls += 1;
            }
            assert!(calls > 5, "{case}: {calls}");
            // With every tensor sent, the names alone are left.
            assert_eq!(most, source.entries().len(), "{case}");
        }
    }
}

/// A process that is told to end keeps what is worth it; one that cannot be continued leaves nothing.
#[test]
fn what_is_dropped_leaves_a_journal_or_nothing() {
    let (gguf, hf) = sources();
    let write = |bucket: &Arc<Mock>, count: usize| {
        let mut writer =
            draft("x.gguf", &gguf, &hf).create_with(to(bucket, "x.gguf"), &often(false)).unwrap();
        for (i, entry) in gguf.entries().iter().enumerate().take(count) {
            if writer.again().unwrap().is_none() {
                writer.tensor_with(&[&bytes(&gguf, entry)[0]], json!({ "tensor": i })).unwrap();
            }
        }
        writer
    };
    let bucket = Mock::with(Content::default(), None);
    drop(write(&bucket, 1));
    assert_eq!((bucket.content().files.len(), bucket.content().uploads.len()), (0, 0));
    drop(write(&bucket, 11));
    let content = bucket.content();
    assert_eq!(content.files.keys().collect::<Vec<_>>(), [".x.gguf.partial/journal"]);
    assert_eq!(content.uploads.len(), 1);
    // Another result takes the place of what was begun.
    let other = Mock::with(content.clone(), None);
    written(&gguf, Draft::gguf(outgoing(&gguf), &[]).unwrap(), to(&other, "x.gguf"), false).unwrap();
    assert_eq!((other.content().files.len(), other.content().uploads.len()), (1, 0));
    // The server may forget what was sent.
    let mut forgetful = content.clone();
    forgetful.uploads.clear();
    let error =
        written(&gguf, draft("x.gguf", &gguf, &hf), to(&Mock::with(forgetful, None), "x.gguf"), false);
    assert_snapshot!(format!("{:?}", error.unwrap_err()), @r"
    cannot write `mock://b/x.gguf`: entity not found
    hint: the bucket has forgotten what was sent before: remove `mock://b/.x.gguf.partial/journal`, and begin anew
    ");
    // The file there is no journal of ours.
    let mut foreign = content;
    foreign.files.get_mut(".x.gguf.partial/journal").unwrap().0 = b"hello".to_vec();
    let error = written(&gguf, draft("x.gguf", &gguf, &hf), to(&Mock::with(foreign, None), "x.gguf"), false);
    assert_snapshot!(format!("{:?}", error.unwrap_err()), @r"
    `mock://b/.x.gguf.partial/journal`: something is there that is not ours, where the unfinished result is to be
    ");
}

/// Of two processes that write one result, the later has it.
#[test]
fn the_later_of_two_has_the_place() {
    let (gguf, hf) = sources();
    let bucket = Mock::with(Content::default(), None);
    let create = || draft("x.gguf", &gguf, &hf).create_with(to(&bucket, "x.gguf"), &often(false)).unwrap();
    let mut first = create();
    for (i, entry) in gguf.entries().iter().enumerate().take(11) {
        first.tensor_with(&[&bytes(&gguf, entry)[0]], json!({ "tensor": i })).unwrap();
    }
    let mut second = create();
    assert!(rest(&gguf, &mut second).unwrap() > 0);
    let error = rest_from(&gguf, &mut first, 11).unwrap_err();
    assert_snapshot!(format!("{error:?}"), @"`mock://b/.x.gguf.partial`: another process is writing there");
    drop(first);
    second.finish().unwrap();
    let content = bucket.content();
    assert!(content.texts() == on_disk("x.gguf", &gguf, draft("x.gguf", &gguf, &hf)));
}

fn rest_from(source: &Checkpoint, writer: &mut Writer, from: usize) -> Result<(), checkpoint::Error> {
    for entry in source.entries().iter().skip(from) {
        writer.tensor_with(&[&bytes(source, entry)[0]], Value::Null)?;
    }
    Ok(())
}

/// Nothing that is not ours is replaced.
#[test]
fn a_bucket_is_refused_as_a_disk_is() {
    let (gguf, hf) = sources();
    let mut content = Content::default();
    for name in [
        "x.gguf",
        "parts-00001-of-00002.gguf",
        "dir/shards/notes.txt",
        "dir/shards/config.json",
        "arrays/a.txt",
        "dir/x.npz/a",
    ] {
        content.files.insert(name.to_owned(), (vec![1], 0));
    }
    let bucket = Mock::with(content, None);
    let mut said = vec![];
    for (case, overwrite) in [
        ("x.gguf", false),
        ("parts.gguf", false),
        ("dir/shards", false),
        ("dir/shards", true),
        ("arrays", true),
        ("", true),
    ] {
        let made = draft(if case.is_empty() { "x.gguf" } else { case }, &gguf, &hf);
        let error = made.create_with(to(&bucket, case), &often(overwrite)).unwrap_err();
        said.push(format!("{error:?}"));
    }
    let sources = vec![Location::Named("mock://b/dir/shards/model.safetensors".to_owned())];
    let options = WriteOptions { sources, overwrite: true, ..WriteOptions::default() };
    let error = draft("dir/shards", &gguf, &hf).create_with(to(&bucket, "dir/shards"), &options).unwrap_err();
    said.push(format!("{error:?}"));
    let zstd = Draft::npy_dir(outgoing(&gguf), None).unwrap().with_zstd();
    let error = zstd.create_with(to(&bucket, "new"), &often(false)).unwrap_err();
    said.push(format!("{error:?}"));
    assert_snapshot!(said.join("\n"), @r"
    `mock://b/x.gguf`: already exists
    hint: remove it, or name another destination
    `mock://b/parts-00001-of-00002.gguf`: already exists
    hint: remove it, or name another destination
    `mock://b/dir/shards`: already exists
    hint: remove it, or name another destination
    `mock://b/dir/shards`: the directory there holds `notes.txt`, which no conversion writes
    hint: move it, or name another destination: files that may be yours are never removed
    `mock://b/arrays`: the directory there is no model, so it is not replaced
    `mock://b/`: the path does not end in a name
    `mock://b/dir/shards`: the source and the destination are the same
    hint: write to another path, and replace the source when you have checked the result
    cannot write `mock://b/new`: arrays are compressed with zstd in directories of this machine alone
    ");
    assert_eq!(bucket.content().uploads.len(), 0);
}

/// A journal that anyone may have written is believed only if it is whole, and a command that is refused has changed nothing.
#[test]
fn a_journal_is_not_trusted() {
    let (gguf, hf) = sources();
    let bucket = Mock::with(Content::default(), None);
    let mut writer = draft("x.gguf", &gguf, &hf).create_with(to(&bucket, "x.gguf"), &often(false)).unwrap();
    for (i, entry) in gguf.entries().iter().enumerate().take(11) {
        writer.tensor_with(&[&bytes(&gguf, entry)[0]], json!({ "tensor": i })).unwrap();
    }
    drop(writer);
    let content = bucket.content();
    let journal = |content: &mut Content, change: &dyn Fn(&mut Value)| {
        let (bytes, _) = content.files.get_mut(".x.gguf.partial/journal").unwrap();
        let mut value: Value = serde_json::from_slice(bytes).unwrap();
        change(&mut value);
        *bytes = serde_json::to_vec(&value).unwrap();
    };
    let wanted = on_disk("x.gguf", &gguf, draft("x.gguf", &gguf, &hf));
    for (change, left) in [
        (&(|value: &mut Value| value["finishing"] = json!([null])) as &dyn Fn(&mut Value), 0),
        // An upload of which nobody says anything stays, as others' do.
        (&|value| value["uploads"] = json!([]), 1),
        (&|value| value["uploads"][0]["parts"] = json!(["a"]), 0),
        (&|value| value["fingerprint"] = json!("another"), 0),
    ] {
        let mut changed = content.clone();
        journal(&mut changed, change);
        let bucket = Mock::with(changed, None);
        assert_eq!(written(&gguf, draft("x.gguf", &gguf, &hf), to(&bucket, "x.gguf"), false).unwrap(), 0);
        assert!(bucket.content().texts() == wanted);
        assert_eq!(bucket.content().uploads.len(), left);
    }
    // Something is there: what another result has sent stays.
    let mut taken = content;
    journal(&mut taken, &|value| value["fingerprint"] = json!("another"));
    taken.files.insert("x.gguf".to_owned(), (vec![1], 0));
    let bucket = Mock::with(taken.clone(), None);
    written(&gguf, draft("x.gguf", &gguf, &hf), to(&bucket, "x.gguf"), false).unwrap_err();
    assert_eq!(bucket.content(), taken);
}

/// A file of no bytes has no part, and is there.
#[test]
fn a_file_may_be_empty() {
    let outgoing = Outgoing {
        name: "none".to_owned(),
        shape: [0].into(),
        scheme: tensor::Scheme::plain(tensor::Dtype::F32),
    };
    let bucket = Mock::with(Content::default(), None);
    let draft = Draft::onnx(vec![outgoing], vec![]).unwrap();
    let mut writer = draft.create_with(to(&bucket, "x.onnx"), &often(false)).unwrap();
    writer.tensor(&[&[]]).unwrap();
    writer.finish().unwrap();
    let texts = bucket.content().texts();
    assert_eq!((texts.len(), texts["x.onnx.data"].len()), (2, 0));
}
