//! The library from a path to logits, against what transformers and llama.cpp computed.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

mod budget;
mod carry;
mod check;
mod convert;
mod copies;
mod diff;
mod draft;
mod embed;
mod encoding;
mod examples;
mod exported;
mod families;
mod forms;
mod gguf_encoders;
mod golden;
mod harness;
mod hints;
mod importance;
mod judged;
mod linear;
mod lora;
mod marlin;
mod memory;
mod modules;
mod one_scale;
mod onnx;
mod own_family;
mod perturbed;
mod pipeline;
mod presets;
mod quantised;
mod real;
mod rerank;
mod said;
mod saved;
mod scaled;
mod schedule;
mod sessions;
mod several;
mod shares;
mod squish;
mod stage;
mod staged;
#[cfg(unix)]
mod store;
mod streamed;
mod transcriber;
mod verified;
mod vllm;
mod whisper;
mod wrappers;

use std::path::PathBuf;

use testkit::model;

/// The repository's `golden/models`.
fn golden() -> PathBuf {
    testkit::golden("models")
}

/// The index of the largest, the lowest of equals.
fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    u32::try_from(best).unwrap()
}
