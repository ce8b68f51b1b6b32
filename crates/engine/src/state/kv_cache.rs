//! Keys and values of the positions seen so far.

mod saved;

use std::fmt;
use std::ops::Range;

use quant::Isa;
use quant::attention::{
    Block, Coded, GROUP, Stored, encode_keys, encode_values, keys, narrow, value_place, values,
};

use super::eviction::{OBSERVED, Observed, chosen};
use super::kv_kind::{KvKind, KvShape, Of, RECENT};
use super::pages::{PAGE, Pages, SharedPage};
use crate::{BATCH, Error};

/// The keys and values of one layer, in pages of [`PAGE`] positions: the keys of each head by channel, `[key, PAGE]`, and the values
/// of each head in the places that [`value_place`] says.
///
/// Where older positions have codes, a page is read by its codes once it is [`RECENT`] positions behind the position that
/// looks, whatever came in one pass with it: so the result does not depend on how a prompt was cut.
pub struct KvCache {
    shape: KvShape,
    kind: KvKind,
    capacity: usize,
    /// Positions that are there: those that were written, without those that were left out.
    len: usize,
    /// Positions that were left out, all of them among the first `kept + left_out`. Each head has left out others.
    left_out: usize,
    /// The first positions here, which are what was kept: no session goes back into them.
    kept: usize,
    /// The last queries, where some positions may be left out.
    observed: Option<Observed>,
    /// f32 or f16. Parts are the keys of each head, then the values of each.
    full: Pages,
    /// Codes, and what they mean: the same parts, each of which has the codes first.
    coded: Pages,
    /// Pages that have codes.
    sealed: usize,
    /// Keys or values of a head and page, while they are coded.
    decoded: Vec<f32>,
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
        let pages = |count: usize, bytes: &dyn Fn(Of, usize) -> Option<u64>| {
            let bytes: Option<Vec<u64>> = shape.parts().map(|(of, width)| bytes(of, width)).collect();
            let heads = |bytes| std::iter::repeat_n(bytes, shape.kv_heads);
            Pages::new(count, bytes?.into_iter().flat_map(heads))
        };
        let coded = |of: Of, width: usize| of.coded_bytes(kind.code_bits().unwrap_or_default(), width);
        Ok(KvCache {
            full: pages(counts.full, &|of, width| of.full_bytes(kind, width)).ok_or_else(too_large)?,
            coded: pages(counts.coded, &coded).ok_or_else(too_large)?,
            decoded: if counts.coded > 0 { vec![0.0; shape.head_elements()] } else { vec![] },
            shape,
            kind,
            capacity,
            len: 0,
            left_out: 0,
            kept: 0,
            observed: None,
            sealed: 0,
            isa: Isa::detect().unwrap_or(Isa::Scalar),
        })
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        let observed = self.observed.as_ref().map_or(0, Observed::bytes);
        self.full.bytes() + self.coded.bytes() + observed
    }

    /// Positions that are there.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place here of the session's position `position`, which is not among what was kept.
    pub(crate) fn place(&self, position: usize) -> usize {
        position.saturating_sub(self.left_out)
    }

    /// Positions that were left out.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Keeps the last queries from here on, of `width` elements for each position, so that [`evict`](Self::evict) can choose; or no more.
    pub(crate) fn observe(&mut self, width: Option<usize>) {
        self.observed = width.map(Observed::new);
    }

    /// The last queries, if they are kept.
    pub(crate) fn observed(&mut self) -> Option<&mut Observed> {
        self.observed.as_mut()
    }

    /// Keeps `budget` positions, more than [`OBSERVED`]: the last, and of those before them the ones that each head's last queries look at
    /// most. Nothing changes if there are no more than that, or no queries. `weigh` sums the weights that queries, `[rows, heads · elements of a key]`, the
    /// last of which is at the last position, give to the positions before them: `[kv_heads, positions]`.
    ///
    /// # Errors
    /// If memory runs out; nothing has changed then.
    pub(crate) fn evict(
        &mut self,
        budget: usize,
        weigh: impl FnOnce(&KvCache, &[f32], &mut [f32]),
    ) -> Result<(), Error> {
        let Some(observed) = self.observed.as_ref().filter(|observed| observed.len() > 0) else {
            return Ok(());
        };
        if self.len <= budget {
            return Ok(());
        }
        let (before, last) = (self.len - observed.len(), self.len - OBSERVED);
        let mut weights = vec![0.0; self.shape.kv_heads * before];
        weigh(self, &observed.queries(), &mut weights);
        let kept = weights.chunks_exact(before).map(|weights| {
            let first = chosen(&weights[..last], budget - OBSERVED);
            first.into_iter().chain(last..self.len).collect::<Vec<_>>()
        });
        let kept: Vec<Vec<usize>> = kept.collect();
        let mut new = KvCache::new(self.shape, self.kind, self.capacity)?;
        for start in (0..budget).step_by(BATCH) {
            let rows = start..budget.min(start + BATCH);
            let heads = kept.iter().enumerate();
            let heads: Vec<_> = heads
                .map(|(head, kept)| self.rows(head, kept[rows.clone()].iter().copied(), self.len - 1))
                .collect();
            let row = |n: usize| -> (Vec<f32>, Vec<f32>) {
                let KvShape { key, value, .. } = self.shape;
                let keys = heads.iter().flat_map(|(keys, _)| &keys[n * key..][..key]);
                let values = heads.iter().flat_map(|(_, values)| &values[n * value..][..value]);
                (keys.copied().collect(), values.copied().collect())
            };
            let rows: Vec<_> = (0..rows.len()).map(row).collect();
            new.extend(start, rows.iter().map(|(keys, values)| (&keys[..], &values[..])));
        }
        new.left_out = self.left_out + self.len - budget;
        new.kept = budget;
        new.observed = self.observed.take();
        *self = new;
        Ok(())
    }

    /// The sizes of a position.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Whether older positions have codes.
    fn has_codes(&self) -> bool {
        !self.decoded.is_empty()
    }

    /// Leaves out the positions before `position`, at which a page begins: nobody looks at them. The page before it is the last.
    pub(crate) fn skip_to(&mut self, position: usize) {
        if position > self.len {
            assert!(position.is_multiple_of(PAGE) && position - self.len < PAGE);
            self.len = position;
        }
    }

    /// Writes the keys and values of the next positions: those from `position` on, which has been reached. Each row has
    /// `[kv_heads, elements]` of each; values that are part of the keys are not asked for.
    pub(crate) fn extend<'a>(
        &mut self,
        position: usize,
        rows: impl ExactSizeIterator<Item = (&'a [f32], &'a [f32])> + Clone + Sync,
    ) {
        self.extend_by(position, rows, &mut write_alone);
    }

    /// The same, of parts that may be written by any threads: `share` is to give each part that it is given to the function.
    pub(crate) fn extend_by<'a>(
        &mut self,
        position: usize,
        rows: impl ExactSizeIterator<Item = (&'a [f32], &'a [f32])> + Clone + Sync,
        share: &mut ShareParts<'_>,
    ) {
        assert!(self.reaches(position), "{position} after {}", self.len);
        self.truncate(position);
        let positions = self.len..self.len + rows.len();
        assert!(positions.end <= self.capacity);
        let KvShape { kv_heads, key, value, shared, .. } = self.shape;
        let has_all = |(keys, values): (&[f32], &[f32])| {
            keys.len() == kv_heads * key && (shared || values.len() == kv_heads * value)
        };
        assert!(rows.clone().all(has_all), "rows of other sizes than {:?}", self.shape);
        let pages = positions.start / PAGE..positions.end.div_ceil(PAGE);
        assert!(pages.len() <= self.full.count());
        pages.for_each(|page| self.full.write(page));
        let (kind, isa, places) = (self.kind, self.isa, self.full.count());
        let heads =
            self.shape.parts().flat_map(|(of, width)| (0..kv_heads).map(move |head| (of, width, head)));
        let new = heads.zip(self.full.parts_mut()).map(|((of, width, head), words)| {
            let (elements, positions) = (head * width..(head + 1) * width, positions.clone());
            NewPart { of, elements, words, places, positions, kind, isa }
        });
        give(new, &|part| part.put(rows.clone()), share);
        self.len = positions.end;
        while self.has_codes() && self.sealed < coded_before(self.len.saturating_sub(1)) {
            self.seal(self.sealed);
            self.sealed += 1;
        }
    }

    /// Makes codes of a page.
    fn seal(&mut self, page: usize) {
        let bits = self.kind.code_bits().unwrap_or_default();
        self.coded.write(page);
        for (of, width) in self.shape.parts() {
            for head in 0..self.shape.kv_heads {
                let part = part(&self.shape, of, head);
                let full = halves(self.full.part(page, part));
                let x = &mut self.decoded[..full.len()];
                decode(self.isa, of, width, &Stored::F16(full), x);
                let (codes, ranges) = coded_words_mut(of, bits, width, self.coded.part_mut(page, part));
                match of {
                    Of::Keys => encode_keys(bits, x, codes, ranges),
                    Of::Values => encode_values(bits, x, width, codes, ranges),
                }
            }
        }
    }

    /// The memory of all that is there, in the longest stretches.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &[u8]> {
        self.coded.stretches().chain(self.full.stretches()).map(bytemuck::cast_slice)
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
        let Some(position) = self.place_after_kept(position) else { return false };
        let (seen, full) = (self.first_seen(position), self.first_full(position));
        // A page that has codes alone has lost its values.
        position <= self.len
            && (seen >= full || seen >= self.coded.there().start)
            && (full >= self.full.there().start || full >= position.div_ceil(PAGE))
    }

    /// The place of a position of the session; `None` among what was kept.
    fn place_after_kept(&self, position: usize) -> Option<usize> {
        position.checked_sub(self.left_out).filter(|place| *place >= self.kept)
    }

    /// Forgets every position of the session from `len` on, which it [reaches](Self::reaches).
    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(observed) = &mut self.observed {
            observed.truncate(len);
        }
        if len == 0 {
            (self.left_out, self.kept) = (0, 0);
        }
        let len = self.place(len);
        if len >= self.len {
            return;
        }
        self.len = len;
        let end = len.div_ceil(PAGE);
        let full = self.first_full(len).min(end);
        let there = if len == 0 { 0..0 } else { self.full.there() };
        self.full.keep(there.start.min(full)..end);
        self.sealed = self.sealed.min(len / PAGE);
        let first = self.coded.there().start.min(self.sealed);
        self.coded.keep(first..self.sealed);
    }

    /// A copy of what is there before the session's position `len`, the next, to be shared.
    pub(crate) fn snapshot(&self, len: usize) -> KvSnapshot {
        let len = self.place(len);
        let end = len.div_ceil(PAGE);
        let full = self.full.there().start.min(end)..end;
        let coded = self.coded.there().start.min(self.sealed)..self.sealed;
        let share = |pages: &Pages, which: Range<usize>| SharedPages {
            first: which.start,
            pages: pages.share(which),
        };
        let (full, coded) = (share(&self.full, full), share(&self.coded, coded));
        KvSnapshot { len, left_out: self.left_out, kept: self.kept, full, coded }
    }

    /// Whether `snapshot`, of a cache of the same shape and kind, has what a query at `len` sees, as it sees it.
    pub(crate) fn reaches_in(&self, snapshot: &KvSnapshot, len: usize) -> bool {
        let Some(len) = len.checked_sub(snapshot.left_out).filter(|len| *len >= snapshot.kept) else {
            return len == 0;
        };
        let (seen, full) = (self.first_seen(len), self.first_full(len));
        len <= snapshot.len
            && (full >= snapshot.full.first || full >= len.div_ceil(PAGE))
            && (seen >= snapshot.coded.first || seen >= full)
    }

    /// Goes on from the first `len` positions of `snapshot`, which [has them](Self::reaches_in). There is room for them.
    pub(crate) fn restore(&mut self, snapshot: &KvSnapshot, len: usize) {
        let KvSnapshot { left_out, kept, full, coded, .. } = snapshot;
        assert!(len <= self.capacity);
        self.truncate(0);
        if len > 0 {
            (self.left_out, self.kept) = (*left_out, *kept);
        }
        let len = self.place(len);
        self.len = len;
        let first = self.first_full(len);
        let sealed = if self.has_codes() { first.min(coded.first + coded.pages.len()) } else { 0 };
        // All that a cache has at once, so that this one goes back as far.
        full.put(full.first.min(first), &mut self.full, len);
        let room = self.coded.count();
        coded.put(coded.first.max(sealed.saturating_sub(room)).min(sealed), &mut self.coded, sealed * PAGE);
        self.sealed = sealed;
    }

    /// A page of one head, as a query at place `at` reads it.
    pub(crate) fn block(&self, head: usize, page: usize, at: usize) -> Block<'_> {
        let is_coded = self.has_codes() && page < coded_before(at);
        let stored = |of: Of, width: usize| {
            let part = part(&self.shape, of, head);
            match self.kind.code_bits() {
                Some(bits) if is_coded => coded(of, bits, width, self.coded.part(page, part)),
                _ if self.kind == KvKind::F32 => Stored::F32(floats(self.full.part(page, part))),
                _ => Stored::F16(halves(self.full.part(page, part))),
            }
        };
        let values = (!self.shape.shared).then(|| stored(Of::Values, self.shape.value));
        Block { keys: stored(Of::Keys, self.shape.key), values }
    }
}

