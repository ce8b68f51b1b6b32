//! Which thread takes which item.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Padded;
use super::sync::AtomicUsize;

/// Items that threads take one by one, in shares of items that follow each other. Each thread takes those of its own share, and then
/// what others have left of theirs. A processor prefetches memory behind each read; a thread that reads on finds it in its cache.
pub(super) struct Shares {
    /// The next item of each share.
    next: Box<[Padded<AtomicUsize>]>,
}

impl Shares {
    /// `count` shares, at least 1: as many as threads, or one of which all take the next item.
    pub(super) fn new(count: usize) -> Shares {
        Shares { next: (0..count).map(|_| Padded(AtomicUsize::new(0))).collect() }
    }

    /// Starts over, with `count` items, while no thread takes any.
    pub(super) fn reset(&self, count: usize) {
        for (share, next) in self.next.iter().enumerate() {
            next.0.store(self.share(share, count).start, Ordering::Relaxed);
        }
    }

    /// Takes items for a thread, of the `count` that there are, as long as any are left. No item is given twice.
    pub(super) fn take(&self, thread: usize, count: usize) -> impl Iterator<Item = usize> {
        let all = self.next.len();
        let own = thread % all;
        (own..all).chain(0..own).flat_map(move |share| {
            let (next, end) = (&self.next[share].0, self.share(share, count).end);
            std::iter::from_fn(move || {
                // To look first leaves the counter of a share that is done to all caches.
                let is_left = next.load(Ordering::Relaxed) < end;
                is_left.then(|| next.fetch_add(1, Ordering::Relaxed)).filter(|item| *item < end)
            })
        })
    }

    /// The items of a share, where there are `count` in all.
    fn share(&self, share: usize, count: usize) -> Range<usize> {
        let (each, more) = (count / self.next.len(), count % self.next.len());
        // The first have one more, where not all have as many.
        let start = |share: usize| share * each + share.min(more);
        start(share)..start(share + 1)
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
    fn all_take_the_next_item_of_a_single_share() {
        let shares = Shares::new(1);
        shares.reset(5);
        let (mut one, mut other) = (shares.take(0, 5), shares.take(3, 5));
        let taken =
            [one.next(), other.next(), other.next(), one.next(), one.next(), other.next(), one.next()];
        assert_eq!(taken, [Some(0), Some(1), Some(2), Some(3), Some(4), None, None]);
    }

    #[test]
    fn a_thread_takes_its_own_share_in_order_and_then_those_of_others() {
        let shares = Shares::new(3);
        shares.reset(7);
        assert!(shares.take(1, 7).eq([3, 4, 5, 6, 0, 1, 2]));
        assert!(shares.take(0, 7).next().is_none());
    }
}
