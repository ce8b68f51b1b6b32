//! `weighbridge eval`: how well a model predicts a text, and how far it is from another.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use weighbridge::engine::eval::{Agreement, EvalOptions, Evaluation, Mean, evaluate};
use weighbridge::engine::text::{EncodeOptions, Tokenizer};
use weighbridge::tensor::counted;
use weighbridge::{Pool, Runtime, RuntimeOptions};

use super::gate::{Gates, Verdict};
use crate::args::{CacheArg, EvalArgs};
use crate::failure::Failure;
use crate::json::{self, real};
use crate::progress::Line;
use crate::style;

/// Tokens of a chunk where nobody says, as in llama-perplexity.
pub(super) const LENGTH: usize = 512;

/// Standard errors on each side of a mean that 95 % of means are within.
const CONFIDENCE: f64 = 1.96;

pub(crate) fn run(args: &EvalArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let text = text(&args.file)?;
    let gates = args.gate.as_deref().map(|path| Gates::read(path, args.against.is_some())).transpose()?;
    let mut options = args.model.options(CacheArg::Read).map_err(Failure::Usage)?;
    let length = *options.context.get_or_insert(LENGTH);
    if length < 16 {
        return Err(Failure::Usage("a chunk has at least 16 tokens: `--ctx 16`".to_owned()));
    }
    let mut model = Runtime::start(args.model.path(), &options)?;
    crate::progress::streaming(&model);
    // Not beside what is measured.
    model.build_copy()?;
    let (tokens, begin) = tokens(&model, &text)?;
    let mut reference = match &args.against {
        Some(path) => Some(other(path, &options, &text, &tokens)?),
        None => None,
    };
    let threads = options.threads.unwrap_or_else(Pool::available);
    let line = Line::new();
    let result = evaluate(
        &mut model.predictor(),
        reference.as_mut().map(Runtime::predictor).as_mut(),
        &tokens,
        &EvalOptions { length, chunks: args.chunks, begin, threads },
        &mut |so_far, total| {
            line.show(|| format!("[{}/{total}] perplexity {:.4}", so_far.chunks, so_far.perplexity().0));
            ControlFlow::Continue(())
        },
    );
    line.clear();
    let result = result.map_err(weighbridge::Error::from)?;
    let verdicts = gates.map_or_else(Vec::new, |gates| gates.judge(&result));
    let passed = verdicts.iter().all(Verdict::passed);
    if args.json {
        json::print(&json::Eval {
            model: args.model.path().display().to_string(),
            text: args.file.display().to_string(),
            text_tokens: tokens.len(),
            chunk_tokens: length,
            chunks: result.chunks,
            tokens: result.nll.count(),
            perplexity: result.perplexity().into(),
            against: args.against.as_deref().zip(result.against.as_ref()).map(|(path, a)| against(path, a)),
            gates: verdicts.iter().map(Verdict::json).collect(),
            passed,
            seconds: started.elapsed().as_secs_f64(),
        })?;
    } else {
        let mut out = shown(args, &result, length);
        for verdict in &verdicts {
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "  {verdict}");
        }
        std::io::stdout().lock().write_all(out.as_bytes())?;
    }
    if passed { Ok(()) } else { Err(Failure::Found) }
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

/// The tokens of the text, the one that begins texts included, and that one.
pub(super) fn tokens(runtime: &Runtime, text: &str) -> Result<(Vec<u32>, Option<u32>), Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::Other(e.to_string());
    let tokenizer: &Tokenizer = runtime.tokenizer().map_err(|e| failed(&e.diagnostics()))?;
    let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let options = EncodeOptions { add_special: false, parse_special: false };
    let encoded = tokenizer.encode(text, options).map_err(|e| failed(&e.diagnostics()))?;
    Ok((begin.into_iter().chain(encoded).collect(), begin))
}

/// The model that is compared with, if it has the same tokens.
fn other(path: &Path, options: &RuntimeOptions, text: &str, wanted: &[u32]) -> Result<Runtime, Failure> {
    // It is run as it is stored.
    let options = RuntimeOptions { encoding: weighbridge::planner::Encoding::default(), ..options.clone() };
    let runtime = Runtime::start(path, &options)?;
    crate::progress::streaming(&runtime);
    let (found, _) = tokens(&runtime, text)?;
    if found == wanted {
        return Ok(runtime);
    }
    let same = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    Err(Failure::Usage(format!(
        "the tokenizer of `{}` gives other tokens for this text, from token {same} on, so the models cannot be compared",
        path.display()
    )))
}

fn against(path: &Path, agreement: &Agreement) -> json::EvalAgainst {
    json::EvalAgainst {
        model: path.display().to_string(),
        perplexity: agreement.perplexity().into(),
        ratio: agreement.ratio().into(),
        kl: pair(&agreement.kl).into(),
        kl_median: real(agreement.quantile(500).into()),
        kl_99: real(agreement.quantile(990).into()),
        kl_max: real(agreement.quantile(1000).into()),
        top1: pair(&agreement.top1).into(),
        top5: pair(&agreement.top5).into(),
    }
}

pub(super) fn pair(mean: &Mean) -> (f64, f64) {
    (mean.mean(), mean.error())
}

/// `15.92 ± 0.71`.
pub(super) fn interval((value, error): (f64, f64), digits: usize, unit: f64) -> String {
    format!("{:.digits$} ± {:.digits$}", value * unit, error * unit * CONFIDENCE)
}

fn shown(args: &EvalArgs, result: &Evaluation, length: usize) -> String {
    let mut out = format!(
        "{}\n  {} of {} scored, in {} of {length}\n  perplexity {}\n",
        style::heading(&args.model.path().display().to_string()),
        counted(usize::try_from(result.nll.count()).unwrap_or(usize::MAX), "token"),
        args.file.display(),
        counted(result.chunks, "chunk"),
        interval(result.perplexity(), 4, 1.0),
    );
    if let (Some(path), Some(agreement)) = (&args.against, &result.against) {
        // Writing to a `String` cannot fail.
        let _ = write!(
            out,
            "{}\n  perplexity {}, ratio {}\n  KL divergence {}; median {:.5}, 99 % {:.4}, largest {:.3}\n  \
             same most likely token {} %, {} % of the five most likely\n",
            style::heading(&format!("against {}", path.display())),
            interval(agreement.perplexity(), 4, 1.0),
            interval(agreement.ratio(), 5, 1.0),
            interval(pair(&agreement.kl), 6, 1.0),
            agreement.quantile(500),
            agreement.quantile(990),
            agreement.quantile(1000),
            interval(pair(&agreement.top1), 2, 100.0),
            interval(pair(&agreement.top5), 2, 100.0),
        );
    }
    out
}
