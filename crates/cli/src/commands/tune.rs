//! `weighbridge tune`: how this machine reads weights fastest.

use std::io::Write;
use std::time::Instant;

use weighbridge::Pool;
use weighbridge::quant::Way;
use weighbridge::tensor::counted;

use crate::args::TuneArgs;
use crate::failure::Failure;
use crate::json;
use crate::tuned;

pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    let threads = args.threads.map(usize::from);
    let started = Instant::now();
    let found = weighbridge::runtime::tune(threads)?;
    let seconds = started.elapsed().as_secs_f64();
    let path = tuned::path().filter(|_| !args.dry_run);
    if let (Some(found), Some(path)) = (&found, &path) {
        tuned::write(path, threads, found.access())?;
    }
    let threads = threads.unwrap_or_else(Pool::available);
    if args.json {
        let written = path.as_deref().filter(|_| found.is_some());
        return Ok(json::print(&json::Tune::of(found.as_ref(), threads, seconds, written))?);
    }
    let mut out = std::io::stdout().lock();
    let threads = counted(threads, "thread");
    writeln!(out, "{}, {threads}, {seconds:.2} s", weighbridge::quant::processor())?;
    let Some(found) = found else {
        writeln!(out, "  nothing to tune for this instruction set")?;
        return Ok(());
    };
    for (codes, choice) in [("codes of 8 bits", &found.bytes), ("all others", &found.others)] {
        writeln!(out, "  {codes}")?;
        for tried in &choice.tried {
            writeln!(
                out,
                "    {}  {:5.1} GB/s  {:.2}{}",
                said(tried.way),
                tried.bytes_per_second / 1e9,
                tried.ratio,
                if tried.way == choice.best { "  taken" } else { "" }
            )?;
        }
    }
    match path {
        Some(path) => writeln!(out, "  written to `{}`", path.display())?,
        None => writeln!(out, "  nothing was written")?,
    }
    Ok(())
}

/// A way in words of one length.
fn said(way: Way) -> String {
    let ahead = match way.ahead {
        0 => "no prefetch".to_owned(),
        ahead => format!("prefetch {ahead} bytes ahead"),
    };
    let streams = if way.streams == 1 { "one place at a time" } else { "two places in turns" };
    format!("{ahead:25}  {streams}")
}
