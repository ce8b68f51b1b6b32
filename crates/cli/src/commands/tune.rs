//! `weighbridge tune`: how this machine reads weights fastest.

use std::io::Write;
use std::time::Instant;

use serde_json::json;
use weighbridge::Pool;
use weighbridge::engine::backend::{Tried, Tuned};
use weighbridge::quant::Access;

use crate::args::TuneArgs;
use crate::failure::Failure;
use crate::tuned;

pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    let threads = args.threads.map(usize::from);
    let started = Instant::now();
    let found = weighbridge::runtime::tune(threads)?;
    let seconds = started.elapsed().as_secs_f64();
    let path = tuned::path().filter(|_| !args.dry_run);
    if let (Some(Tuned { best, .. }), Some(path)) = (&found, &path) {
        tuned::write(path, threads, *best)?;
    }
    let threads = threads.unwrap_or_else(Pool::available);
    let mut out = std::io::stdout().lock();
    if args.json {
        let way = |access: Access| json!({ "ahead": access.ahead, "streams": access.streams });
        let tried = |t: &Tried| {
            json!({
                "way": way(t.access),
                "bytes_per_second": t.bytes_per_second,
                "ratio": t.ratio,
            })
        };
        let facts = json!({
            "processor": weighbridge::quant::processor(),
            "threads": threads,
            "seconds": seconds,
            "tried": found.iter().flat_map(|f| &f.tried).map(tried).collect::<Vec<_>>(),
            "best": found.as_ref().map(|f| way(f.best)),
            "written": path.filter(|_| found.is_some()).map(|p| p.display().to_string()),
        });
        writeln!(out, "{facts:#}")?;
        return Ok(());
    }
    let s = if threads == 1 { "" } else { "s" };
    writeln!(out, "{}, {threads} thread{s}, {seconds:.2} s", weighbridge::quant::processor())?;
    let Some(found) = found else {
        writeln!(out, "  there is nothing to choose with these instructions")?;
        return Ok(());
    };
    for tried in &found.tried {
        writeln!(
            out,
            "  {}  {:5.1} GB/s  {:.2}{}",
            said(tried.access),
            tried.bytes_per_second / 1e9,
            tried.ratio,
            if tried.access == found.best { "  taken" } else { "" }
        )?;
    }
    match path {
        Some(path) => writeln!(out, "  written to `{}`", path.display())?,
        None => writeln!(out, "  nothing was written")?,
    }
    Ok(())
}

/// A way in words of one length.
fn said(access: Access) -> String {
    let ahead = match access.ahead {
        0 => "no prefetch".to_owned(),
        ahead => format!("prefetch {ahead} bytes ahead"),
    };
    let streams = if access.streams == 1 { "one place at a time" } else { "two places in turns" };
    format!("{ahead:25}  {streams}")
}
