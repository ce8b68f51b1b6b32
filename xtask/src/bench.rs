//! `cargo xtask bench`: how fast Weighbridge runs models, alone or beside other programs.
//!
//! The programs take turns, and each turn begins with another one: a machine that slows down or speeds up meanwhile
//! affects all alike. Ratios are medians of those within turns. What it prints are the tables of docs/performance.md.

mod program;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::{self, Build};
use program::{Program, Task};

/// The measurements to make.
pub(crate) struct Options {
    /// Name and path of `llama-bench` of llama.cpp and of others that descend from it.
    pub(crate) peers: Vec<(String, PathBuf)>,
    /// Weighbridge as it was.
    pub(crate) before: Option<PathBuf>,
    /// Names of [`SUBJECTS`] or of `cargo xtask models`, or paths.
    pub(crate) models: Vec<String>,
    pub(crate) tables: Vec<Table>,
    /// Where `cargo xtask fixture` put its models.
    pub(crate) fixtures: PathBuf,
    pub(crate) turns: usize,
    pub(crate) threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            peers: Vec::new(),
            before: None,
            models: Vec::new(),
            tables: Vec::new(),
            fixtures: PathBuf::from("."),
            turns: 5,
            threads,
        }
    }
}

/// A table of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Decode on all threads and on one.
    Decode,
    /// Prompts, on all threads.
    Prefill,
    /// Decode on all threads beside processes that only count.
    Beside,
}

impl Table {
    const ALL: &[(&str, Self)] =
        &[("decode", Self::Decode), ("prefill", Self::Prefill), ("beside", Self::Beside)];

    /// The table of that name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, table)| *table).with_context(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| format!("`{name}`")).collect();
            format!("there is no table `{name}`\nhint: {}", names.join(", "))
        })
    }

    /// Returns the titles of the columns before and after those of the programs.
    fn columns(self) -> (&'static str, &'static str) {
        match self {
            Self::Decode => ("decode | threads | tokens", "share of a plain read"),
            Self::Prefill => ("prefill | threads | tokens", "products alone"),
            Self::Beside => ("decode beside | of these | tokens", "share of a plain read"),
        }
    }
}

/// A model, and how many tokens its rows take: more would take longer and show the same.
struct Subject {
    name: &'static str,
    /// Tokens that are decoded on all threads, and on one.
    decode: [u32; 2],
    prefill: &'static [u32],
    /// Tokens that are decoded beside one process, and beside four.
    beside: Option<[u32; 2]>,
}

const SMALL: Subject =
    Subject { name: "smollm2", decode: [64, 32], prefill: &[128, 512], beside: Some([32, 16]) };

const SUBJECTS: &[Subject] = &[
    SMALL,
    Subject { name: "gpt2-124m", beside: None, ..SMALL },
    Subject { name: "gemma3", ..SMALL },
    Subject { name: "qwen2-1.5b", decode: [24, 12], prefill: &[128, 512], beside: Some([8, 4]) },
    Subject { name: "llama-8b", decode: [8, 6], prefill: &[128], beside: None },
];

/// A line of a table.
struct Row {
    task: Task,
    threads: usize,
    busy: usize,
}

impl Subject {
    fn rows(&self, table: Table, threads: usize) -> Vec<Row> {
        match table {
            Table::Decode => {
                let row = |(threads, tokens)| Row { task: Task::Decode(tokens), threads, busy: 0 };
                let of: BTreeSet<_> = [(threads, self.decode[0]), (1, self.decode[1])].into();
                of.into_iter().rev().map(row).collect()
            }
            Table::Prefill => {
                self.prefill.iter().map(|&n| Row { task: Task::Prefill(n), threads, busy: 0 }).collect()
            }
            Table::Beside => {
                let row = |(busy, tokens)| Row { task: Task::Decode(tokens), threads, busy };
                self.beside.iter().flat_map(|&[one, four]| [(1, one), (4, four)]).map(row).collect()
            }
        }
    }
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.turns == 0 || options.threads == 0 {
        bail!("`--turns` and `--threads` are at least 1");
    }
    let ours = workspace::build_weighbridge(Build::Release)?;
    let mut programs = vec![Program::ours("Weighbridge", &ours)];
    programs.extend(options.peers.iter().map(|(name, path)| Program::peer(name, path)));
    programs.extend(options.before.iter().map(|path| Program::before(path)));
    for program in &programs {
        program.check()?;
    }
    let models: Vec<_> = options.models.iter().map(|name| model(name, options)).collect::<Result<_>>()?;
    println!("machine: {}; medians of {} in turns", machine(), options.turns);
    if let Some(load) = load().filter(|load| *load > 0.5) {
        println!("load average {load}: other programs take part of the cores, expect noise");
    }
    for &table in &options.tables {
        header(table, &programs);
        for (name, path, subject) in &models {
            for row in subject.rows(table, options.threads) {
                let line = measure(&programs, path, &row, options.turns)?;
                let of = if table == Table::Beside { row.busy } else { row.threads };
                println!("| {name} | {of} | {} | {line} |", row.task.tokens());
            }
        }
    }
    Ok(())
}

fn header(table: Table, programs: &[Program]) {
    let (first, share) = table.columns();
    let mut columns: Vec<_> = vec![first];
    columns.extend(programs.iter().filter(|program| !program.is_before()).map(Program::name));
    if programs.iter().any(Program::is_peer) {
        columns.push("/ the faster");
    }
    columns.push(share);
    if programs.iter().any(Program::is_before) {
        columns.push("/ before");
    }
    let numbers = "--:|".repeat(columns.len() + 1);
    println!("\n| {} |\n|---|{numbers}", columns.join(" | "));
}

