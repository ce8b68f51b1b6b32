//! `weighbridge compress`: the smallest loss at a given size.

mod deletion;

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use weighbridge::Pool;
use weighbridge::checkpoint::{Io, Removal};
use weighbridge::compress::{self, CompressOptions, Progress, Text, Written};
use weighbridge::convert::compress::{Choice, Compression, MeasuredFamily, Measuring, Policy, Tolerance};
use weighbridge::convert::{ConvertOptions, Scaling};
use weighbridge::engine::eval::Agreement;
use weighbridge::tensor::{Bytes, Pattern};

use super::calibrate::now as calibrated;
use super::convert::{continued, free, importance, left, now as converted, stop_on_interrupt};
use super::eval::{pair, text};
use crate::args::CompressArgs;
use crate::estimate::interval;
use crate::failure::Failure;
use crate::json;
use crate::memory::{Measured, Memory};
use crate::pages::{self, CompressPage, Output};
use crate::progress::Line;
use crate::style;
use crate::style::shown;
use deletion::Given;

pub(crate) fn run(args: &CompressArgs) -> Result<(), Failure> {
    let Some((source, destination, target)) = args.what().filter(|_| !args.print_policy) else {
        return Ok(std::io::stdout().lock().write_all(Policy::DEFAULT.as_bytes())?);
    };
    let memory = Memory::watch();
    let page = args.page.output(args.write.force, args.json)?;
    let format = args.format(source, destination).map_err(Failure::Usage)?;
    if !args.plan {
        let removal = Removal::pending(destination)?;
        match removal.filter(|_| !args.write.force || args.delete_source) {
            Some(removal) if Given::now(source)?.is_of(removal.note()) => {
                return deletion::finish(args.json, removal);
            }
            Some(removal) if !args.write.force => return Err(deletion::left_over(destination, &removal)),
            _ => free(destination, args.write.force)?,
        }
    }
    let policy = args.policy.as_deref().map(Policy::read).transpose()?.unwrap_or_default();
    let threads = args.write.threads.map_or_else(Pool::available, usize::from);
    let checkpoint = weighbridge::open_with(source, &args.also.options(Io::Pread))?;
    let mut convert = ConvertOptions {
        adapter: args.adapter.adapter()?,
        allow_requantize: args.write.allow_requantize,
        allow_loss: args.write.allow_loss.clone(),
        overwrite: args.write.force,
        max_shard: args.write.max_shard_size,
        memory: args.write.memory,
        sync_every: args.write.sync_every,
        preset: args.preset(format).map_err(Failure::Usage)?,
        zstd: args.write.zstd,
        ..ConvertOptions::default()
    };
    if args.awq && args.imatrix.is_none() && args.text.is_none() {
        return Err(Failure::Usage(
            "`--awq` needs to know how strong inputs are\nhint: add `--text FILE` or `--imatrix FILE`"
                .to_owned(),
        ));
    }
    let imatrix = args.imatrix.as_deref().map(importance).transpose()?;
    convert.imatrix = imatrix.as_ref();
    let contents =
        args.text.as_deref().map(|path| Ok::<_, Failure>((path.display().to_string(), text(path)?)));
    let contents = contents.transpose()?;
    let text = contents.as_ref().map(|(name, contents)| Text { name, contents });
    let options =
        CompressOptions { text, policy, gptq: args.gptq, awq: args.awq, threads: Some(threads), convert };
    let (stop, line) = (stop_on_interrupt(), Line::new());
    let each = |progress: Progress<'_>| {
        line.show(|| now(progress));
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let chosen = compress::choose(&checkpoint, format, target, &options, &each);
    line.clear();
    let chosen = chosen?;
    let places = (source.as_path(), destination.as_path());
    let found = chosen.compression.clone();
    if args.plan {
        let measured = memory.so_far(chosen.foreseen());
        let shown = Shown { args, places, found: &found, measured, made: None };
        shown.write_page(page.as_ref())?;
        return shown.print(page.as_ref());
    }
    let scaling = chosen.scaling.clone();
    let written = if args.delete_source {
        chosen.write_verified(destination, &each).map(|(written, held)| (written, Some(held)))
    } else {
        chosen.write(destination, &each).map(|written| (written, None))
    };
    line.clear();
    let (written, held) = written?;
    let source_files = if held.is_some() { deletion::weights(&checkpoint)? } else { vec![] };
    let deleted = source_files.iter().map(|(path, _)| path.clone()).collect();
    let measured = memory.so_far(Some(written.foreseen));
    let made = Made { written: &written, deleted, scaling: scaling.as_ref() };
    let shown = Shown { args, places, found: &found, measured, made: Some(&made) };
    shown.write_page(page.as_ref())?;
    match held {
        // Last of all: whatever failed before has left the source.
        Some(held) if !source_files.is_empty() => {
            let note = Given::now(source)?.with(&shown.text(), &shown.document())?;
            held.remove(&source_files, note)?;
        }
        Some(held) => {
            held.release()?;
        }
        None => {}
    }
    shown.print(page.as_ref())
}

