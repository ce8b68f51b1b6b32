//! `weighbridge compress`: the smallest loss at a given size.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use weighbridge::checkpoint::Io;
use weighbridge::convert::compress::{Choice, Compression, Measuring, Policy};
use weighbridge::convert::{
    Compensation, Conversion, ConvertOptions, ConvertReport, Imatrix, OutputFormat, Scaling,
};
use weighbridge::engine::Model;
use weighbridge::engine::calibrate::{
    CalibrateOptions, Calibration, Products, Progress, calibrate, logits_bytes, products, products_bytes,
};
use weighbridge::engine::eval::{self, Agreement, EvalOptions, evaluate};
use weighbridge::load::available_memory;
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

pub(crate) fn run(args: &CompressArgs) -> Result<(), Failure> {
    let Some((source, destination, target)) = args.what().filter(|_| !args.print_policy) else {
        return Ok(std::io::stdout().lock().write_all(Policy::DEFAULT.as_bytes())?);
    };
    let memory = Memory::watch();
    let page = args.page.output(args.write.force, args.json)?;
    let format = args.format(source, destination).map_err(Failure::Usage)?;
    if !args.plan {
        free(destination, args.write.force)?;
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
    let products = held.as_mut().and_then(|held| held.products.take());
    let compensation = products.map(|products| work.compensation(products, &options)).transpose()?;
    options.compensation = compensation.as_ref();
    (options.rules, options.preset) = compression.encoding(format);
    let layout = format.compressed_layout();
    let conversion =
        Conversion::new(&checkpoint, layout, format, &options).map_err(weighbridge::Error::from)?;
    if args.plan {
        let measured = memory.so_far(held.as_ref().map(|held| held.foreseen));
        return shown(args, page.as_ref(), (source, destination), &compression, &measured, None);
    }
    // Those of the tokenizer too.
    let bytes = conversion.bytes();
    let report = conversion.run(destination, &mut pool, &mut |progress| {
        line.show(|| converted(progress));
        work.flow()
    });
    line.clear();
    let report = report.map_err(weighbridge::Error::from)?;
    if args.delete_source {
        let again =
            Conversion::new(&checkpoint, layout, format, &options).map_err(weighbridge::Error::from)?;
        let verified = again.verify(&report.destination, &mut pool, &mut |progress| {
            line.show(|| format!("[{}/{}] compared {}", progress.index + 1, progress.total, progress.name));
            work.flow()
        });
        line.clear();
        verified.map_err(weighbridge::Error::from)?;
    }
    drop(pool);
    let writing =
        together([private(report.foreseen_memory), private(held.as_ref().map_or(0, |held| held.kept))]);
    let mut steps = vec![writing];
    steps.extend(held.as_ref().map(|held| held.foreseen));
    let cost = match held {
        Some(held) => {
            let (cost, foreseen) = held.cost(&work, &report.destination)?;
            steps.push(foreseen);
            Some(cost)
        }
        None => None,
    };
    let measured = memory.so_far(largest(steps));
    // Last of all: whatever failed before has left the source.
    let deleted = if args.delete_source { delete(&checkpoint)? } else { vec![] };
    let made = Made { report: &report, bytes, cost, deleted, scaling: scaling.as_ref() };
    shown(args, page.as_ref(), (source, destination), &compression, &measured, Some(&made))
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
}

/// Deletes the files that hold the weights of `checkpoint`, and nothing beside them.
fn delete(checkpoint: &Checkpoint) -> Result<Vec<PathBuf>, Failure> {
    checkpoint.unchanged().map_err(weighbridge::Error::from)?;
    let files = checkpoint.files().iter().filter_map(|file| file.location.path().map(Path::to_owned));
    let files: Vec<PathBuf> = files.collect();
    for file in &files {
        let failed = |e| Failure::Other(format!("cannot delete `{}`: {e}", file.display()));
        std::fs::remove_file(file).map_err(failed)?;
    }
    Ok(files)
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

    /// Factors `products`.
    fn compensation(
        &self,
        products: Vec<Products>,
        options: &ConvertOptions<'_>,
    ) -> Result<Compensation, Failure> {
        let ConvertOptions { imatrix, scaling, .. } = *options;
        let mut show = |done: usize, total: usize| {
            self.line.show(|| format!("[{}/{total}] factored", done + 1));
            self.flow()
        };
        let found = Compensation::of(self.checkpoint, products, imatrix, scaling, self.threads, &mut show);
        self.line.clear();
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

/// Checks that `limit`, or else the memory of the system, holds the products of `model` twice: sums become factors one by one, through
/// f64.
fn room_for_products(model: &Model, limit: Option<u64>) -> Result<(), Failure> {
    let wanted = products_bytes(model).saturating_mul(2);
    match limit.or_else(available_memory) {
        Some(available) if available < wanted => {
            let (wanted, available) = (Bytes(wanted), Bytes(available));
            Err(Failure::Usage(format!(
                "`--gptq` needs {wanted} beside the model, and {available} are available\nhint: leave out `--gptq`"
            )))
        }
        _ => Ok(()),
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
    /// How columns of inputs go together, if that is wanted.
    products: Option<Vec<Products>>,
    /// The tokens of the last quarter.
    tokens: Vec<u32>,
    begin: Option<u32>,
    /// The memory that calibrating was foreseen to take.
    foreseen: Foreseen,
    /// Bytes of products, which are kept until all is written.
    kept: u64,
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
        let cut = tokens.len() - tokens.len() / 4;
        let threads = work.threads;
        let options =
            CalibrateOptions { length: LENGTH, chunks: None, begin, disturbed: Some(LENGTH), threads };
        let mut show = |progress: Progress<'_>| {
            work.line.show(|| now(progress));
            work.flow()
        };
        if wanted.products {
            room_for_products(model.predictor().runner.model(), wanted.memory)?;
        }
        let kept = if wanted.products { products_bytes(model.shared()) } else { 0 };
        let logits = if wanted.calibration { logits_bytes(model.shared().vocab(), &options) } else { 0 };
        let foreseen = together([model.foreseen(), private(logits.max(kept))]);
        let mut predictor = model.predictor();
        let calibration = wanted
            .calibration
            .then(|| calibrate(&mut predictor, &tokens[..cut], &options, &mut show))
            .transpose()
            .map_err(weighbridge::Error::from)?;
        work.interrupted()?;
        let products = wanted
            .products
            .then(|| products(&mut predictor, &tokens[..cut], &options, &mut show))
            .transpose()
            .map_err(weighbridge::Error::from)?;
        work.line.clear();
        work.interrupted()?;
        let (name, tokens) = (path.display().to_string(), tokens[cut..].to_vec());
        Ok(Held { name, calibration, products, tokens, begin, foreseen, kept })
    }

    /// How far the model at `made` is from the source, on the tokens that were held back, and the memory that both were foreseen to
    /// take.
    fn cost(&self, work: &Work<'_>, made: &Path) -> Result<(Agreement, Foreseen), Failure> {
        let mut model = work.start(&weighbridge::open(made)?)?;
        let mut reference = work.start(work.checkpoint)?;
        let result = evaluate(
            &mut model.predictor(),
            Some(&mut reference.predictor()),
            &self.tokens,
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

fn shown(
    args: &CompressArgs,
    page: Option<&Output>,
    (source, destination): (&Path, &Path),
    found: &Compression,
    measured: &Measured,
    made: Option<&Made<'_>>,
) -> Result<(), Failure> {
    let (report, cost) = (made.map(|made| made.report), made.and_then(|made| made.cost.as_ref()));
    let bytes = made.map_or(found.bytes, |made| made.bytes);
    let facts = facts(args, found, bytes, made);
    if let Some(page) = page {
        let names = [source, destination].map(|path| path.display().to_string());
        let facts = facts.clone();
        page.write(&pages::compress_html(&CompressPage { names, found, facts, cost }))?;
    }
    if args.json {
        let document = json::Compress::of((source, destination), found, bytes, report, cost, measured.json());
        let deleted = made.map_or(&[][..], |made| &made.deleted);
        let document = document.made_by(args.gptq, made.and_then(|made| made.scaling), deleted);
        return Ok(json::print(&document)?);
    }
    if page.is_some_and(Output::is_stdout) {
        return Ok(());
    }
    let mut out = style::heading(&format!("{} → {}", source.display(), destination.display()));
    // Writing to a `String` cannot fail.
    let _ = writeln!(out);
    for fact in facts {
        let _ = writeln!(out, "  {fact}");
    }
    out.push_str(&measured.indented());
    out.push_str(&table(&found.choices));
    if let Some(made) = made {
        out.push_str(&left(&made.report.left));
        for file in &made.deleted {
            let _ = writeln!(out, "  deleted {}", file.display());
        }
    }
    Ok(std::io::stdout().lock().write_all(out.as_bytes())?)
}

/// Lines on the whole: the size, and what it cost.
fn facts(args: &CompressArgs, found: &Compression, bytes: u64, made: Option<&Made<'_>>) -> Vec<String> {
    let bits = bytes as f64 * 8.0 / found.elements.max(1) as f64;
    let written = if made.is_some() { "" } else { "; nothing is written" };
    let (size, limit) = (Bytes(bytes), Bytes(found.limit));
    let mut facts = vec![format!("{size} of at most {limit} ({bits:.2} bits a weight){written}")];
    facts.extend(made.map(|made| continued(made.report).trim().to_owned()).filter(|line| !line.is_empty()));
    facts.push(if found.is_divergence {
        let by = if args.gptq { ", by rounding alone" } else { "" };
        format!("expected: a KL divergence of {:.4} nats from the source{by}", found.cost)
    } else {
        "note: it is not known how much predictions depend on each matrix: all count alike (`weighbridge calibrate`)"
            .to_owned()
    });
    if let Some(cost) = made.and_then(|made| made.cost.as_ref()) {
        facts.push(format!(
            "measured on the last quarter of the text: KL divergence {}, same most likely token {} %, perplexity ratio {}",
            interval(pair(&cost.kl), 5, 1.0),
            interval(pair(&cost.top1), 1, 100.0),
            interval(cost.ratio(), 4, 1.0),
        ));
    }
    facts.extend(made.and_then(|made| made.scaling).map(|scaling| scaled(scaling).trim().to_owned()));
    facts
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
    format!(
        "  awq: {} of {norms} norms divided: {gained}; no norm feeds {}\n",
        shares.len(),
        kinds.join(", ")
    )
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
