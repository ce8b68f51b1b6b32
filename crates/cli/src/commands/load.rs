//! `weighbridge load`: fills slots, and says what that cost.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use weighbridge::check::{Manifest, Verified};
use weighbridge::load::{self, LoadReport};
use weighbridge::plan::Whole;
use weighbridge::quant::Isa;
use weighbridge::runtime::{CacheMode, Foreseen};
use weighbridge::store::{self, Built, RankSet};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Checkpoint, Loaded, PlanBuilder, Pool};

use super::convert::stop_on_interrupt;
use crate::args::{CacheArg, LoadArgs};
use crate::failure::Failure;
use crate::json;
use crate::memory::{Measured, Memory};
use crate::progress::{Line, speed};
use crate::style;
use crate::style::shown;

/// Seconds from the first step on.
struct Phases {
    open: f64,
    plan: f64,
    execute: f64,
}

impl Phases {
    fn all(&self) -> f64 {
        self.open + self.plan + self.execute
    }
}

pub(crate) fn run(args: &LoadArgs) -> Result<(), Failure> {
    let memory = Memory::watch();
    let layout = args.layout.kind().map_err(Failure::Usage)?;
    let stop = stop_on_interrupt();
    let mut pool = Pool::new(args.threads.map_or_else(Pool::available, usize::from));
    let line = Line::new();
    let watch = |p: weighbridge::load::Progress| {
        line.bytes(p.done, p.total);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = load::Options {
        owned: args.owned,
        memory: args.memory,
        watch: Some(&watch),
        ..load::Options::default()
    };

    let mode = CacheArg::mode(args.cache, CacheArg::Off, args.open.options().io).map_err(Failure::Usage)?;
    let (cache, writes) = match mode {
        CacheMode::Off => (None, false),
        CacheMode::Read(cache) => (Some(cache), false),
        CacheMode::Write(cache) => (Some(cache), true),
    };
    let isa = Isa::detect().map_err(weighbridge::planner::Error::from).map_err(weighbridge::Error::from)?;

    let (path, manifest) = args.paths().map_err(Failure::Usage)?;
    let manifest = manifest.map(Manifest::read).transpose()?;

    let from_disk = bytes_from_disk();
    let started = Instant::now();
    let checkpoint = weighbridge::open_with(&path, &args.open.options())?;
    let opened = started.elapsed().as_secs_f64();
    let mesh = args.share.mesh();
    let builder = PlanBuilder::new(&checkpoint)
        .layout(layout)
        .mesh(mesh)
        .rank(args.share.rank)
        .adapter(args.adapter.adapter()?)
        .encoding(args.encoding.encoding())
        .loras(args.lora.read()?);
    let (planned, set) = match cache.as_ref().filter(|_| mesh.is_many()) {
        None => (builder.build()?, None),
        Some(cache) => {
            let ranks = builder.ranks()?;
            let mut plans = (0..ranks.count()).map(|rank| ranks.plan(rank)).collect::<Result<Vec<_>, _>>()?;
            let set = RankSet::of(cache, &plans, isa.name()).map_err(weighbridge::Error::from)?;
            // `ranks` rejects a rank that the mesh does not have.
            let own = usize::try_from(args.share.rank).unwrap_or(usize::MAX);
            (plans.swap_remove(own), set)
        }
    };
    let planning = started.elapsed().as_secs_f64();
    let entry = cache.as_ref().and_then(|cache| cache.entry(&planned, isa.name()));
    // Never a part of a set.
    let is_whole = set.as_ref().map_or(Ok(true), RankSet::is_ready).map_err(weighbridge::Error::from)?;
    let ready = match &entry {
        Some(entry) if is_whole => entry.load().map_err(weighbridge::Error::from)?,
        _ => None,
    };
    let loaded = match (ready, &manifest) {
        (Some(ready), _) => Ok((ready, None)),
        (None, Some(manifest)) => weighbridge::check::load_verified(&planned, &mut pool, options, manifest)
            .map(|(loaded, verified)| (loaded, Some(verified))),
        (None, None) => {
            planned.load_with(&mut pool, options).map(|loaded| (loaded, None)).map_err(Into::into)
        }
    };
    let all = started.elapsed().as_secs_f64();
    line.clear();
    let (loaded, verified) = loaded?;
    if let Some(entry) = entry.filter(|_| writes) {
        keep(&entry, set.as_ref(), &loaded)?;
    }
    let phases = Phases { open: opened, plan: planning - opened, execute: all - planning };
    let mut whole = Whole::default();
    whole.add(planned.pieces());
    let files = Files {
        kinds: io(&checkpoint),
        needed: whole.bytes(),
        from_disk: from_disk.and_then(|before| Some(bytes_from_disk()?.saturating_sub(before))),
    };
    let report = loaded.report();
    let measured = memory.so_far(Some(Foreseen {
        private: report.owned_bytes + report.scratch_predicted,
        mapped: report.bytes_borrowed,
    }));
    if !args.json {
        let text = text(&path, &files, report, &phases, verified.as_ref(), &measured);
        return Ok(std::io::stdout().lock().write_all(text.as_bytes())?);
    }
    Ok(json::print(&json::Load {
        path: shown(&path),
        parameters: report.params,
        dropped: report.dropped,
        io: &files.kinds,
        threads: report.threads,
        memory: args.memory,
        seconds: phases.all(),
        seconds_open: phases.open,
        seconds_plan: phases.plan,
        seconds_execute: phases.execute,
        bytes_read: report.bytes_read,
        bytes_needed: files.needed,
        bytes_from_disk: files.from_disk,
        bytes_borrowed: report.bytes_borrowed,
        bytes_copied: report.bytes_copied,
        bytes_encoded: report.bytes_encoded,
        bytes_owned: report.owned_bytes,
        scratch_bytes: report.scratch_peak,
        scratch_bytes_expected: report.scratch_predicted,
        memory_seconds: report.memory_seconds,
        resident: measured.json(),
        verified: verified.as_ref().map(|v| v.verified),
        not_verified: verified.as_ref().map(|v| v.partly.as_slice()),
    })?)
}

/// Builds the copy of `loaded` that the next start maps, if there is none; of a rank, as one of its set.
fn keep(entry: &store::Entry<'_>, set: Option<&RankSet>, loaded: &Loaded) -> Result<(), Failure> {
    let limit = set.map_or(Ok(None), RankSet::begin).map_err(weighbridge::Error::from)?;
    if let (Some(set), Some(limit)) = (set, limit) {
        return Err(Failure::Other(format!(
            "the copies of all {} ranks would take {}, and the limit of the cache is {}\nhint: free space on its disk, or leave `--cache` out",
            set.ranks().of,
            Bytes(set.bytes()),
            Bytes(limit)
        )));
    }
    let built = entry.builder(loaded).and_then(store::Builder::run).map_err(weighbridge::Error::from)?;
    match built {
        Built::TooLong { bytes, limit } => Err(Failure::Other(format!(
            "the copy would take {}, and the limit of the cache is {}\nhint: free space on its disk, or leave `--cache` out",
            Bytes(bytes),
            Bytes(limit)
        ))),
        Built::SourceChanged => {
            Err(Failure::Other("the files have changed since they were loaded".to_owned()))
        }
        _ => Ok(()),
    }
}

/// What was taken of the files.
struct Files {
    /// How they were reached.
    kinds: String,
    /// Bytes that some parameter is made of, each counted once.
    needed: u64,
    /// Bytes that were not in the page cache; `None` where the system does not say.
    from_disk: Option<u64>,
}

/// Bytes that this process has had read from disks so far, what the system read ahead for it included: proc(5),
/// `/proc/pid/io`.
fn bytes_from_disk() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// How the files were reached, each way once.
fn io(checkpoint: &Checkpoint) -> String {
    let kinds: BTreeSet<&str> = checkpoint.files().iter().map(|f| f.source.kind()).collect();
    kinds.into_iter().collect::<Vec<_>>().join(", ")
}

fn text(
    path: &Path,
    files: &Files,
    report: &LoadReport,
    phases: &Phases,
    verified: Option<&Verified>,
    measured: &Measured,
) -> String {
    let moved = report.bytes_borrowed + report.owned_bytes;
    let verified = verified.map_or_else(String::new, |v| {
        let partly = match v.partly.len() {
            0 => String::new(),
            n => format!("; not verified, because not read in full: {n}"),
        };
        let beside = match v.keys_not_compared {
            None => String::new(),
            Some(why) => format!("\n  metadata, tokenizer and template were not compared: {why}"),
        };
        format!("  matches the manifest: {}{partly}{beside}\n", counted(v.verified, "tensor"))
    });
    let from_disk = files.from_disk.map_or_else(String::new, |n| format!(", {} from the disk", Bytes(n)));
    let memory = match report.memory_seconds {
        0.0 => String::new(),
        seconds => format!("; new memory took {:.3} s on each thread", seconds / report.threads as f64),
    };
    let measured = measured.indented();
    let title = format!("{} → {}", shown(path), counted(report.params, "parameter"));
    format!(
        "{}\n  {:.3} s, {}: {:.3} s to open, {:.3} s to plan, {:.3} s to load on {}\n  \
         {} mapped, {} copied, {} re-encoded\n  \
         {} read of {} needed ({}){from_disk}\n  {} of buffers, {} expected{memory}\n{measured}{verified}",
        style::heading(&title),
        phases.all(),
        speed(moved, phases.all()),
        phases.open,
        phases.plan,
        phases.execute,
        counted(report.threads, "thread"),
        Bytes(report.bytes_borrowed),
        Bytes(report.bytes_copied),
        Bytes(report.bytes_encoded),
        Bytes(report.bytes_read),
        Bytes(files.needed),
        files.kinds,
        Bytes(report.scratch_peak),
        Bytes(report.scratch_predicted),
    )
}
