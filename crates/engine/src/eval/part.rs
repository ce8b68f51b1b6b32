//! The scores of some of the tokens: of one chunk, or of the same places in all chunks.

use std::ops::Range;

use super::{Mean, Row};

/// Ranges that the scored positions of a chunk are divided into, at most.
const RANGES: usize = 16;

/// Means over some of the tokens that are scored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Where the tokens are in their chunk, which has [`EvalOptions::length`](super::EvalOptions::length) positions.
    pub positions: Range<usize>,
    /// `-ln p` of each token, in nats.
    pub nll: Mean,
    /// The divergence of each token from the reference, in nats; of no tokens without one.
    pub kl: Mean,
    /// 1 where both have the same most likely token, else 0; of no tokens without a reference.
    pub top1: Mean,
}

impl Part {
    fn of(positions: Range<usize>) -> Part {
        Part { positions, ..Part::default() }
    }

    /// The perplexity, and its standard error.
    pub fn perplexity(&self) -> (f64, f64) {
        super::exp(&self.nll)
    }

    fn add(&mut self, row: &Row) {
        self.nll.add(row.nll);
        if let Some(against) = row.against {
            self.kl.add(against.kl);
            self.top1.add(f64::from(u8::from(against.same_top)));
        }
    }
}

/// The scores of each chunk, and of each range of positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// One for each chunk, in the order of the text.
    pub chunks: Vec<Part>,
    /// One for each range of positions, over all chunks: at most 16, as long as each other or by one longer.
    pub positions: Vec<Part>,
}

impl Parts {
    /// No scores yet; `scored` are the positions of a chunk whose tokens will be scored.
    pub(super) fn of(scored: &Range<usize>) -> Parts {
        let ranges = scored.len().min(RANGES);
        let cut = |n: usize| scored.start + (n * scored.len()).div_ceil(ranges.max(1));
        Parts { chunks: vec![], positions: (0..ranges).map(|n| Part::of(cut(n)..cut(n + 1))).collect() }
    }

    /// Begins the next chunk.
    pub(super) fn begin(&mut self, scored: Range<usize>) {
        self.chunks.push(Part::of(scored));
    }

    /// Adds the score of the token at `position` of the chunk that was begun last.
    pub(super) fn add(&mut self, position: usize, row: &Row) {
        let range = self.positions.iter_mut().find(|part| part.positions.contains(&position));
        for part in range.into_iter().chain(self.chunks.last_mut()) {
            part.add(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_in_one_range_and_ranges_are_of_like_length() {
        for scored in [257..512, 9..16, 3..4, 0..0, 33..64] {
            let parts = Parts::of(&scored);
            let all: Vec<usize> = parts.positions.iter().flat_map(|part| part.positions.clone()).collect();
            assert_eq!(all, scored.clone().collect::<Vec<_>>());
            let lengths = || parts.positions.iter().map(|part| part.positions.len());
            assert!(lengths().max() <= lengths().min().map(|least| least + 1), "{scored:?}");
            assert_eq!(parts.positions.len(), scored.len().min(RANGES));
        }
    }

    #[test]
    fn a_token_counts_in_its_chunk_and_in_its_range() {
        let row = |nll| Row { nll, against: None };
        let mut parts = Parts::of(&(2..4));
        for (chunk, scores) in [[1.0, 2.0], [3.0, 6.0]].into_iter().enumerate() {
            parts.begin(2..4);
            assert_eq!(parts.chunks.len(), chunk + 1);
            parts.add(2, &row(scores[0]));
            parts.add(3, &row(scores[1]));
        }
        let means = |parts: &[Part]| parts.iter().map(|part| part.nll.mean()).collect::<Vec<_>>();
        assert_eq!((means(&parts.chunks), means(&parts.positions)), (vec![1.5, 4.5], vec![2.0, 4.0]));
        assert_eq!(parts.chunks[0].kl.count(), 0);
    }
}
