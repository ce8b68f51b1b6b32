//! The predicted needs of a load match the actual ones.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use checkpoint::{ByteSource, Checkpoint, Pace};
use load::Plan;
use load::{Error, LoadReport, Needs, Options, Pool};
use tensor::{Dtype, Expr, FileId, PlaneData, Scheme, Target, TensorEntry};

use crate::{ALL, Matrix, file, folder, open, plan_of};

/// A source that counts how it is read.
#[derive(Debug)]
struct Counted {
    source: Arc<dyn ByteSource>,
    reads: AtomicUsize,
    bytes: AtomicU64,
}

impl ByteSource for Counted {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.source.read_at(offset, buf)
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.source.mapped()
    }

    fn kind(&self) -> &'static str {
        "counted"
    }

    fn pace(&self) -> Pace {
        self.source.pace()
    }
}

/// `plan`, made for `checkpoint`, and each entry in a source of its own that counts.
fn counted(checkpoint: &Checkpoint) -> (Checkpoint, Vec<Arc<Counted>>) {
    let sources = checkpoint.entries().iter().map(|entry| {
        let source = Arc::clone(&checkpoint.file(entry.planes[0].file).source);
        let counted = Counted { source, reads: AtomicUsize::new(0), bytes: AtomicU64::new(0) };
        (entry.clone(), Arc::new(counted))
    });
    let sources: Vec<_> = sources.collect();
    let all = sources.iter().map(|(entry, source)| {
        let source: Arc<dyn ByteSource> = Arc::<Counted>::clone(source);
        (entry.clone(), source)
    });
    (Checkpoint::in_memory(all.collect()), sources.into_iter().map(|(_, source)| source).collect())
}

fn agree(needs: &Needs, report: &LoadReport, what: &str) {
    assert_eq!(needs.threads, report.threads, "{what}");
    assert_eq!(needs.owned, report.owned_bytes, "{what}");
    assert_eq!(needs.borrowed, report.bytes_borrowed, "{what}");
    assert_eq!(needs.copied, report.bytes_copied, "{what}");
    assert_eq!(needs.encoded, report.bytes_encoded, "{what}");
    assert_eq!(needs.read, report.bytes_read, "{what}");
    assert_eq!(needs.scratch, report.scratch_predicted, "{what}");
    assert!(report.scratch_peak <= needs.scratch, "{what}: {report:?}");
    // A single thread holds at some time what the neediest piece of work takes.
    if needs.threads == 1 {
        assert_eq!(report.scratch_peak, needs.scratch, "{what}");
    }
}

/// Everything that is done in another way: borrowed, straight, in windows, out of the map, together, in bands, whole.
pub(crate) fn all_ways(checkpoint: &Checkpoint) -> Plan {
    let s = Expr::source;
    let plain = [
        ("as it is", s("tall")),
        ("row-parallel share", s("wide").slice(1, 2500..5000)),
        ("narrow share", s("tall").slice(1, 350..354)),
        ("transposed", s("tall").transpose()),
        ("transposed share", s("wide").transpose().slice(0, 100..4000)),
        ("far runs", s("far").slice(1, 100..200)),
        ("a", s("a")),
        ("b", s("b")),
        ("c", s("c")),
        ("padded", Expr::concat(0, vec![s("a"), Expr::Zero([3, 50].into())])),
    ];
    let changed = [
        ("in bands", s("wide"), Dtype::F32),
        ("share in bands", s("wide").slice(1, 0..1000), Dtype::F32),
        ("whole", s("middle").transpose(), Dtype::F32),
        ("rounded", s("tall"), Dtype::F16),
    ];
    let target = |name: &str, expr: Expr, scheme| Target { name: name.to_owned(), expr, scheme };
    let mut targets: Vec<Target> = plain.into_iter().map(|(n, e)| target(n, e, None)).collect();
    targets.extend(changed.into_iter().map(|(n, e, dtype)| target(n, e, Some(Scheme::plain(dtype)))));
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    crate::compile(checkpoint, &resolved, &targets)
}

