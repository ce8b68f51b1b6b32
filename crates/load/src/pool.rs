//! Persistent worker threads with a spinning fork and join.
//!
//! A token needs some 150 fork-joins. Waking a thread through the kernel costs 25–80 µs, spinning 0.2 µs,
//! so workers spin a bounded while, then yield their core, then sleep: a busy machine degrades instead of
//! collapsing, and an idle program uses no CPU. Threads are not pinned.
//!
//! A thread that is kept off its core is not waited for: jobs go on without a worker that does not come. If the job is
//! a [`Race`], the caller repeats the items of a worker that came and was preempted.
//!
//! Shared data is handed out to threads here and nowhere else: each item, and each thread's local value, goes to one
//! thread at a time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) mod race;
mod shares;
mod sync;
mod wait;

use race::{Race, Task};
use shares::Shares;
use sync::{Arc, AtomicBool, AtomicUsize, Builder, Help, JoinHandle, Mutex, UnsafeCell, park, yield_now};
use wait::Wait;

/// Time that a waiter spins before it yields its core: to yield earlier would give a busy neighbour a whole slice of
/// the scheduler's, milliseconds, in which a token is late.
const SPIN: Duration = Duration::from_micros(100);
/// The same where there are more threads than processors, and spinning keeps others from working.
const SPIN_CROWDED: Duration = Duration::from_micros(5);
/// Yields before an idle worker sleeps: some milliseconds.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 2_000 };

/// Keeps neighbours out of one cache line (two, since processors fetch pairs).
#[repr(align(128))]
struct Padded<T>(T);

/// A job that borrows from its caller: each thread that enters calls it with its number.
type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Number of jobs started; a change is the signal to start.
    epoch: Padded<AtomicUsize>,
    /// [`OPEN`] while workers may enter `job`, plus the number of workers inside.
    gate: Padded<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    workers: Box<[Padded<Worker>]>,
    panicked: AtomicBool,
    stop: AtomicBool,
    spin: Duration,
}

/// State that the pool and one worker share.
#[derive(Default)]
struct Worker {
    asleep: AtomicBool,
    /// A race to join.
    mail: Mutex<Option<Arc<dyn Help>>>,
}

/// `gate` while the job may be entered.
const OPEN: usize = 1 << (usize::BITS - 1);

// SAFETY: `job` is written only by the owner of the pool while the gate is shut and no worker is inside, and read by workers
// only after they entered, by an operation that acquires what opened the gate. They leave by one that the owner
// acquires. Everything else is atomic or locked.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer is only followed while the owner waits inside `broadcast`.
unsafe impl Send for Shared {}

