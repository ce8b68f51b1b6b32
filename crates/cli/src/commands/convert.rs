//! `weighbridge convert`: another format, other encodings.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weighbridge::Pool;
use weighbridge::checkpoint::{Draft, Io, Refused, Zstd};
use weighbridge::convert::{
    Conversion, ConvertOptions, ConvertReport, Group, Imatrix, Left, OutputFormat, Progress,
};
use weighbridge::planner::Encoding;
use weighbridge::runtime::Foreseen;
use weighbridge::tensor::{Bytes, counted};

use crate::args::{ConvertArgs, output};
use crate::failure::{Failure, INTERRUPTED};
use crate::json;
use crate::keys::Doubts;
use crate::memory::{Measured, Memory};
use crate::progress::{self, Line};
use crate::style;

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let memory = Memory::watch();
    let format = args.format().map_err(Failure::Usage)?;
    let layout = args.layout.kind().map_err(Failure::Usage)?;
    // Read, not mapped: what is done with leaves memory at once.
    let mut open = args.also.options(Io::Pread);
    open.all_ranks = args.from.is_some();
    let checkpoint = weighbridge::open_with(&args.source, &open)?;
    let imatrix = args.imatrix.as_deref().map(importance).transpose()?;
    let Encoding { rules, preset, .. } = args.encoding.encoding();
    let options = ConvertOptions {
        adapter: args.adapter.adapter()?,
        rules,
        preset,
        imatrix: imatrix.as_ref(),
        compensation: None,
        scaling: None,
        allow_overflow: args.allow_overflow,
        allow_requantize: args.write.allow_requantize,
        allow_loss: args.write.allow_loss.clone(),
        overwrite: args.write.force,
        max_shard: args.write.max_shard_size,
        zstd: args.write.zstd,
        split: args.split(),
        alignment: args.alignment,
        mesh: args.mesh.mesh(),
        sync_every: args.write.sync_every,
        memory: args.write.memory,
        loras: args.lora.read()?,
    };
    if args.strict.strict {
        let doubts = Doubts::of(&checkpoint, &weighbridge::describe(&checkpoint)?)?;
        doubts.and(&options.loras).unless(true)?;
    }
    let conversion = Conversion::new(&checkpoint, layout, format, &options)?;
    let stop = stop_on_interrupt();
    let mut pool = Pool::new(args.write.threads.map_or_else(Pool::available, usize::from));
    let line = Line::new();
    let output = output(&args.destination)?;
    let report = conversion.run(output, &mut pool, &mut |progress| {
        line.show(|| now(progress));
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    line.clear();
    let report = report?;
    let measured = memory.so_far(Some(Foreseen::of_private(report.foreseen_memory)));
    let groups = report.groups();
    if args.json {
        let document = json::Convert::of(&args.source, &report, &groups, measured.json());
        return Ok(json::print(&document)?);
    }
    let text = text(args, format, &report, groups, &measured);
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// The importance matrix in the file at `path`.
pub(super) fn importance(path: &Path) -> Result<Imatrix, Failure> {
    // What can be said of a model's file would mislead here.
    File::open(path).map_err(|e| {
        Failure::Other(format!("cannot read the importance matrix `{}`: {e}", path.display()))
    })?;
    Ok(Imatrix::open(path)?)
}

/// Checks that `destination` can be written, as far as can be told before: work that takes minutes is not lost for a name.
pub(super) fn free(destination: &Path, force: bool) -> Result<(), Failure> {
    let shown = destination.display();
    match Draft::refused(destination, force) {
        Some(Refused::Exists) => {
            Err(Failure::Usage(format!("`{shown}` exists\nhint: `--force` replaces it")))
        }
        Some(Refused::NoDirectory(parent)) => Err(Failure::Usage(format!(
            "cannot write `{shown}`: there is no directory `{}`",
            parent.display()
        ))),
        None => Ok(()),
    }
}

/// Whether Ctrl-C was pressed: what is worth continuing is kept, and we go.
pub(super) fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Without a handler Ctrl-C ends the program, and what was written since it was last durable is written again.
    // The second time it ends at once: a server may keep a read waiting.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            progress::clear();
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    stop
}

/// The parameter that is being converted.
pub(super) fn now(p: &Progress<'_>) -> String {
    let what = if p.from == p.to { p.to.to_owned() } else { format!("{} → {}", p.from, p.to) };
    format!("[{}/{}] {} {what}", p.index + 1, p.total, p.name)
}

fn text(
    args: &ConvertArgs,
    format: OutputFormat,
    report: &ConvertReport,
    groups: Vec<Group>,
    measured: &Measured,
) -> String {
    use std::fmt::Write;
    let (before, after) = report.bytes();
    let bits = after as f64 * 8.0 / report.elements().max(1) as f64;
    let title = format!("{} → {}", args.source.display(), report.destination);
    let mut out = format!(
        "{}\n  {}, {} → {} ({bits:.2} bits a weight) in {:.1} s\n",
        style::heading(&title),
        counted(report.tensors.len(), "tensor"),
        Bytes(before),
        Bytes(after),
        report.seconds,
    );
    // Writing to a `String` cannot fail.
    out.push_str(&measured.indented());
    out.push_str(&continued(report));
    if after > before {
        let (before, after) = (Bytes(before), Bytes(after));
        let _ = writeln!(
            out,
            "  note: the result is larger than its source: {after} of tensors, {before} before"
        );
    }
    if format == OutputFormat::Onnx {
        out.push_str("  note: the graph has weights and no nodes: it computes nothing\n");
    }
    if let Some(d) = report.difference() {
        let (rmse, max, cosine) = (d.rmse(), d.max, d.cosine());
        let _ =
            writeln!(out, "  changed values: rmse {rmse:.3e}, largest error {max:.3e}, cosine {cosine:.6}");
        if d.overflowed > 0 {
            let values =
                if d.overflowed == 1 { "value".to_owned() } else { format!("{} values", d.overflowed) };
            let _ = writeln!(out, "  {values} became infinite, allowed by `--allow-overflow`");
        }
    }
    let heading = ["", "tensor", "from", "to", "bits", "rmse", "max error", "cosine", "by"];
    let mut rows = vec![];
    for group in groups {
        let count = if group.count == 1 { String::new() } else { format!("{} ×", group.count) };
        let [rmse, max, cosine] = match group.difference {
            Some(d) => [format!("{:.2e}", d.rmse()), format!("{:.2e}", d.max), format!("{:.6}", d.cosine())],
            None => {
                let kept = if group.rounded.is_some() { "rounded" } else { "exact" };
                [kept.to_owned(), String::new(), String::new()]
            }
        };
        let bits = format!("{:.2}", group.bits());
        let by = group.rounded.map_or(group.rule.clone(), |why| format!("{}: {why}", group.rule));
        rows.push(vec![count, group.name, group.from, group.to, bits, rmse, max, cosine, by]);
    }
    out.push_str(&style::table(&heading, &rows, &[0, 4, 5, 6]));
    for (name, root) in &report.tied {
        let _ = writeln!(out, "  {name} is the same as {root} and is not written again");
    }
    for group in weighbridge::plan::dropped(&report.dropped) {
        let _ = writeln!(out, "  left out: {group}");
    }
    for absent in &report.absent {
        let _ = writeln!(out, "  {} is missing, allowed by `{}`", absent.param, absent.pattern);
    }
    for loss in &report.lost {
        let _ = writeln!(out, "  lost, as allowed: {}: {}", loss.key, loss.what);
    }
    out.push_str(&left(&report.left));
    out
}

/// A line that says what an interrupted command had written before, if it had; and one about compressed arrays, if there are any.
pub(super) fn continued(report: &ConvertReport) -> String {
    let continued = match (report.continued, report.tensors.len()) {
        (0, _) => String::new(),
        (before, of) if before < of => format!("  continued at tensor {} of {of}\n", before + 1),
        (_, of) => format!("  {} already written, nothing to do\n", counted(of, "tensor")),
    };
    match report.zstd {
        Zstd { arrays: 0, .. } => continued,
        Zstd { arrays, saved } => {
            let (arrays, saved) = (counted(arrays, "array"), Bytes(saved));
            format!("{continued}  zstd: {arrays} compressed, {saved} less\n")
        }
    }
}

/// What is not said any more: a line for each file and reason.
pub(super) fn left(left: &[Left]) -> String {
    use std::fmt::Write;
    let mut lines: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for one in left {
        match lines.iter_mut().find(|(file, why, _)| *file == one.file && *why == one.why) {
            Some((.., keys)) => keys.push(&one.key),
            None => lines.push((&one.file, &one.why, vec![&one.key])),
        }
    }
    let mut out = String::new();
    for (file, why, keys) in lines {
        // Writing to a `String` cannot fail.
        let _ = match keys[..] {
            [""] => writeln!(out, "  not carried: {file}: {why}"),
            _ => writeln!(out, "  not carried from {file}: {} ({why})", keys.join(", ")),
        };
    }
    out
}
