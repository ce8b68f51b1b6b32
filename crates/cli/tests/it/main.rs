//! Whole runs of `weighbridge`, as a user sees them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

mod also;
mod broken;
mod cache;
mod check;
mod commands;
mod compress;
mod convert;
mod diff;
mod door;
mod embed;
mod encoding;
mod eval;
mod files;
mod foreseen;
mod hostile;
#[cfg(feature = "hub")]
mod hub;
mod json;
mod keys;
#[cfg(unix)]
mod killed;
#[cfg(target_os = "linux")]
mod large;
mod load;
mod lora;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod moving;
mod names;
mod pages;
#[cfg(feature = "http")]
mod remote;
#[cfg(unix)]
mod reports;
mod rerank;
mod resume;
mod rules;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod serve_api;
#[cfg(feature = "serve")]
mod serve_messages;
#[cfg(feature = "serve")]
mod serve_models;
#[cfg(feature = "serve")]
mod serve_refusals;
#[cfg(all(feature = "grammar", feature = "serve"))]
mod serve_responses;
#[cfg(all(feature = "serve", feature = "speech"))]
mod serve_speech;
#[cfg(all(feature = "grammar", feature = "serve"))]
mod serve_tools;
#[cfg(feature = "serve")]
mod serve_vectors;
#[cfg(all(feature = "serve", unix))]
mod serve_vllm;
#[cfg(feature = "grammar")]
mod structured;
mod tasks;
#[cfg(target_os = "linux")]
mod terminal;
mod tokenize;
#[cfg(feature = "speech")]
mod transcribe;
mod unknown;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::model;

fn golden() -> PathBuf {
    testkit::golden("models")
}

/// Runs the binary.
/// A cache directory that cannot be made, so that nothing is kept from one test to another.
const NO_CACHE: &str = "/proc/weighbridge";

fn weighbridge<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    command.env("WEIGHBRIDGE_CACHE", NO_CACHE).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Exit code and stderr, with the folder of the files cut out of paths.
fn failure(args: &[&str], folder: &Path) -> String {
    let output = weighbridge(args);
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let stderr = stderr.replace(&format!("{}/", folder.display()), "");
    format!("{}{}", stderr, output.status.code().map_or("signal".to_owned(), |c| format!("exit code {c}")))
}
