//! Pools of more threads than there are processors, and jobs as short as they come.

use std::ops::Range;
use std::sync::Arc;

use load::{Pool, Race, Task};

const THREADS: usize = 16;
const WIDTH: usize = 3;

/// The values of item `i` are `round + i`.
struct Numbers {
    items: usize,
    round: usize,
}

impl Task for Numbers {
    fn items(&self) -> usize {
        self.items
    }

    fn place(&self, i: usize) -> Range<usize> {
        i * WIDTH..(i + 1) * WIDTH
    }

    fn run(&self, i: usize, out: &mut [f32]) {
        out.fill((self.round + i) as f32);
    }
}

/// Chunks: each is visited once, by a thread that counts it.
fn chunks(pool: &mut Pool, round: usize) {
    let (count, mut locals) = (1 + round % 40, [0; THREADS]);
    let mut out = vec![0; count * WIDTH];
    pool.chunks(&mut locals, &mut out, WIDTH, |local, i, part| {
        *local += 1;
        for x in part {
            *x += round + i;
        }
    });
    assert!(out.chunks(WIDTH).enumerate().all(|(i, part)| part == [round + i; WIDTH]), "{out:?}");
    assert_eq!(locals.iter().sum::<usize>(), count);
}

/// Runs a race to its end, on one of `races` that no other thread holds.
fn race(pool: &mut Pool, round: usize, races: &mut [Arc<Race<Numbers>>]) -> Vec<f32> {
    let free = races.iter_mut().find(|race| Arc::strong_count(race) == 1).unwrap();
    let items = round % 41;
    *Arc::get_mut(free).unwrap().task_mut() = Numbers { items, round };
    let mut out = vec![-1.0; items * WIDTH];
    pool.race(free, &mut out);
    let same = |(i, x): (usize, &f32)| x.to_bits() == ((round + i / WIDTH) as f32).to_bits();
    assert!(out.iter().enumerate().all(same), "{out:?}");
    out
}

#[test]
fn many_short_jobs_on_few_processors() {
    let new = |_| Arc::new(Race::new(Numbers { items: 0, round: 0 }, THREADS, 40, WIDTH));
    for life in 0..40 {
        let mut pool = Pool::new(THREADS);
        // Each worker keeps one at most.
        let mut races: Vec<_> = (0..THREADS).map(new).collect();
        let mut last = Vec::new();
        for round in 0..500 {
            if (round + life) % 5 < 2 {
                chunks(&mut pool, round);
            } else {
                last = race(&mut pool, round, &mut races);
                last.fill(-1.0);
            }
            if round == 250 {
                // Long enough to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        drop(pool);
        assert!(last.iter().all(|x| *x < 0.0), "{last:?}");
    }
}
