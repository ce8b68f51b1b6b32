//! Borrows tensors from the mapped file: those that need no change cost no memory.
//!
//! `cargo run -p weighbridge --example borrow -- PATH`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use weighbridge::Pool;
use weighbridge::tensor::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("wanted a checkpoint")?;
    let checkpoint = weighbridge::open(path)?;
    // Every tensor under its own name, as it is stored: no model is asked for.
    let loaded = weighbridge::planner::plan_as_stored(&checkpoint)?.load(&mut Pool::new(1))?;
    let report = loaded.report();
    println!("{} borrowed, {} copied", Bytes(report.bytes_borrowed), Bytes(report.bytes_copied));
    let first = checkpoint.entries()[0].name.clone();
    let tensor = loaded.get(&first).ok_or("every entry is loaded")?;
    // The map stays as long as a tensor of it does.
    drop(checkpoint);
    println!("{first}: {} {} begins {:02x?}", tensor.shape(), tensor.scheme(), &tensor.bytes()[..4]);
    Ok(())
}
