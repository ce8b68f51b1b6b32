//! The result of a process that was killed is continued by the next, and comes out the same.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use checkpoint::{Checkpoint, Draft, Flavour, Split, WriteOptions, Writer};
use insta::assert_snapshot;
use serde_json::json;

use crate::Dir;
use testkit::golden;

use crate::write::{bytes, files, outgoing, pairs};

/// Durable after every few tensors.
fn often() -> WriteOptions {
    WriteOptions { sync_every: 20_000, ..WriteOptions::default() }
}

/// All files below a directory, by path.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            files
                .extend(tree(&path).into_iter().map(|(inner, content)| (format!("{name}/{inner}"), content)));
        } else {
            files.insert(name, fs::read(&path).unwrap());
        }
    }
    files
}

fn put_tree(dir: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for (name, content) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Writes the tensors that are not there yet; gives how many were.
fn rest(source: &Checkpoint, writer: &mut Writer) -> usize {
    let mut there = 0;
    for (i, entry) in source.entries().iter().enumerate() {
        if let Some(note) = writer.again().unwrap() {
            assert_eq!((note, there), (json!({ "tensor": i }), i));
            there += 1;
            continue;
        }
        let planes = bytes(source, entry);
        let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
        writer.tensor_with(&planes, json!({ "tensor": i })).unwrap();
    }
    there
}

fn drafts(gguf: &Checkpoint, hf: &Checkpoint) -> Vec<(&'static str, Draft)> {
    let metadata = pairs(gguf.metadata().gguf().unwrap());
    vec![
        ("x.npz", Draft::npz(outgoing(gguf)).unwrap()),
        ("x.gguf", Draft::gguf(outgoing(gguf), &metadata).unwrap()),
        ("parts.gguf", Draft::gguf_split(outgoing(gguf), &metadata, Split::Tensors(6)).unwrap()),
        ("shards", Draft::directory(outgoing(hf), files(hf), Flavour::Hf, Some(60_000)).unwrap()),
        ("arrays", Draft::npy_dir(outgoing(gguf), None).unwrap()),
        ("zstd", Draft::npy_dir(outgoing(gguf), None).unwrap().with_zstd()),
        ("x.onnx", Draft::onnx(outgoing(gguf), vec![]).unwrap()),
    ]
}

/// Each format, stopped after each number of tensors as by kill -9: the files on the disk then are copied to a new
/// directory, where the same result is written again.
#[test]
fn what_was_written_is_continued_and_comes_out_the_same() {
    let gguf = checkpoint::open(golden("models/llama-tiny/model.gguf")).unwrap();
    let hf = checkpoint::open(golden("models/llama-tiny")).unwrap();
    for case in 0..7 {
        let dir = Dir::new();
        let (name, draft) = drafts(&gguf, &hf).remove(case);
        let source = if name == "shards" { &hf } else { &gguf };
        let path = dir.path("whole").join(name);
        fs::create_dir(dir.path("whole")).unwrap();
        let mut writer = draft.create_with(&path, &often()).unwrap();
        let mut states = vec![];
        for (i, entry) in source.entries().iter().enumerate() {
            let planes = bytes(source, entry);
            let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
            writer.tensor_with(&planes, json!({ "tensor": i })).unwrap();
            states.push(tree(&dir.path("whole")));
        }
        writer.finish().unwrap();
        let wanted = tree(&dir.path("whole"));
        let mut counts = vec![];
        for (i, state) in states.iter().enumerate() {
            let here = dir.path(&format!("again{i}"));
            put_tree(&here, state);
            let (_, draft) = drafts(&gguf, &hf).remove(case);
            let mut writer = draft.create_with(here.join(name), &often()).unwrap();
            let there = rest(source, &mut writer);
            assert!(there <= i + 1);
            counts.push(there);
            writer.finish().unwrap();
            assert!(tree(&here) == wanted, "{name} after {i}");
        }
        assert!(counts.is_sorted() && counts[20] >= 18, "{name}: {counts:?}");
    }
}

/// A writer that is dropped keeps what is worth it; one of another result begins anew, and damage is found.
#[test]
fn only_the_same_is_continued() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("models/llama-tiny/model.gguf")).unwrap();
    let path = dir.path("x.safetensors");
    let create = |options: &WriteOptions| {
        Draft::safetensors(outgoing(&source)).unwrap().create_with(&path, options).unwrap()
    };
    let half = |writer: &mut Writer| {
        for (i, entry) in source.entries().iter().enumerate().take(11) {
            if writer.again().unwrap().is_none() {
                writer.tensor_with(&[&bytes(&source, entry)[0]], json!({ "tensor": i })).unwrap();
            }
        }
    };
    let mut writer = create(&often());
    half(&mut writer);
    assert_snapshot!(dir.text(&Draft::safetensors(outgoing(&source)).unwrap().create_with(&path, &often()).err().unwrap()),
        @"`DIR/.x.safetensors.partial`: another process is writing there");
    drop(writer);
    let state = tree(&dir.path(""));
    assert_eq!(rest(&source, &mut create(&often())), 11, "all that was written before it was dropped");
    let restore = || {
        fs::remove_dir_all(dir.path(".x.safetensors.partial")).unwrap();
        put_tree(&dir.path(""), &state);
    };

    // The sixth tensor is not what it was: it is the first that is written again.
    restore();
    let data = dir.path(".x.safetensors.partial/output/x.safetensors");
    let mut changed = fs::read(&data).unwrap();
    let sixth = bytes(&source, &source.entries()[5]).concat();
    let at = changed.windows(sixth.len()).position(|w| w == sixth).unwrap();
    changed[at + 3] ^= 1;
    fs::write(&data, changed).unwrap();
    let mut writer = create(&often());
    assert_eq!(rest(&source, &mut writer), 5);
    writer.finish().unwrap();
    let wanted = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();

    // So it is if the file was cut short, or is gone.
    put_tree(&dir.path(""), &state);
    fs::write(&data, &wanted[..wanted.len() / 2]).unwrap();
    let mut writer = create(&often());
    assert!(rest(&source, &mut writer) < 11);
    writer.finish().unwrap();
    assert!(fs::read(&path).unwrap() == wanted);
    fs::remove_file(&path).unwrap();
    put_tree(&dir.path(""), &state);
    fs::remove_file(&data).unwrap();
    assert_eq!(rest(&source, &mut create(&often())), 0);

    // Without the request to continue, everything is written again.
    restore();
    let mut writer = create(&often());
    for entry in source.entries() {
        writer.tensor(&[&bytes(&source, entry)[0]]).unwrap();
    }
    writer.finish().unwrap();
    assert!(fs::read(&path).unwrap() == wanted);
    fs::remove_file(&path).unwrap();

    // The inputs of the values have changed.
    put_tree(&dir.path(""), &state);
    restore();
    let other = WriteOptions { identity: b"changed".to_vec(), ..often() };
    assert_eq!(rest(&source, &mut create(&other)), 0);

    // A result that is short is not kept at all.
    restore();
    let mut writer = create(&WriteOptions { identity: b"short".to_vec(), ..WriteOptions::default() });
    half(&mut writer);
    drop(writer);
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 0);
}