/// Threads that live as long as the pool. The caller is thread 0.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Of the chunks of a job: a share for each thread, and one for all.
    shares: Arc<Shares>,
    order: Arc<Shares>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads (at least 1), the caller's own among them.
    pub fn new(threads: usize) -> Pool {
        let workers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: Padded(AtomicUsize::new(0)),
            gate: Padded(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            workers: (0..workers).map(|_| Padded(Worker::default())).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            spin: if threads > Pool::available() { SPIN_CROWDED } else { SPIN },
        });
        let spawn = |index: usize| {
            let shared = Arc::clone(&shared);
            Builder::new().name(format!("weighbridge-{}", index + 1)).spawn(move || work(&shared, index)).ok()
        };
        // A machine that refuses threads still works, with fewer.
        let workers: Vec<_> = (0..workers).map_while(spawn).collect();
        let (shares, order) = (Arc::new(Shares::new(workers.len() + 1)), Arc::new(Shares::new(1)));
        Pool { shared, workers, shares, order }
    }

    /// Returns the number of threads that the machine offers.
    pub fn available() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    /// Threads, the caller's own included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Tells all workers that there is something to do.
    fn signal(&self) {
        // Sequentially consistent with `asleep`: either the worker sees the epoch, or we see it asleep.
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for (worker, shared) in self.workers.iter().zip(&self.shared.workers) {
            if shared.0.asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    /// Calls `f` on this thread, and on each worker that comes before this thread is through, with the thread's number.
    /// A worker that is still about to look for an earlier job may call it twice. Returns when all who called it are done.
    ///
    /// # Panics
    /// If `f` panicked on any thread.
    fn broadcast(&mut self, f: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return f(0);
        }
        let shared = &*self.shared;
        // SAFETY: this only erases the lifetime of the borrow. Workers call it between here and the end of
        // `Join`, which this function passes before it returns or unwinds.
        #[expect(clippy::transmute_ptr_to_ptr, reason = "only the lifetime changes, which no cast can")]
        let job: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(f) };
        // SAFETY: no worker is inside: `&mut self` is exclusive, and the last broadcast waited for all and shut the gate.
        shared.job.with_mut(|shared| unsafe { *shared = Some(job) });
        // A job that panicked on its caller too has left it.
        shared.panicked.store(false, Ordering::Relaxed);
        shared.gate.0.store(OPEN, Ordering::Release);
        self.signal();
        let join = Join(shared);
        f(0);
        drop(join);
        assert!(!shared.panicked.load(Ordering::Relaxed), "a worker thread panicked");
    }

    /// Runs the items of `race` and writes their values to `out`. Threads take items as in [`share_chunks`](Self::share_chunks); items
    /// that a worker has taken and does not finish in time are run here too.
    ///
    /// # Panics
    /// If another thread or caller holds the race, if its places are not in `out` or not in order, or if the task
    /// panicked.
    pub fn race<T: Task + 'static>(&mut self, race: &mut Arc<Race<T>>, out: &mut [f32]) {
        let alone = Arc::get_mut(race).expect("a race that nobody runs");
        // SAFETY: `out` is borrowed until this returns, and nothing between here and `finish` panics.
        unsafe { alone.reset(out) };
        if race.items() > 1 {
            for worker in &self.shared.workers {
                // A worker that holds the lock is about to take an earlier race, and would be late for this one.
                if let Ok(mut mail) = worker.0.mail.try_lock() {
                    *mail = Some(sync::help(race));
                }
            }
            self.signal();
        }
        race.finish();
        for worker in &self.shared.workers {
            if let Ok(mut mail) = worker.0.mail.try_lock() {
                *mail = None;
            }
        }
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
        let one_share = Arc::clone(&self.order);
        self.taken_chunks(&one_share, locals, out, chunk, f);
    }

    /// As [`chunks`](Self::chunks), but each thread takes chunks that follow each other, and then what others have left of theirs: it reads
    /// memory in long stretches.
    ///
    /// # Panics
    /// As [`chunks`](Self::chunks).
    pub fn share_chunks<L: Send, T: Send>(
        &mut self,
        locals: &mut [L],
        out: &mut [T],
        chunk: usize,
        f: impl Fn(&mut L, usize, &mut [T]) + Sync,
    ) {
        let shares = Arc::clone(&self.shares);
        self.taken_chunks(&shares, locals, out, chunk, f);
    }

    fn taken_chunks<L: Send, T: Send>(
        &mut self,
        shares: &Shares,
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
        let len = out.len();
        shares.reset(count);
        let (locals, out) = (Raw(locals.as_mut_ptr()), Raw(out.as_mut_ptr()));
        self.broadcast(&|thread| {
            // SAFETY: `thread` is below `threads() <= locals.len()` and each thread runs this once at a
            // time, so the reference is the only one to that element.
            let local = unsafe { &mut *locals.get().add(thread) };
            for i in shares.take(thread, count) {
                let start = i * chunk;
                // SAFETY: `start < len` since `i < count`, and the end is clamped to `len`. Each `i` is taken by one thread
                // only, so parts do not overlap. `out` outlives the broadcast.
                let part =
                    unsafe { std::slice::from_raw_parts_mut(out.get().add(start), chunk.min(len - start)) };
                f(local, i, part);
            }
        });
    }
}

/// A pointer that threads may share; each place that dereferences it says why that is sound.
struct Raw<T>(*mut T);
impl<T> Raw<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}
// SAFETY: following the pointer is unsafe, and only `chunks` does, which gives each element to one thread
// at a time; `T: Send` lets that thread be any.
unsafe impl<T: Send> Sync for Raw<T> {}

