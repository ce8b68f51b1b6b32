//! What linear attention keeps of all positions before: of one size, however many they are.

use std::fmt;

use model::module::GatedDelta;
use tensor::ValueOrder;

/// The sizes of that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentShape {
    /// Heads of values.
    pub heads: usize,
    /// Heads of keys; divides `heads`.
    pub key_heads: usize,
    /// Elements of a key.
    pub key: usize,
    /// Elements of a value.
    pub value: usize,
    /// Rows that the convolution sees.
    pub kernel: usize,
}

impl RecurrentShape {
    /// Of linear attention, shared by `ranks` ranks. `None` if it cannot be counted.
    pub(crate) fn of(delta: &GatedDelta, ranks: u64) -> Option<RecurrentShape> {
        let size = |n: u64| usize::try_from(n).ok();
        let shape = RecurrentShape {
            heads: size(delta.value_heads.div_ceil(ranks.max(1)))?,
            key_heads: size(delta.key_heads.div_ceil(ranks.max(1)))?,
            key: size(delta.key)?,
            value: size(delta.value)?,
            kernel: size(delta.kernel)?,
        };
        shape.bytes().map(|_| shape)
    }

    /// The head of keys that the head of values `head` shares, where heads of values lie in `order`.
    pub(crate) fn key_head(&self, head: usize, order: ValueOrder) -> usize {
        match order {
            ValueOrder::Grouped => head / (self.heads / self.key_heads),
            ValueOrder::Tiled => head % self.key_heads,
        }
    }

    /// Channels of the convolution that a head of values needs: those of its query, its key and itself. Heads that share a key each
    /// have its channels.
    pub fn channels(&self) -> usize {
        2 * self.key + self.value
    }

    /// Numbers of the rows before, of one head.
    pub(crate) fn before(&self) -> usize {
        (self.kernel - 1) * self.channels()
    }

    /// Numbers of one head: the rows before, `[kernel - 1, channels]`, then its matrix, `[key, value]`.
    pub fn numbers(&self) -> usize {
        self.before() + self.key * self.value
    }

    /// Bytes of all heads. `None` if they cannot be counted.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let size = |n: usize| u64::try_from(n).ok();
        let (key, value) = (size(self.key)?, size(self.value)?);
        let channels = key.checked_mul(2)?.checked_add(value)?;
        let before = size(self.kernel.checked_sub(1)?)?.checked_mul(channels)?;
        let numbers = before.checked_add(key.checked_mul(value)?)?;
        let bytes = numbers.checked_mul(size(self.heads)?)?.checked_mul(4)?;
        isize::try_from(bytes).ok().map(|_| bytes)
    }
}

/// The state of linear attention after some positions.
#[derive(Clone)]
pub(crate) struct Recurrent {
    /// Positions that it has seen.
    len: usize,
    /// `[heads, numbers]`, as [`RecurrentShape::numbers`] has them.
    numbers: Vec<f32>,
}

impl fmt::Debug for Recurrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recurrent").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Recurrent {
    /// The state before any position; `None` if memory runs out.
    pub(crate) fn new(shape: &RecurrentShape) -> Option<Recurrent> {
        let count = shape.heads.checked_mul(shape.numbers())?;
        let mut numbers = vec![];
        numbers.try_reserve_exact(count).ok()?;
        numbers.resize(count, 0.0);
        Some(Recurrent { len: 0, numbers })
    }

    /// The state after `len` positions, of as many numbers as its shape has.
    pub(crate) fn after(len: usize, numbers: Vec<f32>) -> Recurrent {
        Recurrent { len, numbers }
    }

    /// `[heads, numbers]`.
    pub(crate) fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.numbers)
    }

    /// True if the sequence can go on from `position`: the next one, or the first.
    pub(crate) fn reaches(&self, position: usize) -> bool {
        position == 0 || position == self.len
    }

    /// Goes back to before the first position, if `len` is 0.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(self.reaches(len));
        if len == 0 && self.len > 0 {
            self.len = 0;
            self.numbers.fill(0.0);
        }
    }

    /// The state, which has seen `position` positions and is to see `more`: to be changed for each of them.
    pub(crate) fn advance(&mut self, position: usize, more: usize) -> &mut [f32] {
        assert!(self.reaches(position), "{position} after {}", self.len);
        self.truncate(position);
        self.len = position + more;
        &mut self.numbers
    }

    /// Goes on from the first `len` positions of `other`, which is after them.
    pub(crate) fn restore(&mut self, other: &Recurrent, len: usize) {
        debug_assert!(other.reaches(len));
        if len == 0 {
            return self.truncate(0);
        }
        self.len = len;
        self.numbers.copy_from_slice(&other.numbers);
    }
}
