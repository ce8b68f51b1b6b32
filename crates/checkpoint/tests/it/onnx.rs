//! ONNX models: the bytes that the reference writes, two files that belong together, and names that it can hold.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::fs;
use std::path::Path;

use checkpoint::{Checkpoint, Draft, Error, WriteOptions};
use insta::assert_snapshot;
use testkit::golden;

use crate::Dir;
use crate::write::{bytes, outgoing};

/// Writes all tensors of `source` to `path`.
fn write(source: &Checkpoint, props: &[(String, String)], path: &Path, overwrite: bool) -> Result<(), Error> {
    let mut writer = Draft::onnx(outgoing(source), props.to_vec())?.create(path, overwrite)?;
    assert_eq!(writer.destination(), path.into());
    for entry in source.entries() {
        let planes = bytes(source, entry);
        writer.tensor(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        assert!(!path.exists() || overwrite, "nothing is there before all of it is");
    }
    let len = writer.finish()?;
    assert_eq!(len, fs::metadata(path.with_extension("onnx.data")).unwrap().len());
    Ok(())
}

/// golden/onnx_read.py made these with the package onnx, of the same tensors.
#[test]
fn every_dtype_is_written_as_onnx_writes_it() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("safetensors/every-dtype.safetensors")).unwrap();
    let pairs = source.metadata().hf().unwrap().safetensors();
    write(&source, pairs, &dir.path("every-dtype.onnx"), false).unwrap();
    let same = |name: &str, wanted: &[u8]| {
        let found = fs::read(dir.path(name)).unwrap();
        let differs = wanted.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!((differs, wanted.len()), (None, found.len()), "{name}");
    };
    let model = fs::read(golden("onnx/every-dtype.onnx")).unwrap();
    // `producer_version`, field 3, is a text.
    let field = |version: &str| [&[0x1a, u8::try_from(version.len()).unwrap()], version.as_bytes()].concat();
    let (from, to) = (field("VERSION"), field(env!("CARGO_PKG_VERSION")));
    let at = model.windows(from.len()).position(|w| w == from).unwrap();
    same("every-dtype.onnx", &[&model[..at], &to, &model[at + from.len()..]].concat());
    same("every-dtype.onnx.data", &fs::read(golden("onnx/every-dtype.onnx.data")).unwrap());
}

/// Neither file is replaced unless that is asked for, and then both are.
#[test]
fn both_files_are_one_result() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("models/llama-tiny/model.gguf")).unwrap();
    let (model, data) = (dir.file("x.onnx", "mine"), dir.path("x.onnx.data"));
    let refused = |overwrite| dir.text(&write(&source, &[], &model, overwrite).unwrap_err());
    assert_snapshot!(refused(false), @"
    `DIR/x.onnx`: already exists
    hint: remove it, or name another destination
    ");
    fs::rename(&model, &data).unwrap();
    assert_snapshot!(refused(false), @"
    `DIR/x.onnx.data`: already exists
    hint: remove it, or name another destination
    ");
    write(&source, &[], &model, true).unwrap();
    let written = || [&model, &data].map(|path| fs::read(path).unwrap());
    let whole = written();
    write(&source, &[("key".to_owned(), "value".to_owned())], &model, true).unwrap();
    assert!(written()[0].len() > whole[0].len() && written()[1] == whole[1]);
    write(&source, &[], &model, true).unwrap();
    assert_eq!(written(), whole);
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 2, "nothing else is left");
    // What is read is not replaced, as data neither.
    let draft = Draft::onnx(outgoing(&source), vec![]).unwrap();
    let options =
        WriteOptions { overwrite: true, sources: vec![data.clone().into()], ..WriteOptions::default() };
    assert_snapshot!(dir.text(&draft.create_with(&model, &options).unwrap_err()), @"
    `DIR/x.onnx.data`: the source and the destination are the same
    hint: write to another path, and replace the source when you have checked the result
    ");
}

/// The model says the name of its data, which readers compare with their rules.
#[test]
fn a_name_that_readers_refuse_is_refused_before_anything_is_written() {
    let dir = Dir::new();
    let source = checkpoint::open(golden("models/llama-tiny/model.gguf")).unwrap();
    assert_snapshot!(dir.text(&write(&source, &[], &dir.path("a..onnx"), false).unwrap_err()), @"
    `DIR/a..onnx`: the file with its data cannot be named after it: readers refuse names with `..`
    hint: name another destination
    ");
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 0);
    write(&source, &[], &dir.path("ü.onnx"), false).unwrap();
    let model = fs::read(dir.path("ü.onnx")).unwrap();
    let location = "ü.onnx.data".as_bytes();
    let said = model.windows(location.len()).filter(|w| *w == location).count();
    assert_eq!(said, source.entries().len());
}

/// It is named for what it is.
#[test]
fn what_is_written_is_not_read() {
    let dir = Dir::new();
    dir.file("x.onnx", fs::read(golden("onnx/every-dtype.onnx")).unwrap());
    assert_snapshot!(dir.error("x.onnx"), @"
    unsupported `DIR/x.onnx`: the content is an ONNX model, which can be written but not read
    hint: open the checkpoint that it was made from, or save its initializers as safetensors
    ");
}
