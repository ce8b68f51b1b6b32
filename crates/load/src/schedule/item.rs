//! Parameters cut into pieces of work: large enough to read at speed, small enough to share out and to fit.

use std::ops::Range;

use checkpoint::{Checkpoint, Pace};
use plan::{Piece, PlannedParam, PlannedPlane};
use tensor::{FileId, Lines};

use crate::change::{BandPlace, Change};
use crate::memory::ledger::Need;
use crate::memory::region::Region;
use crate::schedule::sources::{Ways, clip, extent, is_straight, place_of, ranges};
use crate::sizes::{PAGE, SMALL, WINDOW};
use crate::{Error, Guide};

/// Bytes of a band that is changed, about: with what it is made from it fits in a second-level cache.
const BAND: u64 = 1 << 20;
/// Without a limit on buffers, a matrix that bands would read several times is changed whole if it takes at most this many
/// bytes of them.
const WHOLE: u64 = 256 << 20;
/// Bytes of a buffer that runs are copied out of, at least.
const LEAST_WINDOW: u64 = 64 << 10;

/// Some rows of one matrix of one parameter, or some bytes of one plane, and where they go.
pub(crate) struct Item<'a, S> {
    /// Index of the parameter.
    pub(crate) index: usize,
    pub(crate) param: &'a PlannedParam,
    pub(crate) change: &'a Change,
    /// Planes that movement yields, and the bytes of each that this item is. One if there is no change, all
    /// of them if there is.
    pub(crate) moved: Vec<(&'a PlannedPlane, Range<u64>)>,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    /// Where the rows lie in the whole matrix.
    pub(crate) place: BandPlace,
    /// Which matrix of the parameter the rows are of, and how many there are.
    pub(crate) matrix: (usize, usize),
    /// One for each of `moved` if there is no change, else one for each plane of the target.
    pub(crate) target: Vec<S>,
    /// The first bytes that it reads, of this file.
    pub(crate) span: Option<(FileId, Range<u64>)>,
    /// It is `span` as it is, and nothing else.
    pub(crate) straight: bool,
    pub(crate) need: Need,
}

impl<S> Item<'_, S> {
    /// Selects from `all`, the guide of the parameter, what is of this item's matrix.
    pub(crate) fn guide<'g>(&self, all: Guide<'g>) -> Guide<'g> {
        let importance = all.importance.and_then(|columns| self.columns(columns));
        // Of a matrix alone.
        let feedback = all.feedback.filter(|feedback| self.matrix.1 == 1 && feedback.k() == self.k);
        Guide { importance, feedback, foreseen: None }
    }

    /// Selects from `all`, numbers for each column of the parameter, those of this item's matrix: all matrices share
    /// one list, or each has its own.
    fn columns<'c>(&self, all: &'c [f32]) -> Option<&'c [f32]> {
        let (matrix, matrices) = self.matrix;
        if all.len() == self.k {
            return Some(all);
        }
        let each = all.len() == self.k.checked_mul(matrices)?;
        all.chunks_exact(self.k.max(1)).nth(matrix).filter(|_| each)
    }
}

impl<S: Region> Item<'_, S> {
    /// Bytes that it writes.
    pub(crate) fn bytes(&self) -> u64 {
        self.target.iter().map(|t| t.bytes() as u64).sum()
    }
}

/// Cuts parameters so that each item's buffers fit.
pub(crate) struct Cutter<'a> {
    pub(crate) ways: Ways<'a>,
    /// Memory limit of one thread, exceeded only if it must be.
    pub(crate) share: u64,
    /// The parameter that takes the most, cut as fine as can be, and how many bytes that is.
    pub(crate) neediest: Option<(&'a str, u64)>,
}