/// A file at the place of the unfinished result that is not one is left alone.
#[test]
fn strangers_are_not_taken_for_ours() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("models/llama-tiny/model.gguf")).unwrap();
    let create = || Draft::npz(outgoing(&source)).unwrap().create(&dir.path("x.npz"), false).err().unwrap();
    dir.file(".x.npz.partial", "precious");
    assert_snapshot!(dir.text(&create()), @"`DIR/.x.npz.partial`: something is there that is not ours, where the unfinished result is to be");
    fs::remove_file(dir.path(".x.npz.partial")).unwrap();
    dir.file("elsewhere/journal", "precious");
    std::os::unix::fs::symlink(dir.path("elsewhere"), dir.path(".x.npz.partial")).unwrap();
    assert!(dir.text(&create()).contains("not ours"));
    fs::remove_file(dir.path(".x.npz.partial")).unwrap();
    fs::create_dir(dir.path(".x.npz.partial")).unwrap();
    std::os::unix::fs::symlink(dir.path("elsewhere/journal"), dir.path(".x.npz.partial/journal")).unwrap();
    assert!(dir.text(&create()).starts_with("cannot create `DIR/.x.npz.partial/journal`"));
    assert_eq!(fs::read(dir.path("elsewhere/journal")).unwrap(), b"precious");
}
