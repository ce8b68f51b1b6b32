//! A family of models of your own: described, shared by ranks and run as any other.
//!
//! `cargo run --release -p weighbridge --example own_family -- PATH ID…`, where PATH is a model of Arcee as transformers or
//! llama.cpp has it, and the IDs are tokens.

#![allow(clippy::print_stdout, reason = "examples print what they show")]

mod arcee;

use std::error::Error;

use weighbridge::{Mesh, PlanBuilder, Runtime, RuntimeOptions, describe, model, open};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("wanted a checkpoint of Arcee")?;
    let ids = arguments.map(|id| id.parse()).collect::<Result<Vec<u32>, _>>()?;
    // From now on its checkpoints are known in every part of the program.
    model::register(&arcee::Arcee)?;

    let checkpoint = open(&path)?;
    let model = describe(&checkpoint)?;
    println!("{}: {} layers of {}", model.family.name(), *model.config().layers, *model.config().hidden);
    let mesh = Mesh { tp: 2, ..Mesh::default() };
    for rank in 0..2 {
        let plan = PlanBuilder::new(&checkpoint).mesh(mesh).rank(rank).build()?;
        println!("rank {rank}: {}", plan.summary());
    }

    let mut runtime = Runtime::start(&path, &RuntimeOptions::default())?;
    let logits = runtime.forward(&ids)?;
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    println!("the next token is {}", best.ok_or("no tokens, no logits")?.0);
    Ok(())
}
