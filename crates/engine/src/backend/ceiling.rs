//! How fast this machine can be at most at what a decoder asks of it, measured.

use std::hint::black_box;
use std::time::Instant;

use load::Pool;
use quant::Isa;
use quant::ceiling::{ReadPattern, multiply, read};

use crate::weights::Projection;

/// Rates that no backend on this machine exceeds.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Bytes of weights that all threads together read in a second, in order and doing nothing else, the fastest of several
    /// ways.
    pub bytes_per_second: f64,
    /// Pairs of bytes that they multiply and add in a second, without memory.
    pub macs_per_second: f64,
}

/// Bytes that one item of a reading takes: some hundred microseconds.
const PIECE: usize = 4 << 20;
/// Bytes of weights that are read to measure: more than caches hold.
const READ: usize = 256 << 20;
/// Rounds of products that one item does: some milliseconds.
const ROUNDS: usize = 50_000;
/// Times that each way is measured; the median counts.
const TIMES: usize = 3;

/// Reads the weights and multiplies, on the threads of `pool`.
pub(super) fn measure(pool: &mut Pool, isa: Isa, projections: &[&Projection]) -> Ceiling {
    let linears = projections.iter().flat_map(|projection| &projection.parts);
    let mut pieces: Vec<&[u8]> = vec![];
    let mut bytes = 0;
    'all: for linear in linears {
        for piece in linear.weight.planes().iter().flat_map(|plane| plane.chunks(PIECE)) {
            bytes += piece.len();
            pieces.push(piece);
            if bytes >= READ {
                break 'all;
            }
        }
    }
    let mut locals = vec![(); pool.threads()];
    let read = ReadPattern::ways().map(|how| {
        let mut pieces = pieces.clone();
        let seconds = median(|| {
            pool.chunks(&mut locals, &mut pieces, 1, |(), _, pieces| {
                for piece in pieces.iter() {
                    black_box(read(isa, how, piece));
                }
            });
        });
        bytes as f64 / seconds
    });
    let bytes_per_second = read.fold(0.0, f64::max);
    let mut macs = vec![0; 4 * pool.threads()];
    let seconds = median(|| {
        pool.chunks(&mut locals, &mut macs, 1, |(), _, macs| macs.fill(multiply(isa, ROUNDS)));
    });
    Ceiling { bytes_per_second, macs_per_second: macs.iter().sum::<u64>() as f64 / seconds }
}

fn median(mut f: impl FnMut()) -> f64 {
    let mut seconds = [(); TIMES].map(|()| {
        let started = Instant::now();
        f();
        started.elapsed().as_secs_f64()
    });
    seconds.sort_by(f64::total_cmp);
    seconds[TIMES / 2]
}
