//! `weighbridge eval`: how well a model predicts a text and answers questions, and how far it is from another.

pub(super) mod tasks;

use std::io::{Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use weighbridge::engine::eval::{
    Agreement, EncodedTask, EvalOptions, Evaluation, Mean, Part, Task, evaluate, logits_bytes,
};
use weighbridge::runtime::Foreseen;
use weighbridge::tensor::counted;
use weighbridge::{Pool, Runtime, RuntimeOptions, TensorEntry};

use self::tasks::Answered;
use super::gate::{Gates, Scope, Verdict};
use crate::args::{CacheArg, EvalArgs};
use crate::estimate::interval;
use crate::failure::Failure;
use crate::json::{self, real};
use crate::memory::Memory;
use crate::pages;
use crate::progress::{self, Line};
use crate::style;
use crate::style::shown;

/// Tokens of a chunk where nobody says, as in llama-perplexity.
pub(super) const LENGTH: usize = 512;

/// Where ranges of divergences meet, in nats.
const KL_EDGES: [f64; 16] =
    [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

pub(crate) fn run(args: &EvalArgs) -> Result<(), Failure> {
    let (started, memory) = (Instant::now(), Memory::watch());
    let page = args.page.output(args.json)?;
    let text = args.file.as_deref().map(text).transpose()?;
    let tasks = tasks::read(&args.task)?;
    let scope = Scope { text: text.is_some(), compared: args.against.is_some(), tasks: &tasks };
    let gates = args.gate.as_deref().map(|path| Gates::read(path, &scope)).transpose()?;
    let mut options = args.model.options(CacheArg::Read)?;
    options.kv_budget = args.budget.positions();
    let length = options.context.unwrap_or(LENGTH);
    if text.is_some() && length < 16 {
        return Err(Failure::Usage("a chunk has at least 16 tokens: `--ctx 16`".to_owned()));
    }
    if options.kv_budget.is_some() && !tasks.is_empty() {
        return Err(Failure::Usage(
            "--kv-budget is for a text: questions are answered with all positions".to_owned(),
        ));
    }
    let chunk = text.is_some().then_some(length);
    let mut model = Side::start(args.model.path(), &options, chunk, &tasks)?;
    // Not beside what is measured.
    model.runtime.build_copy()?;
    // The other model is run as it is stored, with all positions.
    let encoding = weighbridge::planner::Encoding::default();
    let stored = RuntimeOptions { encoding, loras: vec![], kv_budget: None, ..options.clone() };
    let against = args.against.as_deref();
    let mut reference = against.map(|path| Side::start(path, &stored, chunk, &tasks)).transpose()?;
    let predicted = match &text {
        Some(text) => Some(predicted(args, text, &mut model, reference.as_mut(), (length, &options))?),
        None => None,
    };
    let answered = tasks::answered(&tasks, &mut model, reference.as_mut())?;
    let result = predicted.as_ref().map(|predicted| &predicted.result);
    let verdicts = gates.map_or_else(Vec::new, |gates| gates.judge(result, &answered));
    let passed = verdicts.iter().all(Verdict::passed);
    let sides = || [Some(&model), reference.as_ref()].into_iter().flatten();
    let measured = memory.so_far(Some(sides().map(|side| side.foreseen(text.is_some())).sum()));
    let document = json::Eval {
        model: shown(args.model.path()),
        against: against.map(shown),
        size: model.size,
        against_size: reference.as_ref().map(|reference| reference.size),
        text: predicted.as_ref().map(Predicted::json),
        tasks: answered.iter().map(Answered::json).collect(),
        gates: verdicts.iter().map(Verdict::json).collect(),
        passed,
        resident: measured.json(),
        seconds: started.elapsed().as_secs_f64(),
    };
    if let Some(page) = &page {
        page.write(&pages::eval_html(&document))?;
    }
    if args.json {
        json::print(&document)?;
    } else if !page.is_some_and(|page| page.is_stdout()) {
        let mut lines = vec![style::heading(&document.model)];
        lines.extend(predicted.as_ref().map(Predicted::shown));
        lines.extend(answered.iter().map(Answered::shown));
        if let Some(path) = against {
            lines.push(style::heading(&format!("against {}", shown(path))));
            lines.extend(predicted.as_ref().and_then(Predicted::shown_against));
            lines.extend(answered.iter().filter_map(Answered::shown_against));
        }
        lines.extend(verdicts.iter().map(|verdict| format!("  {verdict}")));
        lines.push(measured.indented());
        std::io::stdout().lock().write_all(lines.join("\n").as_bytes())?;
    }
    if passed { Ok(()) } else { Err(Failure::Found) }
}

/// A model, and the tasks in its tokens.
struct Side {
    runtime: Runtime,
    tasks: Vec<EncodedTask>,
    size: json::ModelSize,
}

impl Side {
    /// Starts a model with room for a chunk of `chunk` tokens and for the questions. Problems of the questions come first.
    fn start(
        path: &Path,
        options: &RuntimeOptions,
        chunk: Option<usize>,
        tasks: &[Task],
    ) -> Result<Side, Failure> {
        let checkpoint = weighbridge::open_with(path, &options.open)?;
        let tasks =
            if tasks.is_empty() { vec![] } else { tasks::encoded(tasks, &checkpoint, options.context)? };
        let context = tasks.iter().map(EncodedTask::positions).chain(chunk).max();
        let options = RuntimeOptions { context, ..options.clone() };
        let runtime = Runtime::start_from(checkpoint, &options)?;
        progress::streaming(&runtime);
        let is_encoded = !options.encoding.rules.is_empty() || options.encoding.preset.is_some();
        let size = size(&runtime, is_encoded);
        Ok(Side { runtime, tasks, size })
    }

    /// The memory that it was foreseen to take, with logits to compare if it predicts a text.
    fn foreseen(&self, is_predicting: bool) -> Foreseen {
        let vocab = self.runtime.shared().vocab();
        let logits = if is_predicting { logits_bytes(vocab) } else { 0 };
        self.runtime.foreseen() + Foreseen::of_private(logits)
    }
}

/// The size of a model: of its files, or of its parameters if they were encoded during the load.
fn size(runtime: &Runtime, is_encoded: bool) -> json::ModelSize {
    let (checkpoint, report) = (runtime.checkpoint(), runtime.report());
    let parameters = checkpoint.entries().iter().filter_map(|e: &TensorEntry| e.shape.elements()).sum();
    let bytes = if is_encoded {
        report.bytes_borrowed + report.owned_bytes
    } else {
        checkpoint.files().iter().map(|file| file.len).sum()
    };
    json::ModelSize { bytes, parameters, bits: real(bytes as f64 * 8.0 / parameters as f64) }
}

/// How a text was predicted.
struct Predicted<'a> {
    path: &'a Path,
    tokens: usize,
    /// Tokens of a chunk.
    length: usize,
    result: Evaluation,
}

fn predicted<'a>(
    args: &'a EvalArgs,
    text: &str,
    model: &mut Side,
    reference: Option<&mut Side>,
    (length, options): (usize, &RuntimeOptions),
) -> Result<Predicted<'a>, Failure> {
    let passage = model.runtime.passage(text)?;
    let mut reference = reference.map(|side| &mut side.runtime);
    if let Some(reference) = &reference {
        reference.check_passage(text, &passage)?;
    }
    let threads = options.threads.unwrap_or_else(Pool::available);
    let line = Line::new();
    let result = evaluate(
        &mut model.runtime.predictor(),
        reference.as_mut().map(|reference| reference.predictor()).as_mut(),
        &passage.tokens,
        &EvalOptions { length, chunks: args.chunks, begin: passage.begin, threads },
        &mut |so_far, total| {
            line.show(|| format!("[{}/{total}] perplexity {:.4}", so_far.chunks, so_far.perplexity().0));
            ControlFlow::Continue(())
        },
    );
    line.clear();
    Ok(Predicted {
        path: args.file.as_deref().unwrap_or(Path::new("-")),
        tokens: passage.tokens.len(),
        length,
        result: result.map_err(weighbridge::Error::from)?,
    })
}

pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let (shown, bytes) = if path == Path::new("-") {
        let mut bytes = vec![];
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        ("standard input".to_owned(), bytes)
    } else {
        let shown = format!("`{}`", path.display());
        let bytes = std::fs::read(path).map_err(|e| Failure::Other(format!("cannot read {shown}: {e}")))?;
        (shown, bytes)
    };
    String::from_utf8(bytes).map_err(|_| Failure::Other(format!("{shown} is not UTF-8")))
}

pub(super) fn pair(mean: &Mean) -> (f64, f64) {
    (mean.mean(), mean.error())
}

fn against(agreement: &Agreement) -> json::EvalAgainst {
    json::EvalAgainst {
        perplexity: agreement.perplexity().into(),
        ratio: agreement.ratio().into(),
        kl: pair(&agreement.kl).into(),
        kl_median: real(agreement.quantile(500).into()),
        kl_99: real(agreement.quantile(990).into()),
        kl_max: real(agreement.quantile(1000).into()),
        kl_histogram: histogram(agreement),
        top1: pair(&agreement.top1).into(),
        top5: pair(&agreement.top5).into(),
    }
}

fn histogram(agreement: &Agreement) -> Vec<json::KlBin> {
    let edges = || KL_EDGES.iter().copied();
    let (from, below) = ([0.0].into_iter().chain(edges()), edges().map(Some).chain([None]));
    let counts = agreement.histogram(&KL_EDGES).into_iter();
    from.zip(below).zip(counts).map(|((from, below), tokens)| json::KlBin { from, below, tokens }).collect()
}

