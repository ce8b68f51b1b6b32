//! The library from a path to logits, against what transformers and llama.cpp computed.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

mod carry;
mod check;
mod convert;
mod diff;
mod encoding;
mod exported;
mod families;
mod golden;
mod modules;
mod one_scale;
mod pipeline;
mod quantised;
mod real;
mod several;
mod shares;
mod staged;
mod vllm;

use std::path::{Path, PathBuf};

/// The repository's `golden/models`.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models")
}

/// A model that `cargo xtask models` has fetched.
fn model(name: &str) -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let models = set("WEIGHBRIDGE_MODELS").or_else(|| Some(cache()?.join("weighbridge/models")));
    let folder = models.unwrap_or_default().join(name);
    // A directory of several files is a model itself.
    let path =
        if folder.join("config.json").is_file() { folder } else { folder.join(format!("{name}.gguf")) };
    assert!(path.exists(), "`{}` is not there: run `cargo xtask models {name}`", path.display());
    path
}

/// The index of the largest, the lowest of equals.
fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    u32::try_from(best).unwrap()
}
