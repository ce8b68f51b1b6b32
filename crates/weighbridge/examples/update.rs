//! New weights into a model that is loaded: the same addresses, all or nothing.
//!
//! `cargo run --release -p weighbridge --example update -- OLD NEW`, two checkpoints of one model.

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::path::PathBuf;

use weighbridge::{LayoutKind, PlanBuilder, Pool, load};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (old, new) =
        (args.next().ok_or("wanted two checkpoints")?, args.next().ok_or("wanted two checkpoints")?);
    let mut pool = Pool::new(Pool::available());
    let checkpoint = weighbridge::open(&old)?;
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build()?;
    // Owned, since bytes in a map cannot be written.
    let options = load::Options { owned: true, ..load::Options::default() };
    let mut loaded = plan.load_with(&mut pool, options)?;
    let address = |loaded: &weighbridge::Loaded| loaded.get("output_norm.weight").map(|t| t.bytes().as_ptr());
    let before = address(&loaded);

    let checkpoint = weighbridge::open(&new)?;
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build()?;
    let report = loaded.update(&plan, &[], &mut pool, options)?;
    assert_eq!(before, address(&loaded), "addresses stay");
    println!("{report}");
    Ok(())
}
