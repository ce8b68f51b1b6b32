//! Pieces: strided boxes of bytes, and what they make up.

use std::ops::Range;

/// One plane of one checkpoint entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceSource {
    /// Index into the entries.
    pub entry: usize,
    /// Index into that entry's planes.
    pub plane: usize,
}

/// One dimension of a strided box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Number of steps, at least 2.
    pub extent: u64,
    /// Bytes from one step to the next in the source; 0 repeats a cell that the target spells out.
    pub source_stride: u64,
    /// Bytes from one step to the next in the target.
    pub target_stride: u64,
}

/// A strided box of bytes without a direction: `run` bytes at each point of `dims`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Where the bytes come from; `None` means zeros.
    pub source: Option<PieceSource>,
    /// Offset of the first run from the start of the entry's plane, in bytes; 0 for zeros.
    pub source_offset: u64,
    /// Offset of the first run from the start of the target's plane, in bytes.
    pub target_offset: u64,
    /// Bytes that are contiguous on both sides.
    pub run: u64,
    /// Widest target stride first.
    pub dims: Vec<Dim>,
}

/// One plane of a parameter, and the pieces that fill it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPlane {
    /// The plane's role in its scheme.
    pub role: &'static str,
    /// Bytes of the plane.
    pub bytes: u64,
    /// Each byte exactly once, in target order of first bytes.
    pub copy: Vec<Piece>,
    /// Source bytes that must equal what `copy` wrote there: several sources feed one shared cell.
    pub equal: Vec<Piece>,
}

impl PlannedPlane {
    /// Returns the entry, its plane and the offset in that plane of one contiguous run that is this whole plane, if
    /// there is one: the plane can then be borrowed from a map instead of copied.
    pub fn borrowable(&self) -> Option<(usize, usize, u64)> {
        match (&self.copy[..], &self.equal[..]) {
            ([Piece { source: Some(from), source_offset, target_offset: 0, run, dims }], [])
                if dims.is_empty() && *run == self.bytes =>
            {
                Some((from.entry, from.plane, *source_offset))
            }
            _ => None,
        }
    }
}

impl Piece {
    /// A whole plane of zeros.
    pub(crate) fn zeros(bytes: u64) -> Piece {
        Piece { source: None, source_offset: 0, target_offset: 0, run: bytes, dims: vec![] }
    }

    /// A piece from offsets and strides in cells of `cell` bytes; dimensions in any order.
    pub(crate) fn from_cells(
        source: Option<(PieceSource, u64)>,
        target: u64,
        mut dims: Vec<Dim>,
        cell: u64,
    ) -> Piece {
        for d in &mut dims {
            // Zeros are as contiguous as their target.
            d.source_stride = cell * if source.is_some() { d.source_stride } else { d.target_stride };
            d.target_stride *= cell;
        }
        Piece {
            source: source.map(|s| s.0),
            source_offset: source.map_or(0, |s| s.1 * cell),
            target_offset: target * cell,
            run: cell,
            dims,
        }
        .normal()
    }

    /// Takes `next` in if it continues this piece on both sides.
    pub(crate) fn extend(&mut self, next: &Piece) -> bool {
        let continues = self.dims == next.dims
            && self.source == next.source
            && self.target_offset + self.run == next.target_offset
            && (self.source.is_none() || self.source_offset + self.run == next.source_offset);
        if continues {
            self.run += next.run;
        }
        continues
    }

    /// The same bytes with the fewest dimensions: sorted, joined where one continues the other, and the
    /// innermost made part of the run.
    fn normal(mut self) -> Piece {
        self.dims.retain(|d| d.extent > 1);
        self.dims.sort_by_key(|d| (std::cmp::Reverse(d.target_stride), d.source_stride));
        let mut dims: Vec<Dim> = Vec::with_capacity(self.dims.len());
        for d in self.dims {
            let span = |stride: u64| d.extent.checked_mul(stride);
            match dims.last_mut() {
                Some(l)
                    if span(d.source_stride) == Some(l.source_stride)
                        && span(d.target_stride) == Some(l.target_stride) =>
                {
                    *l = Dim { extent: l.extent * d.extent, ..d };
                }
                _ => dims.push(d),
            }
        }
        while let Some(last) = dims.last()
            && last.source_stride == self.run
            && last.target_stride == self.run
        {
            self.run *= last.extent;
            dims.pop();
        }
        self.dims = dims;
        self
    }

    /// The number of runs.
    pub fn run_count(&self) -> u64 {
        self.dims.iter().map(|d| d.extent).product()
    }

