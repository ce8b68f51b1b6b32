//! Shards in directories below the one with the index.

use std::os::unix::fs::symlink;

use checkpoint::{Checkpoint, Error, Fault};
use insta::assert_snapshot;

use crate::shards::{index, shard};
use crate::{Dir, open_both};

const INDEX: &str = "m/model.safetensors.index.json";

/// `DIR/m` with an index and two shards of the same name, in `x` and in `y/z`.
fn model() -> Dir {
    let dir = Dir::new();
    dir.file("m/config.json", "{}");
    dir.file(INDEX, index(&[("a", "x/w.safetensors"), ("b", "y/z/w.safetensors"), ("c", "x/w.safetensors")]));
    dir.file("m/x/w.safetensors", shard(&["a", "c"]));
    dir.file("m/y/z/w.safetensors", shard(&["b"]));
    dir
}

/// Every tensor with its file.
fn list(dir: &Dir, checkpoint: &Checkpoint) -> String {
    let at = |e: &tensor::TensorEntry| checkpoint.file(e.planes[0].file).location.to_string();
    let lines = checkpoint.entries().iter().map(|e| format!("{} {}", e.name, at(e)));
    lines.collect::<Vec<_>>().join("\n").replace(&dir.0.path().display().to_string(), "DIR")
}

#[test]
fn shards_may_be_in_subfolders() {
    let dir = model();
    let whole = open_both(&dir.path("m")).expect("sound");
    assert_snapshot!(list(&dir, &whole), @"
    a DIR/m/x/w.safetensors
    c DIR/m/x/w.safetensors
    b DIR/m/y/z/w.safetensors
    ");
    assert_eq!(open_both(&dir.path(INDEX)).expect("sound").entries(), whole.entries());
    // By its own path, a shard is what it holds: no configuration is beside it.
    let alone = open_both(&dir.path("m/y/z/w.safetensors")).expect("sound");
    assert_eq!((alone.entries().len(), alone.format().name()), (1, "safetensors"));
}

#[test]
fn shards_of_one_name_are_told_apart() {
    let dir = model();
    dir.file("m/x/w.safetensors", shard(&["b", "c"]));
    dir.file("m/y/z/w.safetensors", shard(&["a", "d"]));
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: 3 problems
      tensor `a`: wanted it in `x/w.safetensors` as the index says, found it in `y/z/w.safetensors`
      tensor `b`: wanted it in `y/z/w.safetensors` as the index says, found it in `x/w.safetensors`
      tensor `d`: is in `y/z/w.safetensors`, but not in the index
    ");
    dir.file("m/x/w.safetensors", shard(&["a", "c"]));
    dir.file("m/y/z/w.safetensors", shard(&["b", "a"]));
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: tensor `a`: is in `x/w.safetensors` and in `y/z/w.safetensors`
    hint: if these are different models, open one of the files by its own path
    ");
    std::fs::remove_dir_all(dir.path("m/y")).unwrap();
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: `y/z/w.safetensors` is missing
    hint: the download may be incomplete: download the missing files
    ");
}

#[test]
fn no_subfolder_leads_out() {
    let dir = model();
    dir.file("out/w.safetensors", shard(&["b"]));
    std::fs::remove_dir_all(dir.path("m/y")).unwrap();
    let outside = |what: &str| {
        let error = checkpoint::open(dir.path("m")).expect_err(what);
        assert!(matches!(&error, Error::Malformed(_)), "{what}: {error}");
        assert!(matches!(error.problems()[0].fault, Fault::Outside { .. }), "{what}: {error}");
    };
    symlink(dir.path("out"), dir.path("m/y")).unwrap();
    dir.file(INDEX, index(&[("a", "x/w.safetensors"), ("b", "y/w.safetensors"), ("c", "x/w.safetensors")]));
    assert_snapshot!(dir.error("m"), @"
    malformed `DIR/m`: `y/w.safetensors` leads out of the directory, to `DIR/out/w.safetensors`
    hint: copy the file into the directory
    ");
    outside("a directory that is a link");

    std::fs::remove_file(dir.path("m/y")).unwrap();
    std::fs::create_dir(dir.path("m/y")).unwrap();
    symlink("../../out/w.safetensors", dir.path("m/y/w.safetensors")).unwrap();
    outside("a file in a directory that is a link");

    // A link that stays inside is followed.
    std::fs::remove_file(dir.path("m/y/w.safetensors")).unwrap();
    dir.file("m/real/b", shard(&["b"]));
    symlink("../real/b", dir.path("m/y/w.safetensors")).unwrap();
    assert_eq!(open_both(&dir.path("m")).expect("sound").entries().len(), 3);
}

#[test]
fn shards_in_subfolders_of_a_hub_cache_are_links() {
    let dir = Dir::new();
    let snapshot = "hub/models--org--name/snapshots/0123";
    dir.file(&format!("{snapshot}/config.json"), "{}");
    dir.file(&format!("{snapshot}/model.safetensors.index.json"), index(&[("a", "sub/w.safetensors")]));
    dir.file("hub/models--org--name/blobs/aa", shard(&["a"]));
    std::fs::create_dir(dir.path(snapshot).join("sub")).unwrap();
    symlink("../../../blobs/aa", dir.path(snapshot).join("sub/w.safetensors")).unwrap();
    assert_eq!(open_both(&dir.path(snapshot)).expect("sound").entries().len(), 1);
}
