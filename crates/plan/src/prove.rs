//! The proof of coverage. It knows nothing about how pieces are made.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::piece::PlannedPlane;

/// Boxes that one proof may look at.
pub(crate) const STEPS: u64 = 1 << 22;
/// Nested strides that one proof may follow.
const LEVELS: u32 = 64;

/// Why a plane is not proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unproven {
    /// A byte is written never, twice, or lies past the end.
    #[error("byte {byte} of {bytes} is not written exactly once")]
    Uncovered {
        /// The first byte that the proof stumbled on, counted inside the innermost block it looked at.
        byte: u64,
        /// Bytes of that block.
        bytes: u64,
    },
    /// The pieces interleave too finely to be proved in bounded time.
    #[error("the pieces interleave too finely to be proved")]
    TooFine,
}

/// Proves that the pieces of `plane` write each of its bytes exactly once.
///
/// Runs are never enumerated: the plane is cut into blocks of the widest stride, and blocks with the same
/// tenants are proved once.
///
/// # Errors
/// [`Unproven::Uncovered`] if they do not; [`Unproven::TooFine`] if finding out takes too long.
pub fn prove(plane: &PlannedPlane) -> Result<(), Unproven> {
    prove_within(plane, STEPS).map(|_| ())
}

/// As [`prove`], in at most `steps`; gives back how many are left.
pub(crate) fn prove_within(plane: &PlannedPlane, steps: u64) -> Result<u64, Unproven> {
    let lattice = |p: &crate::Piece| Lattice {
        at: p.target_offset,
        run: p.run,
        dims: p.dims.iter().map(|d| (d.extent, d.target_stride)).collect(),
    };
    let boxes: Vec<Lattice> = plane.copy.iter().map(lattice).collect();
    for b in &boxes {
        // From here on nothing can overflow.
        if b.end().is_none_or(|end| end > plane.bytes) || b.run == 0 {
            return Err(Unproven::Uncovered { byte: b.at.min(plane.bytes), bytes: plane.bytes });
        }
    }
    let mut proof = Proof { left: steps };
    proof.cover(plane.bytes, boxes, LEVELS)?;
    Ok(proof.left)
}

/// Where a piece writes.
#[derive(Clone)]
struct Lattice {
    at: u64,
    run: u64,
    /// Extent and stride, widest stride first.
    dims: Vec<(u64, u64)>,
}

impl Lattice {
    fn end(&self) -> Option<u64> {
        self.dims.iter().try_fold(self.at.checked_add(self.run)?, |end, d| {
            end.checked_add(d.0.checked_sub(1)?.checked_mul(d.1)?)
        })
    }
}

struct Proof {
    left: u64,
}

impl Proof {
    fn spend(&mut self, steps: u64) -> Result<(), Unproven> {
        self.left = self.left.checked_sub(steps).ok_or(Unproven::TooFine)?;
        Ok(())
    }

    fn cover(&mut self, len: u64, boxes: Vec<Lattice>, levels: u32) -> Result<(), Unproven> {
        self.spend(boxes.len() as u64 + 1)?;
        let Some(block) = boxes.iter().filter_map(|b| b.dims.first()).map(|d| d.1).max() else {
            return runs_cover(len, &boxes);
        };
        let levels = levels.checked_sub(1).ok_or(Unproven::TooFine)?;
        if block == 0 {
            return Err(Unproven::Uncovered { byte: 0, bytes: len });
        }
        let mut spans = self.spans(block, boxes)?;
        spans.sort_by_key(|s| s.first);
        let ends = [0, len / block, len.div_ceil(block)];
        let mut cuts: Vec<u64> = spans.iter().flat_map(|s| [s.first, s.last]).chain(ends).collect();
        cuts.sort_unstable();
        cuts.dedup();
        if spans.iter().all(|s| s.inner.dims.is_empty()) {
            return self.sweep(len, block, &cuts, &spans);
        }
        let (mut live, mut next) = (Vec::<usize>::new(), 0);
        for w in cuts.windows(2) {
            live.retain(|&i| spans[i].last > w[0]);
            while next < spans.len() && spans[next].first <= w[0] {
                live.push(next);
                next += 1;
            }
            if w[0] * block >= len {
                return Err(Unproven::Uncovered { byte: len, bytes: len });
            }
            let tenants = live.iter().map(|&i| spans[i].inner.clone()).collect();
            self.cover(block.min(len - w[0] * block), tenants, levels)?;
        }
        Ok(())
    }