    /// Bytes that the piece writes.
    pub fn bytes(&self) -> u64 {
        self.run_count() * self.run
    }

    /// Calls `f(source offset, target offset)` for each run of `run` bytes.
    pub fn runs(&self, mut f: impl FnMut(u64, u64)) {
        walk(&self.dims, self.source_offset, self.target_offset, &mut f);
    }

    /// Adds to `out` pieces for just those bytes of this one that lie in `target`, a range of bytes of the
    /// target plane. Offsets stay counted from the start of the plane.
    pub fn clip(&self, target: Range<u64>, out: &mut Vec<Piece>) {
        let Some(d) = self.dims.first().copied() else { return self.clip_run(target, out) };
        let inner = self.run + self.dims[1..].iter().map(|d| (d.extent - 1) * d.target_stride).sum::<u64>();
        let last = self.target_offset + (d.extent - 1) * d.target_stride;
        if target.start >= target.end || self.target_offset >= target.end || last + inner <= target.start {
            return;
        }
        // A stride of 0 (a repeat, right to left) puts every step in the same place: all or nothing.
        let stride = d.target_stride.max(1);
        let first = |base: u64, bound: u64| match bound.saturating_sub(base).div_ceil(stride) {
            0 => 0,
            steps => {
                if d.target_stride == 0 {
                    d.extent
                } else {
                    steps.min(d.extent)
                }
            }
        };
        let at = self.target_offset;
        // Steps a..b straddle the start, b..c lie inside, c..e straddle the end.
        let (a, b) = (first(at + inner - 1, target.start), first(at, target.start));
        let (c, e) = (first(at + inner - 1, target.end), first(at, target.end));
        let steps = |from: u64, n: u64| {
            let mut dims = self.dims.clone();
            dims[0].extent = n;
            if n == 1 {
                dims.remove(0);
            }
            Piece {
                source: self.source,
                source_offset: self.source_offset
                    + if self.source.is_some() { from * d.source_stride } else { 0 },
                target_offset: self.target_offset + from * d.target_stride,
                run: self.run,
                dims,
            }
        };
        for x in a..b.min(e) {
            steps(x, 1).clip(target.clone(), out);
        }
        if b < c {
            out.push(steps(b, c - b));
        }
        for x in b.max(c)..e {
            steps(x, 1).clip(target.clone(), out);
        }
    }

    fn clip_run(&self, target: Range<u64>, out: &mut Vec<Piece>) {
        let start = self.target_offset.max(target.start);
        let end = (self.target_offset + self.run).min(target.end);
        if start < end {
            let skipped = if self.source.is_some() { start - self.target_offset } else { 0 };
            out.push(Piece {
                source_offset: self.source_offset + skipped,
                target_offset: start,
                run: end - start,
                ..self.clone()
            });
        }
    }

    /// Reverses the piece for export: its target becomes its source, and `source` names the plane that it writes.
    /// `None` for padding, which is not written back.
    ///
    /// Where the piece repeats a cell (a source stride of 0), the reverse writes it several times; export
    /// must check that the values agree.
    pub fn reversed(&self) -> Option<Piece> {
        self.source?;
        let turn = |d: &Dim| Dim {
            extent: d.extent,
            source_stride: d.target_stride,
            target_stride: d.source_stride,
        };
        let piece = Piece {
            source: self.source,
            source_offset: self.target_offset,
            target_offset: self.source_offset,
            run: self.run,
            dims: self.dims.iter().map(turn).collect(),
        };
        Some(piece.normal())
    }
}

fn walk(dims: &[Dim], source: u64, target: u64, f: &mut impl FnMut(u64, u64)) {
    match dims {
        [] => f(source, target),
        [d] => (0..d.extent).for_each(|i| f(source + i * d.source_stride, target + i * d.target_stride)),
        [d, rest @ ..] => (0..d.extent)
            .for_each(|i| walk(rest, source + i * d.source_stride, target + i * d.target_stride, f)),
    }
}

/// Puts pieces in target order and makes neighbours one where they continue each other on both sides.
pub(crate) fn join(mut pieces: Vec<Piece>) -> Vec<Piece> {
    loop {
        let before = pieces.len();
        pieces.sort_by_key(|p| p.target_offset);
        pieces.dedup_by(|next, p| p.extend(next));
        if pieces.len() == before {
            return pieces;
        }
        // A longer run may now fill its innermost stride, and so continue another piece.
        pieces = pieces.into_iter().map(Piece::normal).collect();
    }
}
