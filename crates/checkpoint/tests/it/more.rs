//! A second checkpoint whose tensors join the first.

use checkpoint::{Error, Fault, OpenOptions};
use insta::assert_snapshot;

use crate::Dir;
use crate::build::{Gguf, safetensors};
use crate::shards::shard;

/// `DIR/m`, a model with `a` and `b`, and files of more tensors beside it.
fn model() -> Dir {
    let dir = Dir::new();
    dir.file("m/config.json", r#"{"model_type":"llama"}"#);
    dir.file("m/model.safetensors", shard(&["a", "b"]));
    dir.file("clip/config.json", r#"{"model_type":"clip"}"#);
    dir.file("clip/model.safetensors", shard(&["c", "a"]));
    dir.file("x.gguf", Gguf::new().f32("d", &[4]).build());
    dir
}

fn names(checkpoint: &checkpoint::Checkpoint) -> String {
    checkpoint.entries().iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_tensors_join_and_the_first_is_the_model() {
    let dir = model();
    let options =
        OpenOptions::default().with_more("tower.", dir.path("clip")).with_more("", dir.path("x.gguf"));
    let all = checkpoint::open_with(dir.path("m"), &options).expect("sound");
    assert_eq!(names(&all), "a b tower.c tower.a d");
    assert_eq!((all.format().name(), all.location()), ("hf", &dir.path("m").into()));
    assert_eq!(all.metadata().hf().and_then(|hf| hf.config()).expect("there")["model_type"], "llama");
    // Each is where its own file says.
    for (name, file, at) in
        [("tower.a", "clip/model.safetensors", 1), ("b", "m/model.safetensors", 1), ("d", "x.gguf", 0)]
    {
        let plane = &all.entry(name).expect(name).planes[0];
        assert_eq!(all.file(plane.file).location, dir.path(file).into(), "{name}");
        let own = checkpoint::open(dir.path(file)).expect("sound");
        assert_eq!(plane.bytes, own.entries()[at].planes[0].bytes, "{name}");
    }
    assert_eq!(all.files().len(), 3);
    all.unchanged().expect("nobody wrote");
    std::fs::write(dir.path("x.gguf"), "").unwrap();
    assert!(matches!(all.unchanged(), Err(Error::Changed { .. })));
}

#[test]
fn every_name_that_both_have_is_refused() {
    let dir = model();
    dir.file("n/model.safetensors", shard(&["b", "z", "a"]));
    let options = OpenOptions::default().with_more("", dir.path("n/model.safetensors"));
    let error = checkpoint::open_with(dir.path("m"), &options).expect_err("twice");
    assert_snapshot!(dir.text(&error), @"
    mismatch in `DIR/m`: 2 problems
      tensor `b`: is in `DIR/m/model.safetensors` and in `DIR/n/model.safetensors`
      tensor `a`: is in `DIR/m/model.safetensors` and in `DIR/n/model.safetensors`
    hint: give the names of the second checkpoint a prefix
    ");
    assert!(error.problems().iter().all(|p| matches!(p.fault, Fault::InTwo { .. })));
    // The prefix can make two the same, too.
    dir.file("n/model.safetensors", shard(&["z"]));
    dir.file("o/model.safetensors", shard(&["az"]));
    let options = OpenOptions::default()
        .with_more("a", dir.path("n/model.safetensors"))
        .with_more("", dir.path("o/model.safetensors"));
    assert!(matches!(checkpoint::open_with(dir.path("m"), &options), Err(Error::Mismatch(_))));
}

#[test]
fn what_is_wrong_with_the_second_is_said_of_it() {
    let dir = model();
    let path = dir.file("n.safetensors", "");
    let options = OpenOptions::default().with_more("", &path);
    let error = checkpoint::open_with(dir.path("m"), &options).expect_err("empty");
    assert_eq!(error.location(), &path.into());
    let options = OpenOptions::default().with_more("", dir.path("modle"));
    let error = checkpoint::open_with(dir.path("m"), &options).expect_err("missing");
    assert!(dir.text(&error).starts_with("cannot open `DIR/modle`"), "{error}");
}

/// A weight as mlx-lm stores it: 8 rows of 64 elements of 4 bits, in groups of 32.
fn quantized() -> Vec<u8> {
    safetensors(
        concat!(
            r#"{"l.weight":{"dtype":"U32","shape":[8,8],"data_offsets":[0,256]},"#,
            r#""l.scales":{"dtype":"F16","shape":[8,2],"data_offsets":[256,288]},"#,
            r#""l.biases":{"dtype":"F16","shape":[8,2],"data_offsets":[288,320]}}"#
        ),
        320,
    )
}

#[test]
fn how_weights_are_stored_is_said_by_their_own_configuration_or_by_the_first() {
    let dir = model();
    let said = r#"{"quantization":{"group_size":32,"bits":4}}"#;
    let file = dir.file("alone.safetensors", quantized());
    let with = |main: &str, more: &std::path::Path| {
        let options = OpenOptions::default().with_more("q.", more);
        names(&checkpoint::open_with(dir.path(main), &options).expect("sound"))
    };
    // Without a configuration, there are three tensors.
    assert_eq!(with("m", &file), "a b q.l.weight q.l.scales q.l.biases");
    // With its own configuration, they are one.
    dir.file("own/config.json", said);
    dir.file("own/model.safetensors", quantized());
    assert_eq!(with("m", &dir.path("own")), "a b q.l.weight");
    // A file without a configuration takes that of the first checkpoint.
    dir.file("m/config.json", said);
    assert_eq!(with("m", &file), "a b q.l.weight");
}
