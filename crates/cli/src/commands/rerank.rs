//! `weighbridge rerank`: texts, the best for a query first.

use std::io::{BufWriter, Write};
use std::time::Instant;

use weighbridge::Reranker;
use weighbridge::tensor::counted;

use super::embed::{Texts, WINDOW, counted_were};
use crate::args::RerankArgs;
use crate::cache;
use crate::failure::Failure;
use crate::json::{self, EmbedNote, RerankText};
use crate::progress::{Line, note};
use crate::style::shown;

pub(crate) fn run(args: &RerankArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let mut texts = Texts::of_file(args.file.as_deref(), args.field.as_ref())?;
    let mut reranker = Reranker::open(&args.path, &args.runtime()?)?;
    cache::say_first(reranker.first_copy());
    if !args.json {
        for remark in reranker.notes() {
            note(&remark.to_string());
        }
    }
    let load_seconds = started.elapsed().as_secs_f64();
    let (line, running) = (Line::new(), Instant::now());
    let (mut results, mut tokens, mut cut) = (vec![], 0, 0);
    loop {
        let window = texts.next(WINDOW)?;
        if window.is_empty() {
            break;
        }
        let ranking = reranker.rank(&args.query, &window)?;
        tokens += ranking.tokens().iter().sum::<usize>();
        cut += ranking.left_out().iter().filter(|left_out| **left_out > 0).count();
        let first = results.len();
        let scored = window.into_iter().zip(ranking.scores()).enumerate();
        results.extend(scored.map(|(n, (text, score))| RerankText { index: first + n, score: *score, text }));
        line.show(|| counted(results.len(), "text").to_string());
    }
    line.clear();
    let (seconds, texts) = (running.elapsed().as_secs_f64(), results.len());
    // Equal ones stay in the order of the texts.
    results.sort_by(|a, b| b.score.total_cmp(&a.score));
    results.truncate(args.top.map_or(usize::MAX, |top| top as usize));
    if args.json {
        return Ok(json::print(&json::Rerank {
            model: shown(&args.path),
            family: reranker.model().family.name(),
            backend: reranker.backend(),
            query: &args.query,
            max_tokens: reranker.longest(),
            activation: reranker.activation().name(),
            texts,
            tokens,
            cut,
            results,
            notes: EmbedNote::all(reranker.notes()),
            load_seconds,
            seconds,
            tokens_per_second: json::rate(tokens, seconds),
        })?);
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    for result in results {
        serde_json::to_writer(&mut out, &result).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    out.flush()?;
    if cut > 0 {
        let most = reranker.longest();
        note(&format!("{} cut at {most} tokens with the query (`--max-tokens`)", counted_were(cut)));
    }
    Ok(())
}
