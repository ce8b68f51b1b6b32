//! How long planning takes: one rank, and all of them.
//!
//! `cargo run --release -p weighbridge --example scale -- DIR TP EP`; `cargo xtask fixture trillion DIR` makes a checkpoint for it.

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use weighbridge::{LayoutKind, Mesh, Plan, Whole};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = PathBuf::from(args.next().ok_or("wanted a checkpoint")?);
    let mut number = || args.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(1);
    let mesh = Mesh { tp: number(), ep: number(), ..Mesh::default() };
    let start = Instant::now();
    let seconds = |since: Instant| since.elapsed().as_secs_f64();
    let checkpoint = weighbridge::open(&path)?;
    println!("open      {:.3} s, {} tensors", seconds(start), checkpoint.entries().len());
    let start = Instant::now();
    let ranks = Plan::builder(&checkpoint).layout(LayoutKind::Vllm).mesh(mesh).ranks()?;
    let resolved = seconds(start);
    println!("resolve   {resolved:.3} s, {} parameters", ranks.resolved().params.len());
    let start = Instant::now();
    let plan = ranks.plan(ranks.count() / 2)?;
    let pieces = |plan: &Plan| {
        let planes = plan.plan.params.iter().flat_map(|p| &p.planes);
        planes.map(|plane| plane.copy.len() + plane.equal.len()).sum::<usize>()
    };
    println!(
        "one rank  {:.3} s, {} pieces; with what all have in common {:.3} s",
        seconds(start),
        pieces(&plan),
        { resolved + seconds(start) }
    );
    let (start, mut whole, mut all) = (Instant::now(), Whole::default(), 0);
    for rank in 0..ranks.count() {
        let plan = ranks.plan(rank)?;
        all += pieces(&plan);
        whole.add(&plan.plan);
    }
    println!("all {:>5} {:.3} s, {all} pieces", ranks.count(), seconds(start));
    let start = Instant::now();
    let untaken = whole.untaken(checkpoint.entries());
    println!("proof     {:.3} s, {} planes not taken whole", seconds(start), untaken.len());
    Ok(())
}
