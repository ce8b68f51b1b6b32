//! Runs a plan into memory that a sink gives.
//!
//! Parameters are cut into items (some rows or bytes of one parameter each), which go in the order of the files, and
//! which threads take in turn: read the pieces of those rows, change them if the plan says so, and write the slot
//! once. Buffers are admitted, so that they never take more than the caller allows.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use checkpoint::Checkpoint;
use plan::{LoadPlan, PlannedParam};
use quant::{Difference, Matrix};

use crate::io::read::{Own, Reader};
use crate::memory::ledger::{Buffers, Ledger};
use crate::memory::pages::Pages;
use crate::memory::region::{Region, Slice};
use crate::memory::resident::peak_rss;
use crate::memory::sink::{Destination, Place, Sink};
use crate::options::Options;
use crate::schedule::cut::Cut;
use crate::schedule::home::{Home, alignment, homes, lent, planes_of};
use crate::schedule::item::{Item, Work, near, span};
use crate::schedule::sources::{files_of, threads, unchanged};
use crate::sizes::size;
use crate::{Error, LoadReport, Pool};

/// Runs `plan`, which was compiled against `checkpoint`'s entries, into the memory that `sink` gives: see
/// [`Plan::load_into`](crate::Plan::load_into).
pub(crate) fn execute_into(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    sink: &mut dyn Sink<'_>,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<LoadReport, Error> {
    let homes = homes(plan, checkpoint, false)?;
    let started = Instant::now();
    let mut report = fill(plan, checkpoint, &homes, sink, None, pool, options)?;
    sink.finish().map_err(|why| Error::Unfinished { why: why.to_string() })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// A parameter that wants memory, and what of it is still to be done.
struct Placed<'a> {
    param: &'a PlannedParam,
    planes: Vec<usize>,
    /// Items that are not done.
    left: AtomicUsize,
}

impl Placed<'_> {
    fn place(&self, index: usize) -> Place<'_> {
        let PlannedParam { name, shape, scheme, .. } = self.param;
        Place { index, name, shape, scheme, planes: &self.planes, align: alignment(self.param) }
    }
}

/// The state of a run that all threads share.
struct Run<'a, 'o, 'm> {
    reader: Reader<'a, 'o>,
    fresh: Option<&'a Pages>,
    ledger: Ledger,
    sink: &'a dyn Sink<'m>,
    placed: &'a [Option<Placed<'a>>],
}

/// One thread's own.
#[derive(Default)]
struct Scratch<'a> {
    own: Own,
    bytes_copied: u64,
    bytes_encoded: u64,
    /// For each item that was encoded: its parameter's index and its place in the files.
    encoded: Vec<(usize, usize, &'a str, Difference)>,
}

