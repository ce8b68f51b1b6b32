//! The page of `eval`: how well a model predicts a text and answers questions, and how far it is from another.

use maud::{Markup, html};
use weighbridge::tensor::{Bytes, counted};

use super::axis::Axis;
use super::html::{Cell, Heading, numbers, page, table, words};
use super::plot::{Column, Line, Point, behind, columns, figure, lines, points};
use super::text::{NAME, shown};
use crate::json::{Estimate, Eval, EvalAgainst, EvalPart, EvalTask, EvalText, Gate, KlBin, ModelSize};

/// Writes the page.
pub(crate) fn html(of: &Eval) -> String {
    let name = shown(&of.model, NAME);
    let against = of.text.as_ref().and_then(|text| text.against.as_ref());
    let body = html! {
        h1 { (name) }
        @if let Some(other) = &of.against { p class="faint" { "against " (shown(other, NAME)) } }
        p { (size(&of.size)) @if let Some(other) = &of.against_size { ", against " (size(other)) } }
        @if let Some(text) = &of.text {
            p { (scored(text)) }
            (figures(text))
        }
        @if let Some(against) = against {
            h2 { "agreement" }
            (agreement(&[(String::new(), against)]))
            h2 { "KL divergence of single tokens" }
            (divergences(&against.kl_histogram))
        }
        @if let Some(text) = &of.text {
            (parts("chunks of the text", "chunk", &text.by_chunk))
            (parts("positions in the chunk", "positions", &text.by_position))
        }
        (tasks(&[(String::new(), of)]))
        (gates(&of.gates))
    };
    page(&name, &body, &[])
}

/// `93.8 MiB, 5.85 bits a weight`.
pub(super) fn size(size: &ModelSize) -> String {
    let bits = size.bits.map_or_else(String::new, |bits| format!(", {bits:.2} bits a weight"));
    format!("{}{bits}", Bytes(size.bytes))
}

/// The scores of a text.
pub(super) fn scored(text: &EvalText) -> String {
    format!(
        "{} of {} scored, in {} of {}",
        counted(usize::try_from(text.tokens).unwrap_or(usize::MAX), "token"),
        shown(&text.path, NAME),
        counted(text.chunks, "chunk"),
        text.chunk_tokens,
    )
}

/// A mean with its interval; it sorts by the mean.
pub(super) fn estimate(of: &Estimate, digits: usize, unit: f64) -> Cell {
    Cell::number(of.shown(digits, unit), of.pair().0)
}

/// A number that may be missing.
pub(super) fn real(of: Option<f64>, digits: usize) -> Cell {
    of.map_or_else(|| Cell::text(""), |value| Cell::number(format!("{value:.digits$}"), value))
}

fn figures(text: &EvalText) -> Markup {
    let row = |name: &str, cell: Cell, means: &str| vec![Cell::text(name), cell, Cell::text(means)];
    let mut rows = vec![row("perplexity", estimate(&text.perplexity, 4, 1.0), "smaller is better")];
    if let Some(of) = &text.against {
        let nats = "nats; 0 if nothing changed";
        rows.extend([
            row("perplexity of the other model", estimate(&of.perplexity, 4, 1.0), ""),
            row("ratio", estimate(&of.ratio, 5, 1.0), "1 if nothing changed"),
            row("KL divergence", estimate(&of.kl, 6, 1.0), nats),
            row("KL divergence, median", real(of.kl_median, 5), "of the divergences of single tokens"),
            row("KL divergence, 99 %", real(of.kl_99, 4), "of the tokens do not exceed this"),
            row("KL divergence, largest", real(of.kl_max, 3), ""),
            row("same most likely token", estimate(&of.top1, 2, 100.0), "% of the tokens"),
            row("of the five most likely", estimate(&of.top5, 2, 100.0), "% in common"),
        ]);
    }
    html! {
        h2 { "figures" }
        (table("", &[words("figure"), numbers("value"), words("")], &rows))
        p class="faint" { "± is half of the 95 % confidence interval, with tokens taken as independent" }
    }
}

