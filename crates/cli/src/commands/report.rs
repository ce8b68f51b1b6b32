//! `weighbridge report`: evaluations that were done before, side by side.

use std::io::Write as _;
use std::path::Path;

use weighbridge::tensor::{Bytes, Diagnostic};

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::json::{Estimate, Eval};
use crate::pages;
use crate::style;

/// By how much the perplexity of the other model may differ between machines, as a share: kernels round differently.
const SAME: f64 = 0.005;

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let page = args.page.output(false)?;
    let (mut all, mut problems): (Vec<(&Path, Eval)>, Vec<Diagnostic>) = (vec![], vec![]);
    for path in &args.files {
        match read(path) {
            Ok(document) => all.push((path, document)),
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(((first, wanted), others)) = all.split_first() {
        for (path, found) in others {
            for (what, wanted, found) in differences(wanted, found) {
                let (first, path) = (first.display(), path.display());
                problems.push(Diagnostic::new(format!("`{path}` {what} {found}, and `{first}` {wanted}")));
            }
        }
    }
    if let Some(last) = problems.pop() {
        let hint = "evaluate all models on the same text, with the same `--ctx`, `--chunks` and `--against`";
        problems.push(if last.hints.is_empty() { last.with_hint(hint.to_owned()) } else { last });
        return Err(Failure::Problems(problems.into_iter().collect()));
    }
    let mut all: Vec<Eval> = all.into_iter().map(|(_, document)| document).collect();
    all.sort_by_key(|of| of.size.bytes);
    if let Some(page) = &page {
        page.write(&pages::report_html(&all))?;
        if page.is_stdout() {
            return Ok(());
        }
    }
    Ok(std::io::stdout().lock().write_all(text(&all).as_bytes())?)
}

/// The document in the file at `path`.
fn read(path: &Path) -> Result<Eval, Diagnostic> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| Diagnostic::new(format!("cannot read `{shown}`: {e}")))?;
    let document: Eval = serde_json::from_slice(&bytes).map_err(|e| {
        Diagnostic::new(format!("`{shown}` is not what `eval --json` prints: {e}"))
            .with_hint("weighbridge eval MODEL -f TEXT --against OTHER --json > FILE.json".to_owned())
    })?;
    match (&document.text, &document.tasks[..]) {
        (None, []) => Err(Diagnostic::new(format!("`{shown}` has neither a text nor tasks"))),
        _ => Ok(document),
    }
}

/// A difference that keeps two evaluations from being compared: its name, and both values.
fn differences(a: &Eval, b: &Eval) -> Vec<(&'static str, String, String)> {
    let mut found = vec![];
    let mut differ = |what, a: String, b: String| {
        if a != b {
            found.push((what, a, b));
        }
    };
    let tasks =
        |of: &Eval| of.tasks.iter().map(|task| format!("`{}`", task.name)).collect::<Vec<_>>().join(", ");
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    differ("has the tasks", or_none(tasks(a)), or_none(tasks(b)));
    let (Some(one), Some(other)) = (&a.text, &b.text) else {
        let has = |of: &Eval| if of.text.is_some() { "a text" } else { "no text" };
        differ("has", has(a).to_owned(), has(b).to_owned());
        return found;
    };
    differ("has a text of", format!("{} tokens", one.all_tokens), format!("{} tokens", other.all_tokens));
    differ("has chunks of", format!("{} tokens", one.chunk_tokens), format!("{} tokens", other.chunk_tokens));
    differ("has scored", format!("{} chunks", one.chunks), format!("{} chunks", other.chunks));
    if let (Some(one), Some(other), []) = (&one.against, &other.against, &found[..]) {
        // The same text and the same model have the same perplexity, whatever their paths are.
        let (one, other) = (one.perplexity.pair().0, other.perplexity.pair().0);
        if (one / other - 1.0).abs() > SAME {
            let what = "was compared with a model of perplexity";
            found.push((what, format!("{one:.4}"), format!("{other:.4}")));
        }
    }
    found
}

/// A line for each model, the smallest first.
fn text(all: &[Eval]) -> String {
    let some = |of: Option<&Estimate>, digits, unit| of.map_or_else(String::new, |of| of.shown(digits, unit));
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|of| {
            let text = of.text.as_ref();
            let against = text.and_then(|text| text.against.as_ref());
            let mut row = vec![
                of.model.clone(),
                Bytes(of.size.bytes).to_string(),
                of.size.bits.map_or_else(String::new, |bits| format!("{bits:.2}")),
                some(text.map(|text| &text.perplexity), 3, 1.0),
                some(against.map(|against| &against.ratio), 4, 1.0),
                some(against.map(|against| &against.kl), 5, 1.0),
                some(against.map(|against| &against.top1), 2, 100.0),
            ];
            row.extend(of.tasks.iter().map(|task| task.acc.shown(2, 100.0)));
            row
        })
        .collect();
    let tasks: Vec<String> =
        all.iter().take(1).flat_map(|of| &of.tasks).map(|task| format!("{}, %", task.name)).collect();
    let mut heading = vec!["model", "size", "bits", "perplexity", "ratio", "KL divergence", "same token, %"];
    heading.extend(tasks.iter().map(String::as_str));
    let right: Vec<usize> = (1..heading.len()).collect();
    style::table(&heading, &rows, &right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(chunks: usize, perplexity: f64) -> Eval {
        let estimate = |value: f64| format!(r#"{{"value":{value},"standard_error":0.1}}"#);
        let (one, other) = (estimate(20.0), estimate(perplexity));
        let text = format!(
            r#"{{"model":"m","against":"r","size":{{"bytes":9,"parameters":8,"bits":9.0}},"against_size":null,"text":{{
            "path":"t","all_tokens":5000,"chunk_tokens":512,"chunks":{chunks},"tokens":255,"perplexity":{one},"by_chunk":[],
            "by_position":[],"against":{{"perplexity":{other},"ratio":{one},"kl":{one},"kl_median":0.1,"kl_99":null,"kl_max":null,
            "kl_histogram":[{{"from":0,"below":null,"tokens":255}}],"top1":{one},"top5":{one}}}}},
            "tasks":[],"gates":[],"passed":true,"resident":{{"baseline_bytes":null,"peak_bytes":null,"delta_bytes":null,
            "private_bytes":null,"foreseen_bytes":1,"mapped_bytes":0,"peak_of":null}},"seconds":1.0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn evaluations_of_other_texts_or_models_are_told_apart() {
        let names =
            |a: &Eval, b: &Eval| differences(a, b).into_iter().map(|(what, ..)| what).collect::<Vec<_>>();
        let first = document(8, 25.0);
        assert!(names(&first, &document(8, 25.05)).is_empty());
        assert_eq!(names(&first, &document(9, 25.0)), ["has scored"]);
        assert_eq!(names(&first, &document(8, 26.0)), ["was compared with a model of perplexity"]);
        assert_eq!(names(&first, &Eval { text: None, ..document(8, 25.0) }), ["has"]);
    }

    #[test]
    fn a_field_that_is_not_known_is_an_error() {
        let text = serde_json::to_string(&document(8, 25.0)).unwrap();
        assert!(serde_json::from_str::<Eval>(&text).is_ok());
        assert!(
            serde_json::from_str::<Eval>(&text.replacen("{\"model\"", "{\"more\":1,\"model\"", 1)).is_err()
        );
    }
}
