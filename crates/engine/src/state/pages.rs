//! Pages of positions that follow each other, of which the last are kept.

use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;

use crate::BATCH;

/// Positions of a page.
pub const PAGE: usize = quant::attention::POSITIONS;

/// Pages that hold what a pass sees: its rows, and `back` positions before the first.
pub(super) fn ring(back: usize) -> usize {
    back.saturating_add(BATCH - 1).div_ceil(PAGE).saturating_add(1)
}

/// Pages of equal size, in parts. Each has a place of its own among as many as are kept at once, so that a page takes that of one
/// that is no longer seen. A page may be shared with others, who see it as it is now: it is copied before it is written.
///
/// The same part of pages that follow each other lies together: a core reads long stretches of memory faster than pieces of a few
/// KiB (docs/performance.md, "Long contexts").
pub(super) struct Pages {
    /// `[parts, places]`. Pages of the system's, which it zeroes as they are touched: an allocator may clear all of them at once.
    own: MmapMut,
    /// Words of a page before each part, and of a page.
    before: Vec<usize>,
    /// For each place, what is there instead of what is in `own`.
    shared: Vec<Option<Arc<[u32]>>>,
    /// The pages that are there.
    there: Range<usize>,
}

impl Pages {
    /// Room for `count` pages that have parts of as many bytes as `parts` says. `None` if memory runs out.
    pub(super) fn new(count: usize, parts: impl Iterator<Item = u64>) -> Option<Pages> {
        let mut before = vec![0usize];
        for bytes in parts {
            before.push(before[before.len() - 1].checked_add(usize::try_from(bytes).ok()? / 4)?);
        }
        let all = count.checked_mul(before[before.len() - 1])?.checked_mul(4);
        let own = MmapMut::map_anon(all.filter(|n| isize::try_from(*n).is_ok())?.max(1)).ok()?;
        Some(Pages { own, before, shared: vec![None; count], there: 0..0 })
    }

    /// Words of a page.
    pub(super) fn words(&self) -> usize {
        self.before[self.before.len() - 1]
    }

    /// Pages that may be there at once.
    pub(super) fn count(&self) -> usize {
        self.shared.len()
    }

    /// Bytes reserved.
    pub(super) fn bytes(&self) -> usize {
        self.shared.len() * self.words() * 4
    }

    /// The pages that are there.
    pub(super) fn there(&self) -> Range<usize> {
        self.there.clone()
    }

    fn place(&self, page: usize) -> usize {
        page % self.shared.len()
    }

    /// Where a part of the page of a place is in `own`.
    fn own(&self, place: usize, part: usize) -> Range<usize> {
        let (before, after) = (self.before[part], self.before[part + 1]);
        let start = before * self.shared.len() + place * (after - before);
        start..start + after - before
    }

    /// A part of a page that is there.
    pub(super) fn part(&self, page: usize, part: usize) -> &[u32] {
        debug_assert!(self.there.contains(&page), "page {page} of {:?}", self.there);
        let place = self.place(page);
        match &self.shared[place] {
            Some(shared) => &shared[self.before[part]..self.before[part + 1]],
            None => &bytemuck::cast_slice(&self.own)[self.own(place, part)],
        }
    }

    /// A part of a page that may be [written](Self::write).
    pub(super) fn part_mut(&mut self, page: usize, part: usize) -> &mut [u32] {
        let place = self.place(page);
        debug_assert!(self.shared[place].is_none(), "page {page} is shared");
        let own = self.own(place, part);
        &mut bytemuck::cast_slice_mut(&mut self.own)[own]
    }

    /// Makes a page ready to be written: one that is there, or the next one, whose content is arbitrary and takes the place of
    /// the first.
    pub(super) fn write(&mut self, page: usize) {
        assert!(page <= self.there.end, "page {page} of {:?}", self.there);
        let place = self.place(page);
        let shared = self.shared[place].take();
        if page < self.there.end {
            if let Some(shared) = shared {
                self.fill(page, &shared);
            }
        } else {
            self.there.end += 1;
            self.there.start = self.there.start.max(self.there.end.saturating_sub(self.shared.len()));
        }
    }

    /// Writes all parts of a page.
    fn fill(&mut self, page: usize, words: &[u32]) {
        for part in 0..self.before.len() - 1 {
            let words = &words[self.before[part]..self.before[part + 1]];
            self.part_mut(page, part).copy_from_slice(words);
        }
    }

    /// Keeps only the pages of `there`; those that were not there have arbitrary content.
    pub(super) fn keep(&mut self, there: Range<usize>) {
        debug_assert!(there.len() <= self.shared.len());
        self.there = there;
    }

    /// A page that is there, to be shared.
    pub(super) fn share(&self, page: usize) -> Arc<[u32]> {
        match &self.shared[self.place(page)] {
            Some(shared) => Arc::clone(shared),
            None => (0..self.before.len() - 1).flat_map(|part| self.part(page, part)).copied().collect(),
        }
    }

    /// Shows a shared page as `page`.
    pub(super) fn adopt(&mut self, page: usize, shared: &Arc<[u32]>) {
        assert!(shared.len() == self.words());
        let place = self.place(page);
        self.shared[place] = Some(Arc::clone(shared));
    }

    /// Copies a shared page to `page`, which may be written.
    pub(super) fn copy(&mut self, page: usize, shared: &[u32]) {
        let place = self.place(page);
        self.shared[place] = None;
        self.fill(page, shared);
    }
}
