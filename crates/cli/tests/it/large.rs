//! Checkpoints as large as there are, as far as their headers: listed at once, in little memory.
#![expect(clippy::print_stdout, reason = "the figures, for --nocapture")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::{stdout, weighbridge};

/// Peak memory of listing any of these, in KiB, with the pages of headers that are mapped.
const MEMORY: u64 = 300_000_000 / 1024;

/// What `inspect --json` says of `path`.
fn inspect(path: &Path) -> Value {
    let start = Instant::now();
    let output = weighbridge([Path::new("inspect"), path, Path::new("--json")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    println!("{}: {:?}", path.display(), start.elapsed());
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The lines of `inspect` with `how`, and the peak memory of the program when it wrote the first, in KiB.
fn list(path: &Path, how: &str, io: &str) -> (Vec<String>, u64) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args([Path::new("inspect"), path])
        .args([how, "--io", io])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // It waits with what does not fit into the pipe.
    assert!(!out.fill_buf().unwrap().is_empty());
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak = peak.unwrap().parse().unwrap();
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    println!("{} {how} by {io}: {} MiB at most", path.display(), peak / 1024);
    (text.lines().map(str::to_owned).collect(), peak)
}

#[test]
fn deepseek_v3_is_listed_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let held = testkit::fixture::deepseek_v3(dir.path()).unwrap();
    let said = inspect(dir.path());
    // Without the factors of blocks.
    assert_eq!(said["parameters"], 684_489_845_504u64);
    assert_eq!(said["bytes"], held.bytes);
    for (how, io) in [("--tensors", "mmap"), ("--tensors", "pread"), ("--json", "mmap")] {
        let (lines, peak) = list(dir.path(), how, io);
        assert!(peak < MEMORY, "{how} {io}: {peak} KiB");
        for name in ["model.layers.60.mlp.experts.255.down_proj.weight", "model.layers.61.eh_proj.weight"] {
            let says_why = |line: &str| line.contains("not needed: ") || line.contains("\"pattern\": ");
            let lists = |line: &&String| line.contains(name) && !says_why(line);
            assert_eq!(lines.iter().filter(lists).count(), 1, "{name}");
        }
    }
}

#[test]
fn half_a_million_tensors_are_listed_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    testkit::fixture::many_tensors(dir.path()).unwrap();
    for file in ["many.safetensors", "many.gguf"] {
        let path = dir.path().join(file);
        for io in ["mmap", "pread"] {
            let (lines, peak) = list(&path, "--tensors", io);
            // Half of it are the lines, which are held to be aligned.
            assert!(peak < 2 * MEMORY, "{file} by {io}: {peak} KiB");
            let weights = lines.iter().filter(|line| line.contains(".weight")).count() as u64;
            assert_eq!(weights, testkit::fixture::MANY);
        }
    }
}

/// A model three times as large as its memory: the same text, and the program takes little more than it was given.
#[test]
fn layers_that_do_not_fit_into_memory_are_streamed() {
    const GIVEN: u64 = 30;
    let model = testkit::model("smollm2");
    let run = |how: &[&str]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
            .arg("run")
            .arg(&model)
            .args([
                "-p",
                "The capital of France is",
                "--raw",
                "-n",
                "80",
                "--temperature",
                "0",
                "--ctx",
                "256",
            ])
            .args(["--layout", "in-place", "--cache", "off"])
            .args(how)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut text = vec![0; 150];
        out.read_exact(&mut text).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let peak: u64 = peak.unwrap().parse().unwrap();
        out.read_to_end(&mut text).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "{said}");
        (text, peak / 1024, said)
    };
    let (wanted, whole, _) = run(&[]);
    let (text, peak, said) = run(&["--memory", &format!("{GIVEN}MiB")]);
    println!("{whole} MiB, and of {GIVEN} MiB {peak}");
    assert_eq!(text, wanted);
    assert!(said.contains(" of weights stay in memory, "), "{said}");
    assert!(whole > 92 && peak < GIVEN + 64, "{whole} MiB, {peak} MiB");
}
