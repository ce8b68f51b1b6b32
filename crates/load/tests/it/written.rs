//! Sinks that lend no memory: each byte is written once, and is what a load into memory gives.

use std::collections::HashMap;
use std::error::Error as Any;
use std::sync::{Arc, Mutex};

use checkpoint::{ByteSource, Checkpoint, Io};
use load::{Destination, Error, LoadReport, Options, Place, Plan, Pool, Sink};
use tensor::{Dtype, Expr, FileId, PlaneData, Scheme, Target, TensorEntry};
use testkit::Rng;

use crate::chains::floats;
use crate::needs::{Memory, all_ways, matrices};
use crate::{ALL, Matrix, bytes_of, file, folder, open, plan_of};

/// Record of one parameter's writes: its planes, and the number of times that each byte came.
#[derive(Default)]
struct Written {
    planes: Vec<(Vec<u8>, Vec<u8>)>,
    done: usize,
}

/// Keeps what it is told.
#[derive(Default)]
struct Recorder {
    params: Mutex<HashMap<String, Written>>,
    finished: usize,
    longest: Mutex<usize>,
    /// Parameters whose memory it lends.
    lends: Vec<String>,
    /// Fails at this parameter.
    broken: Option<&'static str>,
    unfinished: bool,
}

impl Sink<'static> for Recorder {
    fn place(&mut self, param: &Place<'_>) -> Result<Destination<'static>, Box<dyn Any + Send + Sync>> {
        let planes = param.planes.iter().map(|n| (vec![0xa5; *n], vec![0; *n])).collect();
        let before =
            self.params.get_mut().unwrap().insert(param.name.to_owned(), Written { planes, done: 0 });
        assert!(before.is_none(), "{} is placed twice", param.name);
        if self.lends.iter().any(|name| name == param.name) {
            let lent = param.planes.iter().map(|n| &mut *vec![0; *n].leak()).collect();
            return Ok(Destination::Memory(lent));
        }
        Ok(Destination::Write)
    }

    fn write(
        &self,
        param: &Place<'_>,
        plane: usize,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Box<dyn Any + Send + Sync>> {
        if self.broken == Some(param.name) {
            return Err("the cable is out".into());
        }
        let mut params = self.params.lock().unwrap();
        let written = params.get_mut(param.name).unwrap();
        assert_eq!(written.done, 0, "{} is written to after it was done", param.name);
        let (there, times) = &mut written.planes[plane];
        let at = usize::try_from(at)?;
        there[at..at + bytes.len()].copy_from_slice(bytes);
        times[at..at + bytes.len()].iter_mut().for_each(|n| *n += 1);
        let mut longest = self.longest.lock().unwrap();
        *longest = bytes.len().max(*longest);
        Ok(())
    }

    fn done(&self, param: &Place<'_>) {
        self.params.lock().unwrap().get_mut(param.name).unwrap().done += 1;
    }

    fn finish(&mut self) -> Result<(), Box<dyn Any + Send + Sync>> {
        self.finished += 1;
        if self.unfinished { Err("the disk is full".into()) } else { Ok(()) }
    }
}

fn write(plan: &Plan, threads: usize, options: Options<'_>) -> Result<(Recorder, LoadReport), Error> {
    let mut sink = Recorder::default();
    let report = plan.load_into(&mut sink, &mut Pool::new(threads), options)?;
    Ok((sink, report))
}

/// Writes `plan` in many ways, and holds each against a load into memory.
fn same(plan: &Plan, what: &str) {
    let base = Options { allow_overflow: true, ..Options::default() };
    let wanted = bytes_of(&plan.load_with(&mut Pool::new(2), Options { owned: true, ..base }).unwrap());
    let Err(Error::LittleMemory { least, .. }) = write(plan, 2, Options { memory: Some(1), ..base }) else {
        panic!("{what}: one byte is enough")
    };
    for threads in [1, 3] {
        let little = write(plan, threads, Options { memory: Some(least - 1), ..base });
        match little {
            Err(Error::LittleMemory { least: found, .. }) => {
                assert_eq!(found, least, "{what}, {threads} threads");
            }
            Err(other) => panic!("{what}: {other}"),
            Ok(_) => panic!("{what}, {threads} threads: {} bytes are enough", least - 1),
        }
        for memory in [None, Some(least), Some(least + (least >> 2)), Some(1 << 26)] {
            let what = format!("{what}, {threads} threads, {memory:?}");
            let (sink, report) = write(plan, threads, Options { memory, ..base }).unwrap();
            assert_eq!(sink.finished, 1, "{what}");
            let foreseen = plan.needs_written(Options { memory, ..base }, threads).unwrap();
            assert_eq!(
                (foreseen.scratch, foreseen.least_scratch),
                (report.scratch_predicted, least),
                "{what}"
            );
            assert_eq!(
                (foreseen.owned, foreseen.borrowed, foreseen.read),
                (0, 0, report.bytes_read),
                "{what}"
            );
            assert!(report.scratch_peak <= report.scratch_predicted, "{what}: {report:?}");
            assert!(memory.is_none_or(|m| report.scratch_predicted <= m), "{what}: {report:?}");
            assert!(*sink.longest.lock().unwrap() as u64 <= report.scratch_predicted, "{what}");
            let params = sink.params.into_inner().unwrap();
            let roots = plan.params().iter().filter(|p| p.tied_to.is_none()).count();
            assert_eq!(params.len(), roots, "{what}");
            for (name, Written { planes, done }) in params {
                assert_eq!(done, 1, "{what}: {name}");
                assert!(planes.iter().all(|(_, times)| times.iter().all(|n| *n == 1)), "{what}: {name}");
                let found: Vec<u8> = planes.into_iter().flat_map(|(bytes, _)| bytes).collect();
                assert!(found == wanted[&name], "{what}: {name}");
            }
        }
    }
}

#[test]
fn every_byte_is_written_once_and_is_what_memory_gets() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &matrices());
    for io in ALL {
        same(&all_ways(&open(&path, io)), &format!("{io:?}"));
    }
}

