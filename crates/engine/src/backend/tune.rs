//! Which way of reading weights is the fastest on this machine, measured.

use std::time::{Duration, Instant};

use load::Pool;
use memmap2::MmapMut;
use quant::{Access, Activations, ColumnsMut, Isa, Kernel, Matrix, Way};
use tensor::{Scheme, Shape};

/// The schemes of the matrices: codes that are bytes, and others.
const SCHEMES: [&str; 2] = ["q8_0", "q4_k"];
/// Bytes of each matrix: more than caches hold, and little enough for all ways to have many turns.
const BYTES: usize = 40 << 20;
const COLUMNS: usize = 1536;
/// Rows of one item.
const STEP: usize = 256;
/// Times that each way has its turn.
const TURNS: usize = 15;
/// Time before they count: processors and their memory speed up as they are used, some within a quarter of a second.
const WARM: Duration = Duration::from_millis(250);
/// How much faster than the table's another way has to be: less is noise.
const CLEARLY: f64 = 1.05;

/// One way, and how it did.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// The way.
    pub way: Way,
    /// Bytes of weights a second.
    pub bytes_per_second: f64,
    /// Its speed over that of the way in the table, the median of those in the same turn.
    pub ratio: f64,
}

/// The ways for some matrices.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The way to take: the table's, unless another is clearly faster.
    pub best: Way,
    /// All of them, the table's first.
    pub tried: Vec<Tried>,
}

/// The result of [`tune`].
#[derive(Clone, Debug)]
pub struct Tuned {
    /// For codes of 8 bits.
    pub bytes: Choice,
    /// For all others.
    pub others: Choice,
}

impl Tuned {
    /// The ways to take.
    pub fn access(&self) -> Access {
        Access { bytes: self.bytes.best, others: self.others.best }
    }
}

/// Tries all ways in turns on the threads of `pool`, in half a second. `None` where there is nothing to choose.
pub fn tune(pool: &mut Pool, isa: Isa) -> Option<Tuned> {
    let r = isa.interleave()?;
    let [bytes, others] = SCHEMES.map(|name| Trial::new(isa, quant::interleaved(name, r)?.as_ref()));
    let mut trials = [bytes?, others?];
    let began = Instant::now();
    while trials[0].seconds[0].len() < TURNS {
        let is_warm = began.elapsed() > WARM;
        for i in 0..Way::all().len() {
            // One matrix after the other: none finds itself in a cache.
            for trial in &mut trials {
                trial.multiply(pool, isa, i, is_warm);
            }
        }
    }
    let [bytes, others] = trials.map(|trial| choice(trial.tried()));
    Some(Tuned { bytes: bytes?, others: others? })
}

/// A matrix, and what each way needed for it.
struct Trial {
    rows: usize,
    matrix: MmapMut,
    /// The ways, the table's first.
    ways: Vec<(Way, Kernel)>,
    /// Of each way, in each turn.
    seconds: Vec<Vec<f64>>,
}

impl Trial {
    fn new(isa: Isa, form: &Scheme) -> Option<Trial> {
        let bytes = |rows: usize| {
            let bytes = form.byte_len(&Shape::from([rows as u64, COLUMNS as u64])).ok()?;
            usize::try_from(bytes).ok()
        };
        let rows = BYTES / bytes(STEP)? * STEP;
        // Any bytes do: the cost does not depend on which. In huge pages, as weights are.
        let mut matrix = MmapMut::map_anon(bytes(rows)?).ok()?;
        #[cfg(target_os = "linux")]
        let _ = matrix.advise(memmap2::Advice::HugePage);
        matrix.fill(0x11);
        let table = Access::detect().way(form);
        let others = Way::all().into_iter().filter(|way| *way != table);
        let with_kernel = |way| Some((way, quant::kernel_with(form, isa, way)?));
        let ways: Vec<_> = std::iter::once(table).chain(others).map(with_kernel).collect::<Option<_>>()?;
        Some(Trial { rows, matrix, seconds: vec![vec![]; ways.len()], ways })
    }

    /// Multiplies in the `i`-th way.
    fn multiply(&mut self, pool: &mut Pool, isa: Isa, i: usize, counts: bool) {
        let (_, kernel) = &self.ways[i];
        let x: Vec<f32> = (0..COLUMNS).map(|i| (i % 7) as f32).collect();
        let mut activations = Activations::new(1, COLUMNS);
        let mut y = vec![0.0; self.rows];
        let mut locals = vec![(); pool.threads()];
        let matrix = Matrix { planes: &[&self.matrix], rows: self.rows, k: COLUMNS };
        activations.fill(isa, &x, 1, COLUMNS, kernel.forms);
        let (activations, started) = (&activations, Instant::now());
        pool.share_chunks(&mut locals, &mut y, STEP, |(), i, y| {
            let rows = i * STEP..i * STEP + y.len();
            kernel.run(matrix, rows.clone(), activations, ColumnsMut::new(y, 1, rows.len()));
        });
        if counts {
            self.seconds[i].push(started.elapsed().as_secs_f64());
        }
    }

    fn tried(self) -> Vec<Tried> {
        let first = self.seconds[0].clone();
        let tried = self.ways.iter().zip(self.seconds).map(|((way, _), seconds)| Tried {
            way: *way,
            bytes_per_second: self.matrix.len() as f64 / median(seconds.clone()),
            ratio: median(first.iter().zip(&seconds).map(|(table, this)| table / this).collect()),
        });
        tried.collect()
    }
}

fn choice(tried: Vec<Tried>) -> Option<Choice> {
    let table = tried.first()?;
    let fastest = tried.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let best = if fastest.ratio > CLEARLY { fastest.way } else { table.way };
    Some(Choice { best, tried })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_are_tried_the_table_first() {
        let isa = Isa::detect().unwrap();
        let tuned = tune(&mut Pool::new(2), isa);
        assert_eq!(tuned.is_some(), isa.interleave().is_some());
        let Some(tuned) = tuned else { return };
        let table = Access::detect();
        for (Choice { tried, .. }, table) in [(&tuned.bytes, table.bytes), (&tuned.others, table.others)] {
            assert_eq!(tried[0].way, table);
            assert!(Way::all().iter().all(|way| tried.iter().filter(|t| t.way == *way).count() == 1));
            assert!(tried.iter().all(|t| t.bytes_per_second > 0.0 && t.ratio > 0.0));
        }
    }

    #[test]
    fn only_what_is_clearly_faster_is_taken() {
        let [table, other, third, ..] = Way::all();
        let best = |ratios: [f64; 3]| {
            let ways = [table, other, third].into_iter().zip(ratios);
            let tried = ways.map(|(way, ratio)| Tried { way, bytes_per_second: 1.0, ratio });
            choice(tried.collect()).unwrap().best
        };
        assert_eq!(best([1.0, 1.04, 0.5]), table);
        assert_eq!(best([1.0, 1.06, 1.2]), third);
        assert!(choice(vec![]).is_none());
    }
}