/// The figures of one row: all programs in turns.
fn measure(programs: &[Program], model: &Path, row: &Row, turns: usize) -> Result<String> {
    let _busy = Busy::start(row.busy)?;
    let mut runs: Vec<Vec<program::Run>> = programs.iter().map(|_| Vec::new()).collect();
    let mut fails: Vec<Option<anyhow::Error>> = programs.iter().map(|_| None).collect();
    for turn in 0..turns {
        for at in (0..programs.len()).map(|at| (at + turn) % programs.len()) {
            if fails[at].is_some() {
                continue;
            }
            match programs[at].run(model, row.task, row.threads) {
                Ok(run) => runs[at].push(run),
                // Another program that cannot run the model leaves its column empty.
                Err(error) if programs[at].is_peer() && runs[at].is_empty() => fails[at] = Some(error),
                Err(error) => return Err(error),
            }
        }
    }
    for (program, error) in programs.iter().zip(&fails) {
        if let Some(error) = error {
            eprintln!("{} does not run {}: {error:#}", program.name(), model.display());
        }
    }
    let speeds = |at: usize| runs[at].iter().map(|run| run.tokens_per_second).collect::<Vec<_>>();
    let ours = speeds(0);
    let mut cells = Vec::new();
    let mut faster = vec![0_f64; turns];
    for (at, program) in programs.iter().enumerate().filter(|(_, program)| !program.is_before()) {
        cells.push(if runs[at].is_empty() {
            String::new()
        } else {
            format!("{:.1}", spread(speeds(at)).median)
        });
        if program.is_peer() {
            for (most, speed) in faster.iter_mut().zip(speeds(at)) {
                *most = most.max(speed);
            }
        }
    }
    if programs.iter().any(Program::is_peer) {
        cells.push(ratio(&ours, &faster));
    }
    cells.push(share(&runs[0], row.task));
    if let Some(at) = programs.iter().position(Program::is_before) {
        cells.push(ratio(&ours, &speeds(at)));
    }
    Ok(cells.join(" | "))
}

/// The median of the ratios within turns, the least and the most.
fn ratio(ours: &[f64], theirs: &[f64]) -> String {
    if theirs.contains(&0.0) {
        return String::new();
    }
    let of = spread(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect());
    format!("**{:.2}** ({:.2} to {:.2})", of.median, of.least, of.most)
}

/// Which part of what the machine allows was reached.
fn share(runs: &[program::Run], task: Task) -> String {
    let median = |of: fn(&program::Ceiling) -> f64| {
        let known: Vec<_> = runs.iter().filter_map(|run| run.ceiling.as_ref().map(of)).collect();
        (!known.is_empty()).then(|| spread(known).median)
    };
    let (share, read) = match task {
        Task::Decode(_) => {
            (median(|ceiling| ceiling.share_of_read), median(|ceiling| ceiling.read_bytes_per_second))
        }
        Task::Prefill(_) => (median(|ceiling| ceiling.products_share), None),
    };
    let share = share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
    read.map_or_else(|| share.clone(), |read| format!("{share} of {:.0} GB/s", read / 1e9))
}

/// Processes that only count, until this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Self> {
        let mut all = Self(Vec::new());
        for _ in 0..count {
            let mut counts = Command::new("sh");
            counts.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            all.0.push(counts.spawn().context("cannot start a process that counts")?);
        }
        Ok(all)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended by itself cannot be ended again.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Name, path and what to measure of a fixture, of a model of the table, or of any path.
fn model(name: &str, options: &Options) -> Result<(String, PathBuf, &'static Subject)> {
    let subject = SUBJECTS.iter().find(|subject| subject.name == name).unwrap_or(&SUBJECTS[0]);
    if let Some(decoder) = testkit::fixture::DECODERS.iter().find(|decoder| decoder.name == name) {
        let path = decoder.quantised(&options.fixtures);
        if !path.is_file() {
            bail!(
                "there is no {}\nhint: `cargo xtask fixture {name} DIR` makes it, `--fixtures DIR` names the folder",
                path.display()
            );
        }
        return Ok((name.into(), path, subject));
    }
    if testkit::TABLE.iter().any(|model| model.name == name) {
        let path = testkit::fetch(testkit::find(name)?, testkit::Check::Stamp)?;
        return Ok((name.into(), path, subject));
    }
    let path = PathBuf::from(name);
    if !path.exists() {
        bail!(
            "`{name}` is neither a fixture, nor a model of `cargo xtask models --list`, nor a path\n\
             hint: `all` is short for {}",
            all_models().join(", ")
        );
    }
    Ok((path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(), path, subject))
}

/// The models of the tables in docs/performance.md.
pub(crate) fn all_models() -> Vec<String> {
    SUBJECTS.iter().map(|subject| subject.name.into()).collect()
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
    format!(
        "{name} (family {}, model {}), {cores} cores, {}",
        value("cpu family"),
        value("model"),
        flags.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = spread(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 4.0));
    }

    #[test]
    fn a_ratio_is_of_turns_and_not_of_medians() {
        assert_eq!(ratio(&[2.0, 4.0, 9.0], &[1.0, 4.0, 3.0]), "**2.00** (1.00 to 3.00)");
        assert_eq!(ratio(&[2.0], &[0.0]), "");
    }

    #[test]
    fn one_thread_is_not_measured_twice() {
        let rows =
            |threads| SMALL.rows(Table::Decode, threads).iter().map(|row| row.threads).collect::<Vec<_>>();
        assert_eq!(rows(2), [2, 1]);
        assert_eq!(SUBJECTS[3].rows(Table::Beside, 2).len(), 2);
        assert!(SUBJECTS[4].rows(Table::Beside, 2).is_empty());
    }
}
