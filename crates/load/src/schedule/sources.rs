//! The bytes of files that pieces need, and their way from there to their places.

use std::collections::BTreeSet;
use std::ops::Range;

use checkpoint::Checkpoint;
use plan::{LoadPlan, Piece, Read};
use tensor::FileId;

use crate::Error;

/// A run of at least this many bytes is read where it belongs, without a buffer.
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
    /// A range around it is read, and it is copied out of that.
    Read,
}

/// Everything that determines the ways of pieces.
#[derive(Clone, Copy)]
pub(crate) struct Ways<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// The caller observes all that is read: then nothing is lent.
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

/// Returns the bytes that a piece takes of its source; repeated bytes count once.
pub(crate) fn taken(piece: &Piece) -> u64 {
    let distinct = piece.dims.iter().filter(|d| d.source_stride > 0);
    distinct.map(|d| d.extent).product::<u64>() * piece.run
}

/// The gap over which pieces are read together.
pub(crate) fn gap(checkpoint: &Checkpoint, pieces: &[Piece]) -> u64 {
    let first = pieces.first().and_then(|p| place_of(checkpoint, p));
    first.map_or(0, |(file, _)| checkpoint.file(file).source.pace().gap)
}

/// The parts of `pieces`, which are in target order of first bytes, that write to `range`.
pub(crate) fn clip(pieces: &[Piece], range: &Range<u64>, out: &mut Vec<Piece>) {
    let after = pieces.partition_point(|p| p.target_offset < range.end);
    // Runs end in the order in which they begin: of the runs that begin before the range, only the last reaches into
    // it.
    let before = pieces.partition_point(|p| p.target_offset <= range.start).saturating_sub(1);
    let before = if pieces[..before].iter().all(is_straight) { before } else { 0 };
    for piece in &pieces[before..after] {
        piece.clip(range.clone(), out);
    }
}

/// The files that a plan needs something of.
///
/// # Errors
/// If it needs something that is not in `checkpoint`.
pub(crate) fn files_of(plan: &LoadPlan, checkpoint: &Checkpoint) -> Result<BTreeSet<FileId>, Error> {
    let mut files = BTreeSet::new();
    for param in &plan.params {
        for piece in param.from_entries().flat_map(|plane| plane.copy.iter().chain(&plane.equal)) {
            let Some(from) = piece.source else { continue };
            let (file, _) = place_of(checkpoint, piece)
                .ok_or_else(|| Error::NoSource { param: param.name.clone(), entry: from.entry })?;
            files.insert(file);
        }
    }
    Ok(files)
}

/// Checks that files are unchanged since they were opened.
pub(crate) fn unchanged(checkpoint: &Checkpoint, files: &BTreeSet<FileId>) -> Result<(), Error> {
    files.iter().try_for_each(|id| Ok(checkpoint.file(*id).read_unchanged()?))
}

/// The number of threads of a load that is given `threads`. Direct reads wait for the disk, so they get more threads than
/// there are processors.
pub(crate) fn threads(checkpoint: &Checkpoint, given: usize) -> usize {
    checkpoint.files().iter().map(|f| f.source.pace().depth).fold(given.max(1), usize::max)
}
