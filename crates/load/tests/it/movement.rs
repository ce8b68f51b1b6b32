//! Loaded values equal those of the expressions, however they are read.

use load::{Options, Pool};
use tensor::Expr;

use crate::{ALL, Matrix, as_stored, bytes_of, file, folder, halves, open, plan_of};

fn rows_of(m: &Matrix) -> Vec<Vec<u16>> {
    let k = usize::try_from(m.shape[1]).unwrap();
    m.values().chunks(k).map(<[u16]>::to_vec).collect()
}

fn transposed(rows: &[Vec<u16>]) -> Vec<Vec<u16>> {
    (0..rows[0].len()).map(|i| rows.iter().map(|row| row[i]).collect()).collect()
}

/// Long runs, short ones, repeats across windows, neighbours fused: all that is read in other ways.
#[test]
fn any_movement_gives_what_a_copy_of_single_elements_gives() {
    let dir = folder();
    let matrices = [
        Matrix::new("tall", &[3000, 700], 1),
        Matrix::new("wide", &[600, 5000], 2),
        Matrix::new("small", &[3, 5], 3),
    ];
    let path = file(dir.path(), "model.safetensors", &matrices);
    let [tall, wide, small] = matrices.each_ref().map(rows_of);
    let s = Expr::source;
    let columns = |rows: &[Vec<u16>], from: usize, to: usize| -> Vec<Vec<u16>> {
        rows.iter().map(|row| row[from..to].to_vec()).collect()
    };
    let joined = [transposed(&columns(&wide, 0, 700)), columns(&tall, 100, 700)].concat();
    let wanted: Vec<(&str, Expr, Vec<Vec<u16>>)> = vec![
        ("as it is", s("tall"), tall.clone()),
        ("rows", s("wide").slice(0, 17..555), wide[17..555].to_vec()),
        ("row-parallel share", s("wide").slice(1, 2500..5000), columns(&wide, 2500, 5000)),
        ("narrow share", s("tall").slice(1, 350..354), columns(&tall, 350, 354)),
        ("transposed", s("tall").transpose(), transposed(&tall)),
        (
            "transposed share",
            s("wide").transpose().slice(0, 100..4000),
            transposed(&wide)[100..4000].to_vec(),
        ),
        (
            "fused",
            Expr::concat(0, vec![s("wide").slice(1, 0..700).transpose(), s("tall").slice(1, 100..700)]),
            joined,
        ),
        ("two small ones", Expr::concat(0, vec![s("small"), s("small")]), [small.clone(), small].concat()),
    ];
    // The fused one must fit: both have 600 columns.
    let exprs: Vec<(&str, Expr)> = wanted.iter().map(|(n, e, _)| (*n, e.clone())).collect();
    let mut first = None;
    for io in ALL {
        let checkpoint = open(&path, io);
        let plan = plan_of(&checkpoint, &exprs);
        for (threads, memory) in [(1, None), (3, None), (2, Some(5 << 20)), (3, Some(1 << 22 | 1 << 20))] {
            let options = Options { memory, owned: true, ..Options::default() };
            let loaded = plan.load_with(&mut Pool::new(threads), options).unwrap();
            for (name, _, rows) in &wanted {
                let found = halves(loaded.get(name).unwrap().bytes());
                assert!(found == rows.concat(), "{name}, {io:?}, {threads} threads, {memory:?}");
            }
            let report = loaded.report();
            assert!(report.scratch_peak <= report.scratch_predicted, "{report:?}");
            assert!(memory.is_none_or(|m| report.scratch_predicted <= m), "{report:?}");
            let all = bytes_of(&loaded);
            assert!(*first.get_or_insert_with(|| all.clone()) == all);
        }
    }
}

/// A share of each row is copied out of the map; without a map, it is read once, in few reads, with the bytes between.
/// A share of wide rows is read run by run.
#[test]
fn near_runs_are_read_together_and_far_ones_are_not() {
    let dir = folder();
    let path = file(
        dir.path(),
        "model.safetensors",
        &[Matrix::new("near", &[2000, 1000], 1), Matrix::new("far", &[20, 40_000], 2)],
    );
    for io in ALL {
        let checkpoint = open(&path, io);
        let read = |name: &str, range: std::ops::Range<u64>| {
            let plan = plan_of(&checkpoint, &[("share", Expr::source(name).slice(1, range))]);
            let loaded = plan.load_with(&mut Pool::new(2), Options::default()).unwrap();
            loaded.report().bytes_read
        };
        // Only the bytes needed, or all from the first to the last.
        let near = if matches!(io, checkpoint::Io::Mmap | checkpoint::Io::CopyOnWrite) {
            2000 * 1000
        } else {
            2000 * 2000 - 1000
        };
        assert_eq!(read("near", 500..1000), near, "{io:?}");
        assert_eq!(read("far", 100..200), 20 * 200, "{io:?}");
        // A transposed matrix is read once, however it is cut.
        let plan = plan_of(&checkpoint, &[("t", Expr::source("near").transpose())]);
        let loaded = plan.load_with(&mut Pool::new(2), Options::default()).unwrap();
        assert_eq!(loaded.report().bytes_read, 2000 * 2000);
    }
}

/// Many small tensors are few reads: here one, of all that lies together.
#[test]
fn small_tensors_are_read_together() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let dir = folder();
    let matrices: Vec<Matrix> = NAMES.iter().zip(0..).map(|(n, i)| Matrix::new(n, &[7, 11 + i], i)).collect();
    let path = file(dir.path(), "model.safetensors", &matrices);
    let checkpoint = open(&path, checkpoint::Io::Pread);
    let plan = as_stored(&checkpoint);
    let reads = std::sync::Mutex::new(vec![]);
    let observe = |_, at: u64, bytes: &[u8]| reads.lock().unwrap().push((at, bytes.len()));
    let options = Options { observe: Some(&observe), ..Options::default() };
    let loaded = plan.load_with(&mut Pool::new(2), options).unwrap();
    for m in &matrices {
        assert_eq!(halves(loaded.get(m.name).unwrap().bytes()), m.values(), "{}", m.name);
    }
    let all: u64 = matrices.iter().map(|m| m.shape.iter().product::<u64>() * 2).sum();
    let reads = reads.into_inner().unwrap();
    assert_eq!(reads.len(), 1, "{reads:?}");
    assert_eq!(reads[0].1 as u64, all);
}

/// Borrowed bytes are shown too, if the caller observes.
#[test]
fn borrowed_bytes_are_seen() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("big", &[3000, 1000], 1)]);
    let checkpoint = open(&path, checkpoint::Io::Mmap);
    let plan = as_stored(&checkpoint);
    let seen = std::sync::atomic::AtomicU64::new(0);
    let observe = |_, _, bytes: &[u8]| {
        seen.fetch_add(bytes.len() as u64, std::sync::atomic::Ordering::Relaxed);
    };
    for (observe, wanted) in [(None, 0), (Some(&observe as &load::Observe<'_>), 6_000_000)] {
        let options = Options { observe, ..Options::default() };
        let loaded = plan.load_with(&mut Pool::new(2), options).unwrap();
        assert_eq!((loaded.report().bytes_borrowed, loaded.report().bytes_read), (6_000_000, wanted));
        assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), wanted);
    }
}
