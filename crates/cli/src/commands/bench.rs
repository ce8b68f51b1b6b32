//! `weighbridge bench`: prefill and decode speed, medians.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use weighbridge::engine::backend::Ceiling;
use weighbridge::engine::{Batch, Logits, Session};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Error, Pool, Runtime};

use crate::args::{BenchArgs, CacheArg};
use crate::failure::Failure;
use crate::json::{self, real};
use crate::memory::Memory;
use crate::style::shown;

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let memory = Memory::watch();
    let mut options = args.model.options(CacheArg::Read)?;
    let depth = args.depth as usize;
    let needed = depth.saturating_add(args.prefill.max(args.decode) as usize);
    if options.context.is_some_and(|c| c < needed) {
        return Err(Failure::Usage(format!(
            "--ctx must be at least {needed}, for the longer of --prefill and --decode behind --depth"
        )));
    }
    options.context.get_or_insert(needed);
    // Those that run it: a copy is mapped without any.
    let threads = options.threads.unwrap_or_else(Pool::available);
    let mut runtime = Runtime::start(args.model.path(), &options)?;
    crate::progress::streaming(&runtime);
    // Not beside what is measured.
    runtime.build_copy()?;
    let vocab = runtime.shared().vocab() as u64;
    // Any tokens do: the cost does not depend on which.
    let token = |i: u32| u32::try_from((u64::from(i) * 7919 + 13) % vocab).unwrap_or(0);
    let prompt: Vec<u32> = (0..args.prefill).map(token).collect();
    let (shared, kind) = (Arc::clone(runtime.shared()), runtime.session().kind());
    let session = |_| -> Result<Session, Error> {
        let mut session = Session::new(&shared, kind, needed)?;
        session.set_kv_budget(args.budget.positions())?;
        Ok(session)
    };
    let mut sessions = (0..args.sequences).map(session).collect::<Result<Vec<_>, _>>()?;
    let before: Vec<u32> = (0..args.depth).map(token).collect();
    if !before.is_empty() {
        together(&mut runtime, &mut sessions[..1], &before)?;
        runtime.evict(&mut sessions[0])?;
    }
    let filled = sessions[0].snapshot();

    let (mut prefill, mut decode, mut shares) = (Vec::new(), Vec::new(), Shares::default());
    let needs = Needs::of(&runtime, &sessions[0], args);
    let mut measured = memory.so_far(Some(runtime.foreseen()));
    for round in 0..=args.repeat {
        sessions[0].restore(&filled).map_err(Error::from)?;
        let p = seconds(|| together(&mut runtime, &mut sessions[..1], &prompt))?;
        sessions.iter_mut().try_for_each(|session| session.restore(&filled)).map_err(Error::from)?;
        let d = seconds(|| {
            (0..args.decode).try_for_each(|i| together(&mut runtime, &mut sessions, &[token(i)]))
        })?;
        if round == 0 {
            measured = memory.so_far(Some(runtime.foreseen()));
        } else {
            prefill.push(f64::from(args.prefill) / p);
            decode.push(f64::from(args.decode * args.sequences) / d);
            let products = seconds(|| {
                runtime.products(prompt.len());
                Ok(())
            })?;
            if let Some(ceiling) = runtime.ceiling(&sessions) {
                shares.add(&needs, &ceiling, p, products, d / f64::from(args.decode));
            }
        }
    }
    let (p, d) = (Spread::of(prefill), Spread::of(decode));
    let shares = shares.medians();
    if args.json {
        let ceiling = shares.map(|shares| json::Ceiling {
            read_bytes_per_second: real(shares.read),
            decode_share_of_read: real(shares.of_read),
            products_per_second: real(shares.peak),
            prefill_share_of_products: real(shares.of_peak),
            products_share_of_prefill: real(shares.of_prefill),
        });
        json::print(&json::Bench {
            model: shown(args.model.path()),
            backend: &runtime.backend(),
            layout: runtime.layout().name(),
            threads,
            prefill: args.prefill,
            decode: args.decode,
            depth: args.depth,
            sequences: args.sequences,
            kv: kind.name(),
            kv_budget: args.budget.positions(),
            repeat: args.repeat,
            load_seconds: runtime.report().seconds,
            prefill_tokens_per_second: real(p.median),
            decode_tokens_per_second: real(d.median),
            prefill_runs: p.runs,
            decode_runs: d.runs,
            weight_bytes_per_token: needs.weights,
            cache_bytes_per_token: needs.cache,
            resident: measured.json(),
            ceiling,
        })?;
    } else {
        let mut out = std::io::stdout().lock();
        let (backend, layout) = (runtime.backend(), runtime.layout().name());
        writeln!(
            out,
            "{backend}, {layout} layout, {}, medians of {}",
            counted(threads, "thread"),
            args.repeat
        )?;
        line(&mut out, "prefill", args.prefill, &p)?;
        if let Some(shares) = shares {
            writeln!(
                out,
                "           matrix products take {:.0} % of that time; {:.0} % of {:.0} G multiply-adds/s",
                100.0 * shares.of_prefill,
                100.0 * shares.of_peak,
                shares.peak / 1e9
            )?;
        }
        line(&mut out, "decode", args.decode, &d)?;
        match args.sequences {
            1 => write!(out, "           a token reads")?,
            n => write!(out, "           {n} sequences together; a step reads")?,
        }
        write!(out, " {} of weights and {} of cache in {kind}", Bytes(needs.weights), Bytes(needs.cache))?;
        match shares {
            Some(shares) => writeln!(
                out,
                ": {:.0} % of the plain read speed, {:.1} GB/s",
                100.0 * shares.of_read,
                shares.read / 1e9
            )?,
            None => writeln!(out)?,
        }
        write!(out, "{}", measured.indented())?;
    }
    Ok(())
}