/// Says how far the work is.
fn now(progress: Progress<'_>) -> String {
    let matrix =
        |now: &Measuring<'_>, done: &str| format!("[{}/{}] {done} {}", now.index + 1, now.total, now.name);
    match progress {
        Progress::Calibrating(now) | Progress::Compensating(now) => calibrated(now),
        Progress::Measuring(now) => matrix(now, "measured"),
        Progress::Scaling(now) => matrix(now, "scaled"),
        Progress::Writing(now) => converted(now),
        Progress::Verifying(now) => format!("[{}/{}] compared {}", now.index + 1, now.total, now.name),
        Progress::Comparing(chunks, total) => format!("[{chunks}/{total}] chunks compared"),
    }
}

/// A result that was written.
struct Made<'a> {
    written: &'a Written,
    /// Files of the source that are gone.
    deleted: Vec<PathBuf>,
    /// Columns that were multiplied, with `--awq`.
    scaling: Option<&'a Scaling>,
}

/// The report of a choice, written or not.
struct Shown<'a> {
    args: &'a CompressArgs,
    places: (&'a Path, &'a Path),
    found: &'a Compression,
    measured: Measured,
    made: Option<&'a Made<'a>>,
}

impl<'a> Shown<'a> {
    fn cost(&self) -> Option<&'a Agreement> {
        self.made?.written.agreement.as_ref()
    }

    fn bytes(&self) -> u64 {
        self.made.map_or(self.found.bytes, |made| made.written.bytes)
    }

    fn write_page(&self, page: Option<&Output>) -> Result<(), Failure> {
        let Some(page) = page else { return Ok(()) };
        let (source, destination) = self.places;
        let names = [source, destination].map(shown);
        let (found, facts, cost) = (self.found, self.facts(), self.cost());
        page.write(&pages::compress_html(&CompressPage { names, found, facts, cost }))
    }

    fn print(&self, page: Option<&Output>) -> Result<(), Failure> {
        if self.args.json {
            return Ok(json::print(&self.document())?);
        }
        if page.is_some_and(Output::is_stdout) {
            return Ok(());
        }
        Ok(std::io::stdout().lock().write_all(self.text().as_bytes())?)
    }

    fn document(&self) -> json::Compress<'a> {
        let report = self.made.map(|made| &made.written.report);
        let resident = self.measured.json();
        let document =
            json::Compress::of(self.places, self.found, self.bytes(), report, self.cost(), resident);
        let deleted = self.made.map_or(&[][..], |made| &made.deleted);
        let passes = self.made.and_then(|made| made.written.passes);
        document.made_by((self.args.gptq, passes), self.made.and_then(|made| made.scaling), deleted)
    }

    fn text(&self) -> String {
        let (source, destination) = self.places;
        let mut out = style::heading(&format!("{} → {}", shown(source), destination.display()));
        // Writing to a `String` cannot fail.
        let _ = writeln!(out);
        for fact in self.facts() {
            let _ = writeln!(out, "  {fact}");
        }
        out.push_str(&self.measured.indented());
        out.push_str(&table(&self.found.choices));
        if let Some(made) = self.made {
            out.push_str(&left(&made.written.report.left));
            for file in &made.deleted {
                let _ = writeln!(out, "  deleted {}", file.display());
            }
        }
        out
    }

    /// Lines on the whole: the size, and what it cost.
    fn facts(&self) -> Vec<String> {
        let Shown { args, found, made, .. } = *self;
        let bits = found.bits(self.bytes());
        let written = if made.is_some() { "" } else { "; nothing is written" };
        let (size, limit) = (Bytes(self.bytes()), Bytes(found.limit));
        let mut facts = vec![format!("{size} of at most {limit} ({bits:.2} bits a weight){written}")];
        facts.extend(
            made.map(|made| continued(&made.written.report).trim().to_owned())
                .filter(|line| !line.is_empty()),
        );
        facts.push(if found.is_divergence {
            let by = if args.gptq { ", by rounding alone" } else { "" };
            format!("expected: a KL divergence of {:.4} nats from the source{by}", found.cost)
        } else {
            "note: it is not known how much predictions depend on each matrix: all count alike (`weighbridge calibrate`)"
                .to_owned()
        });
        if let Some(cost) = self.cost() {
            facts.push(format!(
                "measured on the last quarter of the text: KL divergence {}, same most likely token {} %, perplexity ratio {}",
                interval(pair(&cost.kl), 5, 1.0),
                interval(pair(&cost.top1), 1, 100.0),
                interval(cost.ratio(), 4, 1.0),
            ));
        }
        facts.push(tolerated(found, bits));
        facts.extend(made.and_then(|made| made.scaling).map(scaled));
        if let Some(passes) = made.and_then(|made| made.written.passes) {
            let times = if passes == 1 { "once".to_owned() } else { format!("{passes} times") };
            facts.push(format!("gptq: the text was run {times}"));
        }
        facts
    }
}