impl KvCache {
    /// Keys and values of one head for some `places` here, in ascending order, as a query at place `at` reads them: `[places, elements of a key]`,
    /// and `[places, elements of a value]`. It allocates.
    pub(crate) fn rows(
        &self,
        head: usize,
        places: impl IntoIterator<Item = usize>,
        at: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        let places: Vec<usize> = places.into_iter().collect();
        let KvShape { key, value, .. } = self.shape;
        let (mut all_keys, mut all_values) = (vec![], vec![]);
        let mut room = vec![0.0; self.shape.head_elements()];
        for places in places.chunk_by(|a, b| a / PAGE == b / PAGE) {
            let rows = places.iter().map(|place| place % PAGE);
            let block = self.block(head, places[0] / PAGE, at);
            keys(Isa::Scalar, &block.keys, key, &mut room);
            let channels = |count: usize, room: &[f32]| -> Vec<f32> {
                rows.clone().flat_map(|row| (0..count).map(move |i| room[i * PAGE + row])).collect()
            };
            all_keys.extend(channels(key, &room));
            if let Some(stored) = &block.values {
                values(Isa::Scalar, stored, value, &mut room);
                let room = &room;
                let row = |row: usize| (0..value).map(move |i| room[value_place(value, row, i)]);
                all_values.extend(rows.clone().flat_map(row));
            } else {
                all_values.extend(channels(value, &room));
            }
        }
        (all_keys, all_values)
    }
}

