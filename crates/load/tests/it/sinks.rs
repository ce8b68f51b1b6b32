//! Memory of the caller's.

use std::collections::BTreeMap;
use std::error::Error as Any;
use std::sync::Mutex;

use checkpoint::Io;
use load::{Destination, Error, Options, Place, Pool, Sink};
use tensor::Expr;

use crate::{Matrix, as_stored, file, folder, halves, open, plan_of};

/// One vector for each plane of each parameter, made before.
struct Vectors<'m> {
    memory: BTreeMap<String, std::slice::IterMut<'m, Vec<u8>>>,
    done: Mutex<Vec<String>>,
}

impl<'m> Sink<'m> for Vectors<'m> {
    fn place(&mut self, param: &Place<'_>) -> Result<Destination<'m>, Box<dyn Any + Send + Sync>> {
        let planes = self.memory.get_mut(param.name).ok_or("nobody knows it")?;
        Ok(Destination::Memory(planes.map(Vec::as_mut_slice).collect()))
    }

    fn done(&self, param: &Place<'_>) {
        self.done.lock().unwrap().push(param.name.to_owned());
    }
}

#[test]
fn a_sink_gets_every_byte_and_one_word_for_each_parameter() {
    let dir = folder();
    let matrices =
        [Matrix::new("a", &[3000, 1000], 1), Matrix::new("b", &[3, 5], 2), Matrix::new("none", &[0, 5], 3)];
    let path = file(dir.path(), "model.safetensors", &matrices);
    for io in crate::ALL {
        let checkpoint = open(&path, io);
        let plan = as_stored(&checkpoint);
        // Whatever was there before.
        let mut memory: BTreeMap<String, Vec<Vec<u8>>> = plan
            .params()
            .iter()
            .map(|p| (p.name.clone(), vec![vec![0xa5; usize::try_from(p.slot_bytes()).unwrap()]]))
            .collect();
        let mut sink = Vectors {
            memory: memory.iter_mut().map(|(n, v)| (n.clone(), v.iter_mut())).collect(),
            done: Mutex::default(),
        };
        let report = plan.load_into(&mut sink, &mut Pool::new(3), Options::default()).unwrap();
        let mut done = sink.done.into_inner().unwrap();
        done.sort();
        assert_eq!(done, ["a", "b", "none"], "{io:?}");
        assert_eq!((report.bytes_copied, report.bytes_borrowed), (6_000_030, 0));
        for m in &matrices {
            assert!(halves(&memory[m.name][0]) == m.values(), "{} {io:?}", m.name);
        }
    }
}

#[test]
fn memory_that_does_not_fit_is_refused_by_name() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("a", &[30, 10], 1)]);
    let checkpoint = open(&path, Io::Pread);
    let plan = as_stored(&checkpoint);
    let load = |memory: Vec<u8>, name: &str| {
        let mut planes = [memory];
        let memory = BTreeMap::from([(name.to_owned(), planes.iter_mut())]);
        let mut sink = Vectors { memory, done: Mutex::default() };
        let failed = plan.load_into(&mut sink, &mut Pool::new(1), Options::default());
        failed.map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(load(vec![0; 600], "a"), Ok(()));
    assert_eq!(
        load(vec![0; 599], "a"),
        Err("no memory for `a`: wanted planes of [600] bytes, found [599]".to_owned())
    );
    assert_eq!(load(vec![0; 600], "b"), Err("no memory for `a`: nobody knows it".to_owned()));
}

#[test]
fn addresses_are_known_before_anything_is_read_and_do_not_move() {
    let dir = folder();
    let path = file(
        dir.path(),
        "model.safetensors",
        &[Matrix::new("a", &[300, 10], 1), Matrix::new("b", &[30, 10], 2)],
    );
    for owned in [false, true] {
        let checkpoint = open(&path, Io::Mmap);
        let wanted = [("a", Expr::source("a")), ("t", Expr::source("b").transpose())];
        let plan = plan_of(&checkpoint, &wanted);
        let allocated = plan.allocate(Options { owned, ..Options::default() }).unwrap();
        let before = ["a", "t"].map(|n| allocated.addresses(n).unwrap());
        assert_eq!(allocated.addresses("b"), None);
        let loaded = allocated.fill(&mut Pool::new(2)).unwrap();
        let after = ["a", "t"].map(|n| vec![loaded.get(n).unwrap().bytes().as_ptr().addr()]);
        assert_eq!(before, after);
        assert_eq!(loaded.get("a").unwrap().slots()[0].is_borrowed(), !owned);
    }
}

/// Has nothing to give.
struct Full;

impl<'m> Sink<'m> for Full {
    fn place(&mut self, _: &Place<'_>) -> Result<Destination<'m>, Box<dyn Any + Send + Sync>> {
        Err("the device is full".into())
    }
}

#[test]
fn errors_end_a_load_and_say_which_it_was() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("a", &[30, 10], 1)]);
    let checkpoint = open(&path, Io::Pread);
    let plan = as_stored(&checkpoint);
    match plan.load_into(&mut Full, &mut Pool::new(1), Options::default()) {
        Err(Error::Sink { param, why }) => assert_eq!((&*param, &*why), ("a", "the device is full")),
        _ => panic!("refused"),
    }
}
