//! Checks a checkpoint without its model: where its bytes are, whether its values are finite, and whether they have
//! changed since a manifest was written.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use checkpoint::Checkpoint;
use load::Pool;
use tensor::{PlaneData, Shape, TensorEntry};

use crate::digest::{self, LEAF, Leaf};
use crate::keys;
use crate::values::{self, Values};
use crate::{CheckReport, CheckedFile, Error, Finding, Listed, Manifest, Said, Wrong};
use tensor::Bands;

/// Bytes of values that a thread takes at a time, about.
const BAND: u64 = 1 << 20;

/// The checks to run beyond the headers, which opening has checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions<'a> {
    /// Every value: whether it is a number, and whether what quantised ones are made from can be meant.
    pub deep: bool,
    /// Every byte: the digests of all tensors, for [`CheckReport::manifest`].
    pub digests: bool,
    /// The tensors and keys to hold the checkpoint against.
    pub verify: Option<&'a Manifest>,
}

/// Part of one tensor, and what was found there.
struct Work {
    entry: usize,
    what: What,
    found: Found,
}

enum What {
    /// A leaf of its digest.
    Leaf(u64),
    /// Rows of one of its matrices.
    Values(u64, Range<u64>),
}

enum Found {
    Nothing,
    Leaf(Leaf),
    Values(Values),
    Failed(load::Error),
}

/// One thread's own.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

