//! A checkpoint that is in no file: in memory, as a program may have it from its own executable or from a wire.
//!
//! `cargo run -p weighbridge --example memory -- PATH`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::sync::Arc;

use weighbridge::storage::{Memory, Name};
use weighbridge::{OpenOptions, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("wanted a GGUF file")?;
    // A program would have its own: `include_bytes!("model.gguf")`, for one.
    let bytes = std::fs::read(path)?;

    // Every file that belongs to the model has a name; a directory of Hugging Face has several.
    let name = Name::parse("model.gguf")?;
    let files = Memory::new("my model").with(name.clone(), bytes);
    let checkpoint = weighbridge::open_from(Arc::new(files), &name, &OpenOptions::default())?;
    println!("{}: {} tensors", checkpoint.location(), checkpoint.entries().len());

    // From here on nothing depends on where the bytes are. Tensors that need no change are borrowed.
    let loaded = weighbridge::planner::plan_as_stored(&checkpoint)?.load(&mut Pool::new(1))?;
    let report = loaded.report();
    println!("{} bytes borrowed, {} read", report.bytes_borrowed, report.bytes_read);
    Ok(())
}
