//! Keeps a copy of what was loaded, maps it at the next start, and reads every byte of it.
//!
//! `cargo run --release -p weighbridge --features store --example ready -- PATH CACHE`: the first time it builds the copy.

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::time::Instant;

use weighbridge::Pool;
use weighbridge::planner::{PlanBuilder, packed_layout};
use weighbridge::quant::Isa;
use weighbridge::store::Cache;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (path, folder) =
        args.next().zip(args.next()).ok_or("wanted a checkpoint and a directory for copies")?;
    let cache = Cache::new(folder);
    let mut pool = Pool::new(Pool::available());

    let started = Instant::now();
    let checkpoint = weighbridge::open(path)?;
    let plan = PlanBuilder::new(&checkpoint).layout(packed_layout()?).build()?;
    let entry = cache
        .entry(&plan, Isa::detect()?.name())
        .ok_or("these files have no identity that a copy could keep")?;
    let (loaded, from) = match entry.load()? {
        Some(loaded) => (loaded, "the copy"),
        None => (plan.load(&mut pool)?, "the model"),
    };
    println!(
        "{} parameters from {from} in {:.1} ms",
        loaded.report().params,
        started.elapsed().as_secs_f64() * 1e3
    );

    let words =
        loaded.names().filter_map(|name| loaded.get(name)).flat_map(|tensor| tensor.bytes().as_chunks().0);
    let sum = words.fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    println!("every byte read after {:.1} ms, sum {sum:016x}", started.elapsed().as_secs_f64() * 1e3);

    if from == "the model" {
        let built = entry.builder(&loaded)?.run()?;
        println!("copy: {built:?}");
    }
    Ok(())
}