/// Gives `parts` to `write` by `share`.
fn give<'a>(
    mut parts: impl Iterator<Item = NewPart<'a>>,
    write: &(dyn Fn(&mut NewPart<'_>) + Sync),
    share: &mut ShareParts<'_>,
) {
    loop {
        let mut some = [const { None }; PARTS_TOGETHER];
        let count = some.iter_mut().zip(&mut parts).map(|(to, part)| *to = Some(part)).count();
        if count == 0 {
            return;
        }
        share(&mut some[..count], write);
    }
}

/// Parts of a cache that are written together at most.
const PARTS_TOGETHER: usize = 16;

/// Gives parts to a function, on any threads; none of them is `None`.
pub(crate) type ShareParts<'a> =
    dyn FnMut(&mut [Option<NewPart<'_>>], &(dyn Fn(&mut NewPart<'_>) + Sync)) + 'a;

/// Gives all of `parts` to `write` on this thread.
pub(crate) fn write_alone(parts: &mut [Option<NewPart<'_>>], write: &(dyn Fn(&mut NewPart<'_>) + Sync)) {
    parts.iter_mut().flatten().for_each(write);
}

/// The keys or values of one head at new positions, to be written.
pub(crate) struct NewPart<'a> {
    of: Of,
    /// Which of the elements of all heads.
    elements: Range<usize>,
    /// `[places, words of a page]`: page `p` is at the place `p` modulo their number.
    words: &'a mut [u32],
    places: usize,
    positions: Range<usize>,
    kind: KvKind,
    isa: Isa,
}

