//! Reading what pieces need, in few ranges, and copying them out of these.

use std::ops::Range;

use plan::{Dim, Piece, PlannedPlane, Read};
use tensor::FileId;

use crate::Error;
use crate::io::read::{Own, Reader};
use crate::memory::ledger::Window;
use crate::schedule::sources::{Way, clip, extent, gap, place_of, ranges, taken};
use crate::sizes::{WINDOW, size};

impl Reader<'_, '_> {
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
                // Each piece was checked to have a place before anything was read.
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
                // Pieces before `first` end before this window, and so before all later ones.
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
                    // The part in the window: the source of the piece is the target of its reverse.
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
