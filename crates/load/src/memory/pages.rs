//! Gets fresh memory in huge pages or in small ones, whichever the system gives faster.
//!
//! Huge pages make products a tenth faster, and on most machines they also come faster, since one fault clears 2 MiB.
//! In a virtual machine that gives free memory back to its host (page reporting, balloons) a huge page may have to be
//! found by the host, small page by small page: then they come at a fifth of the speed of small ones. There is no way
//! to know beforehand.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::sizes::PAGE;

/// A huge page that comes in this time is not worth improving on: 4 GB/s.
const GOOD: Duration = Duration::from_micros(500);
/// Blocks between two tries of the slower pages. A try that takes the time of several blocks waits as many times longer, so
/// that tries take a 64th of the time.
const AGAIN: usize = 64;
/// Bytes of the smallest page of any system.
const SMALL: usize = 4 << 10;

/// Nobody has used any of the block.
const NEW: u8 = 0;
/// A thread has begun to use it. Its pages are huge, or nobody knows yet.
const BEGUN: u8 = 1;
/// Its pages are small.
const SMALL_PAGES: u8 = 2;

/// Makes memory ready, block by block, and learns on the way.
pub(crate) struct Pages {
    /// The whole blocks, by address.
    range: Range<usize>,
    /// For each block [`NEW`], [`BEGUN`] or [`SMALL_PAGES`].
    blocks: Vec<AtomicU8>,
    /// Nanoseconds that a block took lately, in huge pages and in small ones; 0 if none was tried.
    huge: AtomicU64,
    small: AtomicU64,
    /// Blocks that were begun.
    begun: AtomicUsize,
    /// Whether the system was last advised to use small pages. Advice waits for all threads that are getting memory, so
    /// it is given once for all blocks.
    prefers_small: AtomicBool,
    /// Of all threads together.
    nanoseconds: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageSize {
    Huge,
    Small,
}

/// The pages to use.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    faster: PageSize,
    /// The others, if it is worth it to try them again, in one of `every` blocks.
    slower: Option<PageSize>,
    every: usize,
}

impl Pages {
    /// Watches `memory`, which was never used.
    pub(crate) fn new(memory: &[u8]) -> Pages {
        let range = memory.as_ptr_range();
        let range = range.start.addr().next_multiple_of(PAGE)..range.end.addr() / PAGE * PAGE;
        Pages {
            blocks: (0..range.len() / PAGE).map(|_| AtomicU8::new(NEW)).collect(),
            range,
            huge: AtomicU64::new(0),
            small: AtomicU64::new(0),
            begun: AtomicUsize::new(0),
            prefers_small: AtomicBool::new(false),
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Makes `bytes` ready, of which nothing was written: zeros.
    pub(crate) fn ready(&self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Up to where the next block begins.
            let at = rest.as_ptr().expose_provenance();
            let (part, after) = rest.split_at_mut((PAGE - at % PAGE).min(rest.len()));
            rest = after;
            let index = self.range.contains(&at).then(|| (at - self.range.start) / PAGE);
            let Some(state) = index.and_then(|index| self.blocks.get(index)) else { continue };
            let begins = state.compare_exchange(NEW, BEGUN, Ordering::Relaxed, Ordering::Relaxed);
            let kind = match begins {
                Ok(_) => {
                    let kind = self.get(at / PAGE * PAGE);
                    if kind == PageSize::Small {
                        state.store(SMALL_PAGES, Ordering::Relaxed);
                    }
                    kind
                }
                Err(SMALL_PAGES) => PageSize::Small,
                // The first of its threads gets the huge page.
                Err(_) => continue,
            };
            let started = Instant::now();
            match kind {
                PageSize::Huge => touch(part, PAGE),
                PageSize::Small if populate(part) => {}
                PageSize::Small => touch(part, SMALL),
            }
            let took = started.elapsed();
            self.nanoseconds.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            match kind {
                PageSize::Huge => self.learn(kind, took),
                // Few pages say little.
                PageSize::Small if part.len() >= PAGE / 8 => {
                    self.learn(kind, took.mul_f64(PAGE as f64 / part.len() as f64));
                }
                PageSize::Small => {}
            }
        }
    }

    /// Lets the system make huge pages of small ones when it has time for it.
    pub(crate) fn settle(&self) {
        advise(self.range.clone(), PageSize::Huge);
    }

    /// Seconds that threads have waited for memory, all together.
    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// Chooses the pages of the block at address `block`, and tells the system.
    fn get(&self, block: usize) -> PageSize {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        if begun > 0 && self.huge.load(Ordering::Relaxed) == 0 {
            // The first block is a huge page, and its thread is finding out what they cost.
            advise(block..block + PAGE, PageSize::Small);
            return PageSize::Small;
        }
        let Choice { faster, slower, every } = self.choose();
        if let Some(slower) = slower.filter(|_| begun.is_multiple_of(every)) {
            advise(block..block + PAGE, slower);
            return slower;
        }
        let is_small = faster == PageSize::Small;
        if self.prefers_small.swap(is_small, Ordering::Relaxed) != is_small {
            advise(self.range.clone(), faster);
        }
        faster
    }

    fn choose(&self) -> Choice {
        let (huge, small) = (self.huge.load(Ordering::Relaxed), self.small.load(Ordering::Relaxed));
        let (faster, slower) = match () {
            () if u128::from(huge) <= GOOD.as_nanos() => (PageSize::Huge, None),
            // A page size that was never tried has time 0.
            () if small == 0 => (PageSize::Small, None),
            () if huge < small => (PageSize::Huge, Some(PageSize::Small)),
            () => (PageSize::Small, Some(PageSize::Huge)),
        };
        let times = huge.max(small) / huge.min(small).max(1);
        Choice {
            faster,
            slower,
            every: AGAIN.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX).max(1)),
        }
    }

    fn learn(&self, kind: PageSize, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let known = match kind {
            PageSize::Huge => &self.huge,
            PageSize::Small => &self.small,
        };
        let before = known.load(Ordering::Relaxed);
        known.store(if before == 0 { took } else { before / 2 + took / 2 }, Ordering::Relaxed);
    }
}

