//! The reads of a plan, as few ranges of files.

use std::ops::Range;

use tensor::{FileId, TensorEntry};

use crate::compile::LoadPlan;
use crate::piece::{Dim, Piece};

/// Ranges that one piece may be read in; a finer one is read as fewer, longer ranges.
const RANGES: u64 = 1 << 16;

/// One range of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub file: FileId,
    /// Bytes from the start of the file.
    pub range: Range<u64>,
}

impl Read {
    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The ranges that `plan` needs of the files of `entries`, sorted by file and offset and never overlapping.
///
/// Ranges at most `gap` bytes apart are read as one. None is longer than `max` bytes (0: no limit). A plane
/// that is needed in very many short runs is read whole, where the alternative is as many reads.
pub fn reads(plan: &LoadPlan, entries: &[TensorEntry], gap: u64, max: u64) -> Vec<Read> {
    let mut found = vec![];
    for param in &plan.params {
        for piece in param.from_entries().flat_map(|p| p.copy.iter().chain(&p.equal)) {
            piece_reads(piece, entries, gap, &mut found);
        }
    }
    coalesce(found, gap, max)
}

/// The same of some pieces of these entries.
pub fn reads_of(pieces: &[Piece], entries: &[TensorEntry], gap: u64, max: u64) -> Vec<Read> {
    let mut found = vec![];
    for piece in pieces {
        piece_reads(piece, entries, gap, &mut found);
    }
    coalesce(found, gap, max)
}

/// Whether reading `piece` in ranges as [`reads_of`] does reads along what lies between its runs.
pub fn reads_along(piece: &Piece, gap: u64) -> bool {
    ranges(piece, gap).holes
}

pub(crate) fn piece_reads(piece: &Piece, entries: &[TensorEntry], gap: u64, out: &mut Vec<Read>) {
    let Some(source) = piece.source else { return };
    let data = &entries[source.entry].planes[source.plane];
    let Ranges { span, dims, .. } = ranges(piece, gap);
    let start = data.bytes.start + piece.source_offset;
    each(&dims, start, &mut |at| out.push(Read { file: data.file, range: at..at + span }));
}

/// The ranges that a piece is read in: `span` bytes at each point of `dims`.
struct Ranges {
    span: u64,
    /// Narrowest stride first.
    dims: Vec<Dim>,
    /// Some bytes of `span` are not the piece's.
    holes: bool,
}

fn ranges(piece: &Piece, gap: u64) -> Ranges {
    let mut dims: Vec<Dim> = piece.dims.iter().copied().filter(|d| d.source_stride > 0).collect();
    dims.sort_by_key(|d| d.source_stride);
    // Absorb the narrowest strides while they leave no gap, then while there are too many ranges.
    let (mut span, mut absorbed, mut holes) = (piece.run, 0, false);
    for d in &dims {
        let ranges: u64 = dims[absorbed..].iter().fold(1, |n, d| n.saturating_mul(d.extent));
        if d.source_stride > span.saturating_add(gap) && ranges <= RANGES {
            break;
        }
        holes |= d.source_stride > span;
        span += (d.extent - 1) * d.source_stride;
        absorbed += 1;
    }
    Ranges { span, dims: dims.split_off(absorbed), holes }
}

fn each(dims: &[Dim], at: u64, f: &mut impl FnMut(u64)) {
    match dims {
        [] => f(at),
        [rest @ .., d] => (0..d.extent).for_each(|i| each(rest, at + i * d.source_stride, f)),
    }
}

pub(crate) fn coalesce(mut found: Vec<Read>, gap: u64, max: u64) -> Vec<Read> {
    found.sort_unstable_by_key(|r| (r.file, r.range.start, r.range.end));
    found.dedup_by(|next, r| {
        let near = next.file == r.file && next.range.start <= r.range.end.saturating_add(gap);
        if near {
            r.range.end = r.range.end.max(next.range.end);
        }
        near
    });
    if max == 0 {
        return found;
    }
    let cut = |r: Read| {
        let mut at = r.range.start;
        std::iter::from_fn(move || {
            let start = at;
            at = at.saturating_add(max).min(r.range.end);
            (start < r.range.end).then_some(Read { file: r.file, range: start..at })
        })
    };
    found.into_iter().flat_map(cut).collect()
}