impl<'a> Cutter<'a> {
    /// Cuts one parameter, whose planes are `targets`, and adds its items.
    pub(crate) fn cut<S: Region>(
        &mut self,
        index: usize,
        param: &'a PlannedParam,
        (change, fed): (&'a Change, Option<usize>),
        targets: Vec<S>,
        items: &mut Vec<Item<'a, S>>,
    ) -> Result<(), Error> {
        let before = items.len();
        let cut = if change.is_none() {
            let planes = param.planes.iter().zip(targets);
            planes.map(|(plane, target)| self.moves(param, change, plane, target, items)).collect()
        } else {
            self.changes(param, (change, fed), targets, items)
        };
        let () = cut.ok_or_else(|| Error::TooLarge { param: param.name.clone() })?;
        for item in &mut items[before..] {
            item.index = index;
            let first = item.moved.iter().find_map(|(plane, range)| self.first(plane, range));
            let straight = first.as_ref().is_some_and(|(_, straight)| *straight);
            item.straight = straight && change.is_none();
            item.span = first.map(|(span, _)| span);
            let need = item.need.bytes();
            if self.neediest.is_none_or(|(_, most)| need > most) {
                self.neediest = Some((&param.name, need));
            }
        }
        Ok(())
    }

    /// Items that only move one plane: some of its bytes each.
    fn moves<S: Region>(
        &self,
        param: &'a PlannedParam,
        change: &'a Change,
        plane: &'a PlannedPlane,
        mut target: S,
        items: &mut Vec<Item<'a, S>>,
    ) -> Option<()> {
        let pace = self.pace(&plane.copy);
        let (step, beside) = (pace.longest.max(1), pace.beside);
        let straight = plane.copy.iter().all(is_straight);
        let mut whole =
            !plane.equal.is_empty() || !straight && (plane.bytes <= step || self.repeats(plane, step));
        // Bytes that wait to be written need a buffer.
        let mut longest = usize::MAX;
        if target.is_written() {
            let room = (self.share.min(WHOLE).saturating_sub(beside) / 2).max(LEAST_WINDOW);
            whole &= plane.bytes <= room;
            longest = usize::try_from(room).unwrap_or(usize::MAX);
        }
        let mut start = 0;
        while target.bytes() > 0 {
            let page = target.to_page();
            let first = if page == 0 { usize::try_from(step).ok()? } else { page };
            let len = if whole { target.bytes() } else { first.min(longest).min(target.bytes()) };
            let (part, rest) = target.split(len);
            target = rest;
            let end = start + len as u64;
            let range = start..end;
            start = end;
            let written = if part.is_written() { len as u64 } else { 0 };
            let need = Need {
                read: self.window(plane, &range, beside + written),
                beside,
                written,
                ..Need::default()
            };
            items.push(Item {
                index: 0,
                param,
                change,
                moved: vec![(plane, range)],
                rows: 0,
                k: 0,
                place: BandPlace::default(),
                matrix: (0, 1),
                target: vec![part],
                span: None,
                straight: false,
                need,
            });
        }
        Some(())
    }

    /// Items that change values: a band of rows, or of columns, of one matrix each.
    fn changes<S: Region>(
        &self,
        param: &'a PlannedParam,
        (change, fed): (&'a Change, Option<usize>),
        mut targets: Vec<S>,
        items: &mut Vec<Item<'a, S>>,
    ) -> Option<()> {
        let (moved, target) = (&*param.moved, &*param.scheme);
        // The last two axes are matrices if any scheme on the way says so, else all but the last are rows.
        let (matrices, rows, k) = param.shape.matrices(change.trailing(moved, target, param.shape.len()))?;
        if matrices == 0 || rows == 0 {
            return Some(());
        }
        let lines = change.lines();
        let count = if lines == Lines::Rows { rows } else { k };
        // Rows of a band, and values of each.
        let part_of = |band: &Range<u64>| {
            let n = band.end - band.start;
            if lines == Lines::Rows { (n, k) } else { (rows, n) }
        };
        let fed = fed.is_some_and(|fed| fed as u64 == k);
        let parts = |matrix: u64, band: &Range<u64>| -> Vec<(&'a PlannedPlane, Range<u64>)> {
            let part = |(i, plane): (usize, &'a PlannedPlane)| {
                let len = plane.bytes / matrices;
                let range = moved.line_bytes(lines, i, len, count, band);
                (plane, matrix * len + range.start..matrix * len + range.end)
            };
            param.planes.iter().enumerate().map(part).collect()
        };
        let sizes: Vec<u64> = targets.iter().map(|t| t.bytes() as u64 / matrices).collect();
        let is_written = targets.iter().any(Region::is_written);
        let need = |band: &Range<u64>| {
            let parts = parts(0, band);
            let beside = parts.iter().map(|(p, _)| self.pace(&p.copy).beside).max().unwrap_or(0);
            let moved = parts.iter().map(|(_, range)| range.end - range.start).sum();
            let (part, width) = part_of(band);
            let values = change.values(part, width, fed && matrices == 1);
            let written = |(i, bytes): (usize, &u64)| {
                let range = target.line_bytes(lines, i, *bytes, count, band);
                if is_written { range.end - range.start } else { 0 }
            };
            let written = sizes.iter().enumerate().map(written).sum();
            let fixed = Need { read: 0, moved, values, written, beside };
            let windows = parts.iter().map(|(p, range)| self.window(p, range, fixed.bytes()));
            Need { read: windows.max().unwrap_or(0), ..fixed }
        };
        let bytes = param.slot_bytes().max(param.planes.iter().map(|p| p.bytes).sum()) / matrices;
        let unit = change.band(moved, target, count).max(1);
        let fair = u128::from(count) * u128::from(BAND) / u128::from(bytes.max(1));
        let fair = u64::try_from(fair).unwrap_or(u64::MAX).clamp(1, count.max(1));
        let mut step = fair.checked_next_multiple_of(unit)?;
        let share = self.share.min(WHOLE);
        let band = fair.min(count);
        // Lines that lie across the source are read once, if there is room.
        if parts(0, &(0..band)).iter().any(|(plane, range)| {
            let len = range.end - range.start;
            len < plane.bytes / matrices && self.repeats(plane, len)
        }) {
            step = count.checked_next_multiple_of(unit)?;
        }
        while step > unit && need(&(0..step.min(count))).bytes() > share {
            step = (step / 2).checked_next_multiple_of(unit)?.min(step - unit).max(unit);
        }
        let needed = need(&(0..step.min(count)));
        for matrix in 0..matrices {
            for line in (0..count).step_by(usize::try_from(step).ok()?) {
                let band = line..(line + step).min(count);
                let (part_rows, width) = part_of(&band);
                let mut target_parts = Vec::with_capacity(targets.len());
                for (i, rest) in targets.iter_mut().enumerate() {
                    let range = target.line_bytes(lines, i, sizes[i], count, &band);
                    let (part, after) =
                        std::mem::take(rest).split(usize::try_from(range.end - range.start).ok()?);
                    target_parts.push(part);
                    *rest = after;
                }
                items.push(Item {
                    index: 0,
                    param,
                    change,
                    moved: parts(matrix, &band),
                    rows: usize::try_from(part_rows).ok()?,
                    k: usize::try_from(width).ok()?,
                    place: BandPlace {
                        first: usize::try_from(line).ok()?,
                        whole: [usize::try_from(rows).ok()?, usize::try_from(k).ok()?],
                    },
                    matrix: (usize::try_from(matrix).ok()?, usize::try_from(matrices).ok()?),
                    target: target_parts,
                    span: None,
                    straight: false,
                    need: needed,
                });
            }
        }
        Some(())
    }

    /// How the first of `pieces` is read.
    fn pace(&self, pieces: &[Piece]) -> Pace {
        let place = pieces.iter().find_map(|p| place_of(self.ways.checkpoint, p));
        place.map_or(Pace::LOCAL, |(file, _)| self.ways.checkpoint.file(file).source.pace())
    }

    /// Whether bands of `step` bytes of a plane would read much of it several times.
    fn repeats(&self, plane: &PlannedPlane, step: u64) -> bool {
        let bands = plane.bytes.div_ceil(step.max(1));
        if bands < 2 || plane.copy.iter().all(is_straight) {
            return false;
        }
        let gap = self.pace(&plane.copy).gap;
        let read = |pieces: &[Piece]| -> u64 {
            ranges(self.ways.checkpoint, pieces, gap, 0).iter().map(plan::Read::bytes).sum()
        };
        let middle = bands / 2 * step;
        let band = |start: u64| {
            let mut pieces = vec![];
            clip(&plane.copy, &(start..(start + step).min(plane.bytes)), &mut pieces);
            read(&pieces)
        };
        let once = read(&plane.copy);
        band(0).max(band(middle)).saturating_mul(bands) > once.saturating_add(once / 4)
    }

    /// Returns the bytes of the buffer for copying `range` of a plane, where `fixed` other bytes are needed too.
    fn window(&self, plane: &PlannedPlane, range: &Range<u64>, fixed: u64) -> u64 {
        if let ([piece], []) = (&plane.copy[..], &plane.equal[..])
            && is_straight(piece)
        {
            return 0;
        }
        let pace = self.pace(&plane.copy);
        let most = WINDOW.max(pace.longest / 4);
        let room = self.share.saturating_sub(fixed).clamp(LEAST_WINDOW, most);
        // Small ones do not take all of it.
        let mut bytes = 0u64;
        let mut pieces = vec![];
        clip(&plane.copy, range, &mut pieces);
        let read = |p: &&Piece| p.source.is_some() && !self.ways.is_lent(p);
        for piece in pieces.iter().chain(&plane.equal).filter(read) {
            bytes = bytes.saturating_add(extent(piece)).saturating_add(pace.gap);
            if bytes >= room {
                return room;
            }
        }
        bytes
    }

    /// The first bytes that `range` of a plane reads, and whether that is all.
    fn first(&self, plane: &PlannedPlane, range: &Range<u64>) -> Option<((FileId, Range<u64>), bool)> {
        let mut pieces = vec![];
        clip(&plane.copy, range, &mut pieces);
        let places = pieces.iter().filter_map(|p| place_of(self.ways.checkpoint, p).map(|at| (at, p)));
        let ((file, at), piece) = places.min_by_key(|(at, _)| *at)?;
        let straight = pieces.len() == 1 && is_straight(piece) && plane.equal.is_empty();
        Some(((file, at..at + extent(piece)), straight))
    }
}

/// Items that one thread does one after the other.
pub(crate) struct Work<'a, S> {
    pub(crate) items: Vec<Item<'a, S>>,
    pub(crate) need: Need,
}

/// Puts items in the order of the files, and small ones that follow each other together: they share pages of memory,
/// and reads.
pub(crate) fn together<'a, S: Region>(
    mut items: Vec<Item<'a, S>>,
    checkpoint: &Checkpoint,
    share: u64,
) -> Vec<Work<'a, S>> {
    let start = |item: &Item<'_, S>| item.span.as_ref().map(|(file, range)| (*file, range.start));
    items.sort_by_key(|item| (start(item), item.index));
    let mut works: Vec<Work<'a, S>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let (size, need, straight) = (item.bytes(), item.need, item.straight);
        let file = item.span.as_ref().map(|(file, _)| *file);
        let last = works.last_mut().filter(|w| {
            let before = w.items.last().filter(|i| i.straight && straight);
            let same = before.and_then(|i| i.span.as_ref()).map(|(file, _)| *file) == file;
            before.is_some() && same && bytes + size <= PAGE as u64
        });
        match last {
            Some(work) => {
                work.need = work.need.max(need);
                if let (Some(file), true) = (file, size <= SMALL) {
                    // Gaps may be read along.
                    let gap = checkpoint.file(file).source.pace().gap * work.items.len() as u64;
                    let room = WINDOW.min(share.saturating_sub(work.need.beside + work.need.written));
                    work.need.read = work.need.read.max((bytes + size + gap).min(room));
                }
                work.items.push(item);
                bytes += size;
            }
            None => {
                works.push(Work { items: vec![item], need });
                bytes = size;
            }
        }
    }
    works
}

/// How many items from the first on are read as one, if that takes at most `room` bytes.
pub(crate) fn near<S>(checkpoint: &Checkpoint, items: &[Item<'_, S>], room: u64) -> usize {
    let Some((file, first)) = items.first().filter(|i| i.straight).and_then(|i| i.span.as_ref()) else {
        return 1;
    };
    let gap = checkpoint.file(*file).source.pace().gap;
    let mut end = first.start;
    let small = items.iter().take_while(|item| {
        let Some((f, range)) = item.span.as_ref().filter(|_| item.straight) else { return false };
        let fits = f == file
            && range.end - range.start <= SMALL
            && range.start.saturating_sub(end) <= gap
            && range.end.max(end) - first.start <= room;
        end = end.max(range.end);
        fits
    });
    small.count()
}

/// Returns the file and the range that cover the spans of neighbouring items.
pub(crate) fn span<S>(items: &[Item<'_, S>]) -> Option<(FileId, Range<u64>)> {
    let mut spans = items.iter().filter_map(|i| i.span.as_ref());
    let (file, first) = spans.next()?;
    Some((*file, first.start..spans.map(|(_, r)| r.end).fold(first.end, u64::max)))
}
