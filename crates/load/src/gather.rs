//! Reading what pieces need, in few ranges, and copying them out of these.

use std::ops::Range;

use checkpoint::{Checkpoint, File};
use plan::{Dim, Piece, PlannedPlane, Read};
use tensor::FileId;

use crate::Error;
use crate::executor::Run;
use crate::item::WINDOW;
use crate::memory::Window;

/// A run of at least so many bytes is read where it belongs, without a buffer.
const LONG: u64 = 64 << 10;

/// Bytes from a piece's first to its last, in the source.
pub(crate) fn extent(piece: &Piece) -> u64 {
    piece.run + piece.dims.iter().map(|d| (d.extent - 1) * d.source_stride).sum::<u64>()
}

/// Whether the piece is one run, and needs no buffer.
pub(crate) fn is_straight(piece: &Piece) -> bool {
    piece.dims.is_empty()
}

/// The piece's file and the offset there of its first byte.
pub(crate) fn place_of(checkpoint: &Checkpoint, piece: &Piece) -> Option<(FileId, u64)> {
    let from = piece.source?;
    let data = checkpoint.entries().get(from.entry)?.planes.get(from.plane)?;
    Some((data.file, data.bytes.start + piece.source_offset))
}

/// The ranges that pieces are read in.
pub(crate) fn ranges(checkpoint: &Checkpoint, pieces: &[Piece], gap: u64, longest: u64) -> Vec<Read> {
    plan::reads_of(pieces, checkpoint.entries(), gap, longest)
}

/// How a piece gets to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is padding.
    Zeros,
    /// It is read where it belongs.
    Straight,
    /// It is copied out of a map, run by run: it is cut so finely that reading it would read along what lies between.
    Lent,
    /// What it lies in is read, and it is copied out of that.
    Read,
}

/// What decides on the ways of pieces.
#[derive(Clone, Copy)]
pub(crate) struct Ways<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// Somebody wants to see all that is read: then nothing is lent.
    pub(crate) observed: bool,
}

impl Ways<'_> {
    /// The way of a piece; `only` if its item has no other.
    pub(crate) fn of(self, piece: &Piece, only: bool) -> Way {
        if piece.source.is_none() {
            Way::Zeros
        } else if is_straight(piece) && (only || piece.run >= LONG) {
            Way::Straight
        } else if self.is_lent(piece) {
            Way::Lent
        } else {
            Way::Read
        }
    }

    /// Whether a piece that is not read where it belongs is copied out of a map.
    pub(crate) fn is_lent(self, piece: &Piece) -> bool {
        let Some((file, _)) = place_of(self.checkpoint, piece).filter(|_| !self.observed) else {
            return false;
        };
        let source = &self.checkpoint.file(file).source;
        plan::reads_along(piece, source.pace().gap) && source.mapped().is_some()
    }
}

/// Bytes that a piece takes of its source; what it repeats counts once.
pub(crate) fn taken(piece: &Piece) -> u64 {
    let distinct = piece.dims.iter().filter(|d| d.source_stride > 0);
    distinct.map(|d| d.extent).product::<u64>() * piece.run
}

/// What a thread keeps for itself.
#[derive(Default)]
pub(crate) struct Own {
    pieces: Vec<Piece>,
    clipped: Vec<Piece>,
    pub(crate) bytes_read: u64,
}

impl Run<'_, '_> {
    /// Bytes `range` of a moved plane to `target`.
    pub(crate) fn fill(
        &self,
        plane: &PlannedPlane,
        range: &Range<u64>,
        target: &mut [u8],
        read: &mut Window,
        own: &mut Own,
    ) -> Result<(), Error> {
        let mut pieces = std::mem::take(&mut own.pieces);
        pieces.clear();
        clip(&plane.copy, range, &mut pieces);
        let (only, ways) = (pieces.len() == 1, self.ways());
        let mut failed = None;
        pieces.retain(|piece| {
            let to = size(piece.target_offset - range.start);
            match (ways.of(piece, only), place_of(self.checkpoint, piece)) {
                (Way::Straight, Some((file, offset))) => {
                    if failed.is_none() {
                        let run = &mut target[to..][..size(piece.run)];
                        failed = self.read(file, offset, run, own).err();
                    }
                    false
                }
                (Way::Zeros, _) => {
                    piece.runs(|_, at| target[size(at - range.start)..][..size(piece.run)].fill(0));
                    false
                }
                // That each has a place was seen before anything was read.
                _ => true,
            }
        });
        let done = match failed {
            Some(error) => Err(error),
            None => self.windows(&mut pieces, read, own, |piece, window, at| {
                strided(window, at, target, size(piece.target_offset - range.start), piece);
            }),
        };
        own.pieces = pieces;
        done
    }

