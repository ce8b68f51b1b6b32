//! `cargo xtask demo`: a real model from nothing to text.

use std::process::Command;

use anyhow::Result;

use crate::workspace::{self, Build};

const PROMPT: &str = "Explain gravity to a child in three sentences.";

/// Builds the program, fetches the model, shows what is in it and runs it.
pub(crate) fn run() -> Result<()> {
    let program = workspace::build_weighbridge(Build::Demo)?;
    let model = testkit::find("smollm2")?;
    let path = testkit::fetch(model, testkit::Check::Stamp)?;
    workspace::step(Command::new(&program).arg("inspect").arg(&path))?;
    workspace::step(Command::new(&program).arg("run").arg(&path).args([
        "-p",
        PROMPT,
        "--temperature",
        "0",
        "-n",
        "96",
    ]))?;
    eprintln!("\nNow try your own:\n  {} run {}", program.display(), path.display());
    eprintln!("Install all of it:\n  cargo install --locked --path crates/cli");
    Ok(())
}
