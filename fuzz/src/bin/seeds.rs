//! Writes the seeds of every target to `corpus/TARGET/`, where cargo-fuzz looks for them.

use std::fs;
use std::path::Path;

use testkit::corpus::seeds;
use testkit::targets;

fn main() -> std::io::Result<()> {
    for (name, _) in targets::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        fs::create_dir_all(&folder)?;
        let seeds = seeds::of(name);
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:04}")), seed)?;
        }
        println!("{name}: {} seeds", seeds.len());
    }
    Ok(())
}
