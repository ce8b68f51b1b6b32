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
use quant::{Difference, Matrix};
use tensor::{Rows, Scheme};

use crate::change::{Change, Failed};
use crate::slot::{ALIGN, Arena, Slot};
use crate::{Error, LoadReport, Pool, Tensor};

/// Bytes of a work item's target, about: large enough to read at speed, small enough to share out.
const ITEM: u64 = 1 << 20;

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

/// For a parameter's name, how much each of its columns matters: one number for each element of the last axis.
/// See [`quant::Encoder::encode`].
pub type Importance<'a> = dyn Fn(&str) -> Option<&'a [f32]> + Sync + 'a;

/// What a caller may say about encoding.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// How much each column of a parameter matters.
    pub importance: Option<&'a Importance<'a>>,
    /// Finite values may become infinite in a cast.
    pub allow_overflow: bool,
}

/// Runs `plan`, which was compiled against `checkpoint`'s entries.
///
/// # Errors
/// If a file cannot be read, memory is not to be had, sources that must agree do not, a scheme's data cannot
/// be meant, or an encoding cannot hold the values.
pub fn execute(plan: &LoadPlan, checkpoint: &Checkpoint, pool: &mut Pool) -> Result<Loaded, Error> {
    execute_with(plan, checkpoint, pool, Options::default())
}

