//! Keys and values of the positions seen so far.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use quant::Isa;
use quant::attention::{
    Block, Coded, Ranges, Stored, code_bytes, encode_channels, encode_tokens, narrow, widen,
};

use super::kv_kind::{KvKind, KvShape, Of, RECENT};
use super::pages::{PAGE, Pages};
use crate::Error;

/// The keys and values of one layer, in pages of [`PAGE`] positions: `[kv_head][position][key]`, then
/// `[kv_head][position][value]`.
///
/// Where older positions have codes, a page is read by its codes once it is [`RECENT`] positions behind the position that
/// looks, whatever came in one pass with it: so the result does not depend on how a prompt was cut.
pub struct KvCache {
    shape: KvShape,
    kind: KvKind,
    capacity: usize,
    /// Positions that were written.
    len: usize,
    /// f32 or f16.
    full: Pages,
    /// Codes, and what they mean: the codes of all positions of a head, then the ranges.
    coded: Pages,
    /// Pages that have codes.
    sealed: usize,
    /// Keys or values of a head and page, while they are coded.
    rows: Vec<f32>,
    /// Results are the same on all of them.
    isa: Isa,
}

impl fmt::Debug for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvCache")
            .field("kind", &self.kind)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Pages that a query at `position` reads by their codes.
fn coded_before(position: usize) -> usize {
    position.saturating_sub(RECENT) / PAGE
}

impl KvCache {
    /// A cache for `capacity` positions. The memory is asked for now and touched as positions fill.
    ///
    /// # Errors
    /// If the size overflows or memory runs out.
    pub fn new(shape: KvShape, kind: KvKind, capacity: usize) -> Result<KvCache, Error> {
        let too_large = || Error::CacheTooLarge { capacity };
        let counts = shape.pages(kind, capacity);
        let pages = |count: usize, bytes: Option<u64>| bytes.and_then(|bytes| Pages::new(count, bytes));
        Ok(KvCache {
            full: pages(counts.full, shape.full_bytes(kind)).ok_or_else(too_large)?,
            coded: pages(counts.coded, shape.coded_bytes(kind)).ok_or_else(too_large)?,
            rows: if counts.coded > 0 { vec![0.0; PAGE * shape.key.max(shape.value)] } else { vec![] },
            shape,
            kind,
            capacity,
            len: 0,
            sealed: 0,
            isa: Isa::detect().unwrap_or(Isa::Scalar),
        })
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.full.bytes() + self.coded.bytes()
    }

    /// The sizes of a position.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Whether older positions have codes.
    fn has_codes(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Writes the keys and values of the next positions: those from `position` on, which has been reached. Each row has
    /// `[kv_heads, elements]` of each; values that are part of the keys are not asked for.
    pub(crate) fn extend<'a>(&mut self, position: usize, rows: impl Iterator<Item = (&'a [f32], &'a [f32])>) {
        assert!(position <= self.len && self.reaches(position), "{position} after {}", self.len);
        self.truncate(position);
        let (shape, kind, isa) = (self.shape, self.kind, self.isa);
        for (keys, values) in rows {
            assert!(self.len < self.capacity);
            let (page, row) = (self.full.page_mut(self.len / PAGE), self.len % PAGE);
            for (of, width) in shape.parts() {
                let from = match of {
                    Of::Keys => keys,
                    Of::Values => values,
                };
                assert!(from.len() == shape.kv_heads * width);
                for (head, from) in from.chunks_exact(width).enumerate() {
                    let at = full_place(&shape, of, head).start + row * width;
                    match kind {
                        KvKind::F32 => floats_mut(page)[at..at + width].copy_from_slice(from),
                        _ => narrow(isa, from, &mut halves_mut(page)[at..at + width]),
                    }
                }
            }
            self.len += 1;
        }
        while self.has_codes() && self.sealed < coded_before(self.len.saturating_sub(1)) {
            self.seal(self.sealed);
            self.sealed += 1;
        }
    }

    /// Makes codes of a page.
    fn seal(&mut self, page: usize) {
        let bits = self.kind.code_bits().unwrap_or_default();
        let (full, words) = (self.full.page(page), self.coded.page_mut(page));
        for (of, width) in self.shape.parts() {
            for head in 0..self.shape.kv_heads {
                let x = Stored::F16(&halves(full)[full_place(&self.shape, of, head)]);
                let x = widen(self.isa, &x, PAGE, width, None, &mut self.rows);
                let (codes, ranges) = coded_place(&self.shape, bits, of, head);
                let (codes, ranges) = words[codes.start..ranges.end].split_at_mut(codes.len());
                let (codes, ranges) = (bytemuck::cast_slice_mut(codes), floats_mut(ranges));
                match of {
                    Of::Keys => encode_channels(bits, x, width, codes, ranges),
                    Of::Values => encode_tokens(bits, x, width, codes, ranges),
                }
            }
        }
    }