impl NewPart<'_> {
    /// Takes keys and values of all heads, for each position.
    fn put<'r>(&mut self, rows: impl Iterator<Item = (&'r [f32], &'r [f32])>) {
        let words = self.words.len() / self.places;
        for (position, (keys, values)) in self.positions.clone().zip(rows) {
            let from = match self.of {
                Of::Keys => &keys[self.elements.clone()],
                Of::Values => &values[self.elements.clone()],
            };
            let page = &mut self.words[position / PAGE % self.places * words..][..words];
            if self.kind == KvKind::F32 {
                put(self.of, position % PAGE, (0, from), from.len(), floats_mut(page));
                continue;
            }
            let page = halves_mut(page);
            for (group, some) in from.chunks(GROUP).enumerate() {
                let mut narrowed = [0; GROUP];
                let narrowed = &mut narrowed[..some.len()];
                narrow(self.isa, some, narrowed);
                put(self.of, position % PAGE, (group * GROUP, narrowed), from.len(), page);
            }
        }
    }
}

/// Writes some elements of a key or value, from `first` on, of `width` elements in all, to place `at` of a page.
fn put<T: Copy>(of: Of, at: usize, (first, from): (usize, &[T]), width: usize, page: &mut [T]) {
    match of {
        Of::Keys => {
            let channels = page[first * PAGE..].chunks_exact_mut(PAGE);
            channels.zip(from).for_each(|(channel, x)| channel[at] = *x);
        }
        Of::Values => {
            for (group, from) in from.chunks(GROUP).enumerate() {
                let place = value_place(width, at, first + group * GROUP);
                page[place..place + from.len()].copy_from_slice(from);
            }
        }
    }
}

