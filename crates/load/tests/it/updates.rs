//! Updating in place: addresses stay, and what fails leaves all as it was.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use checkpoint::{Checkpoint, Io};
use load::{Error, Loaded, Obstacle, Options, Plan, Pool};
use tensor::{Binding, Bindings, Expr, Pattern, Presence, Target};

use crate::{Matrix, as_stored, bytes_of, file, folder, halves, open, plan_of};

const OWNED: fn() -> Options<'static> = || Options { owned: true, ..Options::default() };

fn matrices(seed: u64) -> [Matrix; 3] {
    [
        Matrix::new("layers.0.up.weight", &[900, 700], seed),
        Matrix::new("layers.1.up.weight", &[900, 700], seed + 1),
        Matrix::new("norm.weight", &[700], seed + 2),
    ]
}

pub(crate) fn addresses(loaded: &Loaded) -> HashMap<String, usize> {
    loaded.names().map(|n| (n.to_owned(), loaded.get(n).unwrap().bytes().as_ptr().addr())).collect()
}

fn loaded(checkpoint: &Checkpoint) -> Loaded {
    as_stored(checkpoint).load_with(&mut Pool::new(2), OWNED()).unwrap()
}

#[test]
fn values_change_and_addresses_do_not() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Mmap);
    let new = open(&file(dir.path(), "new.safetensors", &matrices(50)), Io::Mmap);
    // Staged, and straight to its place.
    for memory in [None, Some(1 << 20)] {
        let mut model = loaded(&old);
        let before = addresses(&model);
        let options = Options { memory, ..OWNED() };
        model.update(&as_stored(&new), &[], &mut Pool::new(2), options).unwrap();
        assert_eq!(addresses(&model), before, "{memory:?}");
        assert_eq!(bytes_of(&model), bytes_of(&loaded(&new)), "{memory:?}");
    }
}

#[test]
fn a_subset_is_updated_and_nothing_else() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Pread);
    let new = open(&file(dir.path(), "new.safetensors", &matrices(50)), Io::Pread);
    let mut model = loaded(&old);
    let only = [Pattern::new("layers.1.{x}.weight"), Pattern::new("norm.weight")];
    model.update(&as_stored(&new), &only, &mut Pool::new(2), OWNED()).unwrap();
    let [first, ..] = matrices(1);
    let [_, second, norm] = matrices(50);
    for m in [first, second, norm] {
        assert!(halves(model.get(m.name).unwrap().bytes()) == m.values(), "{}", m.name);
    }
}

/// `b` is `a`, under another name.
pub(crate) fn tied(checkpoint: &Checkpoint, tie: bool) -> Plan {
    let shape = checkpoint.entries()[0].shape.clone();
    let binding = |name: &str, from: &str, presence| Binding {
        name: name.into(),
        shape: shape.clone(),
        expr: Expr::source(from),
        presence,
    };
    let (from, other) = if tie { ("b", Presence::TiedTo("a".into())) } else { ("a", Presence::Required) };
    let bindings = vec![binding("a", "a", Presence::Required), binding("b", from, other)];
    let bindings = Bindings { bindings, drops: vec![] };
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    let targets = ["a", "b"].map(|name| Target { name: name.into(), expr: Expr::source(name), scheme: None });
    crate::compile(checkpoint, &resolved, &targets)
}

#[test]
fn who_is_tied_is_updated_with_its_root() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &[Matrix::new("a", &[30, 20], 1)]), Io::Pread);
    let new = Matrix::new("a", &[30, 20], 9);
    let values = new.values();
    let new = open(&file(dir.path(), "new.safetensors", &[new]), Io::Pread);
    for name in ["a", "b"] {
        let mut model = tied(&old, true).load_with(&mut Pool::new(1), OWNED()).unwrap();
        model.update(&tied(&new, true), &[Pattern::new(name)], &mut Pool::new(1), OWNED()).unwrap();
        for of in ["a", "b"] {
            assert_eq!(halves(model.get(of).unwrap().bytes()), values, "{of} by {name}");
        }
        assert_eq!(addresses(&model)["a"], addresses(&model)["b"]);
        // Parameters that share a slot cannot have two values.
        let apart = model.update(&tied(&new, false), &[], &mut Pool::new(1), OWNED());
        let said = format!("{:?}", apart.unwrap_err());
        assert!(said.contains("`b`: wanted one that is tied to `a`, found no other"), "{said}");
    }
}

