//! How long planning takes: one rank, and all of them.
//!
//! `cargo run --release -p weighbridge --example scale -- DIR TP EP`; `cargo xtask fixture trillion DIR` makes a checkpoint for it.
//! With `sweep` instead of `TP EP`, many meshes as CSV: the seconds (medians of 7) that one rank takes, and its pieces.

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use weighbridge::plan::Whole;
use weighbridge::{Checkpoint, Mesh, Plan, PlanBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = PathBuf::from(args.next().ok_or("wanted a checkpoint")?);
    let mut args = args.peekable();
    if args.peek().is_some_and(|arg| arg == "sweep") {
        return sweep(&weighbridge::open(&path)?);
    }
    let mut number = || args.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(1);
    let mesh = Mesh { tp: number(), ep: number(), ..Mesh::default() };
    let start = Instant::now();
    let seconds = |since: Instant| since.elapsed().as_secs_f64();
    let checkpoint = weighbridge::open(&path)?;
    println!("open      {:.3} s, {} tensors", seconds(start), checkpoint.entries().len());
    let start = Instant::now();
    let ranks = PlanBuilder::new(&checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).ranks()?;
    let resolved = seconds(start);
    println!("resolve   {resolved:.3} s, {} parameters", ranks.resolved().params.len());
    let start = Instant::now();
    let plan = ranks.plan(ranks.count() / 2)?;
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
        whole.add(plan.pieces());
    }
    println!("all {:>5} {:.3} s, {all} pieces", ranks.count(), seconds(start));
    let start = Instant::now();
    let untaken = whole.untaken(checkpoint.entries());
    println!("proof     {:.3} s, {} planes not taken whole", seconds(start), untaken.len());
    Ok(())
}

fn pieces(plan: &Plan) -> usize {
    let planes = plan.params().iter().flat_map(|p| &p.planes);
    planes.map(|plane| plane.copy.len() + plane.equal.len()).sum()
}

/// Runs in rounds, so that a machine that slows down affects all meshes alike.
fn sweep(checkpoint: &Checkpoint) -> Result<(), Box<dyn Error>> {
    let many = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128];
    let mut meshes: Vec<_> = [1, 8].iter().flat_map(|tp| many.map(|ep| (*tp, ep, 0, vec![]))).collect();
    for _ in 0..7 {
        for (tp, ep, held, seconds) in &mut meshes {
            let mesh = Mesh { tp: *tp, ep: *ep, ..Mesh::default() };
            let ranks = PlanBuilder::new(checkpoint).layout(weighbridge::vllm::LAYOUT).mesh(mesh).ranks()?;
            let start = Instant::now();
            let plan = ranks.plan(ranks.count() / 2)?;
            seconds.push(start.elapsed().as_secs_f64());
            *held = pieces(&plan);
        }
    }
    println!("tp,ep,pieces,seconds");
    for (tp, ep, held, mut seconds) in meshes {
        seconds.sort_by(f64::total_cmp);
        println!("{tp},{ep},{held},{:.4}", seconds[3]);
    }
    Ok(())
}
