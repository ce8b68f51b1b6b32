//! `weighbridge compress`: the smallest loss at a given size.

mod deletion;

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use weighbridge::checkpoint::{Io, Removal};
use weighbridge::convert::compress::{Choice, Compression, MeasuredFamily, Measuring, Policy, Tolerance};
use weighbridge::convert::{
    Compensation, CompensationOptions, Conversion, ConvertOptions, ConvertReport, Error as ConvertError,
    Feedbacks, Imatrix, OutputFormat, Scaling,
};
use weighbridge::engine::calibrate::{
    CalibrateOptions, Calibration, Progress, SharedInput, calibrate, held_bytes, products, shared_inputs,
};
use weighbridge::engine::eval::{self, Agreement, EvalOptions, evaluate};
use weighbridge::load::available_memory;
use weighbridge::quant::Isa;
use weighbridge::runtime::Foreseen;
use weighbridge::tensor::{Bytes, Pattern};
use weighbridge::{Checkpoint, Pool, Runtime, RuntimeOptions};

use super::calibrate::now;
use super::convert::{continued, free, importance, left, now as converted, stop_on_interrupt};
use super::eval::{LENGTH, pair, text, tokens};
use crate::args::CompressArgs;
use crate::estimate::interval;
use crate::failure::Failure;
use crate::json;
use crate::memory::{Measured, Memory, largest, private, together};
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
    let policy = args.policy.as_deref().map(Policy::read).transpose().map_err(weighbridge::Error::from)?;
    let threads = args.write.threads.map_or_else(Pool::available, usize::from);
    let checkpoint = weighbridge::open_with(source, &args.also.options(Io::Pread))?;
    let mut options = ConvertOptions {
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
    Compression::check(&checkpoint, format, &options).map_err(weighbridge::Error::from)?;
    let stop = stop_on_interrupt();
    let line = Line::new();
    let work = Work { checkpoint: &checkpoint, threads, stop: &stop, line: &line };
    let given = args.imatrix.as_deref().map(importance).transpose()?;
    let wanted = Wanted { calibration: given.is_none(), products: args.gptq, memory: args.write.memory };
    let mut held = args.text.as_deref().map(|path| Held::of(&work, path, wanted)).transpose()?;
    let found = held.as_ref().and_then(|held| Some((held.calibration.as_ref()?, &held.name)));
    let found = found.map(|(calibration, text)| Imatrix::of(&checkpoint, calibration, text));
    let imatrix = found.transpose().map_err(weighbridge::Error::from)?.or(given);
    options.imatrix = imatrix.as_ref();
    let mut pool = Pool::new(threads);
    let compression = Compression::new(
        &checkpoint,
        format,
        target,
        &policy.unwrap_or_default(),
        &options,
        &mut pool,
        &mut |now| {
            line.show(|| format!("[{}/{}] measured {}", now.index + 1, now.total, now.name));
            work.flow()
        },
    );
    line.clear();
    let compression = compression.map_err(weighbridge::Error::from)?;
    let scaling =
        if args.awq { Some(work.scaling(format, &compression, &options, &mut pool)?) } else { None };
    options.scaling = scaling.as_ref();
    let model = held.as_mut().and_then(|held| held.model.take());
    let compensation =
        model.zip(held.as_ref()).map(|(model, held)| work.compensation(held, model, &options)).transpose()?;
    options.compensation = compensation.as_ref().map(|compensation| compensation as &dyn Feedbacks);
    (options.rules, options.preset) = compression.encoding();
    let layout = format.compressed_layout();
    let conversion =
        Conversion::new(&checkpoint, layout, format, &options).map_err(weighbridge::Error::from)?;
    let places = (source.as_path(), destination.as_path());
    if args.plan {
        let measured = memory.so_far(held.as_ref().map(|held| held.foreseen));
        let shown = Shown { args, places, found: &compression, measured, made: None };
        shown.write_page(page.as_ref())?;
        return shown.print(page.as_ref());
    }
    // Those of the tokenizer too.
    let bytes = conversion.bytes();
    let ran = conversion.run_and_hold(destination, &mut pool, &mut |progress| {
        line.show(|| converted(progress));
        work.flow()
    });
    line.clear();
    let (report, mut result) = ran.map_err(weighbridge::Error::from)?;
    let place = report.destination.path().unwrap_or(destination);
    let bytes = bytes.saturating_sub(report.zstd.saved);
    let mut source_files = vec![];
    if args.delete_source {
        let again =
            Conversion::new(&checkpoint, layout, format, &options).map_err(weighbridge::Error::from)?;
        let verified = again.verify(place, &mut pool, &mut |progress| {
            line.show(|| format!("[{}/{}] compared {}", progress.index + 1, progress.total, progress.name));
            work.flow()
        });
        line.clear();
        result = deletion::sound(result, verified)?;
        source_files = deletion::weights(&checkpoint)?;
    }
    let passes = compensation.as_ref().map(Compensation::passes);
    let tables = compensation.as_ref().map_or(0, Compensation::most_bytes);
    let running = held.as_ref().map_or(Foreseen::default(), |held| held.foreseen);
    let mut steps = vec![running, together([private(report.foreseen_memory), private(tables)])];
    if compensation.is_some() {
        steps.push(together([running, private(tables)]));
    }
    drop((pool, compensation));
    // With files to delete, it can be continued from here.
    let result = if source_files.is_empty() { result.release().map(|_| None)? } else { Some(result) };
    let cost = held.as_ref().map(|held| held.cost(&work, place)).transpose()?;
    let (cost, comparing) = cost.unzip();
    steps.extend(comparing);
    let deleted = source_files.iter().map(|(path, _)| path.clone()).collect();
    let made = Made { report: &report, bytes, cost, deleted, scaling: scaling.as_ref(), passes };
    let measured = memory.so_far(largest(steps));
    let shown = Shown { args, places, found: &compression, measured, made: Some(&made) };
    shown.write_page(page.as_ref())?;
    if let Some(result) = result {
        // Last of all: whatever failed before has left the source.
        let note = Given::now(source)?.with(&shown.text(), &shown.document())?;
        result.remove(&source_files, note)?;
    }
    shown.print(page.as_ref())
}

