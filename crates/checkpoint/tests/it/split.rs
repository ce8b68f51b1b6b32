//! GGUF models split in several files: any part opens the whole, and parts that do not fit are named.

use checkpoint::{Checkpoint, Error};
use insta::assert_snapshot;

use crate::build::{Gguf, kind};
use crate::{Dir, open_both};

/// A part, as gguf-split writes it.
fn part(no: u16, count: u16, tensors: i32) -> Gguf {
    Gguf::new()
        .pair("split.no", kind::U16, no.to_le_bytes())
        .pair("split.count", kind::U16, count.to_le_bytes())
        .pair("split.tensors.count", kind::I32, tensors.to_le_bytes())
}

fn name(no: u16, count: u16) -> String {
    format!("m/x-{no:05}-of-{count:05}.gguf")
}

/// `DIR/m` with a model of three parts and four tensors.
fn model() -> Dir {
    let dir = Dir::new();
    let first = part(0, 3, 4).str("general.architecture", "llama").u32("llama.block_count", 1);
    dir.file(&name(1, 3), first.f32("a", &[4]).f32("b", &[2, 2]).build());
    dir.file(&name(2, 3), part(1, 3, 4).f32("c", &[8]).build());
    dir.file(&name(3, 3), part(2, 3, 4).align(64).f32("d", &[4]).build());
    dir
}

/// Every tensor with its file and its first byte.
fn list(checkpoint: &Checkpoint) -> String {
    let line = |e: &tensor::TensorEntry| {
        let (file, mut byte) = (checkpoint.file(e.planes[0].file), [0]);
        file.source.read_at(e.planes[0].bytes.start, &mut byte).expect("inside");
        format!("{} {} {}", e.name, file.location.file_name(), byte[0])
    };
    checkpoint.entries().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn any_part_and_the_directory_open_the_whole() {
    let dir = model();
    let whole = open_both(&dir.path("m")).expect("sound");
    assert_snapshot!(list(&whole), @"
    a x-00001-of-00003.gguf 1
    b x-00001-of-00003.gguf 2
    c x-00002-of-00003.gguf 1
    d x-00003-of-00003.gguf 1
    ");
    assert_eq!((whole.format().name(), whole.location()), ("gguf", &dir.path("m").into()));
    for no in 1..=3 {
        let path = dir.path(&name(no, 3));
        let checkpoint = open_both(&path).expect("sound");
        assert_eq!((checkpoint.entries(), checkpoint.location()), (whole.entries(), &path.into()));
        let metadata = checkpoint.metadata().gguf().expect("gguf");
        assert_eq!(metadata.str("general.architecture").expect("a text"), Some("llama"));
        assert_eq!(metadata.u64("split.no").expect("a number"), Some(0));
    }
    // Another model beside it: the directory is ambiguous, a file is not.
    dir.file("m/y.gguf", Gguf::new().f32("a", &[4]).build());
    assert_eq!(open_both(&dir.path(&name(2, 3))).expect("sound").entries(), whole.entries());
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Mismatch(_))));
}