/// Says from how many bits on a model of the family kept its predictions.
fn tolerated(found: &Compression, bits: f64) -> String {
    let (tolerance, format) = (Tolerance::shipped(), found.format.name());
    let Some(measured) = found.measured() else {
        let family =
            found.family.map_or_else(|| "such models".to_owned(), |family| format!("`{family}` models"));
        return format!(
            "note: no size of {family} in {format} was measured: `weighbridge eval --against` says what was lost"
        );
    };
    let MeasuredFamily { family, model, date, .. } = measured;
    let of = format!("`{family}` in {format}, measured with {model}, {date}");
    match tolerance.fewest(measured) {
        Some(fewest) if fewest.exceeds(bits) => {
            format!("note: fewer than {:.2} bits lost more than {} ({of})", fewest.bits, tolerance.limits)
        }
        Some(fewest) => {
            format!("from {:.2} bits on, less is lost than {} ({of})", fewest.bits, tolerance.limits)
        }
        None => format!("note: every size that was measured lost more than {} ({of})", tolerance.limits),
    }
}

/// How many norms were divided, and which matrices have none.
fn scaled(scaling: &Scaling) -> String {
    let norms = scaling.norm_results.len();
    let chosen = scaling.norm_results.iter().filter(|norm| norm.power > 0.0);
    let shares: Vec<f64> = chosen.map(|norm| norm.share).collect();
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let gained = if shares.is_empty() {
        "nothing is gained".to_owned()
    } else {
        format!("{:.0} % of the squared error is left, on average", 100.0 * mean)
    };
    let mut kinds: Vec<Pattern> = scaling.without_norm.iter().map(|name| Pattern::of(name)).collect();
    kinds.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    kinds.dedup();
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
    format!("awq: {} of {norms} norms divided: {gained}; no norm feeds {}", shares.len(), kinds.join(", "))
}

/// A line for all matrices of a kind that become the same.
fn table(choices: &[Choice]) -> String {
    let mut groups: Vec<(String, &str, &str, Vec<&Choice>)> = vec![];
    for choice in choices {
        let pattern = Pattern::of(&choice.name).to_string();
        let becomes = &*choice.becomes().scheme.name;
        match groups.iter_mut().find(|g| g.0 == pattern && g.1 == choice.from && g.2 == becomes) {
            Some(group) => group.3.push(choice),
            None => groups.push((pattern, &choice.from, becomes, vec![choice])),
        }
    }
    // Kinds in the order of the file, and of a kind the smallest first.
    let mut kinds: Vec<String> = vec![];
    for (pattern, ..) in &groups {
        if !kinds.contains(pattern) {
            kinds.push(pattern.clone());
        }
    }
    groups.sort_by(|a, b| {
        let place = |pattern: &str| kinds.iter().position(|kind| kind == pattern);
        let bits = |all: &[&Choice]| all.first().map_or(0.0, |choice| choice.bits());
        place(&a.0).cmp(&place(&b.0)).then(bits(&a.3).total_cmp(&bits(&b.3)))
    });
    let mut rows = vec![];
    for (pattern, from, becomes, all) in &groups {
        let squares: f64 = all.iter().map(|choice| choice.becomes().error.powi(2)).sum();
        let cost: f64 = all.iter().map(|choice| choice.becomes().cost).sum();
        let limited = all.iter().filter(|choice| !choice.policy.is_empty()).count();
        rows.push(vec![
            format!("{} ×", all.len()),
            if let [one] = all[..] { one.name.clone() } else { pattern.clone() },
            (*from).to_owned(),
            (*becomes).to_owned(),
            format!("{:.2}", all.first().map_or(0.0, |choice| choice.bits())),
            format!("{:.2} %", 100.0 * (squares / all.len().max(1) as f64).sqrt()),
            format!("{cost:.5}"),
            if limited > 0 { format!("{limited} limited by the policy") } else { String::new() },
        ]);
    }
    style::table(&["", "matrix", "from", "to", "bits", "error", "cost", ""], &rows, &[0, 4, 5, 6])
}
