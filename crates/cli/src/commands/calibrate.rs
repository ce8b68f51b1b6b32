//! `weighbridge calibrate`: what goes into each matrix, and how much predictions depend on each.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

use weighbridge::convert::write_calibration;
use weighbridge::engine::calibrate::{
    CalibrateOptions, Calibration, Inputs, Progress, calibrate, held_bytes,
};
use weighbridge::runtime::Foreseen;
use weighbridge::tensor::{Pattern, counted};
use weighbridge::{Pool, Runtime};

use super::convert::{free, stop_on_interrupt};
use super::eval::{LENGTH, text};
use crate::args::{CacheArg, CalibrateArgs};
use crate::failure::Failure;
use crate::json::{self, real};
use crate::memory::Memory;
use crate::progress::Line;
use crate::style;

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let (started, memory) = (Instant::now(), Memory::watch());
    free(&args.output, args.force)?;
    let text = text(&args.file)?;
    let mut options = args.model.options(CacheArg::Read)?;
    let length = *options.context.get_or_insert(LENGTH);
    if length < 16 {
        return Err(Failure::Usage("a chunk has at least 16 tokens: `--ctx 16`".to_owned()));
    }
    let threads = options.threads.unwrap_or_else(Pool::available);
    let mut model = Runtime::start(args.model.path(), &options)?;
    crate::progress::streaming(&model);
    let passage = model.passage(&text)?;
    let disturbed = (!args.no_sensitivity).then_some(args.sensitivity_tokens);
    let stop = stop_on_interrupt();
    let line = Line::new();
    let options = CalibrateOptions { length, chunks: args.chunks, begin: passage.begin, disturbed, threads };
    let found = calibrate(&mut model.predictor(), &passage.tokens, &options, &mut |progress| {
        line.show(|| now(progress));
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    line.clear();
    let found = found.map_err(weighbridge::Error::from)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let name = args.file.display().to_string();
    let written = write_calibration(&args.output, model.checkpoint(), &found, (&name, length), args.force)
        .map_err(weighbridge::Error::from)?;
    let held = held_bytes(model.shared(), &options);
    let measured = memory.so_far(Some(model.foreseen() + Foreseen::of_private(held)));
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        return Ok(json::print(&json::Calibrate {
            model: args.model.path().display().to_string(),
            text: name,
            destination: written.display().to_string(),
            chunks: found.chunks,
            chunk_tokens: length,
            tokens: found.tokens,
            matrices: found.matrices.iter().map(json::Calibrated::from).collect(),
            lookup: found.lookup.sensitivity.and_then(real),
            resident: measured.json(),
            seconds,
        })?);
    }
    let mut out = format!(
        "{}\n  {} of {} run, in {} of {length}; {}; {seconds:.1} s\n",
        style::heading(&format!("{} → {}", args.model.path().display(), written.display())),
        counted(usize::try_from(found.tokens).unwrap_or(usize::MAX), "token"),
        args.file.display(),
        counted(found.chunks, "chunk"),
        counted_matrices(found.matrices.len()),
    );
    out.push_str(&shown(&found));
    out.push_str(&measured.indented());
    Ok(std::io::stdout().lock().write_all(out.as_bytes())?)
}

fn counted_matrices(n: usize) -> String {
    if n == 1 { "1 matrix".to_owned() } else { format!("{n} matrices") }
}

pub(super) fn now(progress: Progress<'_>) -> String {
    match progress {
        Progress::Chunk(n, total) => format!("[{n}/{total}] chunks"),
        Progress::Matrix(n, total, name) => format!("[{n}/{total}] disturbed {name}"),
    }
}

/// By kind of matrix: how much predictions move if its results are off by a tenth of what they are.
fn shown(found: &Calibration) -> String {
    let mut kinds: Vec<(String, Vec<&Inputs>)> = vec![];
    for inputs in found.matrices.iter().filter(|inputs| inputs.sensitivity.is_some()) {
        let pattern = Pattern::of(&inputs.name).to_string();
        match kinds.iter_mut().find(|(kind, _)| *kind == pattern) {
            Some((_, all)) => all.push(inputs),
            None => kinds.push((pattern, vec![inputs])),
        }
    }
    if kinds.is_empty() {
        return String::new();
    }
    let mut rows = vec![];
    for (kind, all) in &kinds {
        let moved: Vec<f64> = all.iter().filter_map(|inputs| inputs.moved()).collect();
        let (least, most) = moved.iter().fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(*x), b.max(*x)));
        let mean = moved.iter().sum::<f64>() / moved.len().max(1) as f64;
        rows.push(vec![
            format!("{} ×", all.len()),
            kind.clone(),
            format!("{least:.5}"),
            format!("{mean:.5}"),
            format!("{most:.5}"),
        ]);
    }
    let mut out = String::from("  KL divergence if the results of one matrix are off by a tenth:\n");
    // Writing to a `String` cannot fail.
    let _ = write!(out, "{}", style::table(&["", "matrix", "least", "mean", "most"], &rows, &[0, 2, 3, 4]));
    out
}
