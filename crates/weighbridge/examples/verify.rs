//! Verifies that weights are unchanged: writes a manifest of digests once, and compares it with the bytes of later
//! loads as they are read.
//!
//! `cargo run -p weighbridge --example verify -- PATH MANIFEST.json`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use weighbridge::check::{CheckOptions, Manifest, check, load_verified};
use weighbridge::{LayoutKind, PlanBuilder, Pool, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (path, kept) = (args.next().ok_or("wanted a checkpoint")?, args.next().ok_or("wanted a manifest")?);
    let checkpoint = weighbridge::open(path)?;
    let mut pool = Pool::new(2);
    if !kept.exists() {
        let options = CheckOptions { digests: true, ..CheckOptions::default() };
        let report = check(&checkpoint, &options, &mut pool, &|_, _| ControlFlow::Continue(()))?;
        report.manifest.ok_or("digests were asked for")?.write(&kept, false)?;
    }
    let manifest = Manifest::read(&kept)?;
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build()?;
    // Differences are an error that names every tensor and every key.
    let (loaded, verified) = load_verified(&plan, &mut pool, load::Options::default(), &manifest)?;
    println!("{} tensors are as listed; {} parameters loaded", verified.verified, loaded.names().count());
    Ok(())
}
