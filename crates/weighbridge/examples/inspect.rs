//! Describes a checkpoint from its headers; no tensor is read.
//!
//! `cargo run -p weighbridge --example inspect -- PATH`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use weighbridge::tensor::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("wanted a checkpoint")?;
    let checkpoint = weighbridge::open(path)?;
    let model = weighbridge::describe(&checkpoint)?;
    println!("{} of the family {}", checkpoint.format(), model.family.name());
    println!("{} layers of {}", *model.config().layers, *model.config().hidden);
    for entry in checkpoint.entries().iter().take(5) {
        println!("{} {} {}: {}", entry.name, entry.shape, entry.scheme, Bytes(entry.byte_len()));
    }
    Ok(())
}
