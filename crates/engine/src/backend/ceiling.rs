//! How fast this machine can be at most at what a decoder asks of it, measured.

use std::hint::black_box;
use std::time::Instant;

use load::Pool;
use quant::Isa;
use quant::ceiling::{ReadPattern, multiply, read};

/// Rates that no backend on this machine exceeds.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Bytes of weights and then of keys and values, up to 2 GiB, that all threads together read in a second, in order and doing nothing
    /// else, the fastest of several ways.
    pub bytes_per_second: f64,
    /// Pairs of bytes that they multiply and add in a second, without memory.
    pub macs_per_second: f64,
}

/// Most bytes that one item of a reading takes: some hundred microseconds.
const PIECE: usize = 4 << 20;
/// Bytes that are read to measure, if there are as many: eight times what the largest caches hold, since a token too finds a
/// part of them there.
const READ: usize = 2 << 30;
/// Rounds of products that one item does: some milliseconds.
const ROUNDS: usize = 50_000;
/// Times that the fastest way is measured again, and products; the median counts.
const TIMES: usize = 7;

/// Reads `memory` and multiplies, on the threads of `pool`.
pub(super) fn measure(pool: &mut Pool, isa: Isa, memory: &[&[u8]]) -> Ceiling {
    let mut pieces: Vec<&[u8]> = vec![];
    let mut bytes = 0;
    for piece in memory.iter().flat_map(|memory| memory.chunks(PIECE)) {
        bytes += piece.len();
        pieces.push(piece);
        if bytes >= READ {
            break;
        }
    }
    let mut locals = vec![(); pool.threads()];
    let mut seconds_of = |how, times| {
        let mut pieces = pieces.clone();
        median(times, || {
            pool.share_chunks(&mut locals, &mut pieces, 1, |(), _, pieces| {
                for piece in pieces.iter() {
                    black_box(read(isa, how, piece));
                }
            });
        })
    };
    let once = ReadPattern::ways().map(|how| (seconds_of(how, 1), how));
    let fastest = once.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let bytes_per_second = fastest.map_or(0.0, |(_, how)| bytes as f64 / seconds_of(how, TIMES));
    let mut macs = vec![0; 4 * pool.threads()];
    let seconds = median(TIMES, || {
        pool.share_chunks(&mut locals, &mut macs, 1, |(), _, macs| macs.fill(multiply(isa, ROUNDS)));
    });
    Ceiling { bytes_per_second, macs_per_second: macs.iter().sum::<u64>() as f64 / seconds }
}

fn median(times: usize, mut f: impl FnMut()) -> f64 {
    let time = |_| {
        let started = Instant::now();
        f();
        started.elapsed().as_secs_f64()
    };
    let mut seconds: Vec<f64> = (0..times).map(time).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[times / 2]
}