/// How often models continue alike, each model with its name.
pub(super) fn agreement(all: &[(String, &EvalAgainst)]) -> Markup {
    let line = |name: &str, what: &str, colour, of: &Estimate| Line {
        label: if name.is_empty() { what.to_owned() } else { format!("{name}: {what}") },
        colour,
        value: of.ends(),
        shown: format!("{} %", of.shown(2, 100.0)),
    };
    let drawn: Vec<Line> = all
        .iter()
        .flat_map(|(name, of)| {
            [line(name, "same most likely", 0, &of.top1), line(name, "of the five most likely", 2, &of.top5)]
        })
        .collect();
    let axis = Axis::shares(drawn.iter().flat_map(|line| [line.value.0, line.value.1]));
    figure(
        "share of the tokens for which both models agree, with the 95 % confidence interval",
        &lines("agreement of the most likely tokens", &axis, &drawn),
    )
}

/// The tokens by their divergence.
fn divergences(bins: &[KlBin]) -> Markup {
    let all = bins.iter().map(|bin| bin.tokens).sum::<u64>().max(1) as f64;
    let range = |bin: &KlBin| match bin.below {
        Some(below) => format!("{} to {below}", bin.from),
        None => format!("{} and more", bin.from),
    };
    let drawn: Vec<Column> = bins
        .iter()
        .map(|bin| Column {
            height: 100.0 * bin.tokens as f64 / all,
            tip: format!(
                "{} tokens, {:.2} %: {} nats",
                bin.tokens,
                100.0 * bin.tokens as f64 / all,
                range(bin)
            ),
        })
        .collect();
    // Each bin begins at its least divergence; powers of ten are said.
    let is_power = |from: f64| from > 0.0 && (from.log10() - from.log10().round()).abs() < 1e-9;
    let marks: Vec<(usize, String)> = bins
        .iter()
        .enumerate()
        .filter(|(_, bin)| is_power(bin.from))
        .map(|(at, bin)| (at, bin.from.to_string()))
        .collect();
    let marks: Vec<(usize, &str)> = marks.iter().map(|(at, text)| (*at, text.as_str())).collect();
    let rows: Vec<Vec<Cell>> = bins
        .iter()
        .map(|bin| {
            let share = bin.tokens as f64 / all;
            vec![
                Cell::number(range(bin), bin.from),
                Cell::number(bin.tokens, bin.tokens as f64),
                Cell::number(format!("{:.2} %", 100.0 * share), share),
            ]
        })
        .collect();
    let axis = Axis::from_zero(drawn.iter().map(|column| column.height));
    let headings = [numbers("nats"), numbers("tokens"), numbers("share")];
    html! {
        (figure("percent of the tokens, by divergence in nats", &columns("tokens by divergence", &axis, &drawn, &marks)))
        (behind("the figures", &table("", &headings, &rows)))
    }
}

/// Divergence, agreement and perplexity of parts of the text.
fn parts(title: &str, what: &str, parts: &[EvalPart]) -> Markup {
    let label = |n: usize, part: &EvalPart| {
        if what == "chunk" { (n + 1).to_string() } else { format!("{}–{}", part.first, part.last) }
    };
    let middle = |n: usize, part: &EvalPart| {
        if what == "chunk" { (n + 1) as f64 } else { f64::midpoint(part.first as f64, part.last as f64) }
    };
    let plot = |name: &str,
                digits: usize,
                unit: f64,
                from_zero: bool,
                of: &dyn Fn(&EvalPart) -> Option<Estimate>| {
        let drawn: Vec<Point> = parts
            .iter()
            .enumerate()
            .filter_map(|(n, part)| {
                let estimate = of(part)?;
                let (y, low, high) = estimate.ends();
                Some(Point {
                    x: middle(n, part),
                    y: (y * unit, low * unit, high * unit),
                    tip: format!("{what} {}: {name} {}", label(n, part), estimate.shown(digits, unit)),
                    label: None,
                    is_hollow: false,
                })
            })
            .collect();
        let ends = drawn.iter().flat_map(|point| [point.y.1, point.y.2]);
        let y = if from_zero { Axis::from_zero(ends) } else { Axis::linear(ends) };
        let x = Axis::linear(drawn.iter().map(|point| point.x));
        let caption = format!("{name} by {what}, with the 95 % confidence interval");
        html! { @if !drawn.is_empty() { (figure(&caption, &points(&caption, (&x, &y), &drawn))) } }
    };
    let has_other = parts.iter().any(|part| part.kl.is_some());
    let mut headings = vec![
        numbers(if what == "chunk" { "chunk" } else { "positions" }),
        numbers("tokens"),
        numbers("perplexity"),
    ];
    if has_other {
        headings.extend([numbers("KL divergence"), numbers("same most likely, %")]);
    }
    let row = |(n, part): (usize, &EvalPart)| {
        let start = [
            Cell::number(label(n, part), middle(n, part)),
            Cell::number(part.tokens, part.tokens as f64),
            estimate(&part.perplexity, 3, 1.0),
        ];
        let against = part.kl.iter().map(|kl| estimate(kl, 5, 1.0));
        start
            .into_iter()
            .chain(against)
            .chain(part.top1.iter().map(|top1| estimate(top1, 2, 100.0)))
            .collect()
    };
    let rows: Vec<Vec<Cell>> = parts.iter().enumerate().map(row).collect();
    html! {
        @if parts.len() > 1 {
            h2 { (title) }
            (plot("KL divergence", 5, 1.0, true, &|part| part.kl))
            (plot("same most likely token, %,", 2, 100.0, false, &|part| part.top1))
            (plot("perplexity", 3, 1.0, false, &|part| Some(part.perplexity)))
            (behind("the figures", &table("sortable", &headings, &rows)))
        }
    }
}