/// `fused` is made of what two entries are decoded to.
fn fused() -> Plan {
    let of = |name: &str, dtype: Dtype, shape: [u64; 2]| {
        let scheme = Scheme::plain(dtype);
        let bytes = scheme.byte_len(&shape.into()).unwrap();
        let planes = vec![PlaneData { file: FileId(0), bytes: 0..bytes }];
        let entry = TensorEntry { name: name.into(), shape: shape.into(), scheme, planes, strides: None };
        let mut rng = Rng(bytes);
        // Sound in either dtype: an exponent of 0x3f.
        let values = (0..bytes).map(|i| if i % 2 == 1 { 0x3f } else { (rng.next() & 0xff) as u8 });
        let source: Arc<dyn ByteSource> = Arc::new(Memory(values.collect()));
        (entry, source)
    };
    let entries =
        [of("a", Dtype::BF16, [700, 500]), of("b", Dtype::F32, [300, 500]), of("none", Dtype::F32, [0, 5])];
    let checkpoint = Checkpoint::in_memory(entries.into());
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    let both = Expr::concat(0, vec![Expr::source("a"), Expr::source("b")]);
    let target = |name: &str, expr, scheme| Target { name: name.to_owned(), expr, scheme };
    let targets = [
        target("a", Expr::source("a"), None),
        target("fused", both, Some(Scheme::plain(Dtype::F16))),
        target("none", Expr::source("none"), None),
    ];
    crate::compile(&checkpoint, &resolved, &targets)
}

#[test]
fn what_is_decoded_first_is_written_once_too() {
    let plan = fused();
    assert!(!plan.params()[1].staged.is_empty());
    same(&plan, "fused");
}

/// Each plane of a scheme gets its own bytes.
#[test]
fn planes_are_told_apart() {
    let dir = folder();
    let (path, _) = floats(dir.path(), 640, 512);
    let checkpoint = open(&path, Io::Pread);
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    for name in ["mlx-affine:b4,g64,bf16", "q4_k", "q8_0"] {
        let Some(codec) = quant::codec(name) else { panic!("no scheme is called {name}") };
        let scheme = codec.scheme();
        let target = Target { name: "w".into(), expr: Expr::source("w"), scheme: Some(scheme) };
        same(&crate::compile(&checkpoint, &resolved, &[target]), name);
    }
}

#[test]
fn some_parameters_are_lent_memory_and_others_are_written() {
    let plan = fused();
    let mut sink = Recorder { lends: vec!["a".to_owned()], ..Recorder::default() };
    plan.load_into(&mut sink, &mut Pool::new(2), Options::default()).unwrap();
    let params = sink.params.into_inner().unwrap();
    let times = |name: &str| params[name].planes[0].1.iter().map(|n| usize::from(*n)).sum::<usize>();
    assert_eq!((times("a"), times("fused")), (0, 1_000_000));
    assert!(params.values().all(|p| p.done == 1));
}

#[test]
fn a_sink_that_fails_ends_the_load_by_name_and_is_not_finished() {
    let plan = fused();
    for broken in ["a", "fused"] {
        let mut sink = Recorder { broken: Some(broken), ..Recorder::default() };
        let failed = plan.load_into(&mut sink, &mut Pool::new(2), Options::default()).unwrap_err();
        assert_eq!(failed.to_string(), format!("could not write `{broken}`: the cable is out"));
        assert_eq!(sink.finished, 0);
    }
    let mut sink = Recorder { unfinished: true, ..Recorder::default() };
    let failed = plan.load_into(&mut sink, &mut Pool::new(2), Options::default()).unwrap_err();
    assert_eq!(failed.to_string(), "could not finish what was written: the disk is full");
}

#[test]
fn a_file_that_changes_meanwhile_is_not_finished() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("a", &[3000, 500], 1)]);
    let plan = plan_of(&open(&path, Io::Pread), &[("a", Expr::source("a"))]);
    let touch = |_| {
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(3_000_200).unwrap();
        std::ops::ControlFlow::Continue(())
    };
    let mut sink = Recorder::default();
    let options = Options { watch: Some(&touch), ..Options::default() };
    let failed = plan.load_into(&mut sink, &mut Pool::new(1), options).unwrap_err();
    assert!(matches!(failed, Error::Changed(_)), "{failed}");
    assert_eq!(sink.finished, 0);
}
