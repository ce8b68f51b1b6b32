//! Keys and values of the positions seen so far.

use std::fmt;
use std::ops::Range;

use memmap2::MmapMut;

use crate::Error;

/// The keys and values of one layer: `[kv_head][position][key]` and `[kv_head][position][value]`, f32. Values may be the first
/// elements of the keys, and are not there beside them then.
///
/// Positions are explicit: a row is written at its own position, and the session knows how many are valid.
pub struct KvCache {
    /// Pages of the system's, which it zeroes as they are touched: an allocator may clear all of them at once.
    data: MmapMut,
    shape: KvShape,
    capacity: usize,
}

/// The sizes of one position in a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of a key.
    pub key: u64,
    /// Elements of a value.
    pub value: u64,
    /// Whether a value is the first elements of its key.
    pub shared: bool,
}

impl KvShape {
    /// Bytes of `positions` positions. `None` if they cannot be counted.
    pub fn bytes(&self, positions: u64) -> Option<u64> {
        let each = if self.shared { self.key } else { self.key.checked_add(self.value)? };
        [4, self.kv_heads, each, positions].into_iter().try_fold(1u64, u64::checked_mul)
    }
}

impl fmt::Debug for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl KvCache {
    /// A cache for `capacity` positions. The memory is asked for now and touched as positions fill.
    ///
    /// # Errors
    /// If the size overflows or memory runs out.
    pub fn new(shape: KvShape, capacity: usize) -> Result<KvCache, Error> {
        let too_large = || Error::CacheTooLarge { capacity };
        let bytes = shape.bytes(capacity as u64);
        let bytes = bytes.and_then(|bytes| isize::try_from(bytes).ok()).ok_or_else(too_large)?;
        let data = MmapMut::map_anon(bytes.unsigned_abs()).map_err(|_| too_large())?;
        Ok(KvCache { data, shape, capacity })
    }

    /// An empty cache of the same heads for `capacity` positions.
    pub(crate) fn like(&self, capacity: usize) -> Result<KvCache, Error> {
        KvCache::new(self.shape, capacity)
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        // All of these fit into memory.
        self.shape.kv_heads as usize
    }

    /// Elements of a key.
    pub fn key_dim(&self) -> usize {
        self.shape.key as usize
    }

    /// Elements of a value.
    pub fn value_dim(&self) -> usize {
        self.shape.value as usize
    }

    fn floats(&self) -> &[f32] {
        bytemuck::cast_slice(&self.data)
    }

    fn floats_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.data)
    }

    /// Where the keys, or the values, of `positions` lie.
    fn place(&self, of: Of, head: usize, positions: &Range<usize>) -> Range<usize> {
        assert!(head < self.kv_heads() && positions.end <= self.capacity);
        let (before, width) = match of {
            Of::Keys => (0, self.key_dim()),
            Of::Values => (self.kv_heads() * self.capacity * self.key_dim(), self.value_dim()),
        };
        let start = before + head * self.capacity * width;
        start + positions.start * width..start + positions.end * width
    }

    /// The parts that are stored: keys, and values unless they are part of these.
    fn parts(&self) -> &'static [Of] {
        if self.shape.shared { &[Of::Keys] } else { &[Of::Keys, Of::Values] }
    }

    /// Writes the keys and values of one position: `[kv_heads, elements]` each. Values that are part of the keys are not asked for.
    pub(crate) fn write(&mut self, position: usize, keys: &[f32], values: &[f32]) {
        assert!(keys.len() == self.kv_heads() * self.key_dim());
        assert!(self.shape.shared || values.len() == self.kv_heads() * self.value_dim());
        for head in 0..self.kv_heads() {
            for of in self.parts() {
                let place = self.place(*of, head, &(position..position + 1));
                let row = match of {
                    Of::Keys => keys,
                    Of::Values => values,
                };
                let width = place.len();
                self.floats_mut()[place].copy_from_slice(&row[head * width..][..width]);
            }
        }
    }

    /// Takes the first `positions` positions of `other`, a cache of the same heads.
    pub(crate) fn copy_from(&mut self, other: &KvCache, positions: usize) {
        assert!(self.shape == other.shape);
        for head in 0..self.kv_heads() {
            for of in self.parts() {
                let [to, from] = [&*self, other].map(|cache| cache.place(*of, head, &(0..positions)));
                self.floats_mut()[to].copy_from_slice(&other.floats()[from]);
            }
        }
    }

    /// Keys and values of one head for `positions`: `[positions, elements of a key]`, and rows that begin with a value each.
    pub(crate) fn head(&self, head: usize, positions: Range<usize>) -> (&[f32], &[f32]) {
        let keys = &self.floats()[self.place(Of::Keys, head, &positions)];
        let values = || &self.floats()[self.place(Of::Values, head, &positions)];
        (keys, if self.shape.shared { keys } else { values() })
    }
}

#[derive(Clone, Copy)]
enum Of {
    Keys,
    Values,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: u16) -> Vec<f32> {
        (0..12).map(|i| f32::from(seed * 100 + i)).collect()
    }

    fn filled() -> KvCache {
        let mut cache = KvCache::new(KvShape { kv_heads: 3, key: 4, value: 4, shared: false }, 5).unwrap();
        for position in 0..5 {
            cache.write(position.into(), &row(position), &row(position + 50));
        }
        cache
    }

    #[test]
    fn a_row_is_found_where_it_was_written() {
        let cache = filled();
        let (keys, values) = cache.head(2, 3..5);
        assert_eq!(keys[..4], row(3)[8..]);
        assert_eq!(keys[4..], row(4)[8..]);
        assert_eq!(values[..4], row(53)[8..]);
    }

    #[test]
    fn a_copy_holds_the_positions_asked_for() {
        let cache = filled();
        let mut small = cache.like(3).unwrap();
        small.copy_from(&cache, 3);
        assert_eq!(small.bytes(), cache.bytes() / 5 * 3);
        let mut large = cache.like(9).unwrap();
        large.copy_from(&small, 3);
        for head in 0..3 {
            assert_eq!(small.head(head, 0..3), cache.head(head, 0..3));
            assert_eq!(large.head(head, 0..3), cache.head(head, 0..3));
        }
        assert_eq!(large.head(1, 3..9).0, [0.0; 24]);
    }

    #[test]
    fn values_may_be_part_of_their_keys() {
        let shape = KvShape { kv_heads: 1, key: 12, value: 8, shared: true };
        let mut cache = KvCache::new(shape, 3).unwrap();
        assert_eq!(cache.bytes(), 3 * 12 * 4);
        cache.write(1, &row(7), &[]);
        let (keys, values) = cache.head(0, 1..2);
        assert_eq!(keys, row(7));
        assert_eq!(values[..8], row(7)[..8]);
        let mut copy = cache.like(2).unwrap();
        copy.copy_from(&cache, 2);
        assert_eq!(copy.head(0, 0..2), cache.head(0, 0..2));
    }

    #[test]
    fn an_absurd_size_is_an_error() {
        let shape = |n| KvShape { kv_heads: n, key: n, value: n, shared: false };
        assert!(matches!(KvCache::new(shape(1 << 20), 1 << 40), Err(Error::CacheTooLarge { .. })));
        assert!(matches!(KvCache::new(shape(1 << 18), 1 << 18), Err(Error::CacheTooLarge { .. })));
    }
}
