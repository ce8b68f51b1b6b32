//! Every order of steps of small pools: `crate::pool::sync` says how to run this.
//!
//! A model fails if a thread waits for ever, if two threads use the same memory without an order between them, or if a job
//! is found outside its time.

use std::panic::resume_unwind;
use std::sync::atomic::AtomicUsize as Untracked;
use std::time::Instant;

use loom::sync::Notify;

use super::*;

/// Runs `model` in every order in which threads are stopped `stops` times, any number of times if `None`, while they could
/// go on.
pub(crate) fn explore(stops: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let (started, runs) = (Instant::now(), std::sync::Arc::new(Untracked::new(0)));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    builder.preemption_bound = builder.preemption_bound.or(stops);
    let counted = std::sync::Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let (runs, name) = (runs.load(Ordering::Relaxed), std::thread::current());
    eprintln!("{}: {runs} executions, {:.1?}", name.name().unwrap_or("?"), started.elapsed());
}

/// Memory that one thread at a time may use.
struct Plain(UnsafeCell<usize>);

// SAFETY: loom fails a model in which two threads use it at once.
unsafe impl Sync for Plain {}

impl Plain {
    fn new() -> Plain {
        Plain(UnsafeCell::new(0))
    }

    fn add(&self, n: usize) {
        // SAFETY: see `Sync`.
        self.0.with_mut(|x| unsafe { *x += n });
    }

    /// The value; it is 0 from now on.
    fn take(&self) -> usize {
        // SAFETY: see `Sync`.
        self.0.with_mut(|x| unsafe { std::mem::take(&mut *x) })
    }
}

/// Checks that no thread is inside the job, and that none will enter it again.
pub(crate) fn is_over(pool: &Pool) {
    pool.shared.job.with_mut(|_| ());
}

/// Which job is on.
struct Phase(Untracked);

impl Phase {
    fn on(&self, job: usize) {
        self.0.store(job, Ordering::Relaxed);
    }

    fn check(&self, job: usize) {
        assert_eq!(self.0.load(Ordering::Relaxed), job, "a job outside its time");
    }
}

fn chunks(threads: usize, count: usize) {
    let mut pool = Pool::new(threads);
    let mut locals: Vec<_> = (0..threads).map(|_| Plain::new()).collect();
    let mut out: Vec<_> = (0..count).map(|_| Plain::new()).collect();
    pool.share_chunks(&mut locals, &mut out, 1, |local, i, part| {
        local.add(1);
        part[0].add(i + 1);
    });
    is_over(&pool);
    for (i, x) in out.iter().enumerate() {
        assert_eq!(x.take(), i + 1);
    }
    assert_eq!(locals.iter().map(Plain::take).sum::<usize>(), count);
}

#[test]
fn every_chunk_is_visited_once() {
    explore(None, || chunks(2, 2));
}

#[test]
fn every_chunk_of_three_is_visited_once() {
    explore(Some(4), || chunks(2, 3));
}

#[test]
fn every_chunk_is_visited_once_by_three_threads() {
    explore(Some(3), || chunks(3, 2));
}

#[test]
fn a_late_worker_does_not_enter_the_next_job_with_the_last_closure() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        let phase = Phase(Untracked::new(0));
        for job in 1..3 {
            let seen = [Plain::new(), Plain::new()];
            phase.on(job);
            pool.broadcast(&|thread| {
                phase.check(job);
                seen[thread].add(job);
                phase.check(job);
            });
            phase.on(0);
            is_over(&pool);
            assert_eq!(seen[0].take(), job);
            assert!(seen[1].take().is_multiple_of(job));
        }
    });
}

/// A job in which the caller waits until the worker has come.
fn together(pool: &mut Pool) {
    let (come, seen) = (Notify::new(), Untracked::new(0));
    pool.broadcast(&|thread| {
        if thread == 0 {
            while seen.load(Ordering::Relaxed) == 0 {
                come.wait();
            }
        } else {
            seen.store(1, Ordering::Relaxed);
            come.notify();
        }
    });
}

#[test]
fn a_sleeping_worker_is_woken() {
    explore(None, || together(&mut Pool::new(2)));
}

#[test]
fn a_worker_that_sleeps_again_is_woken() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        together(&mut pool);
        together(&mut pool);
    });
}

#[test]
fn a_wake_up_for_nothing_does_no_harm() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        pool.workers[0].thread().unpark();
        together(&mut pool);
        pool.workers[0].thread().unpark();
    });
}

#[test]
fn a_pool_goes_away_whatever_its_workers_do() {
    explore(None, || drop(Pool::new(2)));
    explore(Some(3), || drop(Pool::new(3)));
    explore(None, || Pool::new(2).broadcast(&|_| ()));
}

#[test]
fn a_panic_on_a_worker_reaches_the_caller_once() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        let came = Untracked::new(0);
        let job = |thread: usize| {
            if thread == 1 {
                came.store(1, Ordering::Relaxed);
                resume_unwind(Box::new("on purpose"));
            }
        };
        let caught = catch_unwind(AssertUnwindSafe(|| pool.broadcast(&job)));
        assert_eq!(caught.is_err(), came.load(Ordering::Relaxed) == 1);
        pool.broadcast(&|_| ());
    });
}

#[test]
fn a_panic_of_the_caller_waits_for_the_worker() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        let phase = Phase(Untracked::new(1));
        let seen = Plain::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.broadcast(&|thread| {
                phase.check(1);
                if thread == 0 {
                    resume_unwind(Box::new("on purpose"));
                }
                seen.add(1);
            });
        }));
        phase.on(0);
        assert!(caught.is_err());
        is_over(&pool);
        seen.take();
        pool.broadcast(&|_| ());
    });
}

#[test]
fn a_panic_everywhere_is_reported_once() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        let job = |_| resume_unwind(Box::new("on purpose"));
        let caught = catch_unwind(AssertUnwindSafe(|| pool.broadcast(&job)));
        assert!(caught.is_err());
        pool.broadcast(&|_| ());
    });
}