    /// Goes through what `pieces` need, window by window, and calls `f` with each piece, or the part of it that is in the
    /// window, the window, and where in it the piece begins. A window is read, or is part of a map.
    fn windows(
        &self,
        pieces: &mut [Piece],
        read: &mut Window,
        own: &mut Own,
        mut f: impl FnMut(&Piece, &[u8], usize),
    ) -> Result<(), Error> {
        let ways = self.ways();
        pieces.sort_by_cached_key(|piece| ways.is_lent(piece));
        let (others, lent) = pieces.split_at(pieces.partition_point(|piece| !ways.is_lent(piece)));
        for (pieces, lent) in [(others, false), (lent, true)] {
            let longest = if lent { WINDOW } else { read.room.max(1) };
            let reads = ranges(self.checkpoint, pieces, gap(self.checkpoint, pieces), longest);
            let mut clipped = std::mem::take(&mut own.clipped);
            let mut placed: Vec<(FileId, u64, &Piece)> = pieces
                .iter()
                .filter_map(|p| place_of(self.checkpoint, p).map(|(file, at)| (file, at, p)))
                .collect();
            placed.sort_by_key(|(file, at, _)| (*file, *at));
            let mut first = 0;
            for Read { file, range } in reads {
                let source = &self.checkpoint.file(file).source;
                let mapped = source.mapped().filter(|_| lent);
                let window = match mapped.and_then(|map| map.get(size(range.start)..size(range.end))) {
                    Some(window) => {
                        self.pulse()?;
                        window
                    }
                    None => {
                        let window = read.bytes(size(range.end - range.start));
                        self.read(file, range.start, window, own)?;
                        window
                    }
                };
                let mut each = |piece: &Piece, at: usize| {
                    if lent {
                        own.bytes_read += taken(piece);
                    }
                    f(piece, window, at);
                };
                // Those before `first` end before this window, and so before all others.
                while let Some((f, at, p)) = placed.get(first)
                    && (*f, at + extent(p)) <= (file, range.start)
                {
                    first += 1;
                }
                for (_, at, piece) in
                    placed[first..].iter().take_while(|(f, at, _)| (*f, *at) < (file, range.end))
                {
                    let end = at + extent(piece);
                    if end <= range.start {
                        continue;
                    }
                    if range.start <= *at && end <= range.end {
                        each(piece, size(at - range.start));
                        continue;
                    }
                    // The part in the window: what is the source of the piece is the target of its reverse.
                    let base = at - piece.source_offset;
                    let within = range.start.saturating_sub(base)..range.end.saturating_sub(base);
                    clipped.clear();
                    piece.reversed().iter().for_each(|r| r.clip(within.clone(), &mut clipped));
                    for part in clipped.iter().filter_map(Piece::reversed) {
                        each(&part, size(base + part.source_offset - range.start));
                    }
                }
                if lent {
                    source.leave(range);
                }
            }
            own.clipped = clipped;
        }
        Ok(())
    }

