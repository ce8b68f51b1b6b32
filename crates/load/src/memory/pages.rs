//! Gets fresh memory in huge pages or in small ones, whichever the system gives faster.
//!
//! Huge pages make products a tenth faster, and on most machines they also come faster, since one fault clears 2 MiB.
//! In a virtual machine that gives free memory back to its host (page reporting, balloons) a huge page may have to be
//! found by the host, small page by small page: then they come at a fifth of the speed of small ones. There is no way
//! to know beforehand.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::sizes::PAGE;

/// A huge page that comes in this time is not worth improving on: 4 GB/s.
const GOOD: Duration = Duration::from_micros(500);
/// Blocks between two tries of what was slower.
const AGAIN: usize = 64;
/// Bytes of a small page.
const SMALL: usize = 4 << 10;

/// Makes memory ready, block by block, and learns on the way.
pub(crate) struct Pages {
    /// The whole blocks, by address.
    range: Range<usize>,
    /// For each block, whether a thread has begun to use it.
    begun: Vec<AtomicBool>,
    /// Nanoseconds that a block took lately, in huge pages and in small ones; 0 if none was tried.
    huge: AtomicU64,
    small: AtomicU64,
    blocks: AtomicUsize,
    /// Of all threads together.
    nanoseconds: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageSize {
    Huge,
    Small,
}

impl Pages {
    /// Watches `memory`, which was never used.
    pub(crate) fn new(memory: &[u8]) -> Pages {
        let range = memory.as_ptr_range();
        let range = range.start.addr().next_multiple_of(PAGE)..range.end.addr() / PAGE * PAGE;
        Pages {
            begun: (0..range.len() / PAGE).map(|_| AtomicBool::new(false)).collect(),
            range,
            huge: AtomicU64::new(0),
            small: AtomicU64::new(0),
            blocks: AtomicUsize::new(0),
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
            let first = self.range.contains(&at)
                && self
                    .begun
                    .get((at - self.range.start) / PAGE)
                    .is_some_and(|b| !b.swap(true, Ordering::Relaxed));
            if !first {
                continue;
            }
            let kind = self.choose(self.blocks.fetch_add(1, Ordering::Relaxed));
            // It may wait for a page that another thread is getting.
            let block = at / PAGE * PAGE;
            advise(block..block + PAGE, kind);
            let started = Instant::now();
            touch(part, kind);
            let took = started.elapsed();
            self.nanoseconds.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            match kind {
                PageSize::Huge => self.learn(kind, took),
                // The rest of the block comes as it is used. Few pages say little.
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

    fn choose(&self, block: usize) -> PageSize {
        let (huge, small) = (self.huge.load(Ordering::Relaxed), self.small.load(Ordering::Relaxed));
        if u128::from(huge) <= GOOD.as_nanos() {
            return PageSize::Huge;
        }
        // A page size that was never tried has time 0.
        let (faster, slower) =
            if huge < small { (PageSize::Huge, PageSize::Small) } else { (PageSize::Small, PageSize::Huge) };
        if small > 0 && block.is_multiple_of(AGAIN) { slower } else { faster }
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

/// Writes a zero to every page, so that the system provides it. The page holds zeros already.
fn touch(bytes: &mut [u8], kind: PageSize) {
    let step = if kind == PageSize::Small { SMALL } else { PAGE };
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
        assert!((0..100).all(|block| taught(0, 0).choose(block) == PageSize::Huge));
        assert!((0..100).all(|block| taught(450, 0).choose(block) == PageSize::Huge));
        assert!((0..100).all(|block| taught(450, 100).choose(block) == PageSize::Huge));
    }

    #[test]
    fn slow_ones_are_compared_and_the_comparison_is_made_again() {
        let pages = taught(5000, 0);
        assert_eq!(pages.choose(1), PageSize::Small);
        for (pages, mostly) in [(taught(5000, 1000), PageSize::Small), (taught(1000, 5000), PageSize::Huge)] {
            let others = (0..10 * AGAIN).filter(|block| pages.choose(*block) != mostly).count();
            assert_eq!(others, 10);
        }
        // The system has changed its mind: a few blocks later so have we.
        let pages = taught(5000, 1000);
        for _ in 0..8 {
            pages.learn(PageSize::Huge, Duration::from_micros(300));
        }
        assert_eq!(pages.choose(1), PageSize::Huge);
    }

    #[test]
    fn memory_is_made_ready_whatever_its_ends_are_and_what_is_written_stays() {
        let mut memory = memmap2::MmapMut::map_anon(3 * PAGE + 12345).unwrap();
        let pages = Pages::new(&memory);
        let blocks = pages.begun.len();
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
        assert!(pages.begun.iter().all(|begun| begun.load(Ordering::Relaxed)));
        assert_eq!(pages.blocks.load(Ordering::Relaxed), blocks);
        assert!(pages.seconds() > 0.0);
        pages.settle();
        assert_eq!(memory[PAGE / 3], 2);
    }
}