/// The columns of tasks.
const TASK: [Heading; 8] = [
    words("task"),
    words("data set"),
    numbers("questions"),
    numbers("acc, %"),
    numbers("acc_norm, %"),
    numbers("the other's acc, %"),
    numbers("the other's acc_norm, %"),
    numbers("same choice, %"),
];

/// How each model answers each task.
pub(super) fn tasks(all: &[(String, &Eval)]) -> Markup {
    let each = || all.iter().flat_map(|(name, of)| of.tasks.iter().map(move |task| (name, task)));
    let title = |name: &str, task: &EvalTask| {
        if name.is_empty() { task.name.clone() } else { format!("{name}: {}", task.name) }
    };
    let line = |what: String, colour, of: &Estimate| Line {
        label: what,
        colour,
        value: of.ends(),
        shown: format!("{} %", of.shown(2, 100.0)),
    };
    let drawn: Vec<Line> = each()
        .flat_map(|(name, task)| {
            let of = |what: &str| format!("{}, {what}", title(name, task));
            let mut drawn = vec![line(of("acc"), 0, &task.acc)];
            drawn.extend(task.acc_norm.as_ref().map(|norm| line(of("acc_norm"), 4, norm)));
            let same = task.against.as_ref().map(|other| line(of("same choice"), 2, &other.same));
            drawn.extend(same);
            drawn
        })
        .collect();
    let some = |of: Option<&Estimate>| of.map_or_else(|| Cell::text(""), |of| estimate(of, 2, 100.0));
    let row = |(name, task): (&String, &EvalTask)| {
        let other = task.against.as_ref();
        vec![
            Cell::text(&title(name, task)),
            Cell::text(task.kind.name()),
            Cell::number(task.questions, task.questions as f64),
            estimate(&task.acc, 2, 100.0),
            some(task.acc_norm.as_ref()),
            some(other.map(|other| &other.acc)),
            some(other.and_then(|other| other.acc_norm.as_ref())),
            some(other.map(|other| &other.same)),
        ]
    };
    let rows: Vec<Vec<Cell>> = each().map(row).collect();
    let axis = Axis::shares([0.0]);
    html! {
        @if !rows.is_empty() {
            h2 { "multiple-choice tasks" }
            (figure("share of the questions, with the 95 % confidence interval", &lines("accuracy by task", &axis, &drawn)))
            (table("sortable wide", &TASK, &rows))
        }
    }
}

fn gates(gates: &[Gate]) -> Markup {
    html! {
        @if !gates.is_empty() {
            h2 { "gates" }
            div class="scroll" {
                table {
                    thead { tr { th scope="col" { "figure" } th scope="col" class="number" { "found" } th scope="col" class="number" { "limit" } th scope="col" { "" } } }
                    tbody {
                        @for gate in gates {
                            @let found = gate.found.unwrap_or(f64::NAN);
                            tr {
                                td { (shown(&gate.name, NAME)) }
                                td class="number" data-value=(found.to_string()) { (format!("{found:.6}")) }
                                td class="number" data-value=(gate.limit.to_string()) { (if gate.is_most { "at most " } else { "at least " }) (gate.limit.to_string()) }
                                td class=[(!gate.passed).then_some("missed")] { (if gate.passed { "passed" } else { "missed" }) }
                            }
                        }
                    }
                }
            }
        }
    }
}
