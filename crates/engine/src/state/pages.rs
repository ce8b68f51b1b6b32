//! Pages of positions that follow each other, of which the last are kept.

use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;

use crate::BATCH;

/// Positions of a page.
pub const PAGE: usize = 64;

/// Pages that hold what a pass sees: its rows, and `back` positions before the first.
pub(super) fn ring(back: usize) -> usize {
    back.saturating_add(BATCH - 1).div_ceil(PAGE).saturating_add(1)
}

/// Pages of equal size. Each has a place of its own among as many as are kept at once, so that a page takes that of one that is no
/// longer seen. A page may be shared with others, who see it as it is now: it is copied before it is written.
pub(super) struct Pages {
    /// Pages of the system's, which it zeroes as they are touched: an allocator may clear all of them at once.
    own: MmapMut,
    /// Words of a page.
    words: usize,
    /// For each place, what is there instead of what is in `own`.
    shared: Vec<Option<Arc<[u32]>>>,
    /// The pages that are there.
    there: Range<usize>,
}

impl Pages {
    /// Room for `count` pages of `bytes` bytes each. `None` if memory runs out.
    pub(super) fn new(count: usize, bytes: u64) -> Option<Pages> {
        let words = usize::try_from(bytes).ok()? / 4;
        let all = count.checked_mul(words)?.checked_mul(4).filter(|n| isize::try_from(*n).is_ok())?;
        let own = MmapMut::map_anon(all.max(1)).ok()?;
        Some(Pages { own, words, shared: vec![None; count], there: 0..0 })
    }

    /// Bytes reserved.
    pub(super) fn bytes(&self) -> usize {
        self.shared.len() * self.words * 4
    }

    /// The pages that are there.
    pub(super) fn there(&self) -> Range<usize> {
        self.there.clone()
    }

    fn place(&self, page: usize) -> usize {
        page % self.shared.len()
    }

    fn own(&self, place: usize) -> Range<usize> {
        place * self.words..(place + 1) * self.words
    }

    /// A page that is there.
    pub(super) fn page(&self, page: usize) -> &[u32] {
        debug_assert!(self.there.contains(&page), "page {page} of {:?}", self.there);
        let place = self.place(page);
        match &self.shared[place] {
            Some(shared) => shared,
            None => &bytemuck::cast_slice(&self.own)[self.own(place)],
        }
    }

    /// A page to write: one that is there, or the next one, whose content is arbitrary and takes the place of the first.
    pub(super) fn page_mut(&mut self, page: usize) -> &mut [u32] {
        assert!(page <= self.there.end, "page {page} of {:?}", self.there);
        let place = self.place(page);
        let own = self.own(place);
        let is_new = page == self.there.end;
        let shared = self.shared[place].take();
        let own = &mut bytemuck::cast_slice_mut(&mut self.own)[own];
        if let Some(shared) = shared.filter(|_| !is_new) {
            own.copy_from_slice(&shared);
        }
        if is_new {
            self.there.end += 1;
            self.there.start = self.there.start.max(self.there.end.saturating_sub(self.shared.len()));
        }
        own
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
            None => self.page(page).into(),
        }
    }

    /// Shows a shared page as `page`.
    pub(super) fn adopt(&mut self, page: usize, shared: &Arc<[u32]>) {
        assert!(shared.len() == self.words);
        let place = self.place(page);
        self.shared[place] = Some(Arc::clone(shared));
    }

    /// The place of `page`, which need not be there.
    pub(super) fn any_mut(&mut self, page: usize) -> &mut [u32] {
        let place = self.place(page);
        self.shared[place] = None;
        let own = self.own(place);
        &mut bytemuck::cast_slice_mut(&mut self.own)[own]
    }
}
