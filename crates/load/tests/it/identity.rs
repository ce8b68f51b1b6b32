//! A file that is another one when it is read than when it was opened, and values that lie otherwise.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use checkpoint::{Checkpoint, Io};
use load::{Error, Loaded, Obstacle, Options, Plan, Pool};
use tensor::{Arrangement, MeshRank, Pattern, RopeOrder};

use crate::{Matrix, as_stored, bytes_of, file, folder, open};

fn matrices(seed: u64) -> [Matrix; 3] {
    [
        Matrix::new("layers.0.up.weight", &[900, 700], seed),
        Matrix::new("layers.1.up.weight", &[900, 700], seed + 1),
        Matrix::new("norm.weight", &[700], seed + 2),
    ]
}

fn owned(memory: Option<u64>) -> Options<'static> {
    Options { owned: true, memory, ..Options::default() }
}

/// Writes the same header and other values to where `path` is: length, place and inode stay.
fn rewrite(path: &Path, seed: u64) {
    // Longer than a tick of any file system's clock.
    sleep(Duration::from_millis(30));
    let other = folder();
    let bytes = fs::read(file(other.path(), "other", &matrices(seed))).unwrap();
    File::options().write(true).open(path).unwrap().write_all(&bytes).unwrap();
}

fn names_it(error: &Error, path: &Path) {
    let Error::Changed(why) = error else { panic!("{error}") };
    assert_eq!(why.location().path(), Some(path));
    let said = format!("{error:?}");
    assert!(
        said.contains("has changed since it was opened: it was written to\nhint: open it again"),
        "{said}"
    );
}

#[test]
fn a_file_that_was_rewritten_is_not_loaded() {
    let dir = folder();
    for io in crate::ALL {
        let path = file(dir.path(), "model.safetensors", &matrices(1));
        let checkpoint = open(&path, io);
        let plan = as_stored(&checkpoint);
        plan.load(&mut Pool::new(1)).unwrap();
        checkpoint.unchanged().unwrap();
        rewrite(&path, 50);
        checkpoint.unchanged().unwrap_err();
        for options in [Options::default(), owned(None)] {
            names_it(&plan.load_with(&mut Pool::new(2), options).err().unwrap(), &path);
        }
    }
}

#[test]
fn a_file_that_is_rewritten_on_the_way_is_not_loaded() {
    let dir = folder();
    for (io, threads) in [(Io::Mmap, 1), (Io::Pread, 1), (Io::Direct, 2)] {
        let path = file(dir.path(), "model.safetensors", &matrices(1));
        let plan = as_stored(&open(&path, io));
        let once = AtomicBool::new(false);
        let observe = |_, _: u64, _: &[u8]| {
            if !once.swap(true, Ordering::Relaxed) {
                rewrite(&path, 50);
            }
        };
        let options = Options { observe: Some(&observe), owned: true, ..Options::default() };
        names_it(&plan.load_with(&mut Pool::new(threads), options).err().unwrap(), &path);
    }
}

/// Another file under the same name: the file that was opened is still read.
#[test]
fn a_file_that_was_replaced_is_read_as_it_was() {
    let dir = folder();
    for io in crate::ALL {
        let path = file(dir.path(), "model.safetensors", &matrices(1));
        let plan = as_stored(&open(&path, io));
        let before = bytes_of(&plan.load_with(&mut Pool::new(1), owned(None)).unwrap());
        let new = file(dir.path(), "new.safetensors", &matrices(50));
        fs::rename(new, &path).unwrap();
        assert!(bytes_of(&plan.load_with(&mut Pool::new(1), owned(None)).unwrap()) == before, "{io:?}");
    }
}

