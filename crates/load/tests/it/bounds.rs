//! Memory, cancelling, files that fail.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use checkpoint::Io;
use load::{Error, Options, Pool, Progress};
use tensor::{Dtype, Expr, Scheme, Target};

use crate::{Matrix, as_stored, file, folder, open, plan_of};

#[test]
fn too_little_memory_is_refused_with_the_least_that_works() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("m", &[2000, 1000], 1)]);
    let checkpoint = open(&path, Io::Pread);
    let plan = plan_of(&checkpoint, &[("t", Expr::source("m").transpose())]);
    let load = |memory| {
        let options = Options { memory: Some(memory), ..Options::default() };
        plan.load_with(&mut Pool::new(2), options)
    };
    let Err(Error::LittleMemory { param, least, memory: 1000, .. }) = load(1000) else {
        panic!("refused");
    };
    assert_eq!(param, "t");
    let report = load(least).unwrap().report().clone();
    assert!(report.scratch_peak > 0 && report.scratch_peak <= least, "{report:?}");
    assert!(matches!(load(least - 1), Err(Error::LittleMemory { .. })));
}

#[test]
fn a_change_is_cut_finer_and_gives_the_same_bytes() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("m", &[2048, 1024], 1)]);
    let checkpoint = open(&path, Io::Pread);
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    let scheme = Some(Scheme::plain(Dtype::F32));
    let targets = [Target { name: "m".into(), expr: Expr::source("m"), scheme }];
    let plan = crate::compile(&checkpoint, &resolved, &targets);
    let mut found = vec![];
    for memory in [None, Some(1 << 20), Some(50_000)] {
        let options = Options { memory, ..Options::default() };
        let loaded = plan.load_with(&mut Pool::new(2), options).unwrap();
        assert!(memory.is_none_or(|m| loaded.report().scratch_peak <= m), "{:?}", loaded.report());
        found.push(loaded.get("m").unwrap().bytes().to_vec());
    }
    assert_eq!(found[0].len(), 2048 * 1024 * 4);
    assert!(found.windows(2).all(|w| w[0] == w[1]));
}

/// Small ones that are changed lie among small ones that are not.
#[test]
fn small_tensors_are_changed_too() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let dir = folder();
    let matrices: Vec<Matrix> = NAMES.iter().zip(0..).map(|(n, i)| Matrix::new(n, &[5, 8], i)).collect();
    let checkpoint = open(&file(dir.path(), "model.safetensors", &matrices), Io::Pread);
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    let changed = |i: usize| i.is_multiple_of(2);
    let targets: Vec<Target> = NAMES
        .iter()
        .enumerate()
        .map(|(i, name)| Target {
            name: (*name).into(),
            expr: Expr::source(*name),
            scheme: changed(i).then(|| Scheme::plain(Dtype::F32)),
        })
        .collect();
    let plan = crate::compile(&checkpoint, &resolved, &targets);
    for memory in [None, Some(10_000)] {
        let options = Options { memory, ..Options::default() };
        let loaded = plan.load_with(&mut Pool::new(2), options).unwrap();
        for (i, m) in matrices.iter().enumerate() {
            let found = loaded.get(m.name).unwrap().bytes();
            // bf16 is the upper half of f32.
            let wanted: Vec<u8> = if changed(i) {
                m.values().iter().flat_map(|v| (u32::from(*v) << 16).to_le_bytes()).collect()
            } else {
                m.values().iter().flat_map(|v| v.to_le_bytes()).collect()
            };
            assert_eq!(found, wanted, "{}", m.name);
        }
    }
}

#[test]
fn the_caller_may_end_it_at_any_read() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("m", &[20_000, 1000], 1)]);
    let checkpoint = open(&path, Io::Pread);
    let plan = as_stored(&checkpoint);
    let calls = AtomicUsize::new(0);
    for most in [0, 3, 7] {
        calls.store(0, Ordering::Relaxed);
        let watch = |p: Progress| {
            assert!(p.done <= p.total && p.total == 40_000_000);
            if calls.fetch_add(1, Ordering::Relaxed) >= most {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let options = Options { watch: Some(&watch), ..Options::default() };
        match plan.load_with(&mut Pool::new(2), options) {
            Err(Error::Cancelled { done, total: 40_000_000 }) => assert!(done < 40_000_000),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it went on"),
        }
    }
    let last = std::sync::Mutex::new(0);
    let watch = |p: Progress| {
        let mut last = last.lock().unwrap();
        *last = p.done.max(*last);
        ControlFlow::Continue(())
    };
    let options = Options { watch: Some(&watch), ..Options::default() };
    plan.load_with(&mut Pool::new(2), options).unwrap();
    assert_eq!(last.into_inner().unwrap(), 40_000_000, "the last call is of all");
}

#[test]
fn a_file_that_shrinks_is_an_error_with_its_name() {
    let dir = folder();
    let path = file(
        dir.path(),
        "model.safetensors",
        &[Matrix::new("a", &[1000, 1000], 1), Matrix::new("b", &[1000, 1000], 2)],
    );
    for io in crate::ALL {
        file(
            dir.path(),
            "model.safetensors",
            &[Matrix::new("a", &[1000, 1000], 1), Matrix::new("b", &[1000, 1000], 2)],
        );
        let checkpoint = open(&path, io);
        let plan = as_stored(&checkpoint);
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(2_500_000)).unwrap();
        // Also if the file was mapped: owned bytes are read.
        let options = Options { owned: true, ..Options::default() };
        match plan.load_with(&mut Pool::new(2), options) {
            Err(Error::Changed(error)) => {
                assert_eq!(error.location(), &path.clone().into());
                assert!(error.to_string().ends_with(", and has 2500000"), "{error}");
            }
            other => panic!("{io:?}: {:?}", other.map(|_| ()).map_err(|e| e.to_string())),
        }
    }
}