    fn ways(&self) -> Ways<'_> {
        Ways { checkpoint: self.checkpoint, observed: self.options.observe.is_some() }
    }

    /// Checks that the sources which share a cell agree with `bytes`, what was written of `range`.
    pub(crate) fn agree(
        &self,
        param: &str,
        plane: &PlannedPlane,
        range: &Range<u64>,
        bytes: &[u8],
        read: &mut Window,
        own: &mut Own,
    ) -> Result<(), Error> {
        if plane.equal.is_empty() {
            return Ok(());
        }
        let mut pieces = vec![];
        clip(&plane.equal, range, &mut pieces);
        let mut wrong: Option<u64> = None;
        self.windows(&mut pieces, read, own, |piece, window, at| {
            piece.runs(|from, to| {
                let from = at + size(from - piece.source_offset);
                let (at, run) = (size(to - range.start), size(piece.run));
                if bytes.get(at..at + run) != window.get(from..from + run) {
                    wrong = Some(wrong.map_or(to, |first| first.min(to)));
                }
            });
        })?;
        match wrong {
            Some(at) => {
                let mut pieces = vec![];
                clip(&plane.copy, &(at..at + 1), &mut pieces);
                clip(&plane.equal, &(at..at + 1), &mut pieces);
                let entries = pieces.iter().filter_map(|p| self.checkpoint.entries().get(p.source?.entry));
                let sources = entries.map(|entry| format!("`{}`", entry.name)).collect();
                Err(Error::Disagree { param: param.to_owned(), role: plane.role, sources, at })
            }
            None => Ok(()),
        }
    }

    /// Reads bytes of a file to where they belong.
    pub(crate) fn read(&self, id: FileId, offset: u64, buf: &mut [u8], own: &mut Own) -> Result<(), Error> {
        let file: &File = self.checkpoint.file(id);
        let longest = size(file.source.pace().longest).max(1);
        let mut at = offset;
        for part in buf.chunks_mut(longest) {
            self.pulse()?;
            let bytes = part.len() as u64;
            file.source.read_at(at, part).map_err(|source| match file.unchanged() {
                Err(changed) => Error::Changed(changed),
                Ok(()) => Error::Io { path: file.path.clone(), offset: at, bytes, source },
            })?;
            if let Some(observe) = self.options.observe {
                observe(id, at, part);
            }
            own.bytes_read += bytes;
            at += bytes;
        }
        Ok(())
    }
}

/// The gap over which pieces are read together.
pub(crate) fn gap(checkpoint: &Checkpoint, pieces: &[Piece]) -> u64 {
    let first = pieces.first().and_then(|p| place_of(checkpoint, p));
    first.map_or(0, |(file, _)| checkpoint.file(file).source.pace().gap)
}

/// The parts of `pieces`, which are in target order of first bytes, that write to `range`.
pub(crate) fn clip(pieces: &[Piece], range: &Range<u64>, out: &mut Vec<Piece>) {
    let after = pieces.partition_point(|p| p.target_offset < range.end);
    // Runs end in the order in which they begin: of those that begin before the range, the last alone reaches into it.
    let before = pieces.partition_point(|p| p.target_offset <= range.start).saturating_sub(1);
    let before = if pieces[..before].iter().all(is_straight) { before } else { 0 };
    for piece in &pieces[before..after] {
        piece.clip(range.clone(), out);
    }
}

/// Copies the runs of `piece` from `source`, where it begins at `at`, to `target`, where it begins at `to`. The plan
/// has proved that all lie inside.
fn strided(source: &[u8], at: usize, target: &mut [u8], to: usize, piece: &Piece) {
    match piece.run {
        1 => cells::<1>(source, at, target, to, &piece.dims),
        2 => cells::<2>(source, at, target, to, &piece.dims),
        4 => cells::<4>(source, at, target, to, &piece.dims),
        8 => cells::<8>(source, at, target, to, &piece.dims),
        run => runs(source, at, target, to, size(run), &piece.dims),
    }
}

fn runs(source: &[u8], at: usize, target: &mut [u8], to: usize, run: usize, dims: &[Dim]) {
    match dims {
        [] => target[to..to + run].copy_from_slice(&source[at..at + run]),
        [d, rest @ ..] => {
            let (from, by) = (size(d.source_stride), size(d.target_stride));
            for i in 0..size(d.extent) {
                runs(source, at + i * from, target, to + i * by, run, rest);
            }
        }
    }
}

/// The same for short runs, whose length the compiler knows.
fn cells<const N: usize>(source: &[u8], at: usize, target: &mut [u8], to: usize, dims: &[Dim]) {
    let (Some(d), rest) = (dims.first(), dims.get(1..).unwrap_or_default()) else {
        return target[to..to + N].copy_from_slice(&source[at..at + N]);
    };
    let (from, by) = (size(d.source_stride), size(d.target_stride));
    for i in 0..size(d.extent) {
        let (at, to) = (at + i * from, to + i * by);
        if rest.is_empty() {
            target[to..to + N].copy_from_slice(&source[at..at + N]);
        } else {
            cells::<N>(source, at, target, to, rest);
        }
    }
}

/// An extent that is memory, or part of some that is.
pub(crate) fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
