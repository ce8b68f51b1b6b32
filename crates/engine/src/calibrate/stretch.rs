//! A part of the way through the layers.

use std::ops::Range;

use super::Part;
use crate::Model;
use crate::layer::Branch;

/// Some of the branches of a model, which passes of a session run instead of all of them.
///
/// A disturbed matrix changes nothing before it, so passes of a disturbed model begin at the branch of that matrix.
pub(crate) struct Stretch {
    pub(crate) branches: Range<usize>,
    /// The number of branches that there are.
    all: usize,
    hidden: usize,
    /// The residual stream of each position before the first of `branches`: `[positions, hidden]`. Before branch 0 it is not known, and
    /// passes look up their tokens.
    x: Vec<f32>,
    /// Whether passes put the residual stream after the last of `branches` into `x`.
    keeps: bool,
}

impl Stretch {
    /// All branches of `model`, for `positions` positions; `None` if there is not the memory.
    pub(super) fn all(model: &Model, positions: usize) -> Option<Stretch> {
        let (hidden, all) = (model.hidden(), model.branches().len());
        let mut x = Vec::new();
        x.try_reserve_exact(positions.checked_mul(hidden)?).ok()?;
        x.resize(positions * hidden, 0.0);
        Some(Stretch { branches: 0..all, all, hidden, x, keeps: false })
    }

    /// The residual stream of `count` positions from `position` on before the first branch, if it is not that of tokens.
    pub(crate) fn before(&self, position: usize, count: usize) -> Option<&[f32]> {
        (self.branches.start > 0).then(|| &self.x[position * self.hidden..][..count * self.hidden])
    }

    /// Takes the residual stream `x` after the last of the branches, of positions from `position` on, if passes are to keep it.
    pub(crate) fn keep(&mut self, position: usize, x: &[f32]) {
        if self.keeps {
            self.x[position * self.hidden..][..x.len()].copy_from_slice(x);
        }
    }

    /// Ends before `branch`, so that the next passes keep the residual stream there. Returns whether passes are needed for that: a stretch
    /// that begins at `branch` has it.
    pub(super) fn until(&mut self, branch: usize) -> bool {
        if branch < self.branches.start {
            self.branches.start = 0;
        }
        self.branches.end = branch;
        self.keeps = true;
        !self.branches.is_empty()
    }

    /// Goes from where it ends to the end.
    pub(super) fn go_on(&mut self) {
        self.branches = self.branches.end..self.all;
        self.keeps = false;
    }
}

/// The branch that passes can begin with if nothing but `part` is disturbed: all of them, if it is the output matrix.
pub(super) fn first_branch(model: &Model, part: &Part) -> usize {
    let branches = model.branches();
    let has = |branch: &Branch| branch.layer.projections().iter().any(|p| p.path == part.path);
    let mut first = branches.iter().position(has).unwrap_or(branches.len());
    // Branches beside each other have one input.
    while first > 0 && branches.get(first).is_some_and(|branch| branch.parallel) {
        first -= 1;
    }
    first
}
