//! `cargo xtask bench`: how fast Weighbridge runs a model, alone or beside llama.cpp.
//!
//! The two take turns, and the order alternates from pair to pair: a machine that slows down or speeds up meanwhile
//! affects both alike. The result is the median of the ratios within pairs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::{self, Build};

const PREFILL: &str = "128";
const DECODE: &str = "64";
/// The peer's program, looked for on PATH.
const PEER: &str = "llama-bench";

/// The measurements to make.
pub(crate) struct Options {
    pub(crate) peer: bool,
    pub(crate) model: String,
    pub(crate) pairs: usize,
    pub(crate) threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { peer: false, model: "smollm2".into(), pairs: 5, threads }
    }
}

/// Tokens per second of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    prefill: f64,
    decode: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.pairs == 0 || options.threads == 0 {
        bail!("`--pairs` and `--threads` are at least 1");
    }
    let program = workspace::build_weighbridge(Build::Release)?;
    let model = model_path(&options.model)?;
    let peer = if options.peer { on_path(PEER) } else { None };
    println!("\nmachine  {}", machine());
    println!("model    {}", model.display());
    println!("a run    prefill {PREFILL}, decode {DECODE} tokens, {} threads", options.threads);
    match &peer {
        Some(path) => println!("peer     {}", path.display()),
        None if options.peer => {
            println!("peer     none: there is no `{PEER}` on PATH, so these are ours alone");
        }
        None => {}
    }
    if let Some(load) = load().filter(|load| *load > 0.5) {
        println!("note     load average {load}: other programs take part of the cores, expect noise");
    }
    println!();

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 0..options.pairs {
        let Some(peer) = &peer else {
            let speed = run_ours(&program, &model, options.threads)?;
            println!("run {}   {}", pair + 1, shown(speed));
            ours.push(speed);
            continue;
        };
        let (mine, other) = if pair % 2 == 0 {
            let mine = run_ours(&program, &model, options.threads)?;
            (mine, run_peer(peer, &model, options.threads)?)
        } else {
            let other = run_peer(peer, &model, options.threads)?;
            (run_ours(&program, &model, options.threads)?, other)
        };
        println!("pair {}  weighbridge {}   llama.cpp {}", pair + 1, shown(mine), shown(other));
        ours.push(mine);
        theirs.push(other);
    }
    println!();
    summary("weighbridge", &ours);
    if peer.is_some() {
        summary("llama.cpp", &theirs);
        ratio("decode", &ours, &theirs, |speed| speed.decode);
        ratio("prefill", &ours, &theirs, |speed| speed.prefill);
    }
    Ok(())
}

/// A model of the table by its name, or any path.
fn model_path(name: &str) -> Result<PathBuf> {
    if testkit::TABLE.iter().any(|model| model.name == name) {
        return testkit::fetch(testkit::find(name)?, testkit::Check::Stamp);
    }
    let path = PathBuf::from(name);
    if !path.exists() {
        bail!("`{name}` is neither a model of `cargo xtask models --list` nor a path");
    }
    Ok(path)
}

fn run_ours(program: &Path, model: &Path, threads: usize) -> Result<Speed> {
    let mut command = Command::new(program);
    command.arg("bench").arg(model).args([
        "--prefill",
        PREFILL,
        "--decode",
        DECODE,
        "--repeat",
        "1",
        "--json",
    ]);
    command.args(["--threads", &threads.to_string()]);
    let output = json(&mut command)?;
    let field =
        |name: &str| output[name].as_f64().with_context(|| format!("`weighbridge bench` gave no `{name}`"));
    Ok(Speed { prefill: field("prefill_tokens_per_second")?, decode: field("decode_tokens_per_second")? })
}

fn run_peer(program: &Path, model: &Path, threads: usize) -> Result<Speed> {
    let mut command = Command::new(program);
    command.arg("-m").arg(model).args(["-p", PREFILL, "-n", DECODE, "-r", "1", "-o", "json"]);
    command.args(["-t", &threads.to_string()]);
    peer_speed(&json(&mut command)?)
}

/// Reads what `llama-bench -o json` prints: a row a test, told apart by how many tokens it generates.
fn peer_speed(rows: &Value) -> Result<Speed> {
    let row = |generates: bool| {
        let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
        let found = rows.iter().find(|row| (row["n_gen"].as_u64() > Some(0)) == generates);
        found.and_then(|row| row["avg_ts"].as_f64()).with_context(|| format!("`{PEER}` gave no `avg_ts`"))
    };
    Ok(Speed { prefill: row(false)?, decode: row(true)? })
}

fn json(command: &mut Command) -> Result<Value> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{name}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{name}` ended with {}\n{}", output.status, said.trim_end());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("`{name}` printed no JSON"))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn shown(speed: Speed) -> String {
    format!("decode {:7.1}  prefill {:7.1}", speed.decode, speed.prefill)
}

fn summary(who: &str, speeds: &[Speed]) {
    let decode = spread(speeds.iter().map(|speed| speed.decode).collect());
    let prefill = spread(speeds.iter().map(|speed| speed.prefill).collect());
    println!(
        "{who:<12} decode {:7.1} tokens/s ({:.1} to {:.1})   prefill {:7.1} tokens/s ({:.1} to {:.1})",
        decode.median, decode.least, decode.most, prefill.median, prefill.least, prefill.most
    );
}

fn ratio(what: &str, ours: &[Speed], theirs: &[Speed], of: impl Fn(Speed) -> f64) {
    let ratios = spread(ours.iter().zip(theirs).map(|(a, b)| of(*a) / of(*b)).collect());
    println!(
        "{what:<8} weighbridge / llama.cpp = {:.2} ({:.2} to {:.2})",
        ratios.median, ratios.least, ratios.most
    );
}

pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

/// The spread of at least one value.
pub(crate) fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
    Spread {
        least: values[0],
        median: f64::midpoint(values[low], values[high]),
        most: values[values.len() - 1],
    }
}

/// How many programs ran or waited for a core in the last minute, where the system says.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The processor's name and the instruction sets that matter here.
pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = info.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let wanted = ["avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"];
    let flags: Vec<_> = value("flags").split(' ').filter(|flag| wanted.contains(flag)).collect();
    let name = if value("model name").is_empty() { std::env::consts::ARCH } else { value("model name") };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{name}, {cores} cores, {}", flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_rows_are_told_apart() {
        let rows = serde_json::json!([
            {"n_prompt": 128, "n_gen": 0, "avg_ts": 200.5},
            {"n_prompt": 0, "n_gen": 64, "avg_ts": 100.25}
        ]);
        assert_eq!(peer_speed(&rows).unwrap(), Speed { prefill: 200.5, decode: 100.25 });
        assert!(peer_speed(&serde_json::json!([])).is_err());
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = spread(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 4.0));
    }
}
