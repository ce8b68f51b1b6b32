//! The encoder's vectors and the decoder's logits of a Whisper, for a spectrogram: `cargo run --release --example hear -- MODEL MEL ENCODED LOGITS ID…`
//!
//! MEL is `[frames, mels]`; ENCODED becomes `[frames / 2, hidden]` and LOGITS `[ids, vocabulary]`: raw f32, little-endian. Weights are
//! multiplied as they are stored, keys and values are f32.
#![allow(clippy::print_stderr, reason = "an example's failure")]

use std::error::Error;
use std::sync::Arc;

use weighbridge::engine::backend::Cpu;
use weighbridge::engine::{KvKind, Model, Runner, Session};
use weighbridge::quant::{Access, Isa};
use weighbridge::{LayoutKind, Pool, describe, open, plan};

fn main() {
    if let Err(problem) = run() {
        eprintln!("{problem}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, mel, encoded, logits, ids @ ..] = &arguments[..] else {
        return Err("MODEL MEL ENCODED LOGITS ID…".into());
    };
    let ids = ids.iter().map(|id| id.parse()).collect::<Result<Vec<u32>, _>>()?;
    let mel: Vec<f32> =
        std::fs::read(mel)?.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();

    let checkpoint = open(path)?;
    let described = describe(&checkpoint)?;
    let mut pool = Pool::new(2);
    let loaded = plan(&checkpoint, &described, LayoutKind::Canonical)?.load(&mut pool)?;
    let model = Arc::new(Model::new(&loaded, described.architecture().map_err(|not_run| not_run.why)?)?);
    let cpu = Cpu::new(pool, Isa::detect()?, Access::detect(), &model)?;
    let mut runner = Runner::new(&model, Box::new(cpu))?;

    write(encoded, runner.encode(&mel)?)?;
    let heard = runner.hear(&mel, KvKind::F32)?;
    let mut session = Session::new(&model, KvKind::F32, ids.len())?;
    session.hear(&heard)?;
    let mut all = vec![];
    runner.forward_each(&mut session, &ids, |logits| all.extend_from_slice(logits))?;
    Ok(write(logits, &all)?)
}

fn write(path: &str, values: &[f32]) -> std::io::Result<()> {
    std::fs::write(path, values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
}
