//! Which positions of a prompt are kept, where not all are.
//!
//! Source: SnapKV (Li et al. 2024, arXiv 2404.14469); the numbers are those of NVIDIA's KVPress 0.5.4, `SnapKVPress`. The last
//! queries of a prompt choose the positions before them that are kept: they look at these most, or at their neighbours.

use std::ops::Range;

/// The last queries of a prompt, which choose what is kept; their own positions are kept whatever they choose.
pub const OBSERVED: usize = 64;

/// Weights are summed over as many neighbours, so that what is kept is not torn out of its place.
const POOLED: usize = 5;

/// The last queries of a session in one layer.
#[derive(Debug)]
pub(crate) struct Observed {
    /// `[OBSERVED, heads · elements of a key]`: that of position `p` is in row `p % OBSERVED`.
    rows: Vec<f32>,
    /// The positions that are there.
    positions: Range<usize>,
}

impl Observed {
    /// Room for queries of `width` elements.
    pub(crate) fn new(width: usize) -> Observed {
        Observed { rows: vec![0.0; OBSERVED * width], positions: 0..0 }
    }

    /// Adds the queries at `position` and after it; those that were there are forgotten. A row may have more than its query.
    pub(crate) fn add<'a>(&mut self, position: usize, rows: impl Iterator<Item = &'a [f32]>) {
        self.truncate(position);
        if self.positions.end != position {
            self.positions = position..position;
        }
        let width = self.rows.len() / OBSERVED;
        for row in rows {
            let place = self.positions.end % OBSERVED;
            self.rows[place * width..][..width].copy_from_slice(&row[..width]);
            self.positions.end += 1;
        }
        self.positions.start = self.positions.start.max(self.positions.end.saturating_sub(OBSERVED));
    }

    /// Forgets the positions from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let end = self.positions.end.min(len);
        self.positions = self.positions.start.min(end)..end;
    }

    /// The queries, in the order of their positions.
    pub(crate) fn queries(&self) -> Vec<f32> {
        let width = self.rows.len() / OBSERVED;
        let row = |position: usize| &self.rows[position % OBSERVED * width..][..width];
        self.positions.clone().flat_map(row).copied().collect()
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.rows.len()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }
}

/// The `count` positions that have, together with their neighbours, the largest of `weights`, in ascending order. Of equals the first.
pub(super) fn chosen(weights: &[f32], count: usize) -> Vec<usize> {
    let reach = POOLED / 2;
    let pooled = |at: usize| -> f32 {
        weights[at.saturating_sub(reach)..(at + reach + 1).min(weights.len())].iter().sum()
    };
    let pooled: Vec<f32> = (0..weights.len()).map(pooled).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    if count < order.len() {
        order.select_nth_unstable_by(count, |a, b| pooled[*b].total_cmp(&pooled[*a]).then(a.cmp(b)));
        order.truncate(count);
    }
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_and_their_neighbours_are_chosen() {
        let mut weights = vec![0.0; 40];
        (weights[7], weights[30]) = (2.0, 1.0);
        assert_eq!(chosen(&weights, 5), [5, 6, 7, 8, 9]);
        assert_eq!(chosen(&weights, 10), [5, 6, 7, 8, 9, 28, 29, 30, 31, 32]);
        // Of equals the first.
        assert_eq!(chosen(&weights, 2), [5, 6]);
        assert_eq!(chosen(&weights, 40), (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_queries_are_there_however_they_came() {
        let row = |position: usize| [position as f32, -(position as f32), 9.0];
        let rows: Vec<_> = (0..200).map(row).collect();
        let add = |observed: &mut Observed, positions: Range<usize>| {
            observed.add(positions.start, rows[positions].iter().map(|row| &row[..]));
        };
        let want = |positions: Range<usize>| -> Vec<f32> {
            positions.flat_map(|position| rows[position][..2].to_vec()).collect()
        };
        let mut observed = Observed::new(2);
        add(&mut observed, 0..150);
        assert_eq!(observed.queries(), want(86..150));
        add(&mut observed, 150..151);
        assert_eq!((observed.queries(), observed.len()), (want(87..151), 64));
        // Some were taken back: what they stood in place of is gone.
        observed.truncate(140);
        assert_eq!(observed.queries(), want(87..140));
        add(&mut observed, 140..145);
        assert_eq!(observed.queries(), want(87..145));
        // Others are in between, which were not seen.
        add(&mut observed, 190..192);
        assert_eq!(observed.queries(), want(190..192));
        observed.truncate(0);
        assert_eq!(observed.len(), 0);
    }
}
