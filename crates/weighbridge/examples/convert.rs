//! Converts a file: names and metadata of another ecosystem, and weights in another encoding.
//!
//! `cargo run -p weighbridge --features convert --example convert -- PATH OUT.gguf`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::ops::ControlFlow;

use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::{LayoutKind, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (path, to) =
        (args.next().ok_or("wanted a checkpoint")?, args.next().ok_or("wanted a file to write")?);
    let checkpoint = weighbridge::open(path)?;
    // The first rule that matches a name wins; a tensor that no rule matches stays as it is stored.
    let rules = vec!["*norm*=f32".parse()?, "*.weight=q8_0".parse()?];
    let options = ConvertOptions { rules, ..ConvertOptions::default() };
    // All that could go wrong is known before anything is written.
    let conversion = Conversion::new(&checkpoint, LayoutKind::Source, OutputFormat::Gguf, &options)?;
    let report = conversion.run(&to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(()))?;
    println!("{} tensors, {} bytes", report.tensors.len(), report.file_bytes);
    Ok(())
}
