//! Which thread takes which item.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Padded;
use super::sync::AtomicUsize;

/// Items that threads take one by one. Each thread takes those of its own share, which follow each other, and then what others have
/// left of theirs. A processor asks for the memory behind what it reads: whoever reads on finds it in its cache.
pub(super) struct Shares {
    /// For each thread, the next item of its share.
    next: Box<[Padded<AtomicUsize>]>,
}

impl Shares {
    /// For `threads` threads, at least 1.
    pub(super) fn new(threads: usize) -> Shares {
        Shares { next: (0..threads).map(|_| Padded(AtomicUsize::new(0))).collect() }
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> usize {
        self.next.len()
    }

    /// Starts over, with `count` items, while no thread takes any.
    pub(super) fn reset(&self, count: usize) {
        for (thread, next) in self.next.iter().enumerate() {
            next.0.store(self.share(thread, count).start, Ordering::Relaxed);
        }
    }

    /// Takes items for a thread, of the `count` that there are, as long as any are left. No item is given twice.
    pub(super) fn take(&self, thread: usize, count: usize) -> impl Iterator<Item = usize> {
        let all = self.threads();
        (thread..all).chain(0..thread).flat_map(move |of| {
            let (next, end) = (&self.next[of].0, self.share(of, count).end);
            std::iter::from_fn(move || {
                // To look first leaves the counter of a share that is done to all caches.
                let is_left = next.load(Ordering::Relaxed) < end;
                is_left.then(|| next.fetch_add(1, Ordering::Relaxed)).filter(|item| *item < end)
            })
        })
    }

    /// The share of a thread.
    fn share(&self, thread: usize, count: usize) -> Range<usize> {
        let (each, more) = (count / self.threads(), count % self.threads());
        // The first have one more, where not all have as many.
        let start = |thread: usize| thread * each + thread.min(more);
        start(thread)..start(thread + 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_taken_once_whoever_comes() {
        for threads in 1..6 {
            for count in 0..20 {
                let shares = Shares::new(threads);
                shares.reset(count);
                let (mut taken, mut iterators) = (vec![], vec![]);
                (0..threads).for_each(|thread| iterators.push(shares.take(thread, count)));
                // The last thread comes twice as often as the others.
                iterators.push(shares.take(threads - 1, count));
                while let Some(at) = iterators.iter_mut().position(|items| {
                    let item = items.next();
                    taken.extend(item);
                    item.is_some()
                }) {
                    iterators.rotate_left(at + 1);
                }
                taken.sort_unstable();
                assert!(taken.iter().copied().eq(0..count), "{threads} threads, {count} items: {taken:?}");
            }
        }
    }

    #[test]
    fn a_thread_takes_its_own_share_in_order_and_then_those_of_others() {
        let shares = Shares::new(3);
        shares.reset(7);
        assert!(shares.take(1, 7).eq([3, 4, 5, 6, 0, 1, 2]));
        assert!(shares.take(0, 7).next().is_none());
    }
}