/// Fills all homes that are not elsewhere. `fresh` makes the sink's memory ready if that was never used.
pub(crate) fn fill<'m>(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    homes: &[Home],
    sink: &mut dyn Sink<'m>,
    fresh: Option<&Pages>,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<LoadReport, Error> {
    let started = Instant::now();
    let files = files_of(plan, checkpoint)?;
    unchanged(checkpoint, &files)?;
    let threads = threads(checkpoint, pool.threads());
    let mut readers = (threads > pool.threads()).then(|| Pool::new(threads));
    let pool = readers.as_mut().unwrap_or(pool);
    let mut report = LoadReport { threads: pool.threads(), ..LoadReport::default() };
    let limit = options.memory.unwrap_or(u64::MAX);
    let (mut placed, mut spaces) = (Vec::with_capacity(homes.len()), Vec::with_capacity(homes.len()));
    for (index, (param, home)) in plan.params.iter().zip(homes).enumerate() {
        let Home::Own(_) = home else {
            placed.push(None);
            spaces.push(vec![]);
            continue;
        };
        let one = Placed { param, planes: planes_of(param)?, left: AtomicUsize::new(0) };
        spaces.push(given(sink, &one.place(index))?);
        report.owned_bytes += one.planes.iter().map(|n| *n as u64).sum::<u64>();
        placed.push(Some(one));
    }
    let sink: &dyn Sink<'m> = sink;
    let cut = Cut::new(plan, checkpoint, homes, spaces, options, pool.threads())?;
    if let Some((param, least)) = cut.neediest.filter(|(_, least)| *least > limit) {
        return Err(Error::LittleMemory { param: param.to_owned(), wanted: least, memory: limit, least });
    }
    report.scratch_predicted = cut.scratch;
    let Cut { mut works, later, parts, .. } = cut;
    for (index, (one, parts)) in placed.iter().zip(parts).enumerate() {
        let Some(one) = one else { continue };
        one.left.store(parts, Ordering::Relaxed);
        // A parameter without bytes is complete already.
        if parts == 0 {
            sink.done(&one.place(index));
        }
    }
    let reader = Reader {
        checkpoint,
        options,
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        total: report.owned_bytes,
    };
    let run = Run { reader, fresh, ledger: Ledger::new(limit), sink, placed: &placed };
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let mut scratch: Vec<Scratch<'_>> = (0..pool.threads()).map(|_| Scratch::default()).collect();
    pool.chunks(&mut scratch, &mut works, 1, |scratch, at, works| {
        for work in works {
            if run.reader.stop.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = run.work(at, work, scratch) {
                run.reader.stop.store(true, Ordering::Relaxed);
                // The first in the order of the work: those before it were all begun, and so come to an end.
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                let cancelled = |e: &Error| matches!(e, Error::Cancelled { .. });
                let first = failed
                    .as_ref()
                    .is_none_or(|(before, e)| (cancelled(e), *before) > (cancelled(&error), at));
                if first {
                    *failed = Some((at, error));
                }
            }
        }
    });
    drop(works);
    if let Some((_, error)) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    run.show_borrowed(plan, homes, pool, &mut report)?;
    report.bytes_borrowed = homes
        .iter()
        .filter_map(|home| if let Home::Borrowed(slots) = home { Some(slots) } else { None })
        .flatten()
        .map(|slot| slot.bytes().len() as u64)
        .sum();
    let mut encoded = vec![];
    for s in scratch {
        report.bytes_read += s.own.bytes_read;
        report.bytes_copied += s.bytes_copied;
        report.bytes_encoded += s.bytes_encoded;
        encoded.extend(s.encoded);
    }
    // Sums of floats depend on their order.
    encoded.sort_by_key(|(param, at, ..)| (*param, *at));
    for (_, _, name, difference) in encoded {
        let so_far = report.differences.entry(name.to_owned()).or_default();
        *so_far = so_far.and(difference);
    }
    report.scratch_peak = run.ledger.peak();
    for (one, _) in later {
        run.reader.pulse()?;
        let index = one.index;
        let Some(Some(there)) = placed.get(index) else { continue };
        let place = there.place(index);
        let bytes = one.targets.iter().map(|t| t.bytes() as u64).sum();
        one.run(checkpoint, sink, &place, pool, options, &mut report)?;
        run.reader.done.fetch_add(bytes, Ordering::Relaxed);
        sink.done(&place);
    }
    unchanged(checkpoint, &files)?;
    let overflowed = |d: &Difference| (d.overflowed > 0).then_some(d.overflowed);
    let mut params = plan.params.iter();
    if !options.allow_overflow
        && let Some((param, count)) =
            params.find_map(|p| Some((p, overflowed(report.differences.get(&p.name)?)?)))
    {
        let to = param.scheme.name.to_string();
        return Err(Error::Overflow { param: param.name.clone(), to, count });
    }
    report.params = plan.params.len();
    report.dropped = plan.dropped.len();
    report.memory_seconds = fresh.map_or(0.0, Pages::seconds);
    report.seconds = started.elapsed().as_secs_f64();
    report.peak_rss = peak_rss();
    Ok(report)
}

/// Where the planes of one parameter go: memory is as the plan wants it.
fn given<'m>(sink: &mut dyn Sink<'m>, want: &Place<'_>) -> Result<Vec<Slice<'m>>, Error> {
    let refuse = |why: String| Error::Sink { param: want.name.to_owned(), why };
    let planes = match sink.place(want).map_err(|e| refuse(e.to_string()))? {
        Destination::Memory(planes) => planes,
        Destination::Write => {
            let ranges = want.planes.iter().enumerate();
            return Ok(ranges.map(|(plane, len)| Slice::Written { plane, range: 0..*len }).collect());
        }
    };
    let found: Vec<usize> = planes.iter().map(|p| p.len()).collect();
    if found != want.planes {
        return Err(refuse(format!("wanted planes of {:?} bytes, found {found:?}", want.planes)));
    }
    match planes.iter().find(|p| !p.is_empty() && !p.as_ptr().addr().is_multiple_of(want.align)) {
        Some(plane) => Err(refuse(format!(
            "wanted an address that is a multiple of {}, found {:#x}",
            want.align,
            plane.as_ptr().addr()
        ))),
        None => Ok(planes.into_iter().map(Slice::Lent).collect()),
    }
}

/// Hands `bytes` to a sink that takes them by `write`.
pub(crate) fn write(
    sink: &dyn Sink<'_>,
    place: &Place<'_>,
    plane: usize,
    at: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    let written = sink.write(place, plane, at as u64, bytes);
    written.map_err(|why| Error::Write { param: place.name.to_owned(), why: why.to_string() })
}

