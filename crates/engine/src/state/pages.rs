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

/// Pages that are shared together at most: as many as attention takes in one span. They are freed together.
const RUN: usize = 8;

/// Pages of equal size, in parts. Each has a place of its own among as many as are kept at once, so that a page takes that of one
/// that is no longer seen. A page may be shared with others, who see it as it is now: it is copied before it is written.
///
/// The same part of pages that follow each other lies together: a core reads long stretches of memory faster than pieces of a few
/// KiB (docs/performance.md, "Long contexts").
pub(super) struct Pages {
    /// `[parts, places, words of a part]`. Pages of the system's, which it zeroes as they are touched: an allocator may clear all of them at once.
    own: MmapMut,
    /// Words of a page before each part, and of a page.
    before: Arc<[usize]>,
    /// For each place, what is there instead of what is in `own`.
    shared: Vec<Option<SharedPage>>,
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
        Some(Pages { own, before: before.into(), shared: vec![None; count], there: 0..0 })
    }

    /// Words of a page.
    pub(super) fn words(&self) -> usize {
        self.before[self.parts()]
    }

    fn parts(&self) -> usize {
        self.before.len() - 1
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

    /// A part of a page that is there.
    pub(super) fn part(&self, page: usize, part: usize) -> &[u32] {
        self.stretch(page..page + 1, part)
    }

    /// A part of pages that are there and lie together.
    fn stretch(&self, pages: Range<usize>, part: usize) -> &[u32] {
        debug_assert!(self.there.contains(&pages.start), "pages {pages:?} of {:?}", self.there);
        let place = self.place(pages.start);
        match &self.shared[place] {
            Some(shared) => shared.run.part(part, shared.place..shared.place + pages.len()),
            None => {
                let places = place..place + pages.len();
                &bytemuck::cast_slice(&self.own)[places_of(&self.before, self.shared.len(), part, places)]
            }
        }
    }

    /// All that is there, in the longest stretches of memory.
    pub(super) fn stretches(&self) -> impl Iterator<Item = &[u32]> {
        let lie_together = |page: &usize, next: &usize| {
            let (page, next) = (self.place(*page), self.place(*next));
            match (&self.shared[page], &self.shared[next]) {
                (None, None) => next == page + 1,
                (Some(page), Some(next)) => Arc::ptr_eq(&page.run, &next.run) && next.place == page.place + 1,
                _ => false,
            }
        };
        let pages: Vec<usize> = self.there().collect();
        let stretches: Vec<Range<usize>> =
            pages.chunk_by(lie_together).map(|pages| pages[0]..pages[0] + pages.len()).collect();
        (0..self.parts()).flat_map(move |part| {
            let of_part = stretches.iter().map(|pages| self.stretch(pages.clone(), part));
            of_part.collect::<Vec<_>>()
        })
    }

    /// A part of a page that may be [written](Self::write).
    pub(super) fn part_mut(&mut self, page: usize, part: usize) -> &mut [u32] {
        let place = self.place(page);
        debug_assert!(self.shared[place].is_none(), "page {page} is shared");
        let own = places_of(&self.before, self.shared.len(), part, place..place + 1);
        &mut bytemuck::cast_slice_mut(&mut self.own)[own]
    }

    /// The room of each part, in which pages may be [written](Self::write): `[places, words of the part]`.
    pub(super) fn parts_mut(&mut self) -> impl Iterator<Item = &mut [u32]> {
        let mut left: &mut [u32] = bytemuck::cast_slice_mut(&mut self.own);
        let count = self.shared.len();
        self.before.windows(2).map(move |part| {
            let (mine, others) = std::mem::take(&mut left).split_at_mut((part[1] - part[0]) * count);
            left = others;
            mine
        })
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
    fn fill(&mut self, page: usize, shared: &SharedPage) {
        for part in 0..self.parts() {
            self.part_mut(page, part).copy_from_slice(shared.part(part));
        }
    }

    /// Keeps only the pages of `there`; those that were not there have arbitrary content.
    pub(super) fn keep(&mut self, there: Range<usize>) {
        debug_assert!(there.len() <= self.shared.len());
        self.there = there;
    }

    /// Pages that are there, to be shared.
    pub(super) fn share(&self, pages: Range<usize>) -> Vec<SharedPage> {
        let mut all = Vec::with_capacity(pages.len());
        let mut page = pages.start;
        while page < pages.end {
            if let Some(shared) = &self.shared[self.place(page)] {
                all.push(shared.clone());
                page += 1;
                continue;
            }
            let most = pages.end.min((page / RUN + 1) * RUN);
            let end = (page..most).find(|page| self.shared[self.place(*page)].is_some()).unwrap_or(most);
            all.extend(Run::pages(&self.before, end - page, |n, part| self.part(page + n, part)));
            page = end;
        }
        all
    }

    /// Pages of these rows, `[pages, words of a page]`, to be shared.
    pub(super) fn share_rows(&self, rows: &[Vec<u32>]) -> Vec<SharedPage> {
        let place = |part: usize| self.before[part]..self.before[part + 1];
        let run = |rows: &[Vec<u32>]| Run::pages(&self.before, rows.len(), |n, part| &rows[n][place(part)]);
        rows.chunks(RUN).flat_map(run).collect()
    }

    /// Shows a shared page as `page`.
    pub(super) fn adopt(&mut self, page: usize, shared: &SharedPage) {
        assert!(shared.run.before == self.before);
        let place = self.place(page);
        self.shared[place] = Some(shared.clone());
    }

    /// Copies a shared page to `page`, which may be written.
    pub(super) fn copy(&mut self, page: usize, shared: &SharedPage) {
        let place = self.place(page);
        self.shared[place] = None;
        self.fill(page, shared);
    }
}

/// Where a part of the pages at `places`, of `count`, is.
fn places_of(before: &[usize], count: usize, part: usize, places: Range<usize>) -> Range<usize> {
    let (start, words) = (before[part] * count, before[part + 1] - before[part]);
    start + places.start * words..start + places.end * words
}

/// Pages that many see as they were when they were shared.
struct Run {
    /// `[parts, pages, words of a part]`.
    words: Vec<u32>,
    /// How many pages there are.
    count: usize,
    /// As in [`Pages`].
    before: Arc<[usize]>,
}

impl Run {
    /// Pages of a new one, which has copies of their parts: `part_of` gives part `part` of page `n`.
    fn pages<'a>(
        before: &Arc<[usize]>,
        count: usize,
        part_of: impl Fn(usize, usize) -> &'a [u32],
    ) -> Vec<SharedPage> {
        let parts = before.len() - 1;
        let mut words = Vec::with_capacity(before[parts] * count);
        for part in 0..parts {
            for n in 0..count {
                words.extend_from_slice(part_of(n, part));
            }
        }
        let run = Arc::new(Run { words, count, before: Arc::clone(before) });
        (0..count).map(|place| SharedPage { run: Arc::clone(&run), place }).collect()
    }

    /// A part of the pages at `places`.
    fn part(&self, part: usize, places: Range<usize>) -> &[u32] {
        &self.words[places_of(&self.before, self.count, part, places)]
    }
}

/// A page that is shared.
#[derive(Clone)]
pub(super) struct SharedPage {
    run: Arc<Run>,
    place: usize,
}

impl SharedPage {
    /// Bytes that are there as long as one of `pages` is, which follow each other.
    pub(super) fn bytes(pages: &[SharedPage]) -> usize {
        let runs = pages.chunk_by(|page, next| Arc::ptr_eq(&page.run, &next.run));
        runs.map(|pages| 4 * pages[0].run.words.len()).sum()
    }

    /// Its parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.run.before.len() - 1).map(|part| self.part(part))
    }

    fn part(&self, part: usize) -> &[u32] {
        self.run.part(part, self.place..self.place + 1)
    }
}
