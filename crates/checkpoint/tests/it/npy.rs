//! numpy arrays in files of their own, alone or in a directory, and directories of squish, whose weights lie in
//! several arrays each.

use std::os::unix::fs::symlink;

use checkpoint::{Checkpoint, Error};
use insta::assert_snapshot;

use crate::build::{Gguf, safetensors};
use crate::{Dir, open_both};

/// An array as numpy writes it.
pub(crate) fn npy(descr: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let axes: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({axes}), }}");
    text.push_str(&" ".repeat((text.len() + 11).next_multiple_of(64) - text.len() - 11));
    text.push('\n');
    let len = u16::try_from(text.len()).expect("short").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], text.as_bytes(), data].concat()
}

/// An array whose bytes are all `fill`.
fn filled(descr: &str, shape: &[u64], fill: u8) -> Vec<u8> {
    let width: u64 = descr[2..].parse().expect("a number");
    let bytes = width * shape.iter().product::<u64>();
    npy(descr, shape, &vec![fill; usize::try_from(bytes).expect("small")])
}

/// Name, shape, scheme, and of each plane the file, its bytes and the first of them.
fn list(checkpoint: &Checkpoint) -> String {
    let line = |e: &tensor::TensorEntry| {
        let plane = |p: &tensor::PlaneData| {
            let (file, mut first) = (checkpoint.file(p.file), [0]);
            file.source.read_at(p.bytes.start, &mut first).expect("inside");
            let name = file.location.file_name();
            format!(" {name} {}x{}", p.bytes.end - p.bytes.start, first[0])
        };
        format!("{} {} {}{}", e.name, e.shape, e.scheme, e.planes.iter().map(plane).collect::<String>())
    };
    checkpoint.entries().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn one_array() {
    let dir = Dir::new();
    let path = dir.file("a.b.npy", filled("<f4", &[2, 3], 7));
    let checkpoint = open_both(&path).expect("sound");
    assert_snapshot!(list(&checkpoint), @"a.b [2, 3] f32 a.b.npy 24x7");
    assert_eq!((checkpoint.format().name(), checkpoint.metadata().hf().is_none()), ("npy", true));
    // The format is found by content, whatever the file name.
    assert_snapshot!(list(&open_both(&dir.file("plain", filled("<V2", &[], 1))).expect("sound")), @"plain [] bf16 plain 2x1");
    dir.file("x.gguf", filled("<f4", &[1], 0));
    assert_snapshot!(dir.error("x.gguf"), @"
    mismatch in `DIR/x.gguf`: is named as gguf, but holds npy
    hint: rename the file to what it holds
    ");
}

#[test]
fn a_directory_of_arrays() {
    let dir = Dir::new();
    dir.file("m/b.weight.npy", filled("<i8", &[2], 2));
    dir.file("m/a.weight.npy", filled("|u1", &[4, 4], 1));
    dir.file("m/notes.txt", "");
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    assert_snapshot!(list(&checkpoint), @"
    a.weight [4, 4] u8 a.weight.npy 16x1
    b.weight [2] i64 b.weight.npy 16x2
    ");
    assert_eq!((checkpoint.format().name(), checkpoint.location()), ("npy", &dir.path("m").into()));
    let fortran = String::from_utf8(filled("<f4", &[2, 3], 0)[10..128].to_vec()).expect("text");
    let fortran = fortran.replace("False", "True ");
    dir.file("m/f.npy", [b"\x93NUMPY\x01\x00\x76\x00", fortran.as_bytes(), &[0; 24]].concat());
    let columns = open_both(&dir.path("m")).expect("sound").entry("f").map(|e| e.strides.clone());
    assert_eq!(columns, Some(Some(vec![1, 2])));
    dir.file("m/big.npy", filled(">V2", &[2], 0));
    dir.file("m/cut.npy", &filled("<f4", &[2], 0)[..130]);
    dir.file("m/pickled.npy", npy("|O", &[1], &[0; 8]));
    dir.file("m/text.npy", "hello");
    symlink("/etc/hostname", dir.path("m/outside.npy")).unwrap();
    assert_snapshot!(dir.error("m"), @r"
    malformed `DIR/m`: 5 problems
      `big.npy`: has type `>V2`, which is not supported yet (at byte 0)
      `cut.npy`: [2] f32 needs 8 bytes, the header gives 2 (at byte 0)
      `outside.npy` leads out of the directory, to `/etc/hostname`
      `pickled.npy`: has type `|O`, which is not supported yet (at byte 0)
      `text.npy`: wanted an array that starts with `\x93NUMPY`, found [68, 65, 6c, 6c, 6f] (at byte 0)
    ");
    assert!(matches!(checkpoint::open(dir.path("m")), Err(Error::Malformed(_))));
}

/// `DIR/m` as squish writes it: a weight in each way.
fn squish() -> Dir {
    let dir = Dir::new();
    let keys = ["q4a", "q4", "pt", "int8", "rows", "experts"];
    let pairs: Vec<_> = keys.iter().map(|k| format!(r#""model.{k}.weight": "model__{k}__weight""#)).collect();
    dir.file("m/manifest.json", format!("{{{}}}", pairs.join(", ")));
    dir.file("m/tensors/.manifest_ready", "");
    let file = |key: &str, suffix: &str, content: Vec<u8>| {
        dir.file(&format!("m/tensors/model__{key}__weight__{suffix}.npy"), content);
    };
    let shape = |key: &str, axes: &[i64]| {
        let bytes: Vec<u8> = axes.iter().flat_map(|n| n.to_le_bytes()).collect();
        file(key, "shape", npy("<i8", &[axes.len() as u64], &bytes));
    };
    shape("q4a", &[4, 64]);
    file("q4a", "q4a", filled("|u1", &[4, 32], 1));
    file("q4a", "s4a", filled("<f4", &[4, 2], 2));
    file("q4a", "z4a", filled("<f4", &[4, 2], 3));
    // The original of a conversion may stay in place.
    file("q4a", "q", filled("|i1", &[4, 64], 9));
    file("q4a", "s", filled("<f4", &[4], 9));
    shape("q4", &[4, 128]);
    file("q4", "q4", filled("|u1", &[4, 64], 4));
    file("q4", "s4", filled("<f4", &[4, 2], 5));
    shape("pt", &[6]);
    file("pt", "pt", filled("<f2", &[6], 6));
    shape("int8", &[4, 128]);
    file("int8", "q", filled("|i1", &[4, 128], 7));
    file("int8", "s", filled("<f4", &[4, 2], 8));
    shape("rows", &[4, 128]);
    file("rows", "q", filled("|i1", &[4, 128], 9));
    file("rows", "s", filled("<f4", &[4], 10));
    shape("experts", &[2, 4, 64]);
    file("experts", "q4a", filled("|u1", &[8, 32], 11));
    file("experts", "s4a", filled("<f4", &[8, 2], 12));
    file("experts", "z4a", filled("<f4", &[8, 2], 13));
    dir
}

#[test]
fn a_directory_of_squish() {
    let dir = squish();
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    assert_snapshot!(list(&checkpoint), @"
    model.experts.weight [2, 4, 64] squish-q4a:g32 model__experts__weight__q4a.npy 256x11 model__experts__weight__s4a.npy 64x12 model__experts__weight__z4a.npy 64x13
    model.int8.weight [4, 128] squish-int8:g64 model__int8__weight__q.npy 512x7 model__int8__weight__s.npy 32x8
    model.pt.weight [6] f16 model__pt__weight__pt.npy 12x6
    model.q4.weight [4, 128] squish-q4:g64 model__q4__weight__q4.npy 256x4 model__q4__weight__s4.npy 32x5
    model.q4a.weight [4, 64] squish-q4a:g32 model__q4a__weight__q4a.npy 128x1 model__q4a__weight__s4a.npy 32x2 model__q4a__weight__z4a.npy 32x3
    model.rows.weight [4, 128] squish-int8:row model__rows__weight__q.npy 512x9 model__rows__weight__s.npy 16x10
    ");
    assert_eq!((checkpoint.format().name(), checkpoint.metadata().hf().is_none()), ("squish", true));
    for entry in checkpoint.entries() {
        assert_eq!(entry.scheme.byte_len(&entry.shape), Ok(entry.byte_len()), "{}", entry.name);
        assert_eq!(entry.scheme, quant::scheme(&entry.scheme.name).expect("known"));
    }
    dir.file("m/config.json", r#"{"model_type":"llama"}"#);
    let with = open_both(&dir.path("m")).expect("sound");
    assert_eq!(with.metadata().hf().and_then(|m| m.config()).expect("there")["model_type"], "llama");
    assert_eq!(with.entries(), checkpoint.entries());
}

#[test]
fn plain_values_need_no_shape() {
    let dir = squish();
    std::fs::remove_file(dir.path("m/tensors/model__pt__weight__shape.npy")).unwrap();
    let checkpoint = open_both(&dir.path("m")).expect("sound");
    assert_eq!(checkpoint.entry("model.pt.weight").expect("there").shape.to_string(), "[6]");
}

#[test]
fn arrays_that_do_not_fit_each_other() {
    let dir = squish();
    let file = |key: &str, suffix: &str, content: Vec<u8>| {
        dir.file(&format!("m/tensors/model__{key}__weight__{suffix}.npy"), content);
    };
    let shape = |axes: &[i64]| {
        let bytes: Vec<u8> = axes.iter().flat_map(|n| n.to_le_bytes()).collect();
        npy("<i8", &[axes.len() as u64], &bytes)
    };
    file("q4a", "z4a", filled("<f2", &[4, 2], 0));
    file("q4", "shape", shape(&[4, 126]));
    file("pt", "shape", shape(&[2, 2]));
    file("int8", "s", filled("<f4", &[5], 0));
    file("rows", "shape", shape(&[512]));
    file("experts", "s4a", b"broken".to_vec());
    assert_snapshot!(dir.error("m"), @r"
    malformed `DIR/m/tensors`: 6 problems
      tensor `model.int8.weight`: `__s` is [5], for 4 rows
      tensor `model.pt.weight`: `__pt` is [6], for shape [2, 2]
      tensor `model.q4.weight`: has 2 groups in 126 columns, which no `squish-q4` has
      tensor `model.q4a.weight`: `__z4a` is [4, 2] f16, for shape [4, 64] in `squish-q4a:g32`
      tensor `model.rows.weight`: `__q` is [4, 128] i8, for shape [512]
      `model__experts__weight__s4a.npy`: wanted an array that starts with `\x93NUMPY`, found [62, 72, 6f, 6b, 65, 6e] (at byte 0)
    ");
    file("q4a", "shape", shape(&[4, -64]));
    file("q4", "shape", filled("<i4", &[2], 0));
    file("pt", "shape", shape(&[i64::MAX, 4]));
    file("int8", "s", filled("<f4", &[4, 43], 0));
    file("rows", "shape", shape(&[0, 128]));
    std::fs::remove_file(dir.path("m/tensors/model__experts__weight__shape.npy")).unwrap();
    assert_snapshot!(dir.error("m"), @r"
    malformed `DIR/m/tensors`: 7 problems
      `model__experts__weight__shape.npy` is missing
      tensor `model.int8.weight`: `__s` is [4, 43] f32, for shape [4, 128] in `squish-int8:g2`
      tensor `model.pt.weight`: `__pt` is [6], for shape [9223372036854775807, 4]
      tensor `model.rows.weight`: `__s` is [4], for 0 rows
      `model__experts__weight__s4a.npy`: wanted an array that starts with `\x93NUMPY`, found [62, 72, 6f, 6b, 65, 6e] (at byte 0)
      `model__q4__weight__shape.npy`: wanted a shape: i64, at most 64 of them, found [2] i32 (at byte 128)
      `model__q4a__weight__shape.npy`: wanted axes that are not negative, found -64 (at byte 128)
    hint: the download may be incomplete: download the missing files
    ");
}

#[test]
fn what_squish_has_and_is_not_read() {
    let dir = Dir::new();
    dir.file("m/manifest.json", r#"{"a": "a", "b": "b", "c": "c"}"#);
    dir.file("m/tensors/a__nf4.npy", "");
    dir.file("m/tensors/a__s_nf4.npy", "");
    dir.file("m/tensors/a__shape.npy", "");
    dir.file("m/tensors/b__pt.npy.lz4", "");
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m/tensors`: 3 problems
      tensor `a`: is held in `__nf4.npy`, `__s_nf4.npy`, which is not read
      tensor `b`: is held in `__pt.npy.lz4`, which is not read
      tensor `c`: `c__*.npy` is missing
    hint: the download may be incomplete: download the missing files
    ");
}

#[test]
fn a_bad_manifest() {
    let dir = squish();
    let mut error = |content: &str| {
        dir.file("m/manifest.json", content);
        dir.error("m")
    };
    let errors = [
        "",
        "[]",
        r#"{"a": 1}"#,
        r#"{"a": "x", "a": "x"}"#,
        r#"{"a": "x", "b": "x"}"#,
        r#"{"a": "../x", "": "y", "c": "/etc/passwd", "d": "a\\b"}"#,
    ]
    .map(&mut error);
    assert_snapshot!(errors.join("\n"), @r"
    malformed `DIR/m/manifest.json`: the manifest: EOF while parsing a value (at byte 0)
    malformed `DIR/m/manifest.json`: the manifest: invalid type: sequence, expected a map of strings (at byte 0)
    malformed `DIR/m/manifest.json`: the manifest: invalid type: integer `1`, expected a string (at byte 6)
    malformed `DIR/m/manifest.json`: tensor `a`: is there twice, first at byte 1 (at byte 11)
    mismatch in `DIR/m/manifest.json`: tensor `b`: has the same files as `a`
    malformed `DIR/m/manifest.json`: 4 problems
      tensor `a`: `../x` is no name of a file in the directory
      tensor `c`: `/etc/passwd` is no name of a file in the directory
      tensor `d`: `a\\b` is no name of a file in the directory
      tensor ``: the tensor name is empty
    ");
    std::fs::remove_dir_all(dir.path("m/tensors")).unwrap();
    symlink("/etc", dir.path("m/tensors")).unwrap();
    dir.file("m/manifest.json", "{}");
    let out = dir.error("m");
    std::fs::remove_file(dir.path("m/tensors")).unwrap();
    dir.file("m/tensors", "");
    assert_snapshot!([out, dir.error("m")].join("\n"), @"
    malformed `DIR/m`: `tensors` leads out of the directory, to `/etc`
    hint: copy the file into the directory
    mismatch in `DIR/m/tensors`: wanted a directory, found a file
    ");
}

#[test]
fn arrays_beside_a_model_are_not_it() {
    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    dir.file("m/x.npy", filled("<f4", &[1], 0));
    let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    dir.file("m/model.safetensors", safetensors(header, 1));
    assert_eq!(open_both(&dir.path("m")).expect("sound").format().name(), "hf");
    dir.file("g/x.npy", filled("<f4", &[1], 0));
    dir.file("g/x.gguf", Gguf::new().f32("a", &[4]).build());
    assert_eq!(open_both(&dir.path("g")).expect("sound").format().name(), "gguf");
}
