//! Keys and values as tensors of a file, and back.

use tensor::Dtype;

use super::{KvCache, KvSnapshot, PAGE, SharedPage, SharedPages, coded_before};
use crate::state::saved::{SavedPlaces, SavedState, SavedTensor};

/// `[pages, words of a page without codes]`.
const PAGES: &str = "pages";
/// `[pages, words of a page with codes]`.
const CODES: &str = "codes";

impl KvSnapshot {
    /// The tensors that it consists of; one may have no rows.
    pub(crate) fn tensors(&self) -> [SavedTensor<'_>; 2] {
        [(PAGES, &self.full), (CODES, &self.coded)].map(|(name, pages)| {
            let parts = pages.pages.iter().flat_map(SharedPage::parts).collect();
            SavedTensor { name, dtype: Dtype::U32, rows: pages.pages.len(), parts }
        })
    }

    /// The positions that they are of.
    pub(crate) fn places(&self) -> SavedPlaces {
        [self.left_out, self.kept, self.full.first, self.coded.first].map(|n| n as u64)
    }
}

impl KvCache {
    /// Reads what caches like this one have after `position` positions of a session.
    ///
    /// # Errors
    /// If `saved` has not all that the next position sees, or more than a cache has.
    pub(crate) fn read<S: SavedState>(
        &self,
        position: usize,
        places: SavedPlaces,
        saved: &mut S,
    ) -> Result<KvSnapshot, S::Error> {
        let [left_out, kept, first, first_coded] =
            places.map(|place| usize::try_from(place).unwrap_or(usize::MAX));
        let wrong = |saved: &S| saved.wrong("the positions of a layer do not fit together");
        let Some(len) = position.checked_sub(left_out) else { return Err(wrong(saved)) };
        let (end, whole) = (len.div_ceil(PAGE), len / PAGE);
        let most = self.shape.pages(self.kind, usize::MAX).full;
        let (Some(count), Some(most_coded)) = (end.checked_sub(first), whole.checked_sub(first_coded)) else {
            return Err(wrong(saved));
        };
        if (left_out == 0) != (kept == 0) || kept > len || count > most {
            return Err(wrong(saved));
        }
        let pages = saved.rows(PAGES, self.full.words(), count..=count)?;
        let full = SharedPages { first, pages: self.full.share_rows(&pages) };
        // Up to the first page without codes there are some, and as far as the last position has made them.
        let least = first.max(coded_before(len.saturating_sub(1)));
        let counts = if self.has_codes() { least.saturating_sub(first_coded)..=most_coded } else { 0..=0 };
        let pages = saved.rows(CODES, self.coded.words(), counts)?;
        let coded = SharedPages { first: first_coded, pages: self.coded.share_rows(&pages) };
        let snapshot = KvSnapshot { len, left_out, kept, full, coded };
        if self.reaches_in(&snapshot, position) { Ok(snapshot) } else { Err(wrong(saved)) }
    }
}
