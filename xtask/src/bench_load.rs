//! `cargo xtask bench-load`: how fast Weighbridge loads, compared with the machine's and other programs' speed on the
//! same bytes.
//!
//! Everything takes its turn in every round, so that a machine that slows down affects all alike. The result is the
//! median of the ratios within rounds.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::{machine, spread};
use crate::workspace::{self, Build};

/// Bytes that one thread copies at a time: two huge pages.
const CHUNK: usize = 4 << 20;

/// The measurements to make.
pub(crate) struct Options {
    /// Where the checkpoint is, or is made.
    pub(crate) file: PathBuf,
    pub(crate) rounds: usize,
    /// A Python that has safetensors and torch.
    pub(crate) python: Option<PathBuf>,
    /// Rest before each figure, in which a virtual machine returns free memory to its host, instead of touching that
    /// much memory before. This is the state of a process started at any time. Nothing is read cold then.
    pub(crate) rest: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file: std::env::temp_dir().join("weighbridge-bench.safetensors"),
            rounds: 5,
            python: None,
            rest: None,
        }
    }
}

/// Makes the checkpoint if it is not there, measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.rounds == 0 {
        bail!("`--rounds` is at least 1");
    }
    let program = workspace::build_weighbridge(Build::Release)?;
    let file = &options.file;
    if !file.exists() {
        make(file).with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    let bytes = fs::metadata(file)?.len();
    println!("\nmachine  {}", machine());
    println!("file     {}, {bytes} bytes", file.display());
    println!("rounds   {}, each figure GB/s: median (least to most)\n", options.rounds);

    let size = usize::try_from(bytes)?;
    let load = |more: &[&str]| ready(size, options.rest).and_then(|()| load(&program, file, more));
    let mut table = Table::default();
    for _ in 0..options.rounds {
        warm(file)?;
        let ours = load(&["--owned"])?;
        let bounded = load(&["--owned", "--memory", "64MiB"])?;
        let Copies { huge, small, at_once, touched, cleared } = copies(size, options.rest)?;
        // Fresh memory is cleared, then filled.
        let both = 1.0 / (1.0 / touched + 1.0 / cleared);
        table.add("warm: load --owned", ours.speed(bytes));
        table.add("warm: load --owned --memory 64MiB", bounded.speed(bytes));
        table.add("warm: memcpy to fresh huge pages", huge);
        table.add("warm: memcpy to fresh small pages", small);
        table.add("warm: memcpy to fresh small pages, had at once", at_once);
        table.add("warm: memcpy to touched memory", touched);
        table.add("warm: the system clears fresh huge pages", cleared);
        table.ratio("load / memcpy to fresh huge pages", ours.speed(bytes) / huge);
        table.ratio("load / memcpy to fresh small pages", ours.speed(bytes) / small);
        table.ratio("load / memcpy to small pages had at once", ours.speed(bytes) / at_once);
        let fastest = huge.max(small).max(at_once);
        table.ratio("load / memcpy to the fastest of these", ours.speed(bytes) / fastest);
        table.ratio("load / memcpy to touched memory", ours.speed(bytes) / touched);
        table.ratio("load / memcpy to touched memory, and clearing it before", ours.speed(bytes) / both);
        table.ratio("--memory 64MiB / without", bounded.speed(bytes) / ours.speed(bytes));
        table.ratio("--memory 64MiB: MiB of peak beside the result", bounded.beside as f64 / 1_048_576.0);
        if let Some(python) = &options.python {
            if let Some(rest) = options.rest {
                std::thread::sleep(rest);
            }
            let other = peer(python, file)?;
            table.add("warm: safetensors, get_tensor().clone()", other);
            table.ratio("load / safetensors, get_tensor().clone()", ours.speed(bytes) / other);
        }
        if options.rest.is_some() {
            continue;
        }
        evict(file)?;
        let buffered = dd(file, &[])?;
        evict(file)?;
        let direct = dd(file, &["iflag=direct"])?;
        evict(file)?;
        let cold = load(&["--owned"])?.speed(bytes);
        evict(file)?;
        let past = load(&["--owned", "--io", "direct"])?.speed(bytes);
        let (buffered, direct) = (bytes as f64 / buffered / 1e9, bytes as f64 / direct / 1e9);
        table.add("cold: dd bs=4M", buffered);
        table.add("cold: dd bs=4M iflag=direct", direct);
        table.add("cold: load --owned", cold);
        table.add("cold: load --owned --io direct", past);
        table.ratio("cold: load / better of dd", cold / buffered.max(direct));
        table.ratio("cold: load --io direct / better of dd", past / buffered.max(direct));
    }
    table.print();
    Ok(())
}