/// As [`execute`], with options.
///
/// # Errors
/// As [`execute`].
pub fn execute_with(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<Loaded, Error> {
    let started = Instant::now();
    let job = Job { checkpoint, options };
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
        for (param, difference) in &s.encoded {
            let so_far = report.differences.entry((*param).to_owned()).or_default();
            *so_far = so_far.and(*difference);
        }
    }
    let overflowed =
        |(param, d): (&String, &Difference)| (d.overflowed > 0).then(|| (param.clone(), d.overflowed));
    if !options.allow_overflow
        && let Some((param, count)) = report.differences.iter().find_map(overflowed)
    {
        let to = plan.find(&param).map_or_else(String::new, |(_, p)| p.scheme.name.to_string());
        return Err(Error::Overflow { param, to, count });
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

/// Some rows of one matrix of one parameter, and where they go.
struct Item<'a> {
    param: &'a PlannedParam,
    change: &'a Change,
    /// Planes that movement yields, and the bytes of each that this item is. One if there is no change, all
    /// of them if there is.
    moved: Vec<(&'a PlannedPlane, Range<u64>)>,
    rows: usize,
    k: usize,
    /// One for each of `moved` if there is no change, else one for each plane of the target.
    target: Vec<&'a mut [u8]>,
}

/// One thread's own.
#[derive(Default)]
struct Scratch<'a> {
    moved: Vec<u8>,
    read: Vec<u8>,
    values: Vec<f32>,
    pieces: Vec<Piece>,
    bytes_read: u64,
    bytes_copied: u64,
    bytes_encoded: u64,
    peak: usize,
    encoded: Vec<(&'a str, Difference)>,
}

struct Job<'a, 'o> {
    checkpoint: &'a Checkpoint,
    options: Options<'o>,
}

impl<'a> Job<'a, '_> {
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

    /// Cuts every owned parameter into items, in order.
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
            let too_large = || Error::TooLarge { param: param.name.clone() };
            let mut targets = Vec::with_capacity(planes.len());
            for range in planes {
                let (_, rest) = std::mem::take(&mut arena).split_at_mut(range.start - at);
                let (target, rest) = rest.split_at_mut(range.len());
                (arena, at) = (rest, range.end);
                targets.push(target);
            }
            if let Change::None = change {
                for (plane, target) in param.planes.iter().zip(targets) {
                    self.moves(param, change, plane, target, &mut items).ok_or_else(too_large)?;
                }
            } else {
                changes(param, change, targets, &mut items).ok_or_else(too_large)?;
            }
        }
        Ok(items)
    }

    /// Items that only move one plane: some rows of the first axis each, about [`ITEM`] bytes.
    fn moves<'b>(
        &self,
        param: &'b PlannedParam,
        change: &'b Change,
        plane: &'b PlannedPlane,
        mut target: &'b mut [u8],
        items: &mut Vec<Item<'b>>,
    ) -> Option<()> {
        let rows = if param.shape.len() < 2 { 1 } else { param.shape[0].max(1) };
        // A plane whose rows lie scattered in a file that is not mapped is one item, so that it is read once.
        let scattered = |p: &Piece| {
            let Some(from) = p.source else { return false };
            let data = &self.checkpoint.entries()[from.entry].planes[from.plane];
            self.checkpoint.file(data.file).source.mapped().is_none() && extent(p) > 2 * p.bytes()
        };
        let whole = plane.copy.iter().any(scattered) || !plane.equal.is_empty();
        let step = if whole { rows } else { (rows * ITEM / plane.bytes.max(1)).max(1) };
        let mut start = 0;
        for row in (0..rows).step_by(usize::try_from(step).ok()?) {
            let end = if row + step >= rows { plane.bytes } else { plane.bytes / rows * (row + step) };
            let (part, rest) = target.split_at_mut(usize::try_from(end - start).ok()?);
            target = rest;
            items.push(Item {
                param,
                change,
                moved: vec![(plane, start..end)],
                rows: 0,
                k: 0,
                target: vec![part],
            });
            start = end;
        }
        Some(())
    }

    fn run<'i>(&self, item: &mut Item<'i>, scratch: &mut Scratch<'i>) -> Result<(), Error> {
        let too_large = || Error::TooLarge { param: item.param.name.clone() };
        if let Change::None = item.change {
            let ([(plane, range)], [target]) = (&item.moved[..], &mut item.target[..]) else { return Ok(()) };
            scratch.bytes_copied += target.len() as u64;
            self.fill(item.param, plane, range, target, scratch)?;
            scratch.peak = scratch.peak.max(scratch.read.capacity());
            return self.agree(item.param, plane, range, target, &mut scratch.read);
        }

        // The planes that can be read where they lie, and the others one after the other.
        let mapped: Vec<Option<&[u8]>> =
            item.moved.iter().map(|(p, range)| self.one_mapped_run(p, range)).collect();
        let mut moved = std::mem::take(&mut scratch.moved);
        moved.clear();
        let mut places = Vec::with_capacity(mapped.len());
        for ((plane, range), mapped) in item.moved.iter().zip(&mapped) {
            let start = moved.len();
            if let Some(mapped) = mapped {
                scratch.bytes_read += mapped.len() as u64;
            } else {
                moved.resize(start + usize::try_from(range.end - range.start).map_err(|_| too_large())?, 0);
                self.fill(item.param, plane, range, &mut moved[start..], scratch)?;
            }
            places.push(start..moved.len());
        }
        let planes: Vec<&[u8]> =
            mapped.iter().zip(places).map(|(mapped, place)| mapped.unwrap_or(&moved[place])).collect();
        for ((plane, range), bytes) in item.moved.iter().zip(&planes) {
            self.agree(item.param, plane, range, bytes, &mut scratch.read)?;
        }
        let param = &item.param.name;
        let importance = self.options.importance.and_then(|i| i(param)).filter(|i| i.len() == item.k);
        let matrix = Matrix { planes: &planes, rows: item.rows, k: item.k };
        let changed = item.change.apply(matrix, importance, &mut item.target, &mut scratch.values);
        let changed = changed.map_err(|why| match why {
            Failed::Data(data) => Error::Data { param: param.clone(), data },
            Failed::NotFinite(count) => {
                Error::NotFinite { param: param.clone(), to: item.param.scheme.name.to_string(), count }
            }
        })?;
        scratch.encoded.extend(changed.map(|d| (param.as_str(), d)));
        scratch.bytes_encoded += item.target.iter().map(|t| t.len() as u64).sum::<u64>();
        scratch.peak =
            scratch.peak.max(moved.capacity() + scratch.read.capacity() + 4 * scratch.values.capacity());
        scratch.moved = moved;
        Ok(())
    }

    /// Bytes `range` of the moved plane to `target`, which is zero.
    fn fill(
        &self,
        param: &PlannedParam,
        plane: &PlannedPlane,
        range: &Range<u64>,
        target: &mut [u8],
        scratch: &mut Scratch<'_>,
    ) -> Result<(), Error> {
        if let Some(source) = self.one_mapped_run(plane, range) {
            target.copy_from_slice(source);
            scratch.bytes_read += source.len() as u64;
            return Ok(());
        }
        let mut pieces = std::mem::take(&mut scratch.pieces);
        pieces.clear();
        for piece in &plane.copy {
            piece.clip(range.clone(), &mut pieces);
        }
        let done =
            self.gather(param, &pieces, range.start, target, &mut scratch.read, &mut scratch.bytes_read);
        scratch.pieces = pieces;
        done
    }

    /// Bytes `range` of the moved plane, if they are one run of one mapped file.
    fn one_mapped_run(&self, plane: &PlannedPlane, range: &Range<u64>) -> Option<&'a [u8]> {
        let mut pieces = plane.copy.iter().filter(|p| reaches(p, range));
        let (piece, None) = (pieces.next()?, pieces.next()) else { return None };
        let from = piece.source?;
        let end = piece.target_offset.checked_add(piece.run)?;
        if !piece.dims.is_empty() || range.start < piece.target_offset || range.end > end {
            return None;
        }
        let data = self.checkpoint.entries().get(from.entry)?.planes.get(from.plane)?;
        let start = data.bytes.start + piece.source_offset + (range.start - piece.target_offset);
        let len = range.end - range.start;
        let range = usize::try_from(start).ok()?..usize::try_from(start.checked_add(len)?).ok()?;
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

    /// Checks that the sources which share a cell agree with `bytes`, what was written of `range`.
    fn agree(
        &self,
        param: &PlannedParam,
        plane: &PlannedPlane,
        range: &Range<u64>,
        bytes: &[u8],
        read: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut pieces = vec![];
        for piece in &plane.equal {
            piece.clip(range.clone(), &mut pieces);
        }
        for piece in &pieces {
            let source = self.extent_bytes(param, piece, read)?;
            let mut wrong = None;
            piece.runs(|from, at| {
                let index = |x: u64| usize::try_from(x).unwrap_or(usize::MAX);
                let (from, to, run) =
                    (index(from - piece.source_offset), index(at - range.start), index(piece.run));
                if wrong.is_none() && bytes.get(to..to + run) != source.get(from..from + run) {
                    wrong = Some(at);
                }
            });
            if let Some(at) = wrong {
                return Err(Error::Disagree { param: param.name.clone(), role: plane.role, at });
            }
        }
        Ok(())
    }
}

