//! Fills the slots of a plan.
//!
//! Parameters that are one aligned run of a mapped file are borrowed. All others get a place in one
//! allocation, which is cut into work items (some rows of one parameter each) that threads take in turn:
//! gather the pieces of those rows, change them if the plan says so, and write the slot once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use checkpoint::Checkpoint;
use plan::{LoadPlan, Piece, PlannedParam, PlannedPlane};

use crate::codec::Change;
use crate::slot::{ALIGN, Arena, Slot};
use crate::{Error, LoadReport, Pool, Tensor};

/// Bytes of a work item's target, about: large enough to read at speed, small enough to share out.
const ITEM: u64 = 1 << 20;
/// Rows of a work item are a multiple of this, which all interleaved schemes divide.
const ROW_GROUP: u64 = 16;

/// What was loaded: parameters by name.
pub struct Loaded {
    params: HashMap<String, Tensor>,
    report: LoadReport,
}

impl Loaded {
    /// The parameter called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.params.get(name)
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.params.keys().map(String::as_str)
    }

    /// What it cost.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}

/// Runs `plan`, which was compiled against `checkpoint`'s entries.
///
/// # Errors
/// If a file cannot be read, memory is not to be had, or sources that must agree do not.
pub fn execute(plan: &LoadPlan, checkpoint: &Checkpoint, pool: &mut Pool) -> Result<Loaded, Error> {
    let started = Instant::now();
    let job = Job { checkpoint };
    let mut report = LoadReport { threads: pool.threads(), ..LoadReport::default() };

    // Places: borrowed, or a range of the arena.
    let mut homes: Vec<Home> = Vec::with_capacity(plan.params.len());
    let mut size = 0usize;
    for param in &plan.params {
        homes.push(match param.tied_to {
            Some(other) => Home::Tied(other),
            None => job.home(param, &mut size, &mut report)?,
        });
    }

    let mut arena = Arena::new(size)?;
    report.owned_bytes = size as u64;
    let mut items = job.items(plan, &homes, arena.as_mut())?;
    let failed = Mutex::new(None);
    let mut scratch: Vec<Scratch> = (0..pool.threads()).map(|_| Scratch::default()).collect();
    pool.chunks(&mut scratch, &mut items, 1, |scratch, _, items| {
        for item in items {
            if let Err(error) = job.run(item, scratch) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    });
    drop(items);
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    for s in &scratch {
        report.bytes_read += s.bytes_read;
        report.bytes_copied += s.bytes_copied;
        report.bytes_encoded += s.bytes_encoded;
        report.scratch_peak += s.peak as u64;
    }

    let arena = Arc::new(arena);
    let mut params: HashMap<String, Tensor> = HashMap::with_capacity(plan.params.len());
    for (param, home) in plan.params.iter().zip(&homes) {
        let slots = match home {
            Home::Borrowed(slots) => slots.clone(),
            Home::Owned { planes, .. } => planes.iter().map(|r| Slot::owned(&arena, r.clone())).collect(),
            Home::Tied(other) => {
                // A tie names an earlier parameter, so it is there.
                let first = &plan.params[*other];
                params.get(&first.name).map(|t| t.slots().to_vec()).unwrap_or_default()
            }
        };
        let tensor = Tensor::new(param.shape.clone(), Arc::clone(&param.scheme), slots);
        params.insert(param.name.clone(), tensor);
    }
    report.params = plan.params.len();
    report.dropped = plan.dropped.len();
    report.seconds = started.elapsed().as_secs_f64();
    report.peak_rss = crate::report::peak_rss();
    Ok(Loaded { params, report })
}

enum Home {
    Borrowed(Vec<Slot>),
    Owned { change: Change, planes: Vec<Range<usize>> },
    Tied(usize),
}

/// Some of one parameter's target, and the pieces that make it.
struct Item<'a> {
    param: &'a PlannedParam,
    plane: &'a PlannedPlane,
    change: &'a Change,
    /// Bytes of the moved plane that this item is.
    moved: Range<u64>,
    target: &'a mut [u8],
}

/// One thread's own.
#[derive(Default)]
struct Scratch {
    moved: Vec<u8>,
    read: Vec<u8>,
    pieces: Vec<Piece>,
    bytes_read: u64,
    bytes_copied: u64,
    bytes_encoded: u64,
    peak: usize,
}

struct Job<'a> {
    checkpoint: &'a Checkpoint,
}

