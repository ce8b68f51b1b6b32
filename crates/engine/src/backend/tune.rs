//! Which way of reading weights is the fastest on this machine, measured.

use std::time::{Duration, Instant};

use load::Pool;
use memmap2::MmapMut;
use quant::{Access, Activations, ColumnsMut, Isa, Matrix};
use tensor::Shape;

/// The schemes of the matrices: most models consist of blocks of 256 and blocks of 32.
const SCHEMES: [&str; 2] = ["q4_k", "q8_0"];
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
    pub access: Access,
    /// Bytes of weights a second.
    pub bytes_per_second: f64,
    /// Its speed over that of the way in the table, the median of those in the same turn.
    pub ratio: f64,
}

/// Tries all ways in turns on the threads of `pool`, in half a second: the table's first. `None` where there is nothing
/// to choose.
pub fn tune(pool: &mut Pool, isa: Isa) -> Option<Tuned> {
    let tried = tried(pool, isa, isa.interleave()?);
    Some(Tuned { best: best(&tried)?, tried })
}

/// The result of [`tune`].
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The way to take: the table's, unless another is clearly faster.
    pub best: Access,
    /// All of them.
    pub tried: Vec<Tried>,
}

fn tried(pool: &mut Pool, isa: Isa, r: usize) -> Vec<Tried> {
    let table = Access::detect();
    let ways: Vec<Access> =
        std::iter::once(table).chain(Access::ways().into_iter().filter(|way| *way != table)).collect();
    let forms: Vec<_> = SCHEMES.iter().filter_map(|name| quant::interleaved(name, r)).collect();
    let matrices: Vec<(usize, MmapMut)> = forms
        .iter()
        .filter_map(|form| {
            let bytes = |rows: usize| form.byte_len(&Shape::from([rows as u64, COLUMNS as u64])).ok();
            let rows = BYTES / usize::try_from(bytes(STEP)?).ok()? * STEP;
            // Any bytes do: the cost does not depend on which. In huge pages, as weights are.
            let mut map = MmapMut::map_anon(usize::try_from(bytes(rows)?).ok()?).ok()?;
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            map.fill(0x11);
            Some((rows, map))
        })
        .collect();
    let x: Vec<f32> = (0..COLUMNS).map(|i| (i % 7) as f32).collect();
    let mut activations = Activations::new(1, COLUMNS);
    let mut seconds = vec![vec![]; ways.len()];
    let mut locals = vec![(); pool.threads()];
    let began = Instant::now();
    while seconds[0].len() < TURNS {
        let is_warm = began.elapsed() > WARM;
        for (way, seconds) in ways.iter().zip(&mut seconds) {
            let started = Instant::now();
            for (form, (rows, bytes)) in forms.iter().zip(&matrices) {
                let Some(kernel) = quant::kernel_with(form, isa, *way) else { continue };
                activations.fill(isa, &x, 1, COLUMNS, kernel.forms);
                let matrix = Matrix { planes: &[bytes], rows: *rows, k: COLUMNS };
                let (activations, mut y) = (&activations, vec![0.0; *rows]);
                pool.share_chunks(&mut locals, &mut y, STEP, |(), i, y| {
                    let rows = i * STEP..i * STEP + y.len();
                    kernel.run(matrix, rows.clone(), activations, ColumnsMut::new(y, 1, rows.len()));
                });
            }
            if is_warm {
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
    }
    let all: usize = matrices.iter().map(|(_, bytes)| bytes.len()).sum();
    let first = seconds[0].clone();
    let tried = ways.iter().zip(seconds).map(|(access, seconds)| Tried {
        access: *access,
        bytes_per_second: all as f64 / median(seconds.clone()),
        ratio: median(first.iter().zip(&seconds).map(|(table, this)| table / this).collect()),
    });
    tried.collect()
}

fn best(tried: &[Tried]) -> Option<Access> {
    let table = tried.first()?;
    let fastest = tried.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    Some(if fastest.ratio > CLEARLY { fastest.access } else { table.access })
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
        let Some(Tuned { tried, .. }) = tuned else { return };
        assert_eq!(tried[0].access, Access::detect());
        assert!(Access::ways().iter().all(|way| tried.iter().filter(|t| t.access == *way).count() == 1));
        assert!(tried.iter().all(|t| t.bytes_per_second > 0.0 && t.ratio > 0.0));
    }

    #[test]
    fn only_what_is_clearly_faster_is_taken() {
        let [table, other, third, ..] = Access::ways();
        let tried = |ratios: [f64; 3]| {
            let ways = [table, other, third].into_iter().zip(ratios);
            best(
                &ways
                    .map(|(access, ratio)| Tried { access, bytes_per_second: 1.0, ratio })
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(tried([1.0, 1.04, 0.5]), Some(table));
        assert_eq!(tried([1.0, 1.06, 1.2]), Some(third));
        assert_eq!(best(&[]), None);
    }
}
