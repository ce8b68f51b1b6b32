//! Rotary embeddings, as sessions of a model have them and as a pass uses them.

use ::model::Rope;
use tensor::RopeOrder;

use crate::backend::Rotated;

/// A rotary embedding.
pub(crate) struct Rotary {
    pub(crate) rope: Rope,
    /// Divide the frequencies of short texts, if there are any.
    pub(crate) short: Vec<f32>,
    /// The same, of longer texts.
    pub(crate) long: Vec<f32>,
}

impl Rotary {
    /// Pairs that it turns.
    pub(crate) fn pairs(&self) -> usize {
        self.rope.frequencies(0).len()
    }

    /// The numbers of sessions with room for `capacity` positions.
    pub(crate) fn turns(&self, capacity: usize) -> Turns {
        let mut frequencies = self.rope.frequencies(capacity as u64);
        let factors = if self.rope.is_long(capacity as u64) { &self.long } else { &self.short };
        frequencies.iter_mut().zip(factors).for_each(|(frequency, by)| *frequency /= f64::from(*by));
        Turns { frequencies, magnitude: self.rope.magnitude() }
    }
}

/// `cos` and `sin` of the rows of a pass: `[rows, pairs]` each.
#[derive(Default)]
pub(crate) struct Rotation {
    pub(crate) cos: Vec<f32>,
    pub(crate) sin: Vec<f32>,
    pub(crate) pairs: usize,
}

impl Rotation {
    /// Of `rows` rows.
    pub(crate) fn new(rows: usize, pairs: usize) -> Option<Rotation> {
        let zeros = vec![0.0; rows.checked_mul(pairs)?];
        Some(Rotation { cos: zeros.clone(), sin: zeros, pairs })
    }

    /// The rows from `row` on are of `count` positions from `position` on.
    pub(crate) fn fill(&mut self, turns: &Turns, row: usize, position: usize, count: usize) {
        for t in 0..count {
            for (i, frequency) in turns.frequencies.iter().enumerate() {
                let (sin, cos) = (frequency * (position + t) as f64).sin_cos();
                self.cos[(row + t) * self.pairs + i] = (cos * turns.magnitude) as f32;
                self.sin[(row + t) * self.pairs + i] = (sin * turns.magnitude) as f32;
            }
        }
    }

    /// The elements of each head from `first` on are rotated so.
    pub(crate) fn of(&self, first: usize, order: RopeOrder) -> Rotated<'_> {
        Rotated { cos: &self.cos, sin: &self.sin, pairs: self.pairs, first, order }
    }
}

/// The numbers of a rotary embedding in one session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turns {
    /// Radians a position, of each pair.
    pub(crate) frequencies: Vec<f64>,
    /// The factor of cosines and sines.
    pub(crate) magnitude: f64,
}