impl<'a> Job<'a> {
    fn home(&self, param: &PlannedParam, size: &mut usize, report: &mut LoadReport) -> Result<Home, Error> {
        let too_large = || Error::TooLarge { param: param.name.clone() };
        let change = Change::of(&param.moved, &param.steps).map_err(|(from, to)| Error::Codec {
            param: param.name.clone(),
            from,
            to,
        })?;
        if matches!(change, Change::None)
            && let Some(slots) =
                param.planes.iter().map(|p| self.borrow(param, p)).collect::<Option<Vec<_>>>()
        {
            let bytes: u64 = param.planes.iter().map(|p| p.bytes).sum();
            report.bytes_borrowed += bytes;
            return Ok(Home::Borrowed(slots));
        }
        let specs = param.scheme.planes.iter();
        let planes = specs
            .map(|spec| {
                let bytes = param.scheme.plane_bytes(spec, &param.shape).map_err(|_| too_large())?;
                let bytes = usize::try_from(bytes).map_err(|_| too_large())?;
                let start = *size;
                let end = start.checked_add(bytes).ok_or_else(too_large)?;
                *size = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
                Ok(start..end)
            })
            .collect::<Result<_, _>>()?;
        Ok(Home::Owned { change, planes })
    }

    fn borrow(&self, param: &PlannedParam, plane: &PlannedPlane) -> Option<Slot> {
        let (entry, index, offset) = plane.borrowable()?;
        let data = &self.checkpoint.entries().get(entry)?.planes.get(index)?;
        let start = data.bytes.start.checked_add(offset)?;
        // A plain dtype is read as such; blocks are read bytewise.
        let align = param.scheme.dtype().map_or(1, |d| usize::try_from(d.bytes()).unwrap_or(8));
        Slot::borrow(&self.checkpoint.file(data.file).source, start..start.checked_add(plane.bytes)?, align)
    }