/// Writes the numbers that a head's part of a page stands for to `to`.
fn decode(isa: Isa, of: Of, width: usize, stored: &Stored<'_>, to: &mut [f32]) {
    match of {
        Of::Keys => keys(isa, stored, width, to),
        Of::Values => values(isa, stored, width, to),
    }
}

/// The part of a page that a head has.
fn part(shape: &KvShape, of: Of, head: usize) -> usize {
    head + if of == Of::Values { shape.kv_heads } else { 0 }
}

/// How many words codes take.
fn code_words(of: Of, bits: u32, width: usize) -> usize {
    // There are as many: they have been asked for.
    of.code_bytes(bits, width).map_or(0, |bytes| bytes as usize / 4)
}

/// The codes of a head in a page, of its part.
fn coded(of: Of, bits: u32, width: usize, words: &[u32]) -> Stored<'_> {
    let (codes, ranges) = words.split_at(code_words(of, bits, width));
    Stored::Coded(Coded { bits, codes: bytemuck::cast_slice(codes), ranges: floats(ranges) })
}

/// The same, to be written, and what they mean.
fn coded_words_mut(of: Of, bits: u32, width: usize, words: &mut [u32]) -> (&mut [u8], &mut [f32]) {
    let (codes, ranges) = words.split_at_mut(code_words(of, bits, width));
    (bytemuck::cast_slice_mut(codes), floats_mut(ranges))
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
    /// As in [`KvCache`].
    left_out: usize,
    kept: usize,
    full: SharedPages,
    coded: SharedPages,
}

impl KvSnapshot {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        [&self.full, &self.coded].map(|shared| SharedPage::bytes(&shared.pages)).iter().sum()
    }
}

/// Some pages that follow each other.
#[derive(Clone)]
struct SharedPages {
    first: usize,
    pages: Vec<SharedPage>,
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
                pages.copy(page, shared);
            }
        }
    }
}

#[cfg(test)]
mod tests;
