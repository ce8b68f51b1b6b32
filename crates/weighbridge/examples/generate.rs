//! Text from a model: each piece as it comes.
//!
//! `cargo run --release -p weighbridge --features engine --example generate -- PATH PROMPT`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::text::{EncodeOptions, SpecialText};
use weighbridge::engine::{Limits, Stop};
use weighbridge::{Runtime, RuntimeOptions, Sampler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (path, prompt) = (args.next().ok_or("wanted a checkpoint")?, args.next().ok_or("wanted a prompt")?);
    let mut runtime = Runtime::start(path, &RuntimeOptions::default())?;
    let tokenizer = Arc::clone(runtime.tokenizer().map_err(ToString::to_string)?);
    let prompt = tokenizer.encode(&prompt, EncodeOptions { add_special: true, parse_special: false })?;
    // Temperature 0: the most likely token, always.
    let options = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(&options, tokenizer.vocab_size())?;
    let limits = Limits { tokens: 16, end: &|token| tokenizer.is_end_of_generation(token) };
    let mut stream = tokenizer.stream(SpecialText::Hidden);
    let mut out = std::io::stdout().lock();
    let stats = runtime.generate(&mut sampler, None, &prompt, &limits, &mut |sampled| {
        // Characters of several tokens come out whole.
        match write!(out, "{}", stream.push(sampled.token)).and_then(|()| out.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(Stop::Interrupted),
        }
    })?;
    writeln!(out, "{}\n{} tokens, {:?}", stream.finish(), stats.tokens, stats.stop)?;
    Ok(())
}