    /// The blocks one after another, where only runs are left in them: from block to block only what comes
    /// and goes is looked at.
    fn sweep(&mut self, len: u64, block: u64, cuts: &[u64], spans: &[Span]) -> Result<(), Unproven> {
        let mut ends: Vec<&Span> = spans.iter().collect();
        ends.sort_by_key(|s| s.last);
        let (mut starts, mut ends) = (spans.iter().peekable(), ends.into_iter().peekable());
        let (mut tenants, mut held) = (BTreeMap::<u64, u64>::new(), 0);
        for w in cuts.windows(2) {
            let size = block.min(len.saturating_sub(w[0].saturating_mul(block)));
            let uncovered = |byte| Err(Unproven::Uncovered { byte, bytes: size });
            while let Some(gone) = ends.next_if(|s| s.last <= w[0]) {
                self.spend(1)?;
                tenants.remove(&gone.inner.at);
                held -= gone.inner.run;
            }
            while let Some(new) = starts.next_if(|s| s.first <= w[0]) {
                self.spend(1)?;
                let (at, end) = (new.inner.at, new.inner.at + new.inner.run);
                let before = tenants.range(..end).next_back();
                if before.is_some_and(|(start, run)| start + run > at) {
                    return uncovered(at);
                }
                tenants.insert(at, new.inner.run);
                held += new.inner.run;
            }
            // None overlap: if they hold as much as the block and end inside it, they fill it.
            let end = tenants.last_key_value().map_or(0, |(at, run)| at + run);
            if size == 0 || held != size || end > size {
                return uncovered(end.min(size));
            }
        }
        Ok(())
    }

    /// Each box as the blocks that it is in, and what it is within each of them.
    fn spans(&mut self, block: u64, boxes: Vec<Lattice>) -> Result<Vec<Span>, Unproven> {
        let (mut work, mut spans) = (boxes, vec![]);
        while let Some(b) = work.pop() {
            self.spend(1)?;
            let repeats = b.dims.first().is_some_and(|d| d.1 == block);
            let inner =
                Lattice { at: b.at % block, run: b.run, dims: b.dims[usize::from(repeats)..].to_vec() };
            let reach: u64 = inner.dims.iter().map(|d| (d.0 - 1) * d.1).sum();
            if inner.at + inner.run + reach <= block {
                let (first, blocks) = (b.at / block, if repeats { b.dims[0].0 } else { 1 });
                spans.push(Span { first, last: first + blocks, inner });
            } else if let Some(&(n, stride)) = b.dims.first() {
                self.spend(n)?;
                let step = |i| Lattice { at: b.at + i * stride, run: b.run, dims: b.dims[1..].to_vec() };
                work.extend((0..n).map(step));
            } else {
                // A run over several blocks: a head, whole blocks, a tail.
                let (end, first, last) = (b.at + b.run, b.at.div_ceil(block), (b.at + b.run) / block);
                let run = |at, run| Lattice { at, run, dims: vec![] };
                if first < last {
                    spans.push(Span { first, last, inner: run(0, block) });
                }
                if b.at < first * block {
                    work.push(run(b.at, first * block - b.at));
                }
                if last * block < end {
                    work.push(run(last * block, end - last * block));
                }
            }
        }
        Ok(spans)
    }
}

/// A box that looks the same in each of the blocks `first..last`.
struct Span {
    first: u64,
    last: u64,
    inner: Lattice,
}

fn runs_cover(len: u64, boxes: &[Lattice]) -> Result<(), Unproven> {
    let mut runs: Vec<_> = boxes.iter().map(|b| (b.at, b.run)).collect();
    runs.sort_unstable();
    let mut next = 0;
    for (at, run) in runs {
        if at != next {
            return Err(Unproven::Uncovered { byte: next.min(at), bytes: len });
        }
        next = at + run;
    }
    if next == len { Ok(()) } else { Err(Unproven::Uncovered { byte: next.min(len), bytes: len }) }
}