pub(crate) fn matrices() -> Vec<Matrix> {
    vec![
        Matrix::new("tall", &[3000, 500], 1),
        Matrix::new("wide", &[500, 5000], 2),
        Matrix::new("far", &[20, 40_000], 3),
        Matrix::new("middle", &[300, 200], 7),
        Matrix::new("a", &[40, 50], 4),
        Matrix::new("b", &[7, 50], 5),
        Matrix::new("c", &[1, 11], 6),
    ]
}

#[test]
fn a_load_takes_what_was_foreseen() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &matrices());
    for io in ALL {
        let (checkpoint, sources) = counted(&open(&path, io));
        let plan = all_ways(&checkpoint);
        let least = plan.needs(Options::default(), 2).unwrap().least_scratch;
        for threads in [1, 2, 3] {
            for memory in [None, Some(least), Some(least + (least >> 2)), Some(1 << 26)] {
                for owned in [false, true] {
                    let what = format!("{io:?}, {threads} threads, {memory:?}, owned {owned}");
                    let options = Options { memory, owned, allow_overflow: true, ..Options::default() };
                    let foreseen = plan.needs(options, threads).unwrap();
                    for source in &sources {
                        source.reads.store(0, Ordering::Relaxed);
                        source.bytes.store(0, Ordering::Relaxed);
                    }
                    let loaded = plan.load_with(&mut Pool::new(threads), options).unwrap();
                    agree(&foreseen, loaded.report(), &what);
                    let reads: usize = sources.iter().map(|s| s.reads.load(Ordering::Relaxed)).sum();
                    let bytes: u64 = sources.iter().map(|s| s.bytes.load(Ordering::Relaxed)).sum();
                    assert_eq!(foreseen.reads.count, reads, "{what}");
                    assert_eq!(foreseen.read - foreseen.lent, bytes, "{what}");
                    let sizes = &foreseen.reads;
                    assert!(sizes.smallest <= sizes.median && sizes.median <= sizes.largest, "{what}");
                    assert!(sizes.largest <= Pace::LOCAL.longest, "{what}");
                    let mapped = matches!(io, checkpoint::Io::Mmap | checkpoint::Io::CopyOnWrite);
                    assert_eq!((foreseen.lent > 0, foreseen.borrowed > 0), (mapped, mapped && !owned));
                }
            }
        }
    }
}

/// With as much work as threads, they hold the most at once, or nearly.
#[test]
fn buffers_are_foreseen_closely() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &[Matrix::new("m", &[4096, 4096], 1)]);
    let checkpoint = open(&path, checkpoint::Io::Pread);
    let plan = plan_of(&checkpoint, &[("share", Expr::source("m").slice(1, 0..2048))]);
    for threads in [1, 2, 4] {
        let foreseen = plan.needs(Options::default(), threads).unwrap();
        // The first to come may be done before the last begins, on a busy machine mostly: the most of several loads counts.
        let mut peak = 0;
        for _ in 0..400 {
            let loaded = plan.load_with(&mut Pool::new(threads), Options::default()).unwrap();
            peak = peak.max(loaded.report().scratch_peak);
            assert!(peak <= foreseen.scratch, "{peak} of {foreseen:?}");
            if foreseen.scratch <= peak + peak / 3 {
                break;
            }
        }
        assert!(foreseen.scratch <= peak + peak / 3, "{peak} of {foreseen:?}");
    }
}

#[test]
fn the_least_is_what_the_load_asks_for() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &matrices());
    for io in ALL {
        let checkpoint = open(&path, io);
        let plan = all_ways(&checkpoint);
        for threads in [1, 2] {
            let foreseen = plan.needs(Options::default(), threads).unwrap();
            for memory in [1, foreseen.least_scratch - 1] {
                let options = Options { memory: Some(memory), ..Options::default() };
                let refused = plan.load_with(&mut Pool::new(threads), options);
                let Err(Error::LittleMemory { param, least, memory: said, .. }) = refused else {
                    panic!("{io:?}: {memory} bytes are enough");
                };
                assert_eq!(
                    (said, least, Some(param)),
                    (memory, foreseen.least_scratch, foreseen.neediest.clone())
                );
            }
            let memory = Some(foreseen.least_scratch);
            let enough = Options { memory, allow_overflow: true, ..Options::default() };
            plan.load_with(&mut Pool::new(threads), enough).unwrap();
        }
    }
}

