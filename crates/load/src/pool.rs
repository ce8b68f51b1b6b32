//! Persistent worker threads with a spinning fork and join.
//!
//! A token needs some 150 fork-joins. Waking a thread through the kernel costs 25–80 µs, spinning 0.2 µs,
//! so workers spin a bounded while, then yield their core, then sleep: a busy machine degrades instead of
//! collapsing, and an idle program uses no CPU. Threads are not pinned.
//!
//! What threads share is handed out here and nowhere else: each item, and each thread's local value, goes
//! to one thread at a time.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Spins before a waiter starts to yield its core: some 50 µs where a pause takes 140 cycles (Intel since
/// Skylake), a tenth of that elsewhere. Longer, and threads beyond the cores wait for each other's spinning.
const SPINS: u32 = 1_000;
/// Yields before an idle worker sleeps: some milliseconds.
const YIELDS: u32 = 2_000;

/// Keeps neighbours out of one cache line (two, since processors fetch pairs).
#[repr(align(128))]
struct Padded<T>(T);

/// A job: called once on each thread with the thread's number.
type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Number of jobs started; a change is the signal to start.
    epoch: Padded<AtomicUsize>,
    /// Workers that have not finished the current job.
    running: Padded<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    asleep: Vec<AtomicBool>,
    panicked: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: `job` is written only by the owner of the pool while no worker runs (`running` is 0 and the
// epoch has not moved), and read by workers only between an epoch's start, which they acquire, and their
// decrement of `running`, which the owner acquires. Everything else is atomic.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer is only followed while the owner waits inside `broadcast`.
unsafe impl Send for Shared {}

/// Threads that live as long as the pool. The caller is thread 0.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads (at least 1), the caller's own among them.
    pub fn new(threads: usize) -> Pool {
        let workers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: Padded(AtomicUsize::new(0)),
            running: Padded(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let spawn = |index: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("weighbridge-{}", index + 1))
                .spawn(move || work(&shared, index))
                .ok()
        };
        // A machine that refuses threads still works, with fewer.
        let workers = (0..workers).map_while(spawn).collect();
        Pool { shared, workers }
    }

    /// As many threads as the machine has to offer.
    pub fn available() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    /// Threads, the caller's own included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f` once on each thread with its number, and returns when all are done.
    ///
    /// # Panics
    /// If `f` panicked on any thread.
    pub fn broadcast(&mut self, f: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return f(0);
        }
        let shared = &*self.shared;
        // SAFETY: this only erases the lifetime of the borrow. Workers call it between here and the end of
        // `Join`, which this function passes before it returns or unwinds.
        #[expect(clippy::transmute_ptr_to_ptr, reason = "only the lifetime changes, which no cast can")]
        let job: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(f) };
        // SAFETY: no worker runs: `&mut self` is exclusive, and the last broadcast waited for all.
        unsafe { *shared.job.get() = Some(job) };
        shared.running.0.store(self.workers.len(), Ordering::Relaxed);
        // Sequentially consistent with `asleep`: either the worker sees the epoch, or we see it asleep.
        shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for (worker, asleep) in self.workers.iter().zip(&shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let join = Join(shared);
        f(0);
        drop(join);
        assert!(!shared.panicked.swap(false, Ordering::Relaxed), "a worker thread panicked");
    }

    /// Calls `f` for each chunk of `chunk` items of `out` (the last may be shorter), with the chunk's
    /// number and the local value of the thread that took it. Chunks are taken in order, by whoever is free.
    ///
    /// # Panics
    /// If there are fewer locals than threads, if `chunk` is 0, or if `f` panicked.
    pub fn chunks<L: Send, T: Send>(
        &mut self,
        locals: &mut [L],
        out: &mut [T],
        chunk: usize,
        f: impl Fn(&mut L, usize, &mut [T]) + Sync,
    ) {
        assert!(locals.len() >= self.threads(), "{} locals for {} threads", locals.len(), self.threads());
        let count = out.len().div_ceil(chunk);
        if self.workers.is_empty() || count < 2 {
            for (i, part) in out.chunks_mut(chunk).enumerate() {
                f(&mut locals[0], i, part);
            }
            return;
        }
        let next = AtomicUsize::new(0);
        let len = out.len();
        let (locals, out) = (Raw(locals.as_mut_ptr()), Raw(out.as_mut_ptr()));
        self.broadcast(&|thread| {
            // SAFETY: `thread` is below `threads() <= locals.len()` and each thread runs this once at a
            // time, so the reference is the only one to that element.
            let local = unsafe { &mut *locals.get().add(thread) };
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return;
                }
                let start = i * chunk;
                // SAFETY: `start < len` since `i < count`, and the end is clamped to `len`. The counter
                // gives each `i` to one thread only, so parts do not overlap. `out` outlives the broadcast.
                let part =
                    unsafe { std::slice::from_raw_parts_mut(out.get().add(start), chunk.min(len - start)) };
                f(local, i, part);
            }
        });
    }
}