fn part(part: &Part) -> json::EvalPart {
    let against = |mean: &Mean| (mean.count() > 0).then(|| pair(mean).into());
    json::EvalPart {
        first: part.positions.start,
        last: part.positions.end.saturating_sub(1),
        tokens: part.nll.count(),
        perplexity: part.perplexity().into(),
        kl: against(&part.kl),
        top1: against(&part.top1),
    }
}

impl Predicted<'_> {
    fn json(&self) -> json::EvalText {
        json::EvalText {
            path: shown(self.path),
            all_tokens: self.tokens,
            chunk_tokens: self.length,
            chunks: self.result.chunks,
            tokens: self.result.nll.count(),
            perplexity: self.result.perplexity().into(),
            by_chunk: self.result.parts.chunks.iter().map(part).collect(),
            by_position: self.result.parts.positions.iter().map(part).collect(),
            against: self.result.against.as_ref().map(against),
        }
    }

    fn shown(&self) -> String {
        format!(
            "  {} of {} scored, in {} of {}\n  perplexity {}",
            counted(usize::try_from(self.result.nll.count()).unwrap_or(usize::MAX), "token"),
            shown(self.path),
            counted(self.result.chunks, "chunk"),
            self.length,
            interval(self.result.perplexity(), 4, 1.0),
        )
    }

    fn shown_against(&self) -> Option<String> {
        let agreement = self.result.against.as_ref()?;
        Some(format!(
            "  perplexity {}, ratio {}\n  KL divergence {}; median {:.5}, 99 % {:.4}, largest {:.3}\n  \
             same most likely token {} %, {} % of the five most likely",
            interval(agreement.perplexity(), 4, 1.0),
            interval(agreement.ratio(), 5, 1.0),
            interval(pair(&agreement.kl), 6, 1.0),
            agreement.quantile(500),
            agreement.quantile(990),
            agreement.quantile(1000),
            interval(pair(&agreement.top1), 2, 100.0),
            interval(pair(&agreement.top5), 2, 100.0),
        ))
    }
}