/// Runs the same tokens in each of `sessions`.
fn together(runtime: &mut Runtime, sessions: &mut [Session], tokens: &[u32]) -> Result<(), Error> {
    let mut batch = Batch::new();
    for session in sessions {
        batch.add(session, tokens, Logits::Last);
    }
    runtime.run(batch, |_, _, _| ())
}

fn line(out: &mut impl Write, name: &str, tokens: u32, rate: &Spread) -> std::io::Result<()> {
    let (min, max) = (rate.min(), rate.max());
    writeln!(out, "  {name:7} {tokens:>5} tokens  {:>8.1} tokens/s  ({min:.1}–{max:.1})", rate.median)
}

/// The work of the runs: bytes that they read, products that they compute.
struct Needs {
    /// Bytes of weights that a decoded token reads.
    weights: u64,
    /// Bytes of keys and values, of the tokens in the middle.
    cache: u64,
    /// Products of the whole prompt.
    macs: f64,
}

impl Needs {
    /// Of sequences that are as `session` is.
    fn of(runtime: &Runtime, session: &Session, args: &BenchArgs) -> Needs {
        let cache = session.reads(args.depth as usize + args.decode as usize / 2);
        let cache = cache.saturating_mul(args.sequences.into());
        Needs { weights: runtime.reads(), cache, macs: runtime.macs(args.prefill.into()) as f64 }
    }
}

/// Speed against what the machine allows, each round on its own.
#[derive(Default)]
struct Shares {
    rounds: Vec<Share>,
}

#[derive(Clone, Copy)]
struct Share {
    read: f64,
    of_read: f64,
    peak: f64,
    of_peak: f64,
    of_prefill: f64,
}

impl Shares {
    fn add(&mut self, needs: &Needs, ceiling: &Ceiling, prefill: f64, products: f64, decode_one: f64) {
        self.rounds.push(Share {
            read: ceiling.bytes_per_second,
            of_read: (needs.weights + needs.cache) as f64 / decode_one / ceiling.bytes_per_second,
            peak: ceiling.macs_per_second,
            of_peak: needs.macs / prefill / ceiling.macs_per_second,
            of_prefill: products / prefill,
        });
    }

    fn medians(&self) -> Option<Share> {
        let median = |of: fn(&Share) -> f64| Spread::of(self.rounds.iter().map(of).collect()).median;
        (!self.rounds.is_empty()).then(|| Share {
            read: median(|s| s.read),
            of_read: median(|s| s.of_read),
            peak: median(|s| s.peak),
            of_peak: median(|s| s.of_peak),
            of_prefill: median(|s| s.of_prefill),
        })
    }
}

fn seconds(f: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let started = Instant::now();
    f()?;
    Ok(started.elapsed().as_secs_f64())
}

/// Rates of some runs.
struct Spread {
    /// In the order of the runs.
    runs: Vec<f64>,
    median: f64,
}

impl Spread {
    fn of(runs: Vec<f64>) -> Spread {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Spread { runs, median }
    }

    fn min(&self) -> f64 {
        self.runs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn max(&self) -> f64 {
        self.runs.iter().copied().fold(0.0, f64::max)
    }
}