/// A caller that observes sees all bytes: none are taken from the map unseen.
#[test]
fn what_is_observed_is_foreseen_too() {
    let dir = folder();
    let path = file(dir.path(), "model.safetensors", &matrices());
    let checkpoint = open(&path, checkpoint::Io::Mmap);
    let plan = all_ways(&checkpoint);
    let seen = AtomicU64::new(0);
    let observe = |_, _, bytes: &[u8]| {
        seen.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    };
    let options = Options { observe: Some(&observe), allow_overflow: true, ..Options::default() };
    let foreseen = plan.needs(options, 2).unwrap();
    let loaded = plan.load_with(&mut Pool::new(2), options).unwrap();
    agree(&foreseen, loaded.report(), "observed");
    assert_eq!((foreseen.lent, foreseen.read), (0, seen.into_inner()));
}

/// Bytes in memory, as a file.
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl ByteSource for Memory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        buf.copy_from_slice(&self.0[start..start + buf.len()]);
        Ok(())
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "memory"
    }
}

/// Parts of two encodings are decoded whole before they are moved, and that counts.
#[test]
fn what_is_decoded_first_is_foreseen_and_fits() {
    let of = |name: &str, dtype: Dtype, shape: [u64; 2]| {
        let scheme = Scheme::plain(dtype);
        let bytes = scheme.byte_len(&shape.into()).unwrap();
        let planes = vec![PlaneData { file: FileId(0), bytes: 0..bytes }];
        let entry = TensorEntry { name: name.into(), shape: shape.into(), scheme, planes, strides: None };
        let source: Arc<dyn ByteSource> = Arc::new(Memory(vec![0; usize::try_from(bytes).unwrap()]));
        (entry, source)
    };
    let [a, b] = [of("a", Dtype::BF16, [700, 1000]), of("b", Dtype::F32, [300, 1000])];
    let checkpoint = Checkpoint::in_memory(vec![a, b]);
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    let expr = Expr::concat(0, vec![Expr::source("a"), Expr::source("b")]);
    let targets = [
        Target { name: "first".into(), expr: Expr::source("a"), scheme: None },
        Target { name: "fused".into(), expr, scheme: Some(Scheme::plain(Dtype::F16)) },
    ];
    let plan = crate::compile(&checkpoint, &resolved, &targets);
    assert!(!plan.params()[1].staged.is_empty());
    for threads in [1, 2] {
        let foreseen = plan.needs(Options::default(), threads).unwrap();
        assert_eq!((foreseen.decoded, foreseen.neediest.as_deref()), (4_000_000, Some("fused")));
        for memory in [None, Some(foreseen.least_scratch), Some(foreseen.least_scratch + 100_000)] {
            let options = Options { memory, ..Options::default() };
            let foreseen = plan.needs(options, threads).unwrap();
            let loaded = plan.load_with(&mut Pool::new(threads), options).unwrap();
            agree(&foreseen, loaded.report(), &format!("{threads} threads, {memory:?}"));
            assert!(memory.is_none_or(|m| loaded.report().scratch_peak <= m));
        }
        // It is refused before anything is read.
        let done = AtomicU64::new(0);
        let watch = |p: load::Progress| {
            done.fetch_max(p.done, Ordering::Relaxed);
            std::ops::ControlFlow::Continue(())
        };
        for memory in [1000, foreseen.least_scratch - 1] {
            let options = Options { memory: Some(memory), watch: Some(&watch), ..Options::default() };
            let refused = plan.load_with(&mut Pool::new(threads), options);
            let Err(Error::LittleMemory { param, least, .. }) = refused else { panic!("refused") };
            assert_eq!((param.as_str(), least), ("fused", foreseen.least_scratch));
            assert_eq!(done.load(Ordering::Relaxed), 0);
        }
    }
}