/// Checks `checkpoint` as `options` say, with a few MiB of memory per thread. `each` is called from any thread with the
/// number of bytes read so far and the total, and may end it.
///
/// The report lists every problem of the tensors.
///
/// # Errors
/// If a file cannot be read, or `each` ends it.
pub fn check(
    checkpoint: &Checkpoint,
    options: &CheckOptions<'_>,
    pool: &mut Pool,
    each: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<CheckReport, Error> {
    let started = Instant::now();
    let entries = checkpoint.entries();
    let mut report = CheckReport {
        files: files(checkpoint),
        tensors: entries.len(),
        elements: entries.iter().filter_map(|e| e.shape.elements()).sum(),
        bytes: entries.iter().map(TensorEntry::byte_len).sum(),
        ..CheckReport::default()
    };
    let digests = options.digests || options.verify.is_some();
    let mut work = vec![];
    let mut strided = vec![];
    for (i, entry) in entries.iter().enumerate() {
        if options.deep && values::codec(&entry.scheme).is_none() && !values::is_whole_numbers(&entry.scheme)
        {
            report.unknown.push((entry.name.clone(), entry.scheme.name.to_string()));
        }
        if entry.strides.is_some() {
            strided.push(i);
            continue;
        }
        // One after the other, so that what is read twice is still in memory.
        let mut add = |what| work.push(Work { entry: i, what, found: Found::Nothing });
        if digests {
            (0..Leaf::count(entry.byte_len())).for_each(|leaf| add(What::Leaf(leaf)));
        }
        if let (true, Some(bands)) = (options.deep, bands(entry)) {
            for matrix in 0..bands.matrices {
                bands.cut(BAND).for_each(|rows| add(What::Values(matrix, rows)));
            }
        }
    }
    let total = work.iter().map(|w| w.ranges(entries).iter().map(len).sum::<u64>()).sum();
    let (done, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut scratch: Vec<Scratch> = (0..pool.threads()).map(|_| Scratch::default()).collect();
    pool.chunks(&mut scratch, &mut work, 1, |scratch, _, work| {
        for work in work {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let (found, bytes) = work.run(checkpoint, scratch);
            work.found = found;
            if each(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total).is_break() {
                ended.store(true, Ordering::Relaxed);
            }
        }
    });
    report.bytes_read = done.into_inner();
    if ended.into_inner() {
        return Err(Error::Interrupted { done: report.bytes_read, total });
    }

    let mut leaves: Vec<Vec<Leaf>> = vec![vec![]; entries.len()];
    let mut values: Vec<Option<Values>> = vec![None; entries.len()];
    for work in work {
        match work.found {
            Found::Nothing => {}
            Found::Leaf(leaf) => leaves[work.entry].push(leaf),
            Found::Values(found) => {
                let so_far = values[work.entry].take().unwrap_or_default();
                values[work.entry] = Some(so_far.and(found));
            }
            Found::Failed(error) => return Err(error.into()),
        }
    }
    for found in dense(checkpoint, &strided, pool, &mut report.bytes_read)? {
        leaves[found.entry] = found.leaves;
        values[found.entry] = found.values.filter(|_| options.deep);
    }
    for (entry, found) in entries.iter().zip(values) {
        let Some(found) = found else { continue };
        report.values += entry.shape.elements().unwrap_or(0);
        report.findings.extend(found.wrong(&entry.shape).map(|wrong| finding(entry, wrong)));
    }
    if digests {
        let listed = entries.iter().zip(&leaves).filter_map(|(e, leaves)| {
            let (shape, scheme) = (e.shape.clone(), e.scheme.name.to_string());
            let blake3 = digest::join(leaves)?.to_hex().to_string();
            Some(Listed { name: e.name.clone(), shape, scheme, blake3 })
        });
        let manifest = Manifest::new(listed.collect(), Some(keys::listed(&Said::of(checkpoint)?)));
        if let Some(wanted) = options.verify {
            report.findings.extend(wanted.differences(&manifest));
            match wanted.key_differences(&manifest) {
                Ok(keys) => report.keys = keys,
                Err(why) => report.keys_not_compared = Some(why),
            }
        }
        report.manifest = Some(manifest);
    }
    checkpoint.unchanged()?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn finding(entry: &TensorEntry, wrong: Wrong) -> Finding {
    Finding { tensor: entry.name.clone(), wrong }
}

impl Values {
    /// Returns the problems of a tensor of `shape` with these findings.
    fn wrong(self, shape: &Shape) -> impl Iterator<Item = Wrong> {
        let (nan, infinite, of) = (self.nan, self.infinite, shape.elements().unwrap_or(0));
        let mut at = self.first;
        let not_finite = at.take().map(|mut at| {
            let mut index = vec![0; shape.len()];
            for (i, axis) in index.iter_mut().zip(shape.iter()).rev() {
                (*i, at) = (at % axis, at / axis);
            }
            Wrong::NotFinite { nan, infinite, of, first: index.into() }
        });
        self.bad.map(Wrong::Data).into_iter().chain(not_finite)
    }
}

/// How the values of an entry are looked at, if they are floats that are known.
fn bands(entry: &TensorEntry) -> Option<Bands<'_>> {
    values::codec(&entry.scheme)?;
    Bands::of(&entry.scheme, &entry.shape)
}

impl Work {
    /// The bytes that are needed: for each plane a range of it.
    fn ranges(&self, entries: &[TensorEntry]) -> Vec<Range<u64>> {
        let entry = &entries[self.entry];
        match &self.what {
            What::Leaf(leaf) => {
                // The leaf's part of each plane, with all planes laid one after the other.
                let (start, end) = (leaf * LEAF, (leaf + 1) * LEAF);
                let mut at = 0;
                let part = |plane: &PlaneData| {
                    let (first, size) = (at, len(&plane.bytes));
                    at += size;
                    start.clamp(first, at) - first..end.clamp(first, at) - first
                };
                entry.planes.iter().map(part).collect()
            }
            What::Values(matrix, rows) => match bands(entry) {
                Some(bands) => (0..entry.planes.len()).map(|p| bands.bytes(p, *matrix, rows)).collect(),
                None => vec![],
            },
        }
    }

    fn run(&self, checkpoint: &Checkpoint, scratch: &mut Scratch) -> (Found, u64) {
        let entry = &checkpoint.entries()[self.entry];
        let ranges = self.ranges(checkpoint.entries());
        let total: u64 = ranges.iter().map(len).sum();
        let bytes = &mut scratch.bytes;
        bytes.resize(size(total), 0);
        let mut rest = &mut bytes[..];
        for (plane, range) in entry.planes.iter().zip(&ranges).filter(|(_, range)| !range.is_empty()) {
            let (part, after) = rest.split_at_mut(size(len(range)));
            rest = after;
            let (file, offset) = (checkpoint.file(plane.file), plane.bytes.start + range.start);
            if let Err(source) = file.source.read_at(offset, part) {
                let (location, bytes) = (file.location.clone(), len(range));
                return (Found::Failed(load::Error::Io { location, offset, bytes, source }), 0);
            }
        }
        let found = match &self.what {
            What::Leaf(leaf) => Found::Leaf(Leaf::of(bytes, *leaf, entry.byte_len())),
            What::Values(matrix, rows) => {
                let mut rest = &bytes[..];
                let planes: Vec<&[u8]> =
                    ranges.iter().map(|r| rest.split_off(..size(len(r))).unwrap_or_default()).collect();
                let (Some(codec), Some(bands)) = (values::codec(&entry.scheme), bands(entry)) else {
                    return (Found::Nothing, total);
                };
                let part = (*matrix, rows);
                Found::Values(values::look(codec, &entry.scheme, &bands, part, &planes, &mut scratch.values))
            }
        };
        (found, total)
    }
}

/// An entry with strides that was read.
struct Dense {
    entry: usize,
    leaves: Vec<Leaf>,
    values: Option<Values>,
}

/// Reads entries with strides, whose elements are put in order first: one whole tensor after the
/// other, as these are few.
fn dense(
    checkpoint: &Checkpoint,
    strided: &[usize],
    pool: &mut Pool,
    bytes_read: &mut u64,
) -> Result<Vec<Dense>, Error> {
    if strided.is_empty() {
        return Ok(vec![]);
    }
    let plan = planner::plan_as_stored(checkpoint)?;
    let mut out = vec![];
    for &i in strided {
        let entry = &checkpoint.entries()[i];
        let Some(at) = plan.params().iter().position(|p| p.name == entry.name) else { continue };
        let loaded = plan.one(at).load(pool)?;
        let bytes = loaded.get(&entry.name).map(load::Tensor::bytes).unwrap_or_default();
        *bytes_read += bytes.len() as u64;
        let count = bytes.len() as u64;
        let leaves = (0..Leaf::count(count)).map(|leaf| {
            let range = size(leaf * LEAF)..size(((leaf + 1) * LEAF).min(count));
            Leaf::of(&bytes[range], leaf, count)
        });
        let leaves = leaves.collect();
        let values = values::codec(&entry.scheme).zip(bands(entry)).map(|(codec, bands)| {
            let all = (0, &(0..bands.rows));
            values::look(codec, &entry.scheme, &bands, all, &[bytes], &mut vec![])
        });
        out.push(Dense { entry: i, leaves, values });
    }
    Ok(out)
}

/// Where the bytes of each file are.
fn files(checkpoint: &Checkpoint) -> Vec<CheckedFile> {
    let mut ranges: Vec<Vec<&Range<u64>>> = vec![vec![]; checkpoint.files().len()];
    for plane in checkpoint.entries().iter().flat_map(|e| &e.planes).filter(|p| !p.bytes.is_empty()) {
        if let Some(of_file) = ranges.get_mut(plane.file.0 as usize) {
            of_file.push(&plane.bytes);
        }
    }
    let mut out = vec![];
    for (file, mut ranges) in checkpoint.files().iter().zip(ranges) {
        ranges.sort_by_key(|r| r.start);
        let before = ranges.first().map_or(file.len, |r| r.start);
        let (mut end, mut between) = (before, 0);
        for range in ranges {
            between += range.start.saturating_sub(end);
            end = end.max(range.end);
        }
        let (path, bytes) = (file.location.to_string(), file.len);
        out.push(CheckedFile {
            path,
            bytes,
            tensors: end - before - between,
            before,
            between,
            after: bytes.saturating_sub(end),
        });
    }
    out
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