impl Run<'_, '_, '_> {
    fn work<'i>(
        &self,
        at: usize,
        work: &mut Work<'i, Slice<'_>>,
        scratch: &mut Scratch<'i>,
    ) -> Result<(), Error> {
        let mut buffers = self.ledger.take(work.need);
        let done = self.items(at, &mut work.items, &mut buffers, scratch);
        self.ledger.give(buffers);
        done
    }

    fn items<'i>(
        &self,
        at: usize,
        mut items: &mut [Item<'i, Slice<'_>>],
        buffers: &mut Buffers,
        scratch: &mut Scratch<'i>,
    ) -> Result<(), Error> {
        while !items.is_empty() {
            let near = near(self.reader.checkpoint, items, buffers.read.room);
            let (now, rest) = std::mem::take(&mut items).split_at_mut(near.max(1));
            items = rest;
            if let Some(pages) = self.fresh {
                for target in now.iter_mut().flat_map(|item| &mut item.target) {
                    if let Slice::Lent(bytes) = target {
                        pages.ready(bytes);
                    }
                }
            }
            let bytes = now.iter().map(Item::bytes).sum();
            match &mut *now {
                [item] => self.item(at, item, buffers, scratch)?,
                several => self.several(several, buffers, scratch)?,
            }
            self.reader.done.fetch_add(bytes, Ordering::Relaxed);
            for item in now.iter() {
                self.complete(item);
            }
            self.reader.pulse()?;
        }
        Ok(())
    }

    /// One more item of its parameter is done.
    fn complete(&self, item: &Item<'_, Slice<'_>>) {
        let one = self.placed.get(item.index).and_then(Option::as_ref);
        if let Some(one) = one.filter(|one| one.left.fetch_sub(1, Ordering::AcqRel) == 1) {
            self.sink.done(&one.place(item.index));
        }
    }

    /// Hands bytes of the parameter at `index` to a sink that takes them by `write`.
    fn write(&self, index: usize, plane: usize, at: usize, bytes: &[u8]) -> Result<(), Error> {
        match self.placed.get(index) {
            Some(Some(one)) => write(self.sink, &one.place(index), plane, at, bytes),
            _ => Ok(()),
        }
    }

    /// Small items, in one read.
    fn several(
        &self,
        items: &mut [Item<'_, Slice<'_>>],
        buffers: &mut Buffers,
        scratch: &mut Scratch<'_>,
    ) -> Result<(), Error> {
        let Some((file, Range { start, end })) = span(items) else { return Ok(()) };
        let bytes = buffers.read.bytes(size(end - start));
        self.reader.read(file, start, bytes, &mut scratch.own)?;
        for item in items {
            let (Some((_, span)), [target]) = (&item.span, &mut item.target[..]) else { continue };
            let from = &bytes[size(span.start - start)..][..target.bytes()];
            match target {
                Slice::Lent(to) => to.copy_from_slice(from),
                Slice::Written { plane, range } => self.write(item.index, *plane, range.start, from)?,
            }
            scratch.bytes_copied += from.len() as u64;
        }
        Ok(())
    }

    fn item<'i>(
        &self,
        at: usize,
        item: &mut Item<'i, Slice<'_>>,
        buffers: &mut Buffers,
        scratch: &mut Scratch<'i>,
    ) -> Result<(), Error> {
        let waiting = item.target.iter().filter(|t| t.is_written()).map(Region::bytes).sum();
        let mut written = std::mem::take(&mut buffers.written);
        written.resize(written.len().max(waiting), 0);
        let mut rest = &mut written[..waiting];
        let mut slices = std::mem::take(&mut item.target);
        let mut targets: Vec<&mut [u8]> = Vec::with_capacity(slices.len());
        for slice in &mut slices {
            targets.push(match slice {
                Slice::Lent(bytes) => bytes,
                Slice::Written { range, .. } => rest.split_off_mut(..range.len()).unwrap_or_default(),
            });
        }
        self.make(at, item, &mut targets, buffers, scratch)?;
        let mut rest = &written[..waiting];
        for slice in &slices {
            if let Slice::Written { plane, range } = slice {
                let bytes = rest.split_off(..range.len()).unwrap_or_default();
                self.write(item.index, *plane, range.start, bytes)?;
            }
        }
        buffers.written = written;
        Ok(())
    }

    /// Reads what an item is made of, and makes it in `targets`.
    fn make<'i>(
        &self,
        at: usize,
        item: &Item<'i, Slice<'_>>,
        targets: &mut [&mut [u8]],
        buffers: &mut Buffers,
        scratch: &mut Scratch<'i>,
    ) -> Result<(), Error> {
        let param = &item.param.name;
        let Buffers { read, moved, values, .. } = buffers;
        let own = &mut scratch.own;
        let bytes: u64 = targets.iter().map(|t| t.len() as u64).sum();
        if item.change.is_none() {
            let ([(plane, range)], [target]) = (&item.moved[..], targets) else { return Ok(()) };
            scratch.bytes_copied += bytes;
            self.reader.fill(plane, range, target, read, own)?;
            return self.reader.agree(param, plane, range, target, read, own);
        }
        let total = item.moved.iter().map(|(_, r)| size(r.end - r.start)).sum::<usize>();
        moved.resize(total.max(moved.len()), 0);
        let mut rest = &mut moved[..total];
        let mut planes: Vec<&[u8]> = Vec::with_capacity(item.moved.len());
        for (plane, range) in &item.moved {
            let (part, after) = rest.split_at_mut(size(range.end - range.start));
            rest = after;
            self.reader.fill(plane, range, part, read, own)?;
            self.reader.agree(param, plane, range, part, read, own)?;
            planes.push(part);
        }
        let guide = item.guide(self.reader.options.guide.map(|of| of(param)).unwrap_or_default());
        let matrix = Matrix { planes: &planes, rows: item.rows, k: item.k };
        let changed = item.change.apply(matrix, item.place, guide, targets, values);
        let changed = changed.map_err(|why| why.of(param, &item.param.scheme))?;
        scratch.encoded.extend(changed.map(|d| (item.index, at, param.as_str(), d)));
        scratch.bytes_encoded += bytes;
        Ok(())
    }

    /// Shows borrowed bytes to the observer, as if they were read.
    fn show_borrowed(
        &self,
        plan: &LoadPlan,
        homes: &[Home],
        pool: &mut Pool,
        report: &mut LoadReport,
    ) -> Result<(), Error> {
        const STEP: u64 = 4 << 20;
        let Some(observe) = self.reader.options.observe else { return Ok(()) };
        let mut parts = vec![];
        for (param, home) in plan.params.iter().zip(homes) {
            let Home::Borrowed(_) = home else { continue };
            for (file, range) in param.planes.iter().filter_map(|p| lent(self.reader.checkpoint, p)) {
                let starts = range.clone().step_by(size(STEP));
                parts.extend(starts.map(|at| (file, at..(at + STEP).min(range.end))));
            }
        }
        let mut none = vec![(); pool.threads()];
        pool.chunks(&mut none, &mut parts, 1, |(), _, parts| {
            for (file, range) in parts {
                let mapped = self.reader.checkpoint.file(*file).source.mapped().unwrap_or_default();
                if let (Some(bytes), Ok(())) =
                    (mapped.get(size(range.start)..size(range.end)), self.reader.pulse())
                {
                    observe(*file, range.start, bytes);
                }
            }
        });
        self.reader.pulse()?;
        report.bytes_read += parts.iter().map(|(_, r)| r.end - r.start).sum::<u64>();
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io;
    use std::sync::Arc;

    use checkpoint::ByteSource;
    use tensor::{Dtype, FileId, PlaneData, Scheme, TensorEntry};

    use super::*;
    use crate::Allocated;

    #[derive(Debug)]
    struct Ones;

    impl ByteSource for Ones {
        fn len(&self) -> u64 {
            8
        }

        fn read_at(&self, _: u64, buf: &mut [u8]) -> io::Result<()> {
            buf.fill(1);
            Ok(())
        }

        fn mapped(&self) -> Option<&[u8]> {
            None
        }

        fn kind(&self) -> &'static str {
            "ones"
        }
    }

    fn checkpoint(names: &[&str]) -> Checkpoint {
        let entry = |name: &&str| TensorEntry {
            name: (*name).to_owned(),
            shape: [2].into(),
            scheme: Scheme::plain(Dtype::F32),
            planes: vec![PlaneData { file: FileId(0), bytes: 0..8 }],
            strides: None,
        };
        let source = || Arc::new(Ones) as Arc<dyn ByteSource>;
        Checkpoint::in_memory(names.iter().map(|name| (entry(name), source())).collect())
    }

    /// A missing entry is an error by name; it never becomes zeros. Only code of this crate can get here.
    #[test]
    fn a_plan_is_not_run_on_another_checkpoint() {
        let (own, other) = (checkpoint(&["a", "b"]), checkpoint(&["a"]));
        let (bindings, targets) = plan::as_stored(own.entries());
        let resolved = plan::resolve(own.entries(), &bindings).expect("it fits itself");
        let plan =
            plan::compile(own.entries(), &resolved, &targets, &crate::Codecs).expect("nothing is moved");
        let run = |of| Allocated::new(&plan, of, None, Options::default())?.fill(&mut Pool::new(1));
        assert!(run(&own).expect("it is its own").get("b").is_some_and(|b| b.bytes() == [1; 8]));
        match run(&other) {
            Err(Error::NoSource { param, entry: 1 }) => assert_eq!(param, "b"),
            other => panic!("{other:?}"),
        }
    }
}
