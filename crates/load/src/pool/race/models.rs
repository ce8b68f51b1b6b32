//! Every order of steps of small races: `crate::pool::sync` says how to run this.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;
use crate::Pool;
use crate::pool::models::{explore, is_over};
use crate::pool::sync::Arc;

/// Item `i` is the value `i + 1`.
struct Numbers {
    items: usize,
    /// The thread that panics instead: the caller, or a worker.
    bad: Option<Thread>,
}

#[derive(Clone, Copy, PartialEq)]
enum Thread {
    Caller,
    Worker,
}

impl Task for Numbers {
    fn items(&self) -> usize {
        self.items
    }

    fn place(&self, i: usize) -> Range<usize> {
        i..i + 1
    }

    fn run(&self, i: usize, out: &mut [f32]) {
        let named = loom::thread::current().name().is_some();
        let thread = if named { Thread::Worker } else { Thread::Caller };
        if self.bad == Some(thread) {
            resume_unwind(Box::new("on purpose"));
        }
        out[0] = (i + 1) as f32;
    }
}

fn race_of(items: usize, threads: usize, bad: Option<Thread>) -> Arc<Race<Numbers>> {
    Arc::new(Race::new(Numbers { items, bad }, threads, items, 1))
}

/// Runs a race and returns its result, which no other thread may touch any more.
fn run(pool: &mut Pool, race: &mut Arc<Race<Numbers>>) -> Vec<f32> {
    let mut out = vec![-1.0; race.items()];
    pool.race(race, &mut out);
    race.places.iter().for_each(|place| place.with(|| ()));
    for (i, x) in out.iter_mut().enumerate() {
        assert!(x.to_bits() == ((i + 1) as f32).to_bits(), "{x} in {i}");
        *x = 0.0;
    }
    out
}

fn is_untouched(out: &[f32]) {
    assert!(out.iter().all(|x| x.to_bits() == 0), "{out:?}");
}

fn one(threads: usize, items: usize, bad: Option<Thread>) {
    let mut pool = Pool::new(threads);
    let out = run(&mut pool, &mut race_of(items, threads, bad));
    drop(pool);
    is_untouched(&out);
}

#[test]
fn a_race_is_complete_and_then_left_alone() {
    explore(Some(4), || one(2, 2, None));
}

#[test]
fn a_race_of_three_items_is_complete_and_then_left_alone() {
    explore(Some(3), || one(2, 3, None));
}

#[test]
fn a_race_of_three_threads_is_complete_and_then_left_alone() {
    explore(Some(2), || one(3, 2, None));
}

#[test]
fn an_item_that_panics_on_a_worker_is_done_by_the_caller() {
    explore(Some(4), || one(2, 2, Some(Thread::Worker)));
}

#[test]
fn a_panic_of_the_caller_lets_go_of_the_result() {
    explore(Some(4), || {
        let mut pool = Pool::new(2);
        let mut race = race_of(2, 2, Some(Thread::Caller));
        let mut out = [0.0; 2];
        let caught = catch_unwind(AssertUnwindSafe(|| pool.race(&mut race, &mut out)));
        race.places.iter().for_each(|place| place.with(|| ()));
        // The worker may have been first at both.
        assert!(caught.is_err() || out == [1.0, 2.0], "{out:?}");
        out.fill(0.0);
        drop(pool);
        is_untouched(&out);
    });
}

#[test]
fn a_race_follows_a_race() {
    explore(Some(2), || {
        let mut pool = Pool::new(2);
        let (mut first, mut second) = (race_of(2, 2, None), race_of(2, 2, None));
        let out = [run(&mut pool, &mut first), run(&mut pool, &mut second)];
        drop(pool);
        out.iter().for_each(|out| is_untouched(out));
    });
}

#[test]
fn a_race_that_all_have_left_is_run_again() {
    explore(Some(2), || {
        let mut pool = Pool::new(2);
        let mut race = race_of(2, 2, None);
        let out = run(&mut pool, &mut race);
        let again = Arc::get_mut(&mut race).is_some().then(|| run(&mut pool, &mut race));
        drop(pool);
        is_untouched(&out);
        is_untouched(&again.unwrap_or_default());
    });
}

#[test]
fn chunks_follow_a_race_and_a_race_follows_chunks() {
    fn chunks(pool: &mut Pool) {
        let mut out = [0; 2];
        pool.chunks(&mut [(), ()], &mut out, 1, |(), i, part| part[0] = i + 1);
        is_over(pool);
        assert_eq!(out, [1, 2]);
    }
    explore(Some(2), || {
        let mut pool = Pool::new(2);
        let out = run(&mut pool, &mut race_of(2, 2, None));
        chunks(&mut pool);
        drop(pool);
        is_untouched(&out);
    });
    explore(Some(2), || {
        let mut pool = Pool::new(2);
        chunks(&mut pool);
        let out = run(&mut pool, &mut race_of(2, 2, None));
        drop(pool);
        is_untouched(&out);
    });
}
