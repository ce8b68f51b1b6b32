//! Logits of every position, computed by the reference backend, the oracle of the others:
//! `cargo run --release --example logits -- MODEL OUT ID…`
//!
//! Writes `[tokens, vocabulary]` as raw f32, little-endian: as `golden/models/llama_oracle.cpp` does with llama.cpp.
#![allow(clippy::print_stderr, reason = "an example's failure")]

use std::error::Error;
use std::path::Path;

use weighbridge::runtime::BackendKind;
use weighbridge::{Runtime, RuntimeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, out, ids @ ..] = &arguments[..] else { return Err("MODEL OUT ID…".into()) };
    let ids = ids.iter().map(|id| id.parse()).collect::<Result<Vec<u32>, _>>()?;
    let options = RuntimeOptions {
        backend: BackendKind::Reference,
        threads: Some(1),
        context: Some(ids.len()),
        ..RuntimeOptions::default()
    };
    let mut runtime = match Runtime::start(Path::new(model), &options) {
        Ok(runtime) => runtime,
        Err(problem) => {
            eprintln!("{problem}");
            std::process::exit(1);
        }
    };
    let mut bytes = vec![];
    runtime.forward_each(&ids, |logits| bytes.extend(logits.iter().flat_map(|x| x.to_le_bytes())))?;
    std::fs::write(out, bytes)?;
    Ok(())
}
