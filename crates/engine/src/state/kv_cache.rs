//! Keys and values of the positions seen so far.

use std::fmt;

use memmap2::MmapMut;

use crate::Error;

/// The keys and values of one layer: `[key | value][kv_head][position][head_dim]`, f32.
///
/// Positions are explicit: a row is written at its own position, and the session knows how many are valid.
pub struct KvCache {
    /// Pages of the system's, which it zeroes as they are touched: an allocator may clear all of them at once.
    data: MmapMut,
    kv_heads: usize,
    head_dim: usize,
    capacity: usize,
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
    pub fn new(kv_heads: usize, head_dim: usize, capacity: usize) -> Result<KvCache, Error> {
        let too_large = || Error::CacheTooLarge { capacity };
        let bytes = KvCache::bytes_for(kv_heads as u64, head_dim as u64, capacity as u64);
        let bytes = bytes.and_then(|bytes| isize::try_from(bytes).ok()).ok_or_else(too_large)?;
        let data = MmapMut::map_anon(bytes.unsigned_abs()).map_err(|_| too_large())?;
        Ok(KvCache { data, kv_heads, head_dim, capacity })
    }

    /// Bytes of a cache for `positions` positions: keys and values in f32. `None` if they cannot be counted.
    pub fn bytes_for(kv_heads: u64, head_dim: u64, positions: u64) -> Option<u64> {
        [2, 4, kv_heads, head_dim, positions].into_iter().try_fold(1u64, u64::checked_mul)
    }

    /// An empty cache of the same heads for `capacity` positions.
    pub(crate) fn like(&self, capacity: usize) -> Result<KvCache, Error> {
        KvCache::new(self.kv_heads, self.head_dim, capacity)
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    fn floats(&self) -> &[f32] {
        bytemuck::cast_slice(&self.data)
    }

    fn floats_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.data)
    }

    fn start(&self, value: usize, head: usize) -> usize {
        assert!(head < self.kv_heads);
        (value * self.kv_heads + head) * self.capacity * self.head_dim
    }

    /// Writes the keys and values of one position: `[kv_heads · head_dim]` each.
    pub(crate) fn write(&mut self, position: usize, keys: &[f32], values: &[f32]) {
        let d = self.head_dim;
        assert!(position < self.capacity && keys.len() == self.kv_heads * d && values.len() == keys.len());
        for head in 0..self.kv_heads {
            for (value, row) in [(0, keys), (1, values)] {
                let at = self.start(value, head) + position * d;
                self.floats_mut()[at..at + d].copy_from_slice(&row[head * d..(head + 1) * d]);
            }
        }
    }

    /// Takes the first `positions` positions of `other`, a cache of the same heads.
    pub(crate) fn copy_from(&mut self, other: &KvCache, positions: usize) {
        assert!((self.kv_heads, self.head_dim) == (other.kv_heads, other.head_dim));
        assert!(positions <= self.capacity && positions <= other.capacity);
        let (n, heads) = (positions * self.head_dim, self.kv_heads);
        for (value, head) in [0, 1].into_iter().flat_map(|value| (0..heads).map(move |head| (value, head))) {
            let (to, from) = (self.start(value, head), other.start(value, head));
            self.floats_mut()[to..to + n].copy_from_slice(&other.floats()[from..from + n]);
        }
    }

    /// Keys and values of one head for `positions`: `[positions, head_dim]` each.
    pub(crate) fn head(&self, head: usize, positions: std::ops::Range<usize>) -> (&[f32], &[f32]) {
        assert!(positions.end <= self.capacity);
        let rows = positions.start * self.head_dim..positions.end * self.head_dim;
        let part = |value| {
            let start = self.start(value, head);
            &self.floats()[start + rows.start..start + rows.end]
        };
        (part(0), part(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: u16) -> Vec<f32> {
        (0..12).map(|i| f32::from(seed * 100 + i)).collect()
    }

    fn filled() -> KvCache {
        let mut cache = KvCache::new(3, 4, 5).unwrap();
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
    fn an_absurd_size_is_an_error() {
        assert!(matches!(KvCache::new(1 << 20, 1 << 20, 1 << 40), Err(Error::CacheTooLarge { .. })));
        assert!(matches!(KvCache::new(1 << 18, 1 << 18, 1 << 18), Err(Error::CacheTooLarge { .. })));
    }
}