/// Shuts the gate and waits for the workers inside, also while unwinding: they still use what the caller borrowed.
struct Join<'a>(&'a Shared);

impl Drop for Join<'_> {
    fn drop(&mut self) {
        self.0.gate.0.fetch_and(!OPEN, Ordering::Relaxed);
        let mut wait = Wait::new(self.0.spin);
        while self.0.gate.0.load(Ordering::Acquire) != 0 {
            if !wait.spin() {
                yield_now();
            }
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let mine = &shared.workers[index].0;
    let mut seen = 0;
    while let Some(epoch) = next_epoch(shared, mine, seen) {
        seen = epoch;
        let mail = mine.mail.lock().map_or(None, |mut mail| mail.take());
        // The worker outlives a panic: the owner does the item again and panics itself, or reports it, and the next job finds
        // all threads there.
        if let Some(race) = mail {
            let _ = catch_unwind(AssertUnwindSafe(|| race.help(index + 1)));
        } else if enter(shared) {
            let done = shared.job.with(|job| {
                // SAFETY: the gate was open, so the owner has written the job and waits for us to leave.
                let job = unsafe { (*job).map(|job| &*job) };
                job.is_none_or(|job| catch_unwind(AssertUnwindSafe(|| job(index + 1))).is_ok())
            });
            if !done {
                shared.panicked.store(true, Ordering::Relaxed);
            }
            shared.gate.0.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Enters the job if it may still be entered.
fn enter(shared: &Shared) -> bool {
    let one_more = |gate: usize| (gate & OPEN != 0).then_some(gate + 1);
    shared.gate.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
}

/// Waits for a job after the one numbered `seen`; `None` if the pool is going away.
fn next_epoch(shared: &Shared, mine: &Worker, seen: usize) -> Option<usize> {
    let (mut wait, mut yields) = (Wait::new(shared.spin), YIELDS);
    loop {
        let epoch = shared.epoch.0.load(Ordering::Acquire);
        if epoch != seen {
            return (!shared.stop.load(Ordering::Acquire)).then_some(epoch);
        }
        if wait.spin() {
            continue;
        }
        if yields > 0 {
            yields -= 1;
            yield_now();
        } else {
            mine.asleep.store(true, Ordering::SeqCst);
            if shared.epoch.0.load(Ordering::SeqCst) == seen {
                park();
            }
            mine.asleep.store(false, Ordering::SeqCst);
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

#[cfg(all(test, loom))]
pub(crate) mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_visited_once_whatever_the_thread_count() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads);
            let mut locals = vec![0usize; threads];
            for round in 0..200 {
                let mut out = vec![0u32; 1 + round % 37];
                let visit = |local: &mut usize, i: usize, part: &mut [u32]| {
                    *local += 1;
                    for (j, x) in part.iter_mut().enumerate() {
                        *x += u32::try_from(i * 4 + j + 1).unwrap();
                    }
                };
                if round % 2 == 0 {
                    pool.chunks(&mut locals, &mut out, 4, visit);
                } else {
                    pool.share_chunks(&mut locals, &mut out, 4, visit);
                }
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
            let woken = AtomicUsize::new(0);
            pool.broadcast(&|thread| {
                woken.fetch_or(1 << thread, Ordering::Relaxed);
                while thread == 0 && woken.load(Ordering::Relaxed) != 0b111 {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_on_a_worker_reaches_the_caller() {
        let mut pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let entered = AtomicBool::new(false);
            pool.broadcast(&|thread| {
                entered.fetch_or(thread == 1, Ordering::Relaxed);
                assert!(thread != 1, "on purpose");
                while !entered.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
        }));
        assert!(caught.is_err());
    }

    #[test]
    fn a_panic_on_all_threads_does_not_reach_the_next_job() {
        let mut pool = Pool::new(2);
        let entered = AtomicBool::new(false);
        let job = |thread: usize| {
            entered.fetch_or(thread == 1, Ordering::Relaxed);
            while !entered.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(|| pool.broadcast(&job))).is_err());
        pool.broadcast(&|_| ());
    }
}