/// A pointer that threads may share; who follows it says why that is sound.
struct Raw<T>(*mut T);
impl<T> Raw<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}
// SAFETY: following the pointer is unsafe, and only `chunks` does, which gives each element to one thread
// at a time; `T: Send` lets that thread be any.
unsafe impl<T: Send> Sync for Raw<T> {}

/// Waits for the workers, also while unwinding: they still use what the caller borrowed.
struct Join<'a>(&'a Shared);

impl Drop for Join<'_> {
    fn drop(&mut self) {
        let mut spins = 0u32;
        while self.0.running.0.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    while let Some(epoch) = next_epoch(shared, index, seen) {
        seen = epoch;
        // SAFETY: the epoch moved, so the owner has written the job and now waits for `running` to fall.
        let job = unsafe { (*shared.job.get()).map(|job| &*job) };
        // The worker outlives the panic: the owner reports it, and the next job finds all threads there.
        if job.is_some_and(|job| catch_unwind(AssertUnwindSafe(|| job(index + 1))).is_err()) {
            shared.panicked.store(true, Ordering::Relaxed);
        }
        shared.running.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for a job after the one numbered `seen`; `None` if the pool is going away.
fn next_epoch(shared: &Shared, index: usize, seen: usize) -> Option<usize> {
    let (mut spins, mut yields) = (0, 0);
    loop {
        let epoch = shared.epoch.0.load(Ordering::Acquire);
        if epoch != seen {
            return (!shared.stop.load(Ordering::Acquire)).then_some(epoch);
        }
        if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else if yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
        } else {
            shared.asleep[index].store(true, Ordering::SeqCst);
            if shared.epoch.0.load(Ordering::SeqCst) == seen {
                std::thread::park();
            }
            shared.asleep[index].store(false, Ordering::SeqCst);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker that panicked has reported it through `broadcast`.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_visited_once_whatever_the_thread_count() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads);
            let mut locals = vec![0usize; threads];
            for round in 0..200 {
                let mut out = vec![0u32; 1 + round % 37];
                pool.chunks(&mut locals, &mut out, 4, |local, i, part| {
                    *local += 1;
                    for (j, x) in part.iter_mut().enumerate() {
                        *x += u32::try_from(i * 4 + j + 1).unwrap();
                    }
                });
                assert!(out.iter().zip(1..).all(|(x, n)| *x == n));
            }
            let chunks: usize = (0..200).map(|r| (1 + r % 37usize).div_ceil(4)).sum();
            assert_eq!(locals.iter().sum::<usize>(), chunks);
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let mut pool = Pool::new(3);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(60));
            let count = AtomicUsize::new(0);
            pool.broadcast(&|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn a_panic_on_a_worker_reaches_the_caller() {
        let mut pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.broadcast(&|thread| assert!(thread != 1, "on purpose"));
        }));
        assert!(caught.is_err());
    }
}
