//! Attention over some of the positions, before its weights are divided by their sum.

use std::ops::Range;

use crate::Isa;
use crate::vector::{blend, exponential, scaled};

/// What some queries found at some positions: `Σ w v`, `max z` and `Σ w`, where `z` are the scores and `w = exp(z - max z)`.
#[derive(Debug)]
pub struct Partial<'a> {
    /// `[queries, elements of a value]`.
    pub(super) mixed: &'a mut [f32],
    /// `[queries]`; minus infinity where a query sees nothing.
    pub(super) most: &'a mut [f32],
    /// `[queries]`.
    pub(super) sum: &'a mut [f32],
}

impl<'a> Partial<'a> {
    /// Floats that results of `queries` queries take, of `width` elements each.
    pub fn room(queries: usize, width: usize) -> usize {
        queries * (width + 2)
    }

    /// Results of `queries` queries in `room`, as they are.
    ///
    /// # Panics
    /// If `room` is not what [`Partial::room`] says.
    pub fn within(room: &'a mut [f32], queries: usize) -> Partial<'a> {
        assert!(queries > 0 && room.len().is_multiple_of(queries) && room.len() >= 3 * queries);
        let (mixed, rest) = room.split_at_mut(room.len() - 2 * queries);
        let (most, sum) = rest.split_at_mut(queries);
        Partial { mixed, most, sum }
    }

    /// Results over no positions, in `room`.
    ///
    /// # Panics
    /// As [`Partial::within`].
    pub fn empty(room: &'a mut [f32], queries: usize) -> Partial<'a> {
        let partial = Partial::within(room, queries);
        partial.mixed.fill(0.0);
        partial.most.fill(f32::NEG_INFINITY);
        partial.sum.fill(0.0);
        partial
    }

    /// The same, to read.
    pub fn found(&self) -> Found<'_> {
        Found { mixed: self.mixed, most: self.most, sum: self.sum }
    }

    /// The number of queries.
    pub fn queries(&self) -> usize {
        self.most.len()
    }

    /// Elements of a result.
    pub fn width(&self) -> usize {
        self.mixed.len() / self.most.len()
    }

    /// Adds what `other` found at other positions.
    ///
    /// # Panics
    /// If it is of other numbers of queries or elements.
    pub fn merge(&mut self, isa: Isa, other: Found<'_>) {
        let width = self.width();
        assert!(other.mixed.len() == self.mixed.len() && other.most.len() == self.most.len());
        let rows = self.mixed.chunks_exact_mut(width).zip(other.mixed.chunks_exact(width));
        for (query, (mixed, other_mixed)) in rows.enumerate() {
            let (most, other_most) = (self.most[query], other.most[query]);
            // It saw nothing.
            if other.sum[query] == 0.0 {
                continue;
            }
            let larger = most.max(other_most);
            let [a, b] = [most, other_most].map(|most| exponential(isa, most - larger));
            blend(isa, a, mixed, b, other_mixed);
            self.sum[query] = a * self.sum[query] + b * other.sum[query];
            self.most[query] = larger;
        }
    }
}

/// A [`Partial`] to read.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    mixed: &'a [f32],
    most: &'a [f32],
    sum: &'a [f32],
}

impl<'a> Found<'a> {
    /// Results of `queries` queries in `room`.
    ///
    /// # Panics
    /// As [`Partial::within`].
    pub fn within(room: &'a [f32], queries: usize) -> Found<'a> {
        assert!(queries > 0 && room.len().is_multiple_of(queries) && room.len() >= 3 * queries);
        let (mixed, rest) = room.split_at(room.len() - 2 * queries);
        let (most, sum) = rest.split_at(queries);
        Found { mixed, most, sum }
    }

    /// Those of some of the queries.
    ///
    /// # Panics
    /// If there are none of them.
    #[must_use]
    pub fn queries(self, which: Range<usize>) -> Found<'a> {
        let width = self.mixed.len() / self.most.len();
        let mixed = &self.mixed[which.start * width..which.end * width];
        Found { mixed, most: &self.most[which.clone()], sum: &self.sum[which] }
    }

    /// Divides by the sums of the weights: `out` is `[queries, elements of a value]`. `sinks` has for each query a score
    /// that goes to no position, and takes its share of the weights.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn finish(self, isa: Isa, sinks: Option<&[f32]>, out: &mut [f32]) {
        let (queries, width) = (self.most.len(), self.mixed.len() / self.most.len());
        assert!(out.len() == self.mixed.len() && sinks.is_none_or(|sinks| sinks.len() == queries));
        let rows = out.chunks_exact_mut(width).zip(self.mixed.chunks_exact(width));
        for (query, (out, mixed)) in rows.enumerate() {
            let (most, sum) = (self.most[query], self.sum[query]);
            let factor = match sinks.map(|sinks| sinks[query]) {
                Some(sink) => {
                    let larger = most.max(sink);
                    let [most, sink] = [most, sink].map(|score| exponential(isa, score - larger));
                    most / (most * sum + sink)
                }
                None => 1.0 / sum,
            };
            scaled(isa, factor, mixed, out);
        }
    }
}
