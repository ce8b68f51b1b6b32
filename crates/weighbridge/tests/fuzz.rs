//! Runs the fuzz targets of `fuzz/` for a bounded time, on seeds and their random mutations, the same each time.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use testkit::Rng;
use testkit::corpus::seeds;
use testkit::targets::{TARGETS, Target};

/// Returns the number of inputs of each target besides its seeds: `WEIGHBRIDGE_FUZZ_RUNS`, or a second's worth.
fn runs() -> usize {
    let asked = std::env::var("WEIGHBRIDGE_FUZZ_RUNS").ok();
    asked.map_or(if cfg!(debug_assertions) { 200 } else { 2000 }, |n| n.parse().unwrap())
}

/// `seed` with a few changes, of which some are pieces of `other`.
fn changed(chance: &mut Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    /// Numbers that parsers stumble over.
    const NUMBERS: [u64; 8] = [0, 1, u64::MAX, 1 << 63, 1 << 62, 1 << 32, 1 << 31, 255];
    /// Characters that mean something to one of them.
    const SIGNS: &[u8] = b"\0\xff0123456789-{}[]\",:.eE()%'\n";
    let mut out = seed.to_vec();
    for _ in 0..=chance.index(4) {
        let at = chance.index(out.len() + 1);
        let len = chance.index(17).min(out.len() - at);
        match chance.index(6) {
            0 => out.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << chance.index(8)),
            1 => {
                let number = NUMBERS[chance.index(NUMBERS.len())].to_le_bytes();
                out.iter_mut().skip(at).take([4, 8][chance.index(2)]).zip(number).for_each(|(b, n)| *b = n);
            }
            2 => drop(out.drain(at..at + len)),
            3 => {
                let again = out[at..at + len].to_vec();
                out.splice(at..at, again);
            }
            4 => {
                let from = chance.index(other.len() + 1);
                let len = chance.index(65).min(other.len() - from);
                out.splice(at..at, other[from..from + len].iter().copied());
            }
            _ => out.insert(at, SIGNS[chance.index(SIGNS.len())]),
        }
    }
    out
}

#[expect(clippy::print_stdout, reason = "the figures, for --nocapture")]
fn run((name, target): &Target) {
    let seeds = seeds::of(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let start = Instant::now();
    let attempt = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
            let path = std::env::temp_dir().join(format!("weighbridge-fuzz-{name}"));
            std::fs::write(&path, input).unwrap();
            panic!("{name} failed: the input is `{}`", path.display());
        }
    };
    for seed in &seeds {
        attempt(seed);
    }
    let mut chance = Rng(0);
    let runs = runs();
    for _ in 0..runs {
        let (seed, other) = (chance.index(seeds.len()), chance.index(seeds.len()));
        attempt(&changed(&mut chance, &seeds[seed], &seeds[other]));
    }
    println!("{name}: {} seeds and {runs} changes in {:?}", seeds.len(), start.elapsed());
}

#[test]
fn no_target_fails_on_its_seeds_or_on_what_becomes_of_them() {
    thread::scope(|scope| {
        for half in [0, 1] {
            scope.spawn(move || TARGETS.iter().skip(half).step_by(2).for_each(run));
        }
    });
}