#[test]
fn everything_in_the_way_is_said_at_once_and_nothing_is_written() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Mmap);
    let other = [
        Matrix::new("layers.0.up.weight", &[700, 900], 50),
        Matrix::new("layers.1.up.wait", &[900, 700], 51),
        Matrix::new("norm.weight", &[700], 52),
    ];
    let new = open(&file(dir.path(), "new.safetensors", &other), Io::Pread);
    let mut model = loaded(&old);
    let before = bytes_of(&model);
    let kept = model.get("norm.weight").unwrap().clone();
    let only = [Pattern::new("layers.{n}.up.{x}"), Pattern::new("norm.weights")];
    let failed = model.update(&as_stored(&new), &only, &mut Pool::new(2), OWNED()).unwrap_err();
    assert_eq!(
        failed.diagnostics().to_string(),
        "nothing was updated:\n\
         `norm.weights` names no parameter that is in memory\nhint: did you mean `norm.weight`?\n\
         `layers.1.up.wait`: is in the plan, and not in memory\nhint: did you mean `layers.1.up.weight`?\n\
         `layers.0.up.weight`: wanted shape [900, 700], found [700, 900]\n\
         `layers.1.up.weight`: is in memory, and not in the plan\n\
         cloned tensors are still in use\nhint: drop them (a decoder holds some)"
    );
    assert!(bytes_of(&model) == before && kept.bytes() == before["norm.weight"]);

    // Borrowed slots cannot be written.
    let mut lent = as_stored(&old).load_with(&mut Pool::new(1), Options::default()).unwrap();
    let only = [Pattern::new("norm.weight")];
    match lent.update(&as_stored(&new), &only, &mut Pool::new(1), Options::default()) {
        Err(Error::Update { obstacles }) => {
            assert!(
                matches!(&obstacles[..], [Obstacle::Borrowed { name }] if name == "norm.weight"),
                "{obstacles:?}"
            );
        }
        _ => panic!("refused"),
    }
}

#[test]
fn a_file_that_is_cut_short_leaves_all_as_it_was() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Pread);
    for io in crate::ALL {
        let path = file(dir.path(), "new.safetensors", &matrices(50));
        let new = open(&path, io);
        let plan = as_stored(&new);
        let mut model = loaded(&old);
        let before = bytes_of(&model);
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(2_000_000)).unwrap();
        match model.update(&plan, &[], &mut Pool::new(2), OWNED()) {
            Err(Error::Update { obstacles }) => {
                assert!(
                    matches!(&obstacles[..], [Obstacle::Changed(error)] if error.location().path() == Some(&path)),
                    "{obstacles:?}"
                );
            }
            other => panic!("{io:?}: {:?}", other.err()),
        }
        assert_eq!(bytes_of(&model), before, "{io:?}");
    }
}

/// The file is cut while it is read: all or nothing if it is staged, else it is said what was written.
#[test]
fn a_read_that_fails_on_the_way() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Pread);
    for memory in [None, Some(100_000)] {
        let path = file(dir.path(), "new.safetensors", &matrices(50));
        let new = open(&path, Io::Pread);
        let plan = as_stored(&new);
        let mut model = loaded(&old);
        let (before, places) = (bytes_of(&model), addresses(&model));
        let calls = AtomicUsize::new(0);
        let seen = Mutex::new(vec![]);
        // After the first parameter.
        let observe = |_, at: u64, bytes: &[u8]| {
            seen.lock().unwrap().push((at, bytes.len()));
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(1_300_000)).unwrap();
            }
        };
        let options = Options { memory, observe: Some(&observe), owned: true, ..Options::default() };
        let failed = model.update(&plan, &[], &mut Pool::new(1), options).unwrap_err();
        if memory.is_none() {
            assert_eq!(addresses(&model), places);
            assert!(matches!(failed, Error::Changed(_)), "{failed}");
            assert_eq!(bytes_of(&model), before);
            continue;
        }
        let Error::Partly { written, broken, source } = failed else { panic!("{failed}") };
        // Written bytes may be those of the file before or after.
        assert!(matches!(*source, Error::Changed(_)), "{source}");
        assert!(written.is_empty(), "{written:?}");
        assert_eq!(broken, ["layers.0.up.weight", "layers.1.up.weight", "norm.weight"]);
    }
}

#[test]
fn a_plan_that_moves_is_updated_too() {
    let dir = folder();
    let wanted = [("t", Expr::source("norm.weight")), ("u", Expr::source("layers.0.up.weight").transpose())];
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Pread);
    let new = open(&file(dir.path(), "new.safetensors", &matrices(50)), Io::Pread);
    let load = |of: &Checkpoint| plan_of(of, &wanted).load_with(&mut Pool::new(2), OWNED()).unwrap();
    let mut model = load(&old);
    model.update(&plan_of(&new, &wanted), &[], &mut Pool::new(2), OWNED()).unwrap();
    assert_eq!(bytes_of(&model), bytes_of(&load(&new)));
}