/// Before the first write, while it is staged, and while it goes straight to its place.
#[test]
fn an_update_from_a_file_that_changes() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Pread);
    let path = file(dir.path(), "new.safetensors", &matrices(50));
    let mut pool = Pool::new(1);
    let mut model = as_stored(&old).load_with(&mut pool, owned(None)).unwrap();
    let before = bytes_of(&model);

    let plan = as_stored(&open(&path, Io::Pread));
    rewrite(&path, 90);
    match model.update(&plan, &[], &mut pool, owned(None)) {
        Err(Error::Update { obstacles }) => {
            let [Obstacle::Changed(error)] = &obstacles[..] else { panic!("{obstacles:?}") };
            assert_eq!(error.location(), &path.clone().into());
        }
        other => panic!("{:?}", other.err()),
    }
    assert!(bytes_of(&model) == before);

    for memory in [None, Some(100_000)] {
        let plan = as_stored(&open(&path, Io::Pread));
        let once = AtomicBool::new(false);
        let observe = |_, _: u64, _: &[u8]| {
            if !once.swap(true, Ordering::Relaxed) {
                rewrite(&path, 50);
            }
        };
        let options = Options { observe: Some(&observe), owned: true, memory, ..Options::default() };
        let failed = model.update(&plan, &[], &mut pool, options).unwrap_err();
        if memory.is_none() {
            names_it(&failed, &path);
            assert!(bytes_of(&model) == before);
            continue;
        }
        let Error::Partly { written, broken, source } = failed else { panic!("{failed}") };
        names_it(&source, &path);
        assert!(written.is_empty() && broken.len() == 3, "{written:?} {broken:?}");
    }

    // Torn: nothing can be used, until all of it was written.
    let all = ["layers.0.up.weight", "layers.1.up.weight", "norm.weight"];
    assert_eq!(model.torn().collect::<Vec<_>>(), all);
    assert!(all.iter().all(|name| model.get(name).is_none()));
    let plan = as_stored(&open(&path, Io::Pread));
    model.update(&plan, &[Pattern::new("norm.weight")], &mut pool, owned(None)).unwrap();
    assert_eq!(model.torn().collect::<Vec<_>>(), all[..2]);
    assert!(model.get("norm.weight").is_none(), "the whole is of two models still");
    model.update(&plan, &[], &mut pool, owned(None)).unwrap();
    assert_eq!(model.torn().len(), 0);
    assert!(bytes_of(&model) == bytes_of(&plan.load(&mut pool).unwrap()));
}

#[test]
fn values_that_lie_otherwise_are_no_update() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Pread);
    let new = open(&file(dir.path(), "new.safetensors", &matrices(50)), Io::Pread);
    let held = |layout, order| Arrangement {
        layout: String::from(layout).into(),
        rope_order: Some(order),
        value_order: tensor::ValueOrder::Grouped,
        share: None,
    };
    let plan = |of: &Checkpoint, arrangement: Arrangement| {
        let (bindings, targets) = plan::as_stored(of.entries());
        let resolved = plan::resolve(of.entries(), &bindings).unwrap();
        Plan::compile(of, &resolved, &targets, arrangement).unwrap()
    };
    let mut pool = Pool::new(1);
    let half = held("in-place", RopeOrder::Half);
    let mut model: Loaded = plan(&old, half.clone()).load_with(&mut pool, owned(None)).unwrap();
    let before = bytes_of(&model);
    for (other, said) in [
        (held("in-place", RopeOrder::Interleaved), "the layout in-place with interleaved rotary order"),
        (held("packed", RopeOrder::Half), "the layout packed with half rotary order"),
        (
            Arrangement { share: Some(MeshRank { mesh: "tp 2".into(), rank: 1 }), ..half.clone() },
            "the layout in-place with half rotary order, rank 1 of tp 2",
        ),
        (Arrangement::stored("gguf"), "the layout source (gguf)"),
    ] {
        let refused = model
            .update(&plan(&new, other), &[], &mut pool, owned(None))
            .unwrap_err()
            .diagnostics()
            .to_string();
        let wanted = "wanted the layout in-place with half rotary order, found ";
        assert!(refused.contains(&format!("{wanted}{said}\n")), "{refused}");
        assert!(bytes_of(&model) == before);
    }
    model.update(&plan(&new, half), &[], &mut pool, owned(None)).unwrap();
}
