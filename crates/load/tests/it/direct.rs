//! Bytes that are read past the page cache go to where their blocks of the file can go, whatever their neighbours.

use std::sync::Arc;

use checkpoint::{ByteSource, Checkpoint, Io};
use load::{Options, Pool};
use tensor::{Dtype, FileId, PlaneData, Scheme, TensorEntry};

use crate::updates::{addresses, tied};
use crate::{Matrix, as_stored, bytes_of, file, folder, halves, open};

/// An entry of this length or more is not read together with others.
const LONG: usize = 64 << 10;

/// Long and short in turn, of lengths that no block divides; the first of more than two huge pages.
fn matrices(seed: u64) -> Vec<Matrix> {
    vec![
        Matrix::new("huge", &[1500, 1501], seed),
        Matrix::new("tiny", &[7], seed + 1),
        Matrix::new("long", &[700, 333], seed + 2),
        Matrix::new("small", &[100, 101], seed + 3),
        Matrix::new("none", &[0, 3], seed + 4),
        Matrix::new("odd", &[90_001], seed + 5),
        Matrix::new("last", &[40_009], seed + 6),
    ]
}

fn options(memory: Option<u64>) -> Options<'static> {
    Options { owned: true, memory, ..Options::default() }
}

/// Of the file of an entry, what addresses and offsets have in common.
fn block(checkpoint: &Checkpoint) -> usize {
    let block = checkpoint.file(FileId(0)).source.pace().block;
    usize::try_from(block).unwrap()
}

#[test]
fn planes_lie_as_their_blocks_do() {
    let dir = folder();
    let all = matrices(1);
    let checkpoint = open(&file(dir.path(), "model.safetensors", &all), Io::Direct);
    let block = block(&checkpoint);
    for threads in [1, 3] {
        let loaded = as_stored(&checkpoint).load_with(&mut Pool::new(threads), options(None)).unwrap();
        for m in &all {
            let bytes = loaded.get(m.name).unwrap().bytes();
            assert!(halves(bytes) == m.values(), "{}", m.name);
            let entry = checkpoint.entries().iter().find(|e| e.name == m.name).unwrap();
            let (at, address) = (entry.planes[0].bytes.start as usize, bytes.as_ptr().addr());
            if bytes.len() > LONG && block > 1 {
                assert_eq!(address % block, at % block, "{}", m.name);
            } else {
                assert_eq!(address % 64, 0, "{}", m.name);
            }
        }
    }
}

/// Where that would be no address of such an element, it is put where it can be used.
#[test]
fn elements_are_aligned_first() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("m", &[6 * LONG as u64], 3)]);
    let source: Arc<dyn ByteSource> = Arc::clone(&open(&path, Io::Direct).file(FileId(0)).source);
    let whole = std::fs::read(&path).unwrap();
    for start in [513, 514, 516, 1024] {
        let len = 2 * LONG;
        let entry = TensorEntry {
            name: "m".into(),
            shape: [len as u64 / 4].into(),
            scheme: Scheme::plain(Dtype::F32),
            planes: vec![PlaneData { file: FileId(0), bytes: start as u64..(start + len) as u64 }],
            strides: None,
        };
        let checkpoint = Checkpoint::in_memory(vec![(entry, Arc::clone(&source))]);
        let loaded = as_stored(&checkpoint).load_with(&mut Pool::new(2), options(None)).unwrap();
        let bytes = loaded.get("m").unwrap().bytes();
        assert!(bytes == &whole[start..start + len], "from {start} on");
        assert_eq!(bytes.as_ptr().addr() % 4, 0, "from {start} on");
    }
}

#[test]
fn updates_go_to_the_same_places() {
    let dir = folder();
    let old = open(&file(dir.path(), "old.safetensors", &matrices(1)), Io::Direct);
    // Elsewhere in their blocks, since a name is longer; and as they were.
    let mut moved = matrices(50);
    moved.insert(0, Matrix::new("a name that is longer than others, by some", &[13], 9));
    let moved = open(&file(dir.path(), "moved.safetensors", &moved), Io::Direct);
    let same = open(&file(dir.path(), "same.safetensors", &matrices(90)), Io::Direct);
    let mut pool = Pool::new(2);
    for new in [&same, &moved] {
        let plan = as_stored(new).retain(|p| !p.name.starts_with("a name"));
        // Staged, and straight to its place.
        for memory in [None, Some(4 << 20)] {
            let mut model = as_stored(&old).load_with(&mut pool, options(None)).unwrap();
            let before = addresses(&model);
            model.update(&plan, &[], &mut pool, options(memory)).unwrap();
            assert_eq!(addresses(&model), before, "{memory:?}");
            let fresh = plan.load_with(&mut pool, options(None)).unwrap();
            assert!(bytes_of(&model) == bytes_of(&fresh), "{memory:?}");
        }
    }
}

#[test]
fn who_is_tied_has_no_place_of_its_own() {
    let dir = folder();
    let matrix = Matrix::new("a", &[300, 401], 1);
    let values = matrix.values();
    let checkpoint = open(&file(dir.path(), "model.safetensors", &[matrix]), Io::Direct);
    let loaded = tied(&checkpoint, true).load_with(&mut Pool::new(2), options(None)).unwrap();
    let at = addresses(&loaded);
    assert_eq!(at["a"], at["b"]);
    assert!(halves(loaded.get("b").unwrap().bytes()) == values);
}
