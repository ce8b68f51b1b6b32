//! Plans every rank of a mesh: the bytes that each would read and hold, and the proof that together they use all of the
//! checkpoint.
//!
//! `cargo run --release -p weighbridge --example ranks -- PATH TP`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::path::PathBuf;

use weighbridge::plan::Whole;
use weighbridge::tensor::Bytes;
use weighbridge::{Mesh, PlanBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = PathBuf::from(args.next().ok_or("wanted a checkpoint")?);
    let tp = args.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(2);
    let checkpoint = weighbridge::open(&path)?;
    let entries = checkpoint.entries();
    let ranks = PlanBuilder::new(&checkpoint)
        .layout(weighbridge::vllm::LAYOUT)
        .mesh(Mesh { tp, ..Mesh::default() })
        .ranks()?;
    let mut whole = Whole::default();
    for rank in 0..ranks.count() {
        let plan = ranks.plan(rank)?;
        whole.add(plan.pieces());
        let costs = plan.summary();
        println!("rank {rank}: holds {}, needs {}", Bytes(costs.slot_bytes), Bytes(costs.needed_bytes));
    }
    for untaken in whole.untaken(entries) {
        println!("nobody takes all of `{}`", untaken.entry);
    }
    for group in whole.replicated(entries) {
        println!("{} more than once: {}", Bytes(group.bytes), group.pattern);
    }
    Ok(())
}