/// A result that was written.
struct Made<'a> {
    report: &'a ConvertReport,
    /// Bytes of all its files.
    bytes: u64,
    /// How far it is from the source, on the text that was held back.
    cost: Option<Agreement>,
    /// Files of the source that are gone.
    deleted: Vec<PathBuf>,
    /// Columns that were multiplied, with `--awq`.
    scaling: Option<&'a Scaling>,
    /// How often the text was run to make errors good, with `--gptq`.
    passes: Option<usize>,
}

/// The model, and the threads, the line and the key that stops it that all steps have in common.
struct Work<'a> {
    checkpoint: &'a Checkpoint,
    threads: usize,
    stop: &'a AtomicBool,
    line: &'a Line,
}

impl Work<'_> {
    fn flow(&self) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn interrupted(&self) -> Result<(), Failure> {
        if self.flow().is_break() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// How errors make each other good on the part of the text of `held` that is calibrated with, as `model` runs it.
    fn compensation<'w>(
        &'w self,
        held: &'w Held,
        mut model: Runtime,
        options: &ConvertOptions<'_>,
    ) -> Result<Compensation<'w>, Failure> {
        let inputs = shared_inputs(model.predictor().runner.model());
        let calibration = held.options(self.threads);
        let settings = CompensationOptions { room: held.room, threads: self.threads, text: held.identity() };
        let sum = move |inputs: &[&SharedInput]| {
            let mut show = |progress: Progress<'_>| {
                self.line.show(|| now(progress));
                self.flow()
            };
            let (mut predictor, tokens) = (model.predictor(), held.calibrated());
            let grams = products(&mut predictor, inputs, tokens, &calibration, &mut show)?;
            self.line.clear();
            match self.flow() {
                ControlFlow::Continue(()) => Ok(grams),
                ControlFlow::Break(()) => Err(ConvertError::Interrupted { kept: None, done: 0, total: 0 }),
            }
        };
        let ConvertOptions { imatrix, scaling, .. } = *options;
        let found = Compensation::new(self.checkpoint, inputs, imatrix, scaling, settings, Box::new(sum));
        Ok(found.map_err(weighbridge::Error::from)?)
    }

    /// By how much columns are multiplied.
    fn scaling(
        &self,
        format: OutputFormat,
        compression: &Compression,
        options: &ConvertOptions<'_>,
        pool: &mut Pool,
    ) -> Result<Scaling, Failure> {
        let mut show = |now: &Measuring<'_>| {
            self.line.show(|| format!("[{}/{}] scaled {}", now.index + 1, now.total, now.name));
            self.flow()
        };
        let found = compression.scaling(self.checkpoint, format, options, pool, &mut show);
        self.line.clear();
        Ok(found.map_err(weighbridge::Error::from)?)
    }

    /// Starts the model in `checkpoint`.
    fn start(&self, checkpoint: &Checkpoint) -> Result<Runtime, Failure> {
        let (threads, context) = (Some(self.threads), Some(LENGTH));
        let options = RuntimeOptions { threads, context, ..RuntimeOptions::default() };
        Ok(Runtime::start_from(checkpoint.clone(), &options)?)
    }
}

/// The measurements to make of a text.
#[derive(Clone, Copy)]
struct Wanted {
    /// How strong inputs are, and how much predictions depend on each matrix.
    calibration: bool,
    /// How columns of inputs go together.
    products: bool,
    /// The memory for them [default: as much as the system has].
    memory: Option<u64>,
}

