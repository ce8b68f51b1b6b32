//! A load that says how far it is, keeps within a limit, and can be ended.
//!
//! `cargo run -p weighbridge --example progress -- PATH`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use weighbridge::load;
use weighbridge::tensor::Bytes;
use weighbridge::{LayoutKind, PlanBuilder, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("wanted a checkpoint")?;
    let checkpoint = weighbridge::open(path)?;
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build()?;
    let needs = plan.needs(load::Options { owned: true, ..load::Options::default() }, 2)?;
    println!("{} for parameters, {} of buffers at least", Bytes(needs.owned), Bytes(needs.least_scratch));

    let tenths = AtomicU64::new(0);
    let watch = |load::Progress { done, total }| {
        let tenth = done * 10 / total.max(1);
        if tenths.fetch_max(tenth, Ordering::Relaxed) < tenth {
            println!("{} %", tenth * 10);
        }
        // `Break` would end it: `Error::Cancelled`.
        ControlFlow::Continue(())
    };
    let memory = Some(needs.least_scratch);
    let options = load::Options { owned: true, memory, watch: Some(&watch), ..load::Options::default() };
    println!("{}", plan.load_with(&mut Pool::new(2), options)?.report());
    Ok(())
}
