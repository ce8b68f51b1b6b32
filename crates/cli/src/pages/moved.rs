//! Which entries the bytes of a parameter come from, and what an expression does to them.

use std::collections::{BTreeMap, BTreeSet};

use weighbridge::plan::{PieceSource, PlannedParam, PlannedPlane};
use weighbridge::tensor::Expr;

/// Where the bytes of a slot come from.
pub(super) struct Moved {
    /// By entry.
    pub(super) from: BTreeMap<usize, Part>,
    /// Bytes of the slot that are padding.
    pub(super) zeros: u64,
}

/// What one entry gives to a slot.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    /// Bytes of the entry.
    pub(super) read: u64,
    /// Bytes of the slot.
    pub(super) written: u64,
    /// Its place among the parts, by where they begin in the slot.
    pub(super) rank: usize,
}

impl Moved {
    pub(super) fn of(param: &PlannedParam) -> Moved {
        let mut moved = Moved { from: BTreeMap::new(), zeros: 0 };
        if param.tied_to.is_some() {
            return moved;
        }
        moved.add(&param.planes);
        if !param.staged.is_empty() {
            // The pieces come from parameters of their own, and theirs from entries.
            let staged = std::mem::take(&mut moved.from);
            for (at, part) in staged {
                let Some(one) = param.staged.get(at) else { continue };
                let mut own = Moved { from: BTreeMap::new(), zeros: 0 };
                own.add(&one.planes);
                let total = own.from.values().map(|p| p.written).sum();
                for (entry, own) in own.from {
                    // Almost always one entry, which is all of it.
                    let sum = moved.from.entry(entry).or_insert(Part { rank: part.rank, ..Part::default() });
                    sum.read += own.read;
                    sum.written += scaled(part.written, own.written, total);
                    sum.rank = sum.rank.min(part.rank);
                }
            }
        }
        // From bytes that are moved to bytes of the slot, cut at running sums: nothing is lost to rounding.
        let (slot, whole) = (param.slot_bytes(), param.moved.byte_len(&param.shape).unwrap_or(0));
        let (mut before, mut at) = (0, 0);
        for part in moved.from.values_mut() {
            before += part.written;
            let end = scaled(slot, before.min(whole), whole);
            part.written = end - at;
            at = end;
        }
        moved.zeros = if moved.zeros > 0 { slot - at } else { 0 };
        moved
    }

    /// Adds the bytes of pieces, as they are moved.
    fn add(&mut self, planes: &[PlannedPlane]) {
        for plane in planes {
            let all = plane.copy.iter().map(|p| (p, p.bytes())).chain(plane.equal.iter().map(|p| (p, 0)));
            for (piece, written) in all {
                let Some(PieceSource { entry, .. }) = piece.source else {
                    self.zeros += written;
                    continue;
                };
                // A repeat reads its bytes once.
                let steps: u64 =
                    piece.dims.iter().filter(|d| d.source_stride > 0).map(|d| d.extent).product();
                let rank = self.from.len();
                let part = self.from.entry(entry).or_insert(Part { rank, ..Part::default() });
                part.read += steps * piece.run;
                part.written += written;
            }
        }
    }
}

/// `of * part / whole`.
fn scaled(of: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(part) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

/// What an expression does, in a few words.
#[derive(Default)]
pub(super) struct Marks {
    fused: usize,
    stacked: usize,
    words: BTreeSet<&'static str>,
}

impl Marks {
    pub(super) fn of(expr: &Expr) -> Marks {
        let mut marks = Marks::default();
        marks.walk(expr);
        marks
    }

    fn walk(&mut self, expr: &Expr) {
        match expr {
            Expr::Source(_) => {}
            Expr::Zero(_) => _ = self.words.insert("padded"),
            Expr::Concat { parts, .. } => {
                self.fused = self.fused.max(parts.iter().filter(|part| !part.is_constant()).count());
                self.all(parts);
            }
            Expr::Stack(parts) => {
                self.stacked = self.stacked.max(parts.len());
                self.all(parts);
            }
            Expr::Slice { of, .. } => {
                self.words.insert("a slice");
                self.walk(of);
            }
            Expr::Permute { axes, of } => {
                self.words.insert(if axes[..] == [1, 0] { "transposed" } else { "reordered" });
                self.walk(of);
            }
            Expr::Split { of, .. } | Expr::Merge { of, .. } | Expr::Encode { of, .. } => self.walk(of),
        }
    }

    fn all(&mut self, parts: &[Expr]) {
        for part in parts {
            self.walk(part);
        }
    }

    /// A word or two for each.
    pub(super) fn list(&self) -> Vec<String> {
        let counted = |n: usize, what: &str| (n > 1).then(|| format!("{what} of {n}"));
        let counts = [counted(self.stacked, "stacked"), counted(self.fused, "fused")];
        counts.into_iter().flatten().chain(self.words.iter().map(ToString::to_string)).collect()
    }
}
