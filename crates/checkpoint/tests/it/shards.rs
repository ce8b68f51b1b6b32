//! Weights in several files: they are found, compared with their index, and rejected if they do not fit together.

use std::os::unix::fs::symlink;

use checkpoint::{Checkpoint, Error};
use insta::assert_snapshot;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::build::{Gguf, safetensors};
use crate::{Dir, open_both};

/// A file of f32 tensors of four elements each.
pub(crate) fn shard(tensors: &[&str]) -> Vec<u8> {
    let info = |(i, name): (usize, &&str)| {
        format!(r#""{name}":{{"dtype":"F32","shape":[4],"data_offsets":[{},{}]}}"#, 16 * i, 16 * i + 16)
    };
    let infos: Vec<_> = tensors.iter().enumerate().map(info).collect();
    safetensors(format!(r#"{{"__metadata__":{{"format":"pt"}},{}}}"#, infos.join(",")), 16 * tensors.len())
}

/// An index of tensors and their files.
pub(crate) fn index(map: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = map.iter().map(|(tensor, file)| format!(r#""{tensor}":"{file}""#)).collect();
    format!(r#"{{"metadata":{{"total_size":1}},"weight_map":{{{}}}}}"#, pairs.join(","))
}

const INDEX: &str = "m/model.safetensors.index.json";
const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";

/// `DIR/m` with an index and two shards: `a`, `b` and `c`. Its `total_size` is wrong, which has no effect.
fn model() -> Dir {
    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    dir.file(INDEX, index(&[("a", ONE), ("c", TWO), ("b", ONE)]));
    dir.file(&format!("m/{ONE}"), shard(&["b", "a"]));
    dir.file(&format!("m/{TWO}"), shard(&["c"]));
    dir
}

/// Every tensor with its file.
fn list(checkpoint: &Checkpoint) -> String {
    let line = |e: &tensor::TensorEntry| {
        let file = &checkpoint.file(e.planes[0].file).location;
        format!("{} {}", e.name, file.file_name())
    };
    checkpoint.entries().iter().map(line).collect::<Vec<_>>().join("\n")
}

fn opened(dir: &Dir) -> String {
    list(&open_both(&dir.path("m")).expect("sound"))
}

#[test]
fn shards_are_one_checkpoint() {
    let dir = model();
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    assert_snapshot!(list(&checkpoint), @"
    b model-00001-of-00002.safetensors
    a model-00001-of-00002.safetensors
    c model-00002-of-00002.safetensors
    ");
    assert_eq!((checkpoint.format().name(), checkpoint.files().len()), ("hf", 2));
    let metadata = checkpoint.metadata().hf().expect("hf");
    assert_eq!(metadata.safetensors(), [("format".to_owned(), "pt".to_owned())]);
    let c = checkpoint.entry("c").expect("there");
    assert_eq!(c.planes[0].bytes.end, checkpoint.file(c.planes[0].file).len);
    assert_eq!(checkpoint.entry("d"), None);
}

#[test]
fn a_whole_file_goes_before_an_index() {
    let dir = model();
    dir.file("m/model.safetensors", shard(&["whole"]));
    assert_snapshot!(opened(&dir), @"whole model.safetensors");
}

#[test]
fn what_the_index_does_not_name_is_no_part_of_it() {
    let dir = model();
    dir.file("m/consolidated.safetensors", shard(&["a", "b", "c"]));
    dir.file("m/consolidated.safetensors.index.json", "{}");
    assert_snapshot!(opened(&dir), @"
    b model-00001-of-00002.safetensors
    a model-00001-of-00002.safetensors
    c model-00002-of-00002.safetensors
    ");
}

#[test]
fn without_an_index_names_tell() {
    let dir = model();
    std::fs::remove_file(dir.path(INDEX)).unwrap();
    dir.file("m/consolidated.safetensors", shard(&["a", "b", "c"]));
    dir.file("m/other.safetensors", shard(&["a"]));
    assert_snapshot!(opened(&dir), @"
    b model-00001-of-00002.safetensors
    a model-00001-of-00002.safetensors
    c model-00002-of-00002.safetensors
    ");

    std::fs::remove_file(dir.path("m").join(ONE)).unwrap();
    std::fs::remove_file(dir.path("m").join(TWO)).unwrap();
    assert_snapshot!(opened(&dir), @"a other.safetensors");
    dir.file("m/more.safetensors", shard(&["z"]));
    assert_snapshot!(opened(&dir), @"
    z more.safetensors
    a other.safetensors
    ");

    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    dir.file("m/consolidated-00001-of-00001.safetensors", shard(&["x"]));
    assert_snapshot!(opened(&dir), @"x consolidated-00001-of-00001.safetensors");
}

#[test]
fn parts_that_are_missing_are_named() {
    let dir = model();
    std::fs::remove_file(dir.path("m").join(ONE)).unwrap();
    let indexed = dir.error("m");
    std::fs::remove_file(dir.path(INDEX)).unwrap();
    let numbered = dir.error("m");
    std::fs::remove_file(dir.path("m").join(TWO)).unwrap();
    dir.file("m/model-00002-of-00004.safetensors", shard(&["a"]));
    dir.file("m/model-00003-of-00005.safetensors", shard(&["a"]));
    assert_snapshot!([indexed, numbered, dir.error("m")].join("\n"), @"
    mismatch in `DIR/m`: `model-00001-of-00002.safetensors` is missing
    hint: the download may be incomplete: download the missing files
    mismatch in `DIR/m`: `model-00001-of-00002.safetensors` is missing
    hint: the download may be incomplete: download the missing files
    mismatch in `DIR/m`: 8 problems
      `model-00001-of-00004.safetensors` is missing
      `model-00001-of-00005.safetensors` is missing
      `model-00002-of-00005.safetensors` is missing
      `model-00003-of-00004.safetensors` is missing
      `model-00004-of-00004.safetensors` is missing
      `model-00004-of-00005.safetensors` is missing
      `model-00005-of-00005.safetensors` is missing
      tensor `a`: is in `model-00002-of-00004.safetensors` and in `model-00003-of-00005.safetensors`
    hint: the download may be incomplete: download the missing files
    ");
    dir.file("m/model-00001-of-4294967295.safetensors", shard(&["z"]));
    let many = dir.error("m");
    assert_eq!(many.lines().count(), 1 + 20 + 1 + 1, "{many}");
}

#[test]
fn every_disagreement_is_reported_at_once() {
    let dir = model();
    dir.file(INDEX, index(&[("a", TWO), ("b", ONE), ("c", TWO), ("d", TWO), ("e", "model-3.safetensors")]));
    dir.file(&format!("m/{TWO}"), shard(&["c", "b", "x"]));
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: 5 problems
      `model-3.safetensors` is missing
      tensor `b`: is in `model-00001-of-00002.safetensors` and in `model-00002-of-00002.safetensors`
      tensor `a`: wanted it in `model-00002-of-00002.safetensors` as the index says, found it in `model-00001-of-00002.safetensors`
      tensor `d`: wanted it in `model-00002-of-00002.safetensors` as the index says, found it nowhere
      tensor `x`: is in `model-00002-of-00002.safetensors`, but not in the index
    hint: the download may be incomplete: download the missing files
    ");
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Mismatch(_))));
}

#[test]
fn broken_shards_are_reported_together_and_one_alone_by_its_path() {
    let dir = model();
    dir.file(&format!("m/{ONE}"), "version https://git-lfs.github.com/spec/v1\n");
    let one = dir.error("m");
    dir.file(&format!("m/{TWO}"), &shard(&["c"])[..80]);
    assert_snapshot!([one, dir.error("m")].join("\n"), @"
    unsupported `DIR/m/model-00001-of-00002.safetensors`: the content is a Git LFS pointer, not the file it stands for
    hint: fetch the content: `git lfs pull` in the clone, or download the file from its page
    malformed `DIR/m`: 2 problems
      `model-00001-of-00002.safetensors`: the content is a Git LFS pointer, not the file it stands for
      `model-00002-of-00002.safetensors`: the file ends inside the header: 86 bytes wanted, 72 left (at byte 8)
    hint: the download may be incomplete: download the file again
    ");
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Malformed(_))));
    dir.file(&format!("m/{ONE}"), "");
    dir.file(&format!("m/{TWO}"), Gguf::new().f32("c", &[4]).build());
    assert_snapshot!(dir.error("m"), @"
    malformed `DIR/m`: 2 problems
      `model-00001-of-00002.safetensors`: the file is empty
      `model-00002-of-00002.safetensors`: is named as safetensors, but holds gguf
    hint: the download may be incomplete: download the file again
    ");
    dir.file(INDEX, index(&[("c", "c.weights")]));
    dir.file("m/c.weights", Gguf::new().f32("c", &[4]).build());
    assert_snapshot!(dir.error("m"), @"unsupported `DIR/m/c.weights`: gguf is not read as one file of several");
}

#[test]
fn an_index_cannot_lead_out_of_the_directory() {
    let dir = model();
    dir.file("outside.safetensors", shard(&["a"]));
    let names =
        ["../outside.safetensors", "/etc/passwd", r"..\\outside", "a\\u0000b", "", ".", "..", "sub/../../x"];
    let map: Vec<_> =
        names.iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"]).map(|(f, t)| (t, *f)).collect();
    dir.file(INDEX, index(&map));
    assert_snapshot!(dir.error("m"), @r"
    malformed `DIR/m/model.safetensors.index.json`: 8 problems
      `` is no name of a file in the directory (at byte 127)
      `.` is no name of a file in the directory (at byte 134)
      `..` is no name of a file in the directory (at byte 142)
      `../outside.safetensors` is no name of a file in the directory (at byte 47)
      `..\\outside` is no name of a file in the directory
      `/etc/passwd` is no name of a file in the directory (at byte 76)
      `a\0b` is no name of a file in the directory
      `sub/../../x` is no name of a file in the directory (at byte 151)
    ");
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Malformed(_))));
}

#[test]
fn shards_that_are_no_files_are_refused() {
    let dir = model();
    std::fs::remove_file(dir.path("m").join(ONE)).unwrap();
    std::fs::remove_file(dir.path("m").join(TWO)).unwrap();
    symlink(dir.file("outside", shard(&["a", "b"])), dir.path("m").join(ONE)).unwrap();
    mknodat(CWD, dir.path("m").join(TWO), FileType::Fifo, Mode::RUSR, 0).expect("a pipe is made");
    assert_snapshot!(dir.error("m"), @"
    malformed `DIR/m`: 2 problems
      `model-00001-of-00002.safetensors` leads out of the directory, to `DIR/outside`
      `model-00002-of-00002.safetensors`: wanted a regular file, found a named pipe
    ");
    std::fs::remove_file(dir.path("m").join(TWO)).unwrap();
    symlink("/dev/zero", dir.path("m").join(TWO)).unwrap();
    dir.file("m/sub/x", "");
    dir.file(INDEX, index(&[("a", ONE), ("b", TWO), ("c", "sub"), ("d", "Config.json")]));
    assert_snapshot!(dir.error("m"), @"
    malformed `DIR/m`: 4 problems
      `Config.json` is missing
      `model-00001-of-00002.safetensors` leads out of the directory, to `DIR/outside`
      `model-00002-of-00002.safetensors` leads out of the directory, to `/dev/zero`
      `sub`: wanted a regular file, found a directory
    hint: the download may be incomplete: download the missing files
    ");
    std::fs::remove_file(dir.path("m").join(TWO)).unwrap();
    symlink("nowhere", dir.path("m").join(TWO)).unwrap();
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Io { .. })));
}

#[test]
fn shards_of_a_hub_cache_are_links() {
    let dir = Dir::new();
    let snapshot = "hub/models--org--name/snapshots/0123";
    for (name, blob, content) in [
        ("config.json", "aa", b"{}".to_vec()),
        ("model.safetensors.index.json", "bb", index(&[("a", ONE), ("c", TWO)]).into_bytes()),
        (ONE, "cc", shard(&["a"])),
        (TWO, "dd", shard(&["c"])),
    ] {
        dir.file(&format!("hub/models--org--name/blobs/{blob}"), content);
        std::fs::create_dir_all(dir.path(snapshot)).unwrap();
        symlink(format!("../../blobs/{blob}"), dir.path(snapshot).join(name)).unwrap();
    }
    assert_snapshot!(list(&open_both(&dir.path(snapshot)).expect("sound")), @"
    a model-00001-of-00002.safetensors
    c model-00002-of-00002.safetensors
    ");
}

#[test]
fn a_bad_index() {
    let dir = model();
    let mut error = |content: &str| {
        dir.file(INDEX, content);
        dir.error("m")
    };
    let errors = [
        "",
        "[]",
        "null",
        r#"{"weight_map":{"a":1}}"#,
        r#"{"weight_map":["a"]}"#,
        r#"{"weight_map":{}}"#,
        r#"{"metadata":{}}"#,
        r#"{"weight_map":{"a":"x"},"weight_map":{"a":"x"}}"#,
        r#"{"weight_map":{"a":"x","b":"x","a":"y","a":"y"}}"#,
        r#"{"weight_map":{"a":"x"}} x"#,
    ]
    .map(&mut error);
    assert_snapshot!(errors.join("\n"), @"
    malformed `DIR/m/model.safetensors.index.json`: the index: EOF while parsing a value (at byte 0)
    malformed `DIR/m/model.safetensors.index.json`: the index: invalid type: sequence, expected a map with `weight_map` (at byte 0)
    malformed `DIR/m/model.safetensors.index.json`: the index: invalid type: null, expected a map with `weight_map` (at byte 3)
    malformed `DIR/m/model.safetensors.index.json`: the index: invalid type: integer `1`, expected a string (at byte 19)
    malformed `DIR/m/model.safetensors.index.json`: the index: invalid type: sequence, expected a map of strings (at byte 13)
    malformed `DIR/m/model.safetensors.index.json`: wanted a `weight_map` of tensors, found an empty one
    malformed `DIR/m/model.safetensors.index.json`: the index: missing field `weight_map` (at byte 14)
    malformed `DIR/m/model.safetensors.index.json`: the index: duplicate field `weight_map` (at byte 46)
    malformed `DIR/m/model.safetensors.index.json`: 2 problems
      tensor `a`: is there twice, first at byte 15 (at byte 39)
      tensor `a`: is there twice, first at byte 15 (at byte 39)
    malformed `DIR/m/model.safetensors.index.json`: the index: trailing characters (at byte 25)
    ");
    // Nothing is asked of what is not used.
    error(&format!(r#"{{"metadata":null,"weight_map":{{"z":"{ONE}"}},"x":[1]}}"#));
    dir.file(&format!("m/{ONE}"), shard(&["z"]));
    assert_snapshot!(opened(&dir), @"z model-00001-of-00002.safetensors");
    std::fs::File::create(dir.path(INDEX)).unwrap().set_len(100_000_001).unwrap();
    assert_snapshot!(dir.error("m"), @"malformed `DIR/m/model.safetensors.index.json`: length in bytes of 100000001, over the limit of 100000000");
}

#[test]
fn a_quantised_weight_may_lie_in_two_shards() {
    let dir = Dir::new();
    dir.file("m/config.json", r#"{"quantization":{"group_size":64,"bits":4}}"#);
    let words = r#"{"x.weight":{"dtype":"U32","shape":[2,8],"data_offsets":[0,64]}}"#;
    let scales = r#"{"x.biases":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},"x.scales":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]}}"#;
    dir.file(&format!("m/{ONE}"), safetensors(scales, 8));
    dir.file(&format!("m/{TWO}"), safetensors(words, 64));
    dir.file(INDEX, index(&[("x.weight", TWO), ("x.scales", ONE), ("x.biases", ONE)]));
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    let [entry] = checkpoint.entries() else { panic!("one entry") };
    assert_eq!(checkpoint.entry("x.weight"), Some(entry));
    assert_eq!(entry.planes.iter().map(|p| p.file.0).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(
        (entry.shape.to_string(), &*entry.scheme.name),
        ("[2, 64]".to_owned(), "mlx-affine:b4,g64,f16")
    );
    // The error names the directory.
    dir.file("m/config.json", r#"{"quantization":{"group_size":32,"bits":4}}"#);
    assert_snapshot!(dir.error("m"), @"mismatch in `DIR/m`: tensor `x`: `weight` [2, 8] u32 holds 64 inputs of 4 bits, `scales` [2, 1] are for 32 in groups of 32");
}

#[test]
fn an_index_opens_the_whole_and_a_shard_itself() {
    let dir = model();
    let whole = open_both(&dir.path("m")).expect("sound");
    let by_index = open_both(&dir.path("m/model.safetensors.index.json")).expect("sound");
    assert_eq!(by_index.entries(), whole.entries());
    assert_eq!(by_index.location(), &dir.path("m").into());
    let mut names = vec![];
    for file in whole.files() {
        let shard = open_both(file.location.path().expect("a file")).expect("sound");
        assert_eq!((shard.files().len(), shard.location()), (1, &file.location));
        names.extend(shard.entries().iter().map(|e| e.name.clone()));
    }
    assert_eq!(names, whole.entries().iter().map(|e| e.name.clone()).collect::<Vec<_>>());
    dir.file("m/other.index.json", "{}");
    assert!(dir.error("m/other.index.json").contains("the content is JSON"));
}

/// Weights in parts that no convention here puts together.
#[test]
fn an_unknown_method_is_refused_by_name() {
    let dir = Dir::new();
    dir.file("m/model.safetensors", shard(&["a.codes", "a.scales", "b.weight"]));
    dir.file("m/config.json", r#"{"quantization_config": {"quant_method": "aqlm"}}"#);
    assert_snapshot!(dir.error("m"), @"unsupported `DIR/m/model.safetensors`: has weights in parts, such as `a.codes`, that are put together as the `quant_method` `aqlm` says, which is not read: those that are read are awq, bitnet, bitsandbytes, compressed-tensors, fp8, gptq, modelopt, mxfp4");
    // Without such parts there is nothing to put together.
    dir.file("m/model.safetensors", shard(&["b.weight"]));
    assert_eq!(open_both(&dir.path("m")).expect("sound").entries().len(), 1);
}
