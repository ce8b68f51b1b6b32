//! Two continuations of one prompt: it runs once, and both go on from there, a token of each in every batch.
//!
//! `cargo run --release -p weighbridge --features engine --example sessions -- PATH PREFIX END END`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::sync::Arc;

use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::text::{EncodeOptions, SpecialText};
use weighbridge::engine::{KvKind, Logits};
use weighbridge::{Batch, Runtime, RuntimeOptions, Sampler, Session};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, prefix, ends @ ..] = &args[..] else { return Err("wanted a checkpoint and a text".into()) };
    let mut runtime = Runtime::start(path, &RuntimeOptions::default())?;
    let tokenizer = Arc::clone(runtime.tokenizer().map_err(ToString::to_string)?);
    let encode =
        |text: &str, add_special| tokenizer.encode(text, EncodeOptions { add_special, parse_special: false });

    // The weights are shared; a session is one sequence of tokens.
    let model = Arc::clone(runtime.shared());
    let mut common = Session::new(&model, KvKind::F16, 256)?;
    let mut batch = Batch::new();
    let tokens = encode(prefix, true)?;
    batch.add(&mut common, &tokens, Logits::None);
    runtime.run(batch, |_, _, _| ())?;
    let snapshot = common.snapshot();
    println!(
        "{} tokens in common, {}",
        snapshot.position(),
        weighbridge::tensor::Bytes(snapshot.bytes() as u64)
    );

    let (mut sessions, mut next) = (vec![], vec![]);
    for end in ends {
        let mut session = Session::new(&model, KvKind::F16, 256)?;
        session.restore(&snapshot)?;
        sessions.push(session);
        next.push(encode(end, false)?);
    }
    let options = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(&options, model.vocab())?;
    let mut texts = ends.to_vec();
    let mut streams: Vec<_> = ends.iter().map(|_| tokenizer.stream(SpecialText::Hidden)).collect();
    for _ in 0..8 {
        let mut batch = Batch::new();
        for (session, tokens) in sessions.iter_mut().zip(&next) {
            batch.add(session, tokens, Logits::Last);
        }
        let mut sampled = Vec::with_capacity(ends.len());
        runtime.run(batch, |_, _, logits| sampled.push(sampler.sample(logits)))?;
        for (part, token) in sampled.into_iter().enumerate() {
            let token = token?;
            texts[part].push_str(streams[part].push(token));
            next[part] = vec![token];
        }
    }
    for text in texts {
        println!("{prefix}{text}");
    }
    Ok(())
}
