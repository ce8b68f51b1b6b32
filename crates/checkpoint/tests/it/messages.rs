//! Error messages as users read them.

use insta::assert_snapshot;

use crate::Dir;
use crate::build::{Gguf, Q4_0, kind, safetensors};

/// The error of a file of this name and content.
fn error(name: &str, content: impl AsRef<[u8]>) -> String {
    let dir = Dir::new();
    dir.file(name, content);
    dir.error(name)
}

fn model() -> Gguf {
    Gguf::new().str("general.architecture", "llama").f32("a.weight", &[64, 64]).f32("b.weight", &[64])
}

#[test]
fn a_truncated_gguf() {
    let mut file = model().build();
    file.truncate(file.len() - 1000);
    assert_snapshot!(error("x.gguf", file), @"
    malformed `DIR/x.gguf`: the file is cut short: 1000 of 16800 bytes are missing, 2 of 2 tensors are incomplete, the first is `a.weight` (at byte 15800)
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn a_gguf_that_ends_in_its_header() {
    assert_snapshot!(error("x.gguf", &model().header()[..60]), @"
    malformed `DIR/x.gguf`: key `general.architecture`: the file ends inside a value: 8 bytes wanted, 4 left (at byte 56)
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn a_wrong_magic() {
    assert_snapshot!(error("x.gguf", b"FUGG\x03\0\0\0"), @"
    malformed `DIR/x.gguf`: wanted the magic `GGUF`, found `FUGG` (at byte 0)
    hint: this is not a GGUF file, or it is damaged: download it again
    ");
}

#[test]
fn an_unknown_format() {
    assert_snapshot!(error("x.weights", b"\x01\x02hello\x1b[31m"), @"
    unsupported `DIR/x.weights`: the content is of no known format, it starts with 01 02 68 65 6c 6c 6f 1b (`..hello.`)
    hint: supported formats: gguf, safetensors, npz, npy, pytorch
    ");
}

#[test]
fn an_empty_file() {
    assert_snapshot!(error("x.gguf", b""), @"
    malformed `DIR/x.gguf`: the file is empty
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn a_gguf_named_safetensors() {
    assert_snapshot!(error("x.safetensors", model().build()), @"
    mismatch in `DIR/x.safetensors`: is named as safetensors, but holds gguf
    hint: rename the file to what it holds
    ");
}

#[test]
fn a_web_page() {
    assert_snapshot!(error("x.gguf", b"<!DOCTYPE html><title>Sign in</title>"), @"
    unsupported `DIR/x.gguf`: the content is HTML
    hint: this is a web page, perhaps a login or an error page: download the file itself
    ");
}

#[test]
fn a_git_lfs_pointer() {
    assert_snapshot!(error(
        "x.safetensors",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    ), @"
    unsupported `DIR/x.safetensors`: the content is a Git LFS pointer, not the file it stands for
    hint: fetch the content: `git lfs pull` in the clone, or download the file from its page
    ");
}

#[test]
fn a_pytorch_file() {
    // The start of one, as of a download that broke off.
    let start = b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\x12\0archive/data.pkl";
    assert_snapshot!(error("pytorch_model.bin", start), @"
    malformed `DIR/pytorch_model.bin`: the zip archive is broken: invalid Zip archive: Could not find EOCD (at byte 46)
    hint: the download may be incomplete: download the file again
    ");
    assert_snapshot!(error("pytorch_model.bin", b"PK\x03\x04\0\0\x08\x08\0\0"), @"
    unsupported `DIR/pytorch_model.bin`: the content is a zip archive, neither PyTorch's nor numpy's
    hint: name the file with the weights
    ");
}

#[test]
fn a_duplicate_tensor() {
    assert_snapshot!(error("x.gguf", model().f32("a.weight", &[4]).build()), @"malformed `DIR/x.gguf`: tensor `a.weight`: is there twice, first at byte 69 (at byte 157)");
}

#[test]
fn a_duplicate_key() {
    assert_snapshot!(error("x.gguf", model().str("general.architecture", "gemma3").build()), @"malformed `DIR/x.gguf`: key `general.architecture`: is there twice, first at byte 24 (at byte 69)");
}

#[test]
fn a_removed_type() {
    assert_snapshot!(error("x.gguf", Gguf::new().tensor("a.weight", &[2, 32], 31, 36).build()), @"unsupported `DIR/x.gguf`: tensor `a.weight`: has type 31 (Q4_0_4_4), which was removed from the format: get it as Q4_0; runtimes repack that themselves (at byte 60)");
}

#[test]
fn an_unknown_type() {
    assert_snapshot!(error("x.gguf", Gguf::new().tensor("a.weight", &[2, 32], 43, 36).build()), @"unsupported `DIR/x.gguf`: tensor `a.weight`: has type 43, which is newer than 42, the last that is known (at byte 60)");
}

#[test]
fn an_overlap() {
    assert_snapshot!(error("x.gguf", model().with(|g| g.tensors[1].offset = Some(16000)).build()), @"malformed `DIR/x.gguf`: tensor `b.weight`: data starts at offset 16000, wanted 16384: 384 bytes overlap what comes before (at byte 149)");
}

#[test]
fn a_row_that_cuts_a_block() {
    assert_snapshot!(error("x.gguf", Gguf::new().tensor("a.weight", &[3, 40], Q4_0, 54).build()), @"malformed `DIR/x.gguf`: tensor `a.weight`: [3, 40] q4_0: axis 1 has 40 elements, not a multiple of the 32 that a block packs (at byte 64)");
}

#[test]
fn a_bad_alignment() {
    assert_snapshot!(error("x.gguf", model().u32("general.alignment", 24).build()), @"malformed `DIR/x.gguf`: key `general.alignment`: wanted a power of two, found 24 (at byte 98)");
}

#[test]
fn a_split_model() {
    let part = model().pair("split.no", kind::U16, [2, 0]).pair("split.count", kind::U16, [5, 0]);
    assert_snapshot!(error("x-00003-of-00005.gguf", part.build()), @"
    mismatch in `DIR`: 4 problems
      `x-00001-of-00005.gguf` is missing
      `x-00002-of-00005.gguf` is missing
      `x-00004-of-00005.gguf` is missing
      `x-00005-of-00005.gguf` is missing
    hint: the download may be incomplete: download the missing files
    ");
}

#[test]
fn several_problems_at_once() {
    let file = model()
        .str("general.architecture", "gemma3")
        .tensor("c.weight", &[2, 33], Q4_0, 36)
        .tensor("d.weight", &[32], 4, 20)
        .f32("a.weight", &[4])
        .with(|g| g.tensors[1].offset = Some(17000));
    assert_snapshot!(error("x.gguf", file.build()), @"
    malformed `DIR/x.gguf`: 5 problems
      key `general.architecture`: is there twice, first at byte 24 (at byte 69)
      tensor `b.weight`: data starts at offset 17000, wanted 16384: 616 bytes belong to no tensor (at byte 195)
      tensor `c.weight`: [2, 33] q4_0: axis 1 has 33 elements, not a multiple of the 32 that a block packs (at byte 243)
      tensor `d.weight`: has type 4 (Q4_2), which was removed from the format: quantise the model again from its original weights (at byte 279)
      tensor `a.weight`: is there twice, first at byte 115 (at byte 291)
    ");
}

#[test]
fn very_many_problems() {
    let many = (0..30).fold(Gguf::new(), |g, i| g.tensor(format!("t{i}"), &[32], 5, 20));
    let text = error("x.gguf", many.build());
    assert_eq!(text.lines().count(), 1 + 20 + 1);
    assert_snapshot!(text.lines().take(3).chain(text.lines().last()).collect::<Vec<_>>().join("\n"), @"
    unsupported `DIR/x.gguf`: 30 problems
      tensor `t0`: has type 5 (Q4_3), which was removed from the format: quantise the model again from its original weights (at byte 46)
      tensor `t1`: has type 5 (Q4_3), which was removed from the format: quantise the model again from its original weights (at byte 80)
      and 10 more
    ");
}

#[test]
fn a_safetensors_header_past_the_end() {
    assert_snapshot!(error("x.safetensors", [&5000u64.to_le_bytes()[..], b"{\"a\":"].concat()), @"
    malformed `DIR/x.safetensors`: the file ends inside the header: 5000 bytes wanted, 5 left (at byte 8)
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn a_truncated_safetensors() {
    let header = r#"{"a":{"dtype":"F32","shape":[64],"data_offsets":[0,256]},"b":{"dtype":"F32","shape":[64],"data_offsets":[256,512]}}"#;
    assert_snapshot!(error("x.safetensors", safetensors(header, 300)), @"
    malformed `DIR/x.safetensors`: the file is cut short: 212 of 635 bytes are missing, 1 of 2 tensors are incomplete, the first is `b` (at byte 423)
    hint: the download may be incomplete: download the file again
    ");
}

#[test]
fn safetensors_json_that_does_not_parse() {
    let header = r#"{"a":{"dtype":"F32","shape":[64,"data_offsets":[0,256]}}"#;
    assert_snapshot!(error("x.safetensors", safetensors(header, 256)), @r#"malformed `DIR/x.safetensors`: the header: invalid type: string "data_offsets", expected u64 (at byte 53)"#);
}

#[test]
fn several_safetensors_problems_at_once() {
    let header = r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[8],"data_offsets":[16,20]},"b":{"dtype":"X","shape":[1],"data_offsets":[20,21]}}"#;
    assert_snapshot!(error("x.safetensors", safetensors(header, 30)), @"
    malformed `DIR/x.safetensors`: 6 problems
      tensor `a`: [3] f32 needs 12 bytes, the header gives 8 (at byte 9)
      tensor `b`: data starts at offset 16, wanted 8: 8 bytes belong to no tensor (at byte 62)
      tensor `b`: has type `F4`, which is not supported yet (at byte 62)
      tensor `b`: wanted a dtype of safetensors 0.8, found `X` (at byte 62)
      tensor `b`: is there twice, first at byte 62 (at byte 116)
      9 bytes after the last tensor that no tensor uses (at byte 190)
    ");
}
