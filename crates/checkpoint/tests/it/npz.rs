//! npz: numpy's files are read, numpy reads ours (golden/npz/make.py), and broken files are rejected.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::path::PathBuf;

use checkpoint::{Checkpoint, Draft, Outgoing};
use insta::assert_snapshot;
use serde_json::Value;
use tensor::{Dtype, Scheme};

use crate::{Dir, open_both, plane};

fn golden(name: &str) -> PathBuf {
    testkit::golden("npz").join(name)
}

fn hex(checkpoint: &Checkpoint, name: &str) -> String {
    let entry = checkpoint.entry(name).unwrap();
    crate::hex(&plane(checkpoint, &entry.planes[0]).unwrap())
}

#[test]
fn every_dtype_of_numpy_is_read() {
    let checkpoint = open_both(&golden("arrays.npz")).unwrap();
    let facts: Value = serde_json::from_slice(&std::fs::read(golden("arrays.json")).unwrap()).unwrap();
    let facts = facts.as_object().unwrap();
    assert_eq!(checkpoint.entries().len(), facts.len());
    for (name, fact) in facts {
        let shape: Vec<u64> = serde_json::from_value(fact["shape"].clone()).unwrap();
        assert_eq!(checkpoint.entry(name).unwrap().shape.to_vec(), shape, "{name}");
        assert_eq!(hex(&checkpoint, name), fact["hex"], "{name}");
    }
    let dtype = |name: &str| checkpoint.entry(name).unwrap().scheme.dtype();
    assert_eq!(dtype("every.bf16"), Some(Dtype::BF16));
    assert_eq!(dtype("every.c8"), Some(Dtype::C64));
    assert_eq!(dtype("name with / and ü"), Some(Dtype::U16));
    assert_eq!((checkpoint.format().name(), checkpoint.metadata().hf().is_none()), ("npz", true));
}

#[test]
fn what_is_written_is_aligned_and_the_same_each_time() {
    let source = checkpoint::open(golden("arrays.npz")).unwrap();
    let dir = Dir::new();
    let write = |name: &str| {
        let tensors = source.entries().iter().map(|e| Outgoing {
            name: e.name.clone(),
            shape: e.shape.clone(),
            scheme: e.scheme.clone(),
        });
        let mut writer = Draft::npz(tensors.collect()).unwrap().create(&dir.path(name), false).unwrap();
        for entry in source.entries() {
            let at = entry.planes[0].bytes.clone();
            let mut bytes = vec![0; usize::try_from(at.end - at.start).unwrap()];
            source.files()[0].source.read_at(at.start, &mut bytes).unwrap();
            writer.tensor(&[&bytes]).unwrap();
        }
        writer.finish().unwrap();
        std::fs::read(dir.path(name)).unwrap()
    };
    assert_eq!(write("a.npz"), write("b.npz"));
    let again = open_both(&dir.path("a.npz")).unwrap();
    for entry in source.entries() {
        let found = again.entry(&entry.name).unwrap();
        assert_eq!((&found.shape, &found.scheme), (&entry.shape, &entry.scheme));
        assert_eq!(hex(&again, &entry.name), hex(&source, &entry.name));
        assert_eq!(found.planes[0].bytes.start % 64, 0);
    }
}

#[test]
fn an_archive_without_arrays_has_no_tensors() {
    let dir = Dir::new();
    Draft::npz(vec![]).unwrap().create(&dir.path("empty.npz"), false).unwrap().finish().unwrap();
    assert_eq!(open_both(&dir.path("empty.npz")).unwrap().entries(), []);
}

#[test]
fn columns_first_are_strides() {
    let checkpoint = open_both(&golden("fortran.npz")).unwrap();
    let strides = |name: &str| checkpoint.entry(name).unwrap().strides.as_deref();
    assert_eq!(strides("matrix"), Some(&[1, 2][..]));
    assert_eq!(strides("deep"), Some(&[1, 2, 6][..]));
    assert_eq!((strides("vector"), strides("row"), strides("empty")), (None, None, None));
    // numpy.arange(6).reshape(2, 3), columns first.
    assert_eq!(hex(&checkpoint, "matrix"), "000003000100040002000500");
}

#[test]
fn what_cannot_be_read_in_part_is_refused_by_name() {
    let dir = Dir::new();
    for name in ["compressed", "refused"] {
        dir.file(&format!("{name}.npz"), std::fs::read(golden(&format!("{name}.npz"))).unwrap());
    }
    assert_snapshot!(dir.error("compressed.npz"), @"unsupported `DIR/compressed.npz`: tensor `a`: is compressed, which is not read: save it with `numpy.savez` (at byte 55)");
    assert_snapshot!(dir.error("refused.npz"), @"
    unsupported `DIR/refused.npz`: 2 problems
      tensor `object`: has type `|O`, which is not supported yet (at byte 482)
      tensor `text`: has type `<U2`, which is not supported yet (at byte 820)
    ");
}

#[test]
fn a_broken_archive_is_an_error_wherever_it_ends_and_whatever_is_changed() {
    let dir = Dir::new();
    let tensors = ["a", "b"].map(|name| Outgoing {
        name: name.into(),
        shape: [2, 3].into(),
        scheme: Scheme::plain(Dtype::F32),
    });
    let mut writer = Draft::npz(tensors.to_vec()).unwrap().create(&dir.path("x.npz"), false).unwrap();
    writer.tensor(&[&[1; 24]]).unwrap();
    writer.tensor(&[&[2; 24]]).unwrap();
    writer.finish().unwrap();
    let whole = std::fs::read(dir.path("x.npz")).unwrap();
    for end in 1..whole.len() {
        let path = dir.file("cut.npz", &whole[..end]);
        assert!(open_both(&path).is_err(), "{end} of {}", whole.len());
    }
    // A changed byte may go unnoticed (data, dates) but never do harm: every entry is inside the file.
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let Ok(checkpoint) = checkpoint::open(dir.file("flip.npz", &bytes)) else { continue };
            let mut end = 0;
            for entry in checkpoint.entries() {
                let range = entry.planes[0].bytes.clone();
                assert!(range.start >= end && range.end <= bytes.len() as u64);
                assert_eq!(entry.scheme.byte_len(&entry.shape), Ok(range.end - range.start));
                end = range.end;
            }
        }
    }
}