/// Items that change values: a band of rows of one matrix each, about [`ITEM`] bytes.
fn changes<'b>(
    param: &'b PlannedParam,
    change: &'b Change,
    mut targets: Vec<&'b mut [u8]>,
    items: &mut Vec<Item<'b>>,
) -> Option<()> {
    let (moved, target) = (&*param.moved, &*param.scheme);
    // The last two axes are matrices if either scheme says so, else all but the last are rows.
    let axes = param.shape.len();
    let lead = if moved.trailing.max(target.trailing) < 2 { 0 } else { axes.checked_sub(2)? };
    let product = |axes: &[u64]| axes.iter().try_fold(1u64, |n, x| n.checked_mul(*x));
    let matrices = product(&param.shape[..lead])?;
    let (k, rows) = match &param.shape[lead..] {
        [] => (1, 1),
        [rows @ .., k] => (*k, product(rows)?),
    };
    if matrices == 0 || rows == 0 {
        return Some(());
    }
    let bytes = param.slot_bytes().max(param.planes.iter().map(|p| p.bytes).sum()) / matrices;
    let unit = Change::band(moved, target, rows);
    let step = (rows * ITEM / bytes.max(1)).max(1).checked_next_multiple_of(unit)?;
    // Bytes of rows `band` in a plane that has `len` bytes for each matrix.
    let within = |scheme: &Scheme, plane: usize, len: u64, band: &Range<u64>| match scheme
        .rows_in(&scheme.planes[plane])
    {
        Rows::Bands(per) => {
            let run = len / rows.div_ceil(per);
            band.start / per * run..band.end.div_ceil(per) * run
        }
        Rows::Whole | Rows::Scattered => 0..len,
    };
    let sizes: Vec<u64> = targets.iter().map(|t| t.len() as u64 / matrices).collect();
    for matrix in 0..matrices {
        for row in (0..rows).step_by(usize::try_from(step).ok()?) {
            let band = row..(row + step).min(rows);
            let part = |(i, plane): (usize, &'b PlannedPlane)| {
                let len = plane.bytes / matrices;
                let range = within(moved, i, len, &band);
                (plane, matrix * len + range.start..matrix * len + range.end)
            };
            let mut target_parts = Vec::with_capacity(targets.len());
            for (i, rest) in targets.iter_mut().enumerate() {
                let range = within(target, i, sizes[i], &band);
                let (part, after) =
                    std::mem::take(rest).split_at_mut(usize::try_from(range.end - range.start).ok()?);
                target_parts.push(part);
                *rest = after;
            }
            items.push(Item {
                param,
                change,
                moved: param.planes.iter().enumerate().map(part).collect(),
                rows: usize::try_from(band.end - band.start).ok()?,
                k: usize::try_from(k).ok()?,
                target: target_parts,
            });
        }
    }
    Some(())
}

/// Whether the piece writes anything of `range`.
fn reaches(piece: &Piece, range: &Range<u64>) -> bool {
    let last = piece.dims.iter().map(|d| (d.extent - 1) * d.target_stride).sum::<u64>();
    piece.target_offset < range.end && range.start < piece.target_offset + last + piece.run
}

/// Source bytes from a piece's first to its last.
fn extent(piece: &Piece) -> u64 {
    piece.run + piece.dims.iter().map(|d| (d.extent - 1) * d.source_stride).sum::<u64>()
}