/// A checkpoint of 1.2 GB: a few hundred bf16 tensors, as a model of 24 layers has them.
fn make(path: &Path) -> Result<()> {
    const LAYERS: u64 = 24;
    let mut tensors: Vec<(String, Vec<u64>)> = vec![("model.embed_tokens.weight".into(), vec![49_152, 2048])];
    for layer in 0..LAYERS {
        let at = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
        tensors.extend(
            [
                ("self_attn.q_proj", vec![2048, 2048]),
                ("self_attn.k_proj", vec![512, 2048]),
                ("self_attn.v_proj", vec![512, 2048]),
                ("self_attn.o_proj", vec![2048, 2048]),
                ("mlp.gate_proj", vec![1664, 2048]),
                ("mlp.up_proj", vec![1664, 2048]),
                ("mlp.down_proj", vec![2048, 1664]),
                ("input_layernorm", vec![2048]),
                ("post_attention_layernorm", vec![2048]),
            ]
            .map(|(name, shape)| (at(name), shape)),
        );
    }
    tensors.push(("model.norm.weight".into(), vec![2048]));
    let (mut header, mut end) = (String::new(), 0u64);
    for (name, shape) in &tensors {
        let start = end;
        end += shape.iter().product::<u64>() * 2;
        let comma = if header.is_empty() { "{" } else { "," };
        // Writing to a `String` cannot fail.
        let _ = write!(
            header,
            "{comma}\"{name}\":{{\"dtype\":\"BF16\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        );
    }
    header.push('}');
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let partial = path.with_extension("partial");
    let mut out = BufWriter::new(File::create(&partial)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    // Bytes that nothing can compress or find to be zeros.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..end / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.write_all(&state.to_le_bytes())?;
    }
    out.into_inner()?.sync_all()?;
    Ok(fs::rename(partial, path)?)
}

/// The output of `weighbridge load`.
struct Loaded {
    seconds: f64,
    /// Bytes of peak memory beside what was loaded.
    beside: u64,
}

impl Loaded {
    fn speed(&self, bytes: u64) -> f64 {
        bytes as f64 / self.seconds / 1e9
    }
}

fn load(program: &Path, file: &Path, more: &[&str]) -> Result<Loaded> {
    let mut command = Command::new(program);
    command.arg("load").arg(file).args(["--layout", "source", "--json"]).args(more);
    let facts: Value = serde_json::from_slice(&output(&mut command)?)?;
    let number =
        |key: &str| facts[key].as_f64().with_context(|| format!("`weighbridge load` gave no `{key}`"));
    let owned = facts["bytes_owned"].as_u64().unwrap_or(0);
    let beside = facts["resident"]["peak_bytes"].as_u64().unwrap_or(0).saturating_sub(owned);
    Ok(Loaded { seconds: number("seconds")?, beside })
}

/// Returns the speed in GB/s at which Python reads the file and clones every tensor.
fn peer(python: &Path, file: &Path) -> Result<f64> {
    const SCRIPT: &str = "
import os, sys, time
import torch
from safetensors import safe_open
start = time.perf_counter()
with safe_open(sys.argv[1], framework='pt') as f:
    held = {k: f.get_tensor(k).clone() for k in f.keys()}
print(os.path.getsize(sys.argv[1]) / (time.perf_counter() - start) / 1e9)
";
    let said = output(Command::new(python).args(["-c", SCRIPT]).arg(file))?;
    Ok(String::from_utf8(said)?.trim().parse()?)
}

/// Seconds that dd takes to read the file.
fn dd(file: &Path, more: &[&str]) -> Result<f64> {
    let started = Instant::now();
    let from = format!("if={}", file.display());
    output(Command::new("dd").args([&from, "of=/dev/null", "bs=4M", "status=none"]).args(more))?;
    Ok(started.elapsed().as_secs_f64())
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{name}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{name}` ended with {}\n{}", output.status, said.trim_end());
    }
    Ok(output.stdout)
}

/// Reads the file, so that the page cache has it.
fn warm(file: &Path) -> Result<()> {
    let (mut file, mut buffer) = (File::open(file)?, vec![0; CHUNK]);
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Lets the page cache forget: all of it if that is allowed, else this file.
fn evict(file: &Path) -> Result<()> {
    if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok(());
    }
    let to = format!("of={}", file.display());
    output(Command::new("dd").args([
        &to,
        "oflag=nocache",
        "conv=notrunc,fdatasync",
        "count=0",
        "status=none",
    ]))?;
    Ok(())
}

/// Rests, or primes.
fn ready(bytes: usize, rest: Option<Duration>) -> Result<()> {
    match rest {
        Some(rest) => {
            std::thread::sleep(rest);
            Ok(())
        }
        None if bytes == 0 => Ok(()),
        None => prime(bytes),
    }
}

/// Touches as much memory as a load takes, and gives it back: memory that a virtual machine has from its host comes more
/// slowly than any of this (1 GB/s was measured), and to whoever is first.
fn prime(bytes: usize) -> Result<()> {
    let mut memory = memmap2::MmapMut::map_anon(bytes)?;
    memory.advise(memmap2::Advice::HugePage)?;
    memory.fill(1);
    Ok(())
}

/// GB/s of all threads together.
struct Copies {
    /// To fresh huge pages.
    huge: f64,
    /// To fresh small pages, a fault for each.
    small: f64,
    /// To fresh small pages, which the system is asked for chunk by chunk.
    at_once: f64,
    /// To memory that was used before.
    touched: f64,
    /// Fresh huge pages are cleared, and nothing is copied.
    cleared: f64,
}

/// Copies `bytes`.
fn copies(bytes: usize, rest: Option<Duration>) -> Result<Copies> {
    let source = vec![0xa5u8; bytes];
    ready(bytes, rest)?;
    let mut map = memmap2::MmapMut::map_anon(bytes)?;
    map.advise(memmap2::Advice::HugePage)?;
    let huge = copy(&source, &mut map);
    drop(map);
    ready(0, rest)?;
    let mut map = memmap2::MmapMut::map_anon(bytes)?;
    map.advise(memmap2::Advice::HugePage)?;
    let cleared =
        by_all(&source, map.chunks_mut(CHUNK), |to, _| to.chunks_mut(4096).for_each(|page| page[0] = 1));
    drop(map);
    ready(0, rest)?;
    let mut maps = vec![];
    for _ in 0..bytes.div_ceil(CHUNK) {
        let map = memmap2::MmapMut::map_anon(CHUNK)?;
        map.advise(memmap2::Advice::NoHugePage)?;
        maps.push(map);
    }
    let at_once = by_all(&source, maps.iter_mut(), |to, from| {
        // A system before Linux 5.14 refuses, and gives a page a fault.
        let _ = to.advise(memmap2::Advice::PopulateWrite);
        to[..from.len()].copy_from_slice(from);
    });
    drop(maps);
    ready(0, rest)?;
    let mut map = memmap2::MmapMut::map_anon(bytes)?;
    map.advise(memmap2::Advice::NoHugePage)?;
    let small = copy(&source, &mut map);
    Ok(Copies { huge, small, at_once, touched: copy(&source, &mut map), cleared })
}

fn copy(source: &[u8], target: &mut [u8]) -> f64 {
    by_all(source, target.chunks_mut(CHUNK), |to, from| to.copy_from_slice(from))
}

/// GB/s of as many threads as the machine has, that do something with a target and a chunk of
/// the source.
fn by_all<T: Send>(
    source: &[u8],
    targets: impl Iterator<Item = T> + Send,
    each: impl Fn(T, &[u8]) + Sync,
) -> f64 {
    let started = Instant::now();
    let work = std::sync::Mutex::new(targets.zip(source.chunks(CHUNK)));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    // Nothing panics while it holds the lock.
                    let Some((to, from)) = work.lock().ok().and_then(|mut work| work.next()) else { return };
                    each(to, from);
                }
            });
        }
    });
    source.len() as f64 / started.elapsed().as_secs_f64() / 1e9
}

/// Figures by name, in the order in which they came.
#[derive(Default)]
struct Table {
    speeds: Vec<(String, Vec<f64>)>,
    ratios: Vec<(String, Vec<f64>)>,
}

impl Table {
    fn add(&mut self, name: &str, value: f64) {
        put(&mut self.speeds, name, value);
    }

    fn ratio(&mut self, name: &str, value: f64) {
        put(&mut self.ratios, name, value);
    }

    fn print(self) {
        for (rows, title) in [(self.speeds, "GB/s"), (self.ratios, "in the same round")] {
            println!("{title}");
            for (name, values) in rows {
                let s = spread(values);
                println!("  {name:<48} {:6.2} ({:.2} to {:.2})", s.median, s.least, s.most);
            }
        }
    }
}

fn put(rows: &mut Vec<(String, Vec<f64>)>, name: &str, value: f64) {
    match rows.iter_mut().find(|(n, _)| n == name) {
        Some((_, values)) => values.push(value),
        None => rows.push((name.to_owned(), vec![value])),
    }
}