    /// Cuts every owned parameter into items, largest parameters first so that no thread ends up with one.
    fn items<'b>(
        &self,
        plan: &'b LoadPlan,
        homes: &'b [Home],
        mut arena: &'b mut [u8],
    ) -> Result<Vec<Item<'b>>, Error> {
        let mut items = Vec::new();
        let mut at = 0;
        for (param, home) in plan.params.iter().zip(homes) {
            let Home::Owned { change, planes } = home else { continue };
            for (plane, range) in param.planes.iter().zip(planes) {
                let (_, rest) = std::mem::take(&mut arena).split_at_mut(range.start - at);
                let (mut target, rest) = rest.split_at_mut(range.len());
                (arena, at) = (rest, range.end);
                let whole = plane.bytes;
                let total = target.len() as u64;
                let rows = if param.shape.len() < 2 { 1 } else { param.shape[0].max(1) };
                let step = self.rows_per_item(plane, rows, whole.max(total));
                let mut row = 0;
                while row < rows {
                    let end = (row + step).min(rows);
                    let cut = |bytes: u64, row: u64| bytes / rows * row;
                    let len =
                        if end == rows { target.len() as u64 } else { cut(total, end) - cut(total, row) };
                    let len =
                        usize::try_from(len).map_err(|_| Error::TooLarge { param: param.name.clone() })?;
                    let (part, rest) = target.split_at_mut(len);
                    target = rest;
                    let moved = cut(whole, row)..if end == rows { whole } else { cut(whole, end) };
                    items.push(Item { param, plane, change, moved, target: part });
                    row = end;
                }
            }
        }
        Ok(items)
    }

    /// Rows of one item: whole groups, about [`ITEM`] bytes. A plane whose rows lie scattered in a file
    /// that is not mapped is one item, so that it is read once.
    fn rows_per_item(&self, plane: &PlannedPlane, rows: u64, bytes: u64) -> u64 {
        let scattered = |p: &Piece| {
            let Some(from) = p.source else { return false };
            let data = &self.checkpoint.entries()[from.entry].planes[from.plane];
            self.checkpoint.file(data.file).source.mapped().is_none() && extent(p) > 2 * p.bytes()
        };
        if plane.copy.iter().any(scattered) || !plane.equal.is_empty() {
            return rows;
        }
        (rows * ITEM / bytes.max(1)).max(1).next_multiple_of(ROW_GROUP)
    }

    fn run(&self, item: &mut Item<'_>, scratch: &mut Scratch) -> Result<(), Error> {
        let len = usize::try_from(item.moved.end - item.moved.start)
            .map_err(|_| Error::TooLarge { param: item.param.name.clone() })?;
        let mut pieces = std::mem::take(&mut scratch.pieces);
        pieces.clear();
        for piece in &item.plane.copy {
            piece.clip(item.moved.clone(), &mut pieces);
        }
        let whole = self.one_mapped_run(&pieces, &item.moved);
        let result = match (item.change, whole) {
            (Change::None, Some(source)) => {
                item.target.copy_from_slice(source);
                scratch.bytes_read += len as u64;
                scratch.bytes_copied += len as u64;
                Ok(())
            }
            (Change::None, None) => {
                scratch.bytes_copied += len as u64;
                let start = item.moved.start;
                let target = &mut *item.target;
                self.gather(item.param, &pieces, start, target, &mut scratch.read, &mut scratch.bytes_read)
            }
            (change, Some(source)) => {
                scratch.bytes_read += len as u64;
                scratch.bytes_encoded += item.target.len() as u64;
                change.apply(width(item.param), source, item.target);
                Ok(())
            }
            (change, None) => {
                let mut moved = std::mem::take(&mut scratch.moved);
                moved.clear();
                moved.resize(len, 0);
                let start = item.moved.start;
                let read = &mut scratch.read;
                let gathered =
                    self.gather(item.param, &pieces, start, &mut moved, read, &mut scratch.bytes_read);
                if gathered.is_ok() {
                    scratch.bytes_encoded += item.target.len() as u64;
                    change.apply(width(item.param), &moved, item.target);
                }
                scratch.moved = moved;
                gathered
            }
        };
        scratch.peak = scratch.peak.max(scratch.moved.capacity() + scratch.read.capacity());
        scratch.pieces = pieces;
        result?;
        self.agree(item, scratch)
    }

    /// The bytes of an item that is one run of one mapped file.
    fn one_mapped_run(&self, pieces: &[Piece], moved: &Range<u64>) -> Option<&'a [u8]> {
        let [piece] = pieces else { return None };
        let from = piece.source?;
        if !piece.dims.is_empty() || piece.run != moved.end - moved.start {
            return None;
        }
        let data = self.checkpoint.entries().get(from.entry)?.planes.get(from.plane)?;
        let start = data.bytes.start.checked_add(piece.source_offset)?;
        let range = usize::try_from(start).ok()?..usize::try_from(start.checked_add(piece.run)?).ok()?;
        self.checkpoint.file(data.file).source.mapped()?.get(range)
    }

    /// Copies `pieces` to `target`, which begins at byte `start` of the moved plane. Zeros are there already.
    fn gather(
        &self,
        param: &PlannedParam,
        pieces: &[Piece],
        start: u64,
        target: &mut [u8],
        read: &mut Vec<u8>,
        bytes_read: &mut u64,
    ) -> Result<(), Error> {
        for piece in pieces {
            if piece.source.is_none() {
                continue;
            }
            let bytes = self.extent_bytes(param, piece, read)?;
            *bytes_read += piece.bytes();
            let run =
                usize::try_from(piece.run).map_err(|_| Error::TooLarge { param: param.name.clone() })?;
            piece.runs(|source, at| {
                let (from, to) = (source - piece.source_offset, at - start);
                // The plan has proved that both lie inside.
                let (from, to) =
                    (usize::try_from(from).unwrap_or(usize::MAX), usize::try_from(to).unwrap_or(usize::MAX));
                target[to..to + run].copy_from_slice(&bytes[from..from + run]);
            });
        }
        Ok(())
    }

    /// The source bytes that a piece spans, mapped or read.
    fn extent_bytes<'s>(
        &'s self,
        param: &PlannedParam,
        piece: &Piece,
        read: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], Error> {
        let too_large = || Error::TooLarge { param: param.name.clone() };
        let Some(from) = piece.source else { return Ok(&[]) };
        let data = &self.checkpoint.entries()[from.entry].planes[from.plane];
        let file = self.checkpoint.file(data.file);
        let start = data.bytes.start + piece.source_offset;
        let bytes = extent(piece);
        let len = usize::try_from(bytes).map_err(|_| too_large())?;
        let failed = |source| Error::Io { path: file.path.clone(), offset: start, bytes, source };
        if let Some(mapped) = file.source.mapped() {
            let at = usize::try_from(start).map_err(|_| too_large())?;
            let end = at.checked_add(len).ok_or_else(too_large)?;
            return mapped.get(at..end).ok_or_else(|| failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        read.resize(len, 0);
        file.source.read_at(start, read).map_err(failed)?;
        Ok(read)
    }

    /// Checks that the sources which share a cell agree with what was written.
    fn agree(&self, item: &Item<'_>, scratch: &mut Scratch) -> Result<(), Error> {
        for piece in &item.plane.equal {
            let bytes = self.extent_bytes(item.param, piece, &mut scratch.read)?;
            let mut wrong = None;
            piece.runs(|source, at| {
                let index = |x: u64| usize::try_from(x).unwrap_or(usize::MAX);
                let (from, to, run) = (index(source - piece.source_offset), index(at), index(piece.run));
                if wrong.is_none() && item.target.get(to..to + run) != bytes.get(from..from + run) {
                    wrong = Some(at);
                }
            });
            if let Some(at) = wrong {
                let (param, role) = (item.param.name.clone(), item.plane.role);
                return Err(Error::Disagree { param, role, at });
            }
        }
        Ok(())
    }
}

/// Source bytes from a piece's first to its last.
fn extent(piece: &Piece) -> u64 {
    piece.run + piece.dims.iter().map(|d| (d.extent - 1) * d.source_stride).sum::<u64>()
}

/// Elements of a row, which is what codecs go by.
fn width(param: &PlannedParam) -> usize {
    param.shape.last().map_or(1, |n| usize::try_from(*n).unwrap_or(usize::MAX))
}
