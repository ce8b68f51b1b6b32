//! Keys and values of the positions seen so far.

use crate::Error;
use std::fmt;

/// One allocation for all layers: `[layer][key | value][kv_head][position][head_dim]`, f32.
///
/// Positions are explicit: a row is written at the position that it is for, and `len` moves only when all
/// layers have written theirs (`advance`), so a step that fails leaves the cache as it was.
pub struct KvCache {
    data: Vec<f32>,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    capacity: usize,
    len: usize,
}

impl fmt::Debug for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache").finish_non_exhaustive()
    }
}

impl KvCache {
    /// A cache for `capacity` positions. The memory is asked for now and touched as positions fill.
    ///
    /// # Errors
    /// If the size overflows or the memory is not to be had.
    pub fn new(layers: usize, kv_heads: usize, head_dim: usize, capacity: usize) -> Result<KvCache, Error> {
        let size = [2, layers, kv_heads, head_dim, capacity]
            .into_iter()
            .try_fold(1usize, usize::checked_mul)
            .filter(|n| n.checked_mul(4).is_some_and(|bytes| isize::try_from(bytes).is_ok()))
            .ok_or(Error::CacheTooLarge { capacity })?;
        // `vec![0.0; n]` asks for zeroed pages, which the kernel hands out one by one as they are touched;
        // the reservation before it makes a failure an error instead of an abort.
        Vec::<f32>::new().try_reserve_exact(size).map_err(|_| Error::CacheTooLarge { capacity })?;
        Ok(KvCache { data: vec![0.0; size], layers, kv_heads, head_dim, capacity, len: 0 })
    }

    /// Positions filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.data.len() * 4
    }

    /// Forgets every position from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Counts `rows` more positions as filled, once every layer has written them.
    pub(crate) fn advance(&mut self, rows: usize) {
        self.len += rows;
        debug_assert!(self.len <= self.capacity);
    }

    fn start(&self, layer: usize, value: usize, head: usize) -> usize {
        assert!(layer < self.layers && head < self.kv_heads);
        ((layer * 2 + value) * self.kv_heads + head) * self.capacity * self.head_dim
    }

    /// Writes the keys and values of one position: `[kv_heads · head_dim]` each.
    pub(crate) fn write(&mut self, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let d = self.head_dim;
        assert!(position < self.capacity && keys.len() == self.kv_heads * d && values.len() == keys.len());
        for head in 0..self.kv_heads {
            for (value, row) in [(0, keys), (1, values)] {
                let at = self.start(layer, value, head) + position * d;
                self.data[at..at + d].copy_from_slice(&row[head * d..(head + 1) * d]);
            }
        }
    }

    /// Keys and values of one head for `positions`: `[positions, head_dim]` each.
    pub(crate) fn head(
        &self,
        layer: usize,
        head: usize,
        positions: std::ops::Range<usize>,
    ) -> (&[f32], &[f32]) {
        assert!(positions.end <= self.capacity);
        let rows = positions.start * self.head_dim..positions.end * self.head_dim;
        let part = |value| {
            let start = self.start(layer, value, head);
            &self.data[start + rows.start..start + rows.end]
        };
        (part(0), part(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_where_it_was_written() {
        let mut cache = KvCache::new(2, 3, 4, 5).unwrap();
        let row = |seed: u16| (0..12).map(|i| f32::from(seed * 100 + i)).collect::<Vec<_>>();
        for layer in 0..2 {
            for position in 0..5 {
                let seed = layer * 10 + position;
                cache.write(layer.into(), position.into(), &row(seed), &row(seed + 50));
            }
        }
        let (keys, values) = cache.head(1, 2, 3..5);
        assert_eq!(keys[..4], row(13)[8..]);
        assert_eq!(keys[4..], row(14)[8..]);
        assert_eq!(values[..4], row(63)[8..]);
    }

    #[test]
    fn an_absurd_size_is_an_error() {
        assert!(matches!(KvCache::new(1 << 20, 1 << 20, 1 << 20, 1 << 20), Err(Error::CacheTooLarge { .. })));
        assert!(matches!(KvCache::new(1 << 12, 1 << 12, 1 << 12, 1 << 12), Err(Error::CacheTooLarge { .. })));
    }
}