    /// Makes of its codes a page that has none.
    fn unseal(&mut self, page: usize) {
        let bits = self.kind.code_bits().unwrap_or_default();
        for (of, width) in self.shape.parts() {
            for head in 0..self.shape.kv_heads {
                let coded = coded(&self.shape, bits, self.coded.page(page), of, head);
                let x = widen(self.isa, &coded, PAGE, width, None, &mut self.rows);
                let place = full_place(&self.shape, of, head);
                narrow(self.isa, x, &mut halves_mut(self.full.any_mut(page))[place]);
            }
        }
    }

    /// The first page that a query at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        self.shape.window.map_or(0, |window| (position + 1).saturating_sub(window)) / PAGE
    }

    /// The first page that a query at `position` reads without codes.
    fn first_full(&self, position: usize) -> usize {
        let coded = if self.has_codes() { coded_before(position) } else { 0 };
        coded.max(self.first_seen(position))
    }

    /// Whether it still has what a query at `position` sees.
    pub(crate) fn reaches(&self, position: usize) -> bool {
        if position == 0 {
            return true;
        }
        let (seen, full) = (self.first_seen(position), self.first_full(position));
        let (coded_there, full_there) = (self.coded.there(), self.full.there());
        position <= self.len
            && (seen >= full || seen >= coded_there.start)
            && (full..full_there.start.min(position.div_ceil(PAGE))).all(|page| coded_there.contains(&page))
    }

    /// Forgets every position from `len` on, which it [reaches](Self::reaches).
    pub(crate) fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        let end = len.div_ceil(PAGE);
        let full = self.first_full(len).min(end);
        let there = if len == 0 { 0..0 } else { self.full.there() };
        for page in full..there.start.min(end) {
            self.unseal(page);
        }
        self.full.keep(there.start.min(full)..end);
        self.sealed = self.sealed.min(len / PAGE);
        let first = self.coded.there().start.min(self.sealed);
        self.coded.keep(first..self.sealed);
    }

    /// A copy of what a query at the next position sees, to be shared.
    pub(crate) fn snapshot(&self, len: usize) -> KvSnapshot {
        let full = self.first_full(len)..len.div_ceil(PAGE);
        let coded = self.first_seen(len)..full.start.min(self.sealed);
        let share = |pages: &Pages, which: Range<usize>| SharedPages {
            first: which.start,
            pages: which.map(|page| pages.share(page)).collect(),
        };
        KvSnapshot { len, full: share(&self.full, full), coded: share(&self.coded, coded) }
    }

    /// Whether `snapshot`, of a cache of the same shape and kind, has what a query at `len` sees, as it sees it.
    pub(crate) fn reaches_in(&self, snapshot: &KvSnapshot, len: usize) -> bool {
        let (seen, full) = (self.first_seen(len), self.first_full(len));
        len <= snapshot.len
            && (full >= snapshot.full.first || full >= len.div_ceil(PAGE))
            && (seen >= snapshot.coded.first || seen >= full)
    }

    /// Goes on from the first `len` positions of `snapshot`, which [has them](Self::reaches_in). There is room for them.
    pub(crate) fn restore(&mut self, snapshot: &KvSnapshot, len: usize) {
        let KvSnapshot { full, coded, .. } = snapshot;
        assert!(len <= self.capacity);
        self.len = len;
        let first = self.first_full(len);
        full.put(first, &mut self.full, len);
        let sealed = if self.has_codes() { first.min(coded.first + coded.pages.len()) } else { 0 };
        coded.put(self.first_seen(len).min(sealed), &mut self.coded, sealed * PAGE);
        self.sealed = sealed;
    }

    /// The first `positions` positions of a page, of one head, as a query at position `at` reads them.
    pub(crate) fn block(&self, head: usize, page: usize, positions: usize, at: usize) -> Block<'_> {
        let is_coded = self.has_codes() && page < coded_before(at);
        let stored = |of: Of| match self.kind.code_bits() {
            Some(bits) if is_coded => coded(&self.shape, bits, self.coded.page(page), of, head),
            _ => {
                let (page, place) = (self.full.page(page), full_place(&self.shape, of, head));
                match self.kind {
                    KvKind::F32 => Stored::F32(&floats(page)[place]),
                    _ => Stored::F16(&halves(page)[place]),
                }
            }
        };
        let values = (!self.shape.shared).then(|| stored(Of::Values));
        Block { positions, keys: stored(Of::Keys), values }
    }
}