/// Advises the system which pages to use for the memory at these addresses, whole blocks of it. It is a hint: a system
/// without huge pages rejects it, which does no harm.
fn advise(blocks: Range<usize>, kind: PageSize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let advice = match kind {
            PageSize::Huge => Advice::LinuxHugepage,
            PageSize::Small => Advice::LinuxNoHugepage,
        };
        let start = std::ptr::with_exposed_provenance_mut::<u8>(blocks.start);
        // SAFETY: the blocks are part of an allocation that outlives this, and neither advice changes what is in them.
        let _ = unsafe { madvise(start.cast(), blocks.len(), advice) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (blocks, kind);
}

/// Gets all pages of `bytes` from the system in one call, in about two thirds of the time that a fault for each page takes.
/// Returns false if the system cannot: Linux can since 5.14.
fn populate(bytes: &mut [u8]) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let page = rustix::param::page_size();
        let Range { start, end } = bytes.as_mut_ptr_range();
        let start = start.map_addr(|start| start / page * page);
        let len = end.addr().next_multiple_of(page) - start.addr();
        // SAFETY: `bytes` are part of an allocation of whole pages that outlives this, and the call changes no byte.
        unsafe { madvise(start.cast(), len, Advice::LinuxPopulateWrite) }.is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = bytes;
        false
    }
}

/// Writes a zero to every page of `step` bytes, so that the system provides it. The page holds zeros already.
fn touch(bytes: &mut [u8], step: usize) {
    for page in bytes.chunks_mut(step) {
        page[0] = 0;
        std::hint::black_box(&mut *page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(huge: u64, small: u64) -> Pages {
        let pages = Pages::new(&[]);
        for (kind, micros) in [(PageSize::Huge, huge), (PageSize::Small, small)] {
            if micros > 0 {
                pages.learn(kind, Duration::from_micros(micros));
            }
        }
        pages
    }

    #[test]
    fn huge_pages_that_come_fast_are_never_left() {
        for pages in [taught(0, 0), taught(450, 0), taught(450, 100)] {
            let Choice { faster, slower, .. } = pages.choose();
            assert_eq!((faster, slower), (PageSize::Huge, None));
        }
    }

    #[test]
    fn slow_ones_are_compared_and_the_comparison_is_made_again() {
        use PageSize::{Huge, Small};
        assert_eq!(taught(5000, 0).choose().faster, Small);
        let unknown = Pages::new(&[]);
        assert_eq!([0, 0].map(|block| unknown.get(block)), [Huge, Small]);
        let memory = memmap2::MmapMut::map_anon(PAGE * (10 * AGAIN + 1)).unwrap();
        for (huge, small, mostly, tries) in
            [(5000, 1000, Small, 2), (1000, 1000, Small, 10), (1000, 5000, Huge, 2)]
        {
            let pages = Pages::new(&memory);
            pages.learn(Huge, Duration::from_micros(huge));
            pages.learn(Small, Duration::from_micros(small));
            let block = |block: &usize| pages.get(pages.range.start + block * PAGE) != mostly;
            assert_eq!((0..10 * AGAIN).filter(block).count(), tries);
        }
        // The system has changed its mind: a few blocks later so have we.
        let pages = taught(5000, 1000);
        for _ in 0..8 {
            pages.learn(Huge, Duration::from_micros(300));
        }
        assert_eq!(pages.choose().faster, Huge);
    }

    #[test]
    fn memory_is_made_ready_whatever_its_ends_are_and_what_is_written_stays() {
        let mut memory = memmap2::MmapMut::map_anon(3 * PAGE + 12345).unwrap();
        let pages = Pages::new(&memory);
        let blocks = pages.blocks.len();
        assert!((2..=3).contains(&blocks));
        for (i, part) in memory.chunks_mut(PAGE / 3).enumerate() {
            pages.ready(part);
            part.fill(u8::try_from(i + 1).unwrap());
        }
        assert!(
            memory
                .chunks(PAGE / 3)
                .enumerate()
                .all(|(i, part)| part.iter().all(|b| usize::from(*b) == i + 1))
        );
        assert!(pages.blocks.iter().all(|block| block.load(Ordering::Relaxed) != NEW));
        assert_eq!(pages.begun.load(Ordering::Relaxed), blocks);
        assert!(pages.seconds() > 0.0);
        pages.settle();
        assert_eq!(memory[PAGE / 3], 2);
    }
}
