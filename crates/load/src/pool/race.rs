//! Items that several threads may run at once: the first result stands, and no thread waits for the others.

use std::fmt;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::shares::Shares;
use super::sync::{AtomicPtr, AtomicU8, AtomicUsize, Claim, Help, Mutex, yield_now};
use super::wait::Wait;

/// Values that are made item by item. It owns all that it reads, since a thread that was stopped in the middle of an
/// item may go on with it long after somebody else has done it.
pub trait Task: Send + Sync {
    /// How many items there are.
    fn items(&self) -> usize;

    /// The range of the values of item `i` in the result, after those of the items before it.
    fn place(&self, i: usize) -> Range<usize>;

    /// Computes the values of item `i`: the same at any time and on any thread.
    fn run(&self, i: usize, out: &mut [f32]);
}

/// A task, and how far it is.
pub struct Race<T> {
    task: T,
    /// The items to take.
    shares: Shares,
    /// Items without a result.
    left: AtomicUsize,
    /// [`OPEN`], [`MOVING`] or [`DONE`], for each item.
    states: Box<[AtomicU8]>,
    /// The result. Only the thread that made an item [`MOVING`] follows it.
    out: AtomicPtr<f32>,
    /// For each item: its place there.
    places: Box<[Claim]>,
    /// For each thread: room for the values of one item.
    rooms: Box<[Mutex<Vec<f32>>]>,
}

impl<T> fmt::Debug for Race<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").finish_non_exhaustive()
    }
}

/// The values are not in place, and no thread is moving them there.
const OPEN: u8 = 0;
/// A thread is moving the values into place.
const MOVING: u8 = 1;
/// They are there, or not wanted any more.
const DONE: u8 = 2;

/// How long the caller waits for others before it does their items again, if it cannot know from its own.
const PATIENCE: Duration = Duration::from_micros(20);

impl<T: Task> Race<T> {
    /// For up to `items` items of up to `values` values, by up to `threads` threads: nothing is allocated later.
    pub fn new(task: T, threads: usize, items: usize, values: usize) -> Race<T> {
        Race {
            task,
            shares: Shares::new(threads),
            left: AtomicUsize::new(0),
            states: (0..items).map(|_| AtomicU8::new(DONE)).collect(),
            out: AtomicPtr::new(std::ptr::null_mut()),
            places: (0..items).map(|_| Claim::default()).collect(),
            rooms: (0..threads).map(|_| Mutex::new(vec![0.0; values])).collect(),
        }
    }

    /// The task, to change it before it is run again.
    pub fn task_mut(&mut self) -> &mut T {
        &mut self.task
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> usize {
        self.task.items()
    }

    /// Starts over, with no item done and no thread running one.
    ///
    /// # Safety
    /// `out` stays borrowed until [`Race::finish`] has returned, which must be called.
    ///
    /// # Panics
    /// If there are more items or values than there is room for, or they are not in order in `out`.
    pub(crate) unsafe fn reset(&mut self, out: &mut [f32]) {
        let items = self.task.items();
        assert!(items <= self.states.len(), "{items} items, room for {}", self.states.len());
        let room = self.rooms[0].get_mut().unwrap_or_else(PoisonError::into_inner).len();
        let mut end = 0;
        for i in 0..items {
            let place = self.task.place(i);
            let fits = end <= place.start && place.start <= place.end && place.end <= out.len();
            assert!(fits && place.len() <= room, "item {i} at {place:?} of {}, room for {room}", out.len());
            end = place.end;
        }
        self.states[..items].fill_with(|| AtomicU8::new(OPEN));
        self.shares.reset(items);
        self.left = AtomicUsize::new(items);
        self.out = AtomicPtr::new(out.as_mut_ptr());
    }

    /// Takes items, and then does what others have taken and not done in time, until all are there.
    pub(crate) fn finish(&self) {
        let end = End(self);
        let before = Instant::now();
        let mine = self.take(0);
        // A worker that needs twice as long for an item has been preempted.
        let patience = u32::try_from(mine).ok().and_then(|n| before.elapsed().checked_div(n));
        let mut wait = Wait::new(patience.map_or(PATIENCE, |one| 2 * one));
        while self.left.load(Ordering::Acquire) > 0 && wait.spin() {}
        if self.left.load(Ordering::Acquire) > 0 {
            let mut room = self.rooms[0].lock().unwrap_or_else(PoisonError::into_inner);
            let open = |i: &usize| self.states[*i].load(Ordering::Relaxed) == OPEN;
            (0..self.items()).filter(open).for_each(|i| self.run(i, &mut room));
        }
        // Whoever is moving has some hundred values left to copy.
        drop(end);
    }

    /// Takes items until all are taken, and says how many.
    fn take(&self, thread: usize) -> usize {
        let mut room = self.rooms[thread].lock().unwrap_or_else(PoisonError::into_inner);
        self.shares.take(thread, self.task.items()).map(|item| self.run(item, &mut room)).count()
    }

    /// Makes the values of an item, and puts them in place unless somebody else has.
    fn run(&self, i: usize, room: &mut [f32]) {
        let place = self.task.place(i);
        let values = &mut room[..place.len()];
        self.task.run(i, values);
        let state = &self.states[i];
        if state.compare_exchange(OPEN, MOVING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: `reset` has checked that the place is in `out` and shared with no other item. `out` is borrowed until
            // `End` has seen that no item is open or moving, and only who made it `MOVING` is here.
            let out = unsafe {
                let start = self.out.load(Ordering::Relaxed).add(place.start);
                std::slice::from_raw_parts_mut(start, place.len())
            };
            self.places[i].with(|| out.copy_from_slice(values));
            state.store(DONE, Ordering::Release);
            self.left.fetch_sub(1, Ordering::Release);
        }
    }
}

impl<T: Task> Help for Race<T> {
    fn help(&self, thread: usize) {
        self.take(thread);
    }
}

/// Waits until no thread can write to the result any more, also while unwinding.
struct End<'a, T>(&'a Race<T>);