#[test]
fn gguf_py_splits_so() {
    let folder = testkit::golden("gguf/split");
    let whole = open_both(&folder).expect("sound");
    assert_snapshot!(list(&whole), @"
    token_embd.weight tiny-00002-of-00003.gguf 1
    blk.0.attn_q.weight tiny-00002-of-00003.gguf 2
    output_norm.weight tiny-00003-of-00003.gguf 3
    ");
    let keys: Vec<_> = whole.metadata().gguf().expect("gguf").keys().collect();
    assert_snapshot!(keys.join(" "), @"general.architecture llama.block_count split.no split.count split.tensors.count");
}

#[test]
fn a_joined_model_is_whole() {
    let dir = Dir::new();
    for count in [0, 1] {
        let file = part(0, count, 9).f32("a", &[4]).build();
        assert_eq!(open_both(&dir.file("x.gguf", file)).expect("sound").files().len(), 1);
    }
}

#[test]
fn missing_parts_are_named() {
    let dir = model();
    std::fs::remove_file(dir.path(&name(1, 3))).unwrap();
    let folder = dir.error("m");
    std::fs::remove_file(dir.path(&name(3, 3))).unwrap();
    assert_snapshot!([folder, dir.error(&name(2, 3))].join("\n"), @"
    mismatch in `DIR/m`: `x-00001-of-00003.gguf` is missing
    hint: the download may be incomplete: download the missing files
    mismatch in `DIR/m`: 2 problems
      `x-00001-of-00003.gguf` is missing
      `x-00003-of-00003.gguf` is missing
    hint: the download may be incomplete: download the missing files
    ");
    dir.file(&name(9, 65_535), part(8, 65_535, 1).f32("a", &[4]).build());
    let many = dir.error(&name(9, 65_535));
    assert_eq!(many.lines().count(), 1 + 20 + 1 + 1, "{many}");
    assert!(many.starts_with("mismatch in `DIR/m`: 65534 problems\n"), "{many}");
}

#[test]
fn parts_in_each_others_place() {
    let dir = model();
    let rename = |from: &str, to: &str| std::fs::rename(dir.path(from), dir.path(to)).unwrap();
    rename(&name(1, 3), "m/t");
    rename(&name(2, 3), &name(1, 3));
    rename("m/t", &name(2, 3));
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: 2 problems
      `x-00001-of-00003.gguf`: key `split.no`: wanted 0, one less than the name says, found 1 (at byte 44)
      `x-00002-of-00003.gguf`: key `split.no`: wanted 1, one less than the name says, found 0 (at byte 44)
    ");
    rename(&name(2, 3), "m/part.gguf");
    let named = dir.error("m/part.gguf");
    rename("m/part.gguf", &name(2, 4));
    let another_count = dir.error(&name(2, 4));
    rename(&name(2, 4), &name(4, 3));
    assert_snapshot!([named, another_count, dir.error(&name(4, 3))].join("\n"), @"
    mismatch in `DIR/m/part.gguf`: key `split.count`: wanted a name as `NAME-00001-of-00003.gguf`, by which the other parts are found, found `part.gguf` (at byte 69)
    mismatch in `DIR/m/x-00002-of-00004.gguf`: key `split.count`: wanted a name as `NAME-00001-of-00003.gguf`, by which the other parts are found, found `x-00002-of-00004.gguf` (at byte 69)
    mismatch in `DIR/m/x-00004-of-00003.gguf`: key `split.count`: wanted a name as `NAME-00001-of-00003.gguf`, by which the other parts are found, found `x-00004-of-00003.gguf` (at byte 69)
    ");
}

#[test]
fn every_disagreement_is_reported_at_once() {
    let dir = model();
    dir.file(
        &name(2, 3),
        Gguf::new().str("general.architecture", "gpt2").f32("b", &[8]).f32("c", &[8]).build(),
    );
    dir.file(&name(3, 3), part(2, 4, 4).f32("d", &[4]).build());
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: 5 problems
      `x-00002-of-00003.gguf`: key `split.count`: wanted 3, as the name says, found none
      `x-00002-of-00003.gguf`: key `general.architecture`: wanted `llama`, as in the first part, found `gpt2` (at byte 64)
      `x-00003-of-00003.gguf`: key `split.count`: wanted 3, as the name says, found 4 (at byte 69)
      tensor `b`: is in `x-00001-of-00003.gguf` and in `x-00002-of-00003.gguf`
      `x-00001-of-00003.gguf`: key `split.tensors.count`: wanted 4 tensors, found 5 (at byte 102)
    hint: if these are different models, open one of the files by its own path
    ");
    dir.file(&name(2, 3), b"GGUF");
    assert_snapshot!(dir.error("m"), @"
    malformed `DIR/m`: 2 problems
      `x-00003-of-00003.gguf`: key `split.count`: wanted 3, as the name says, found 4 (at byte 69)
      `x-00002-of-00003.gguf`: the file ends inside the start of the header: 4 bytes wanted, 0 left (at byte 4)
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn wrong_totals() {
    let dir = model();
    dir.file(&name(2, 3), part(1, 3, 4).build());
    assert_snapshot!(dir.error("m"), @"mismatch in `DIR/m`: `x-00001-of-00003.gguf`: key `split.tensors.count`: wanted 4 tensors, found 3 (at byte 102)");
    // One broken part alone is reported by its own path.
    dir.file(&name(2, 3), &part(1, 3, 4).f32("c", &[8]).build()[..150]);
    assert_snapshot!(dir.error("m"), @"
    malformed `DIR/m/x-00002-of-00003.gguf`: the file is cut short: 42 of 192 bytes are missing, 1 of 1 tensors are incomplete, the first is `c` (at byte 150)
    hint: the download may be incomplete: download the file again
    ");
    dir.file(&name(2, 3), Gguf::new().str("split.count", "3").f32("c", &[8]).build());
    assert_snapshot!(dir.error(&name(2, 3)), @"mismatch in `DIR/m/x-00002-of-00003.gguf`: key `split.count`: wanted a whole number that is not negative, found str `3` (at byte 55)");
}

#[test]
fn what_is_no_part_says_what_it_is() {
    let dir = model();
    dir.file(&name(2, 3), "version https://git-lfs.github.com/spec/v1\n");
    dir.file(&name(3, 3), part(2, 0, 4).f32("d", &[4]).build());
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: 2 problems
      `x-00003-of-00003.gguf`: key `split.count`: wanted 3, as the name says, found 0 (at byte 69)
      `x-00002-of-00003.gguf`: the content is a Git LFS pointer, not the file it stands for
    ");
}
