//! Logits of every position, or the vectors that an encoder leaves, computed by the reference backend, the oracle of the others:
//! `cargo run --release --example logits -- MODEL OUT ID…`
//!
//! Writes `[tokens, vocabulary]`, or `[tokens, hidden]`, as raw f32, little-endian: as `golden/models/llama_oracle.cpp` does with llama.cpp.
#![allow(clippy::print_stderr, reason = "an example's failure")]

use std::error::Error;
use std::path::Path;

use weighbridge::runtime::BackendKind;
use weighbridge::{Embedder, Runtime, RuntimeOptions};

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
    match results(Path::new(model), &ids, &options) {
        Ok(results) => {
            let bytes: Vec<u8> = results.iter().flat_map(|x| x.to_le_bytes()).collect();
            Ok(std::fs::write(out, bytes)?)
        }
        Err(problem) => {
            eprintln!("{problem}");
            std::process::exit(1);
        }
    }
}

fn results(model: &Path, ids: &[u32], options: &RuntimeOptions) -> Result<Vec<f32>, weighbridge::Error> {
    let mut runtime = match Runtime::start(model, options) {
        Err(weighbridge::Error::Encoder { .. }) => {
            return Embedder::open(model, options)?.token_vectors(ids);
        }
        started => started?,
    };
    let mut results = vec![];
    runtime.forward_each(ids, |logits| results.extend_from_slice(logits))?;
    Ok(results)
}