impl<T> Drop for End<'_, T> {
    fn drop(&mut self) {
        if self.0.left.load(Ordering::Acquire) == 0 {
            return;
        }
        for state in &self.0.states {
            while state.compare_exchange(OPEN, DONE, Ordering::Acquire, Ordering::Acquire) == Err(MOVING) {
                yield_now();
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::Pool;

    /// Item `i` is `width` values of `i + 1`.
    struct Numbered {
        items: usize,
        width: usize,
        /// A worker stops in the first item that it takes, and the caller waits in its own until that has happened.
        gate: Option<Arc<Gate>>,
    }

    #[derive(Default)]
    struct Gate {
        entered: AtomicBool,
        open: AtomicBool,
    }

    impl Task for Numbered {
        fn items(&self) -> usize {
            self.items
        }

        fn place(&self, i: usize) -> Range<usize> {
            i * self.width..(i + 1) * self.width
        }

        fn run(&self, i: usize, out: &mut [f32]) {
            if let Some(gate) = &self.gate {
                let worker =
                    std::thread::current().name().is_some_and(|name| name.starts_with("weighbridge-"));
                gate.entered.fetch_or(worker, Ordering::SeqCst);
                let wait_for = if worker { &gate.open } else { &gate.entered };
                while !wait_for.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
            out.fill((i + 1) as f32);
        }
    }

    fn check(out: &[f32], width: usize) {
        assert!(
            out.iter().enumerate().all(|(i, x)| x.to_bits() == ((i / width + 1) as f32).to_bits()),
            "{out:?}"
        );
    }

    #[test]
    fn every_item_is_there_whatever_the_thread_count() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads);
            let race = |_| Arc::new(Race::new(Numbered { items: 0, width: 3, gate: None }, threads, 40, 3));
            let mut races: Vec<_> = (0..threads).map(race).collect();
            for round in 0..500 {
                // One that every worker has let go of: each holds one at most.
                let race = loop {
                    if let Some(free) = races.iter_mut().find(|race| Arc::strong_count(race) == 1) {
                        break free;
                    }
                };
                Arc::get_mut(race).unwrap().task_mut().items = round % 41;
                let mut out = vec![0.0; round % 41 * 3];
                pool.race(race, &mut out);
                check(&out, 3);
            }
        }
    }

    #[test]
    fn a_worker_that_is_stopped_in_an_item_is_not_waited_for() {
        let mut pool = Pool::new(2);
        let gate = Arc::new(Gate::default());
        let task = Numbered { items: 8, width: 2, gate: Some(Arc::clone(&gate)) };
        let mut stopped = Arc::new(Race::new(task, 2, 8, 2));
        let mut out = [0.0; 16];
        pool.race(&mut stopped, &mut out);
        check(&out, 2);
        // The worker is still in its item. Others go on without it, closures too.
        assert_eq!(Arc::strong_count(&stopped), 2);
        let mut other = Arc::new(Race::new(Numbered { items: 8, width: 2, gate: None }, 2, 8, 2));
        let mut again = [0.0; 16];
        pool.race(&mut other, &mut again);
        check(&again, 2);
        let mut chunks = [0; 10];
        pool.chunks(&mut [(), ()], &mut chunks, 3, |(), _, part| part.fill(7));
        assert_eq!(chunks, [7; 10]);
        // Its late result is discarded.
        out.fill(-1.0);
        gate.open.store(true, Ordering::SeqCst);
        while Arc::strong_count(&stopped) > 1 {
            std::thread::yield_now();
        }
        assert!(out.iter().all(|x| *x < 0.0), "{out:?}");
    }

    #[test]
    fn a_task_that_panics_lets_go_of_the_result() {
        struct Bad;
        impl Task for Bad {
            fn items(&self) -> usize {
                4
            }
            fn place(&self, i: usize) -> Range<usize> {
                i..i + 1
            }
            fn run(&self, i: usize, out: &mut [f32]) {
                assert!(i != 2, "on purpose");
                out.fill(1.0);
            }
        }
        let mut pool = Pool::new(2);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.race(&mut Arc::new(Race::new(Bad, 2, 4, 1)), &mut [0.0; 4]);
        }));
        assert!(caught.is_err());
        let mut race = Arc::new(Race::new(Numbered { items: 3, width: 1, gate: None }, 2, 3, 1));
        let mut out = [0.0; 3];
        pool.race(&mut race, &mut out);
        check(&out, 1);
    }

    #[test]
    #[should_panic(expected = "room for 2")]
    fn an_item_that_does_not_fit_is_refused() {
        let mut race = Arc::new(Race::new(Numbered { items: 1, width: 3, gate: None }, 1, 1, 2));
        Pool::new(1).race(&mut race, &mut [0.0; 3]);
    }
}
