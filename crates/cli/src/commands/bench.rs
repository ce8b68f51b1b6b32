//! `weighbridge bench`: prefill and decode speed, medians.

use std::io::Write;
use std::time::Instant;

use serde_json::json;
use weighbridge::{Error, Runtime};

use crate::Failure;
use crate::args::BenchArgs;

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut options = args.model.options().map_err(Failure::Usage)?;
    let needed = args.prefill.max(args.decode) as usize;
    if options.context.is_some_and(|c| c < needed) {
        return Err(Failure::Usage(format!(
            "--ctx must be at least {needed}, for the longer of --prefill and --decode"
        )));
    }
    options.context.get_or_insert(needed);
    let mut runtime = Runtime::start(&args.model.path, &options)?;
    let vocab = runtime.decoder().architecture().vocab;
    // Any tokens do: the cost does not depend on which.
    let token = |i: u32| u32::try_from((u64::from(i) * 7919 + 13) % vocab).unwrap_or(0);
    let prompt: Vec<u32> = (0..args.prefill).map(token).collect();

    let mut prefill = Vec::new();
    let mut decode = Vec::new();
    for round in 0..=args.repeat {
        runtime.truncate(0);
        let p = seconds(|| runtime.forward(&prompt).map(|_| ()))?;
        runtime.truncate(0);
        let d = seconds(|| (0..args.decode).try_for_each(|i| runtime.forward(&[token(i)]).map(|_| ())))?;
        if round > 0 {
            prefill.push(f64::from(args.prefill) / p);
            decode.push(f64::from(args.decode) / d);
        }
    }
    let (p, d) = (Spread::of(prefill), Spread::of(decode));
    let mut out = std::io::stdout().lock();
    if args.json {
        let facts = json!({
            "model": args.model.path.display().to_string(),
            "backend": runtime.backend(),
            "layout": runtime.layout().name(),
            "threads": runtime.report().threads,
            "prefill": args.prefill,
            "decode": args.decode,
            "repeat": args.repeat,
            "load_seconds": runtime.report().seconds,
            "prefill_tokens_per_second": p.median,
            "decode_tokens_per_second": d.median,
            "prefill_runs": p.runs,
            "decode_runs": d.runs,
        });
        writeln!(out, "{facts:#}")?;
    } else {
        let (backend, layout) = (runtime.backend(), runtime.layout().name());
        writeln!(
            out,
            "{backend}, {layout} layout, {} threads, medians of {}",
            runtime.report().threads,
            args.repeat
        )?;
        writeln!(
            out,
            "  prefill {:>5} tokens  {:>8.1} tokens/s  ({:.1}–{:.1})",
            args.prefill,
            p.median,
            p.min(),
            p.max()
        )?;
        writeln!(
            out,
            "  decode  {:>5} tokens  {:>8.1} tokens/s  ({:.1}–{:.1})",
            args.decode,
            d.median,
            d.min(),
            d.max()
        )?;
    }
    Ok(())
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