/// A text of which a part is held back.
struct Held {
    name: String,
    calibration: Option<Calibration>,
    /// The model, if products are wanted.
    model: Option<Runtime>,
    /// Bytes for tables of products.
    room: u64,
    tokens: Vec<u32>,
    /// Where the part that is held back begins: the last quarter.
    cut: usize,
    begin: Option<u32>,
    /// The memory that running the text was foreseen to take.
    foreseen: Foreseen,
}

impl Held {
    /// Calibrates the model with three quarters of the text at `path`.
    fn of(work: &Work<'_>, path: &Path, wanted: Wanted) -> Result<Held, Failure> {
        let text = text(path)?;
        let mut model = work.start(work.checkpoint)?;
        let (tokens, begin) = tokens(&model, &text)?;
        // Two chunks of the last quarter are compared.
        let least = 8 * LENGTH;
        if tokens.len() < least {
            let (shown, found) = (path.display(), tokens.len());
            return Err(Failure::Usage(format!(
                "`{shown}` has {found} tokens, and at least {least} are needed\nhint: use a longer text, or `weighbridge calibrate`"
            )));
        }
        let (name, cut) = (path.display().to_string(), tokens.len() - tokens.len() / 4);
        let room = wanted.memory.or_else(available_memory).unwrap_or(u64::MAX);
        if wanted.products {
            let inputs = shared_inputs(model.predictor().runner.model());
            let hint = |error| Failure::Usage(format!("{error}\nhint: leave out `--gptq`"));
            Compensation::check(&inputs, room).map_err(hint)?;
        }
        let foreseen = model.foreseen();
        let mut held = Held { name, calibration: None, model: None, room, tokens, cut, begin, foreseen };
        if wanted.calibration {
            let mut show = |progress: Progress<'_>| {
                work.line.show(|| now(progress));
                work.flow()
            };
            let options = held.options(work.threads);
            let bytes = held_bytes(model.shared(), &options);
            held.foreseen = together([foreseen, private(bytes)]);
            let found = calibrate(&mut model.predictor(), held.calibrated(), &options, &mut show);
            work.line.clear();
            work.interrupted()?;
            held.calibration = Some(found.map_err(weighbridge::Error::from)?);
        }
        held.model = wanted.products.then_some(model);
        Ok(held)
    }

    /// The tokens that are calibrated with.
    fn calibrated(&self) -> &[u32] {
        &self.tokens[..self.cut]
    }

    fn options(&self, threads: usize) -> CalibrateOptions {
        let (begin, disturbed) = (self.begin, Some(LENGTH));
        CalibrateOptions { length: LENGTH, chunks: None, begin, disturbed, threads }
    }

    /// Identifies the tokens that are calibrated with, and the way in which they are run.
    fn identity(&self) -> Vec<u8> {
        let tokens = self.calibrated().iter().chain(&self.begin).flat_map(|token| token.to_le_bytes());
        let isa = Isa::detect().map_or("none", Isa::name);
        tokens.chain(format!(" {LENGTH} {isa}").into_bytes()).collect()
    }

    /// How far the model at `made` is from the source, on the tokens that were held back, and the memory that both were foreseen to
    /// take.
    fn cost(&self, work: &Work<'_>, made: &Path) -> Result<(Agreement, Foreseen), Failure> {
        let mut model = work.start(&weighbridge::open(made)?)?;
        let mut reference = work.start(work.checkpoint)?;
        let result = evaluate(
            &mut model.predictor(),
            Some(&mut reference.predictor()),
            &self.tokens[self.cut..],
            &EvalOptions { length: LENGTH, chunks: None, begin: self.begin, threads: work.threads },
            &mut |so_far, total| {
                work.line.show(|| format!("[{}/{total}] chunks compared", so_far.chunks));
                work.flow()
            },
        );
        work.line.clear();
        work.interrupted()?;
        let result = result.map_err(weighbridge::Error::from)?;
        let logits = private(2 * eval::logits_bytes(model.shared().vocab()));
        let foreseen = together([model.foreseen(), reference.foreseen(), logits]);
        let cost = result.against.ok_or_else(|| Failure::Other("nothing was compared".to_owned()))?;
        Ok((cost, foreseen))
    }
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
        self.made?.cost.as_ref()
    }

    fn bytes(&self) -> u64 {
        self.made.map_or(self.found.bytes, |made| made.bytes)
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
        let report = self.made.map(|made| made.report);
        let resident = self.measured.json();
        let document =
            json::Compress::of(self.places, self.found, self.bytes(), report, self.cost(), resident);
        let deleted = self.made.map_or(&[][..], |made| &made.deleted);
        let passes = self.made.and_then(|made| made.passes);
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
            out.push_str(&left(&made.report.left));
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
            made.map(|made| continued(made.report).trim().to_owned()).filter(|line| !line.is_empty()),
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
        if let Some(passes) = made.and_then(|made| made.passes) {
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