impl KvCache {
    /// Keys and values of one head for `positions`, as a query at position `at` reads them: `[positions, elements of a key]`, and rows
    /// that begin with a value each. For an oracle: it allocates.
    pub(crate) fn rows(&self, head: usize, positions: Range<usize>, at: usize) -> (Vec<f32>, Vec<f32>) {
        let KvShape { key, value, .. } = self.shape;
        let (mut keys, mut values) = (vec![], vec![]);
        let mut room = vec![0.0; PAGE * key.max(value)];
        for page in positions.start / PAGE..positions.end.div_ceil(PAGE) {
            let rows = positions.start.saturating_sub(page * PAGE)..PAGE.min(positions.end - page * PAGE);
            let block = self.block(head, page, rows.end, at);
            let mut add = |to: &mut Vec<f32>, stored: &Stored<'_>, width: usize| {
                to.extend(
                    &widen(Isa::Scalar, stored, rows.end, width, None, &mut room)[rows.start * width..],
                );
            };
            add(&mut keys, &block.keys, key);
            match &block.values {
                Some(stored) => add(&mut values, stored, value),
                None => add(&mut values, &block.keys, key),
            }
        }
        (keys, values)
    }
}

/// The elements of a page without codes that the rows of a head take.
fn full_place(shape: &KvShape, of: Of, head: usize) -> Range<usize> {
    let (before, width) = match of {
        Of::Keys => (0, shape.key),
        Of::Values => (shape.kv_heads * PAGE * shape.key, shape.value),
    };
    let start = before + head * PAGE * width;
    start..start + PAGE * width
}

/// The words of a page of codes that the codes of a head take, and those of its ranges, which follow.
fn coded_place(shape: &KvShape, bits: u32, of: Of, head: usize) -> (Range<usize>, Range<usize>) {
    let words = |of: Of, width: usize| (PAGE * code_bytes(bits, width) / 4, of.ranges(width));
    let keys = words(Of::Keys, shape.key);
    let (before, (codes, ranges)) = match of {
        Of::Keys => (0, keys),
        Of::Values => (shape.kv_heads * (keys.0 + keys.1), words(Of::Values, shape.value)),
    };
    let start = before + head * (codes + ranges);
    (start..start + codes, start + codes..start + codes + ranges)
}

/// The codes of a head in a page of them.
fn coded<'a>(shape: &KvShape, bits: u32, page: &'a [u32], of: Of, head: usize) -> Stored<'a> {
    let (codes, ranges) = coded_place(shape, bits, of, head);
    let (codes, ranges) = (bytemuck::cast_slice(&page[codes]), floats(&page[ranges]));
    let ranges = match of {
        Of::Keys => Ranges::Channels(ranges),
        Of::Values => Ranges::Tokens(ranges),
    };
    Stored::Coded(Coded { bits, codes, ranges })
}

fn floats(words: &[u32]) -> &[f32] {
    bytemuck::cast_slice(words)
}

fn floats_mut(words: &mut [u32]) -> &mut [f32] {
    bytemuck::cast_slice_mut(words)
}

fn halves(words: &[u32]) -> &[u16] {
    bytemuck::cast_slice(words)
}

fn halves_mut(words: &mut [u32]) -> &mut [u16] {
    bytemuck::cast_slice_mut(words)
}

/// What a cache held of the positions that the next one sees. Its pages are shared by all caches that go on from it.
#[derive(Clone)]
pub(crate) struct KvSnapshot {
    len: usize,
    full: SharedPages,
    coded: SharedPages,
}

impl KvSnapshot {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.full.pages.iter().chain(&self.coded.pages).map(|page| 4 * page.len()).sum()
    }
}

/// Some pages that follow each other.
#[derive(Clone)]
struct SharedPages {
    first: usize,
    pages: Vec<Arc<[u32]>>,
}

impl SharedPages {
    /// Makes those from `first` on the ones of `pages`, of which `len` positions count.
    fn put(&self, first: usize, pages: &mut Pages, len: usize) {
        let there = first..len.div_ceil(PAGE).max(first);
        pages.keep(there.clone());
        for page in there {
            let shared = &self.pages[page - self.first];
            // The next position is written to a page that is not full.
            if (page + 1) * PAGE <= len {
                pages.adopt(page, shared);
            } else {
                pages.any_mut(page).copy_from_slice(shared);
            }
        }
    }
}

#[cfg(test)]
mod tests;
