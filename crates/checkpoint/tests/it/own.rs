//! Checkpoints whose entries the caller has found: all invalid entries are reported at once.
#![allow(clippy::unwrap_used, reason = "a test fails so")]
#![allow(
    clippy::single_range_in_vec_init,
    reason = "a list of the ranges of planes, of which there may be one"
)]

use std::ops::Range;
use std::sync::Arc;

use checkpoint::{Checkpoint, Error};
use insta::assert_snapshot;
use storage::{Memory, Name, Storage};
use tensor::{Dtype, FileId, PlaneData, Scheme, TensorEntry};

fn entry(name: &str, shape: &[u64], file: u32, planes: &[Range<u64>]) -> TensorEntry {
    let plane = |bytes: &Range<u64>| PlaneData { file: FileId(file), bytes: bytes.clone() };
    TensorEntry {
        name: name.to_owned(),
        shape: shape.to_vec().into(),
        scheme: Scheme::plain(Dtype::F32),
        planes: planes.iter().map(plane).collect(),
        strides: None,
    }
}

fn open(entries: Vec<TensorEntry>) -> Result<Checkpoint, Error> {
    let name = Name::parse("a.acme").unwrap();
    let files: Arc<dyn Storage> = Arc::new(Memory::new("memory").with(name.clone(), vec![0; 64]));
    let (location, source) = (files.location(&name), files.open(&name).unwrap());
    Checkpoint::of_entries(location.clone(), "acme", vec![(location, source)], entries)
}

#[test]
fn entries_of_the_callers_own_are_a_checkpoint() {
    let entries = vec![entry("a", &[2, 3], 0, &[0..24]), entry("b", &[], 0, &[60..64])];
    let checkpoint = open(entries).unwrap();
    assert_eq!(checkpoint.format().name(), "acme");
    assert_eq!(checkpoint.entry("b").unwrap().planes[0].bytes, 60..64);
    assert_eq!(checkpoint.files().len(), 1);
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let backwards = Range { start: 40, end: 16 };
    let mut strided = entry("strided", &[2], 0, &[0..8]);
    strided.strides = Some(vec![1]);
    let error = open(vec![
        entry("a", &[4], 0, &[0..16]),
        entry("a", &[4], 0, &[16..32]),
        entry("long", &[4], 0, &[56..72]),
        entry("short", &[4], 0, &[0..12]),
        entry("backwards", &[6], 0, &[backwards]),
        entry("nowhere", &[4], 7, &[0..16]),
        entry("two", &[4], 0, &[0..16, 16..32]),
        entry("huge", &[u64::MAX, 4], 0, &[0..16]),
        entry("far", &[4], 0, &[u64::MAX - 16..u64::MAX]),
        strided,
    ])
    .unwrap_err();
    assert_snapshot!(format!("{error:?}"), @"
    malformed `memory/a.acme`: 9 problems
      tensor `long`: the file ends inside a tensor: 16 bytes wanted, 8 left
      tensor `short`: [4] f32 needs 16 bytes, the header gives 12
      tensor `backwards`: [6] f32 needs 24 bytes, the header gives 0
      tensor `nowhere`: the file ends inside a tensor: 16 bytes wanted, 0 left
      tensor `two`: number of planes of 2, over the limit of 1
      tensor `huge`: [18446744073709551615, 4] f32: the size overflows 64 bits
      tensor `far`: the file ends inside a tensor: 16 bytes wanted, 0 left
      tensor `strided`: has strides, which formats of a caller's own do not have
      tensor `a`: is in `a.acme` and in `a.acme`
    hint: the download may be incomplete: download the file again
    ");
}
