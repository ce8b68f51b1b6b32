//! Reading what pieces need, in few ranges, and copying them out of these.

use std::ops::Range;

use checkpoint::{Checkpoint, File};
use plan::{Dim, Piece, PlannedPlane, Read};
use tensor::FileId;

use crate::Error;
use crate::executor::Run;

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
        read: &mut Vec<u8>,
        own: &mut Own,
    ) -> Result<(), Error> {
        let mut pieces = std::mem::take(&mut own.pieces);
        pieces.clear();
        clip(&plane.copy, range, &mut pieces);
        let only = pieces.len() == 1;
        let mut failed = None;
        pieces.retain(|piece| {
            let to = size(piece.target_offset - range.start);
            let Some((file, offset)) = place_of(self.checkpoint, piece) else {
                piece.runs(|_, at| target[size(at - range.start)..][..size(piece.run)].fill(0));
                return false;
            };
            let straight = is_straight(piece) && (only || piece.run >= LONG);
            if straight && failed.is_none() {
                failed = self.read(file, offset, &mut target[to..][..size(piece.run)], own).err();
            }
            !straight
        });
        let done = match failed {
            Some(error) => Err(error),
            None => self.windows(&pieces, read, own, |piece, window, at| {
                strided(window, at, target, size(piece.target_offset - range.start), piece);
            }),
        };
        own.pieces = pieces;
        done
    }

    /// Reads what `pieces` need, window by window, and calls `f` with each piece, or the part of it that is in the
    /// window, the window, and where in it the piece begins.
    fn windows(
        &self,
        pieces: &[Piece],
        read: &mut Vec<u8>,
        own: &mut Own,
        mut f: impl FnMut(&Piece, &[u8], usize),
    ) -> Result<(), Error> {
        if pieces.is_empty() {
            return Ok(());
        }
        let (gap, longest) = (self.gap(pieces), read.capacity().max(1) as u64);
        let mut placed: Vec<(FileId, u64, &Piece)> = pieces
            .iter()
            .filter_map(|p| place_of(self.checkpoint, p).map(|(file, at)| (file, at, p)))
            .collect();
        placed.sort_by_key(|(file, at, _)| (*file, *at));
        let mut first = 0;
        let mut clipped = std::mem::take(&mut own.clipped);
        for Read { file, range } in ranges(self.checkpoint, pieces, gap, longest) {
            let len = size(range.end - range.start);
            // Within the capacity, which is the longest range.
            read.resize(len.max(read.len()), 0);
            let window = &mut read[..len];
            self.read(file, range.start, window, own)?;
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
                    f(piece, window, size(at - range.start));
                    continue;
                }
                // The part in the window: what is the source of the piece is the target of its reverse.
                let base = at - piece.source_offset;
                let within = range.start.saturating_sub(base)..range.end.saturating_sub(base);
                clipped.clear();
                piece.reversed().iter().for_each(|r| r.clip(within.clone(), &mut clipped));
                for part in clipped.iter().filter_map(Piece::reversed) {
                    f(&part, window, size(base + part.source_offset - range.start));
                }
            }
        }
        own.clipped = clipped;
        Ok(())
    }

    /// Checks that the sources which share a cell agree with `bytes`, what was written of `range`.
    pub(crate) fn agree(
        &self,
        param: &str,
        plane: &PlannedPlane,
        range: &Range<u64>,
        bytes: &[u8],
        read: &mut Vec<u8>,
        own: &mut Own,
    ) -> Result<(), Error> {
        if plane.equal.is_empty() {
            return Ok(());
        }
        let mut pieces = vec![];
        clip(&plane.equal, range, &mut pieces);
        let mut wrong: Option<u64> = None;
        self.windows(&pieces, read, own, |piece, window, at| {
            piece.runs(|from, to| {
                let from = at + size(from - piece.source_offset);
                let (at, run) = (size(to - range.start), size(piece.run));
                if bytes.get(at..at + run) != window.get(from..from + run) {
                    wrong = Some(wrong.map_or(to, |first| first.min(to)));
                }
            });
        })?;
        match wrong {
            Some(at) => Err(Error::Disagree { param: param.to_owned(), role: plane.role, at }),
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
            file.source.read_at(at, part).map_err(|source| Error::Io {
                path: file.path.clone(),
                offset: at,
                bytes,
                source,
            })?;
            if let Some(observe) = self.options.observe {
                observe(id, at, part);
            }
            own.bytes_read += bytes;
            at += bytes;
        }
        Ok(())
    }

    /// The gap over which pieces are read together.
    fn gap(&self, pieces: &[Piece]) -> u64 {
        let first = pieces.first().and_then(|p| place_of(self.checkpoint, p));
        first.map_or(0, |(file, _)| self.checkpoint.file(file).source.pace().gap)
    }
}

/// The parts of `pieces`, which are in target order of first bytes, that write to `range`.
pub(crate) fn clip(pieces: &[Piece], range: &Range<u64>, out: &mut Vec<Piece>) {
    let after = pieces.partition_point(|p| p.target_offset < range.end);
    for piece in &pieces[..after] {
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
