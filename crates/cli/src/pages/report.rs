//! The page of `report`: models by their size, with what each loses.

use maud::{Markup, html};

use super::axis::Axis;
use super::eval::{agreement, estimate, real, scored, size, tasks};
use super::html::{Cell, Heading, numbers, page, table, words};
use super::plot::{Line, Point, figure, lines, points};
use super::text::{NAME, many, shown};
use crate::json::{Estimate, Eval, EvalAgainst, ModelSize};

/// The columns of models.
const HEADINGS: [Heading; 11] = [
    numbers(""),
    words("model"),
    numbers("size"),
    numbers("bits"),
    numbers("perplexity"),
    numbers("ratio"),
    numbers("KL divergence"),
    numbers("KL, median"),
    numbers("KL, 99 %"),
    numbers("same most likely, %"),
    numbers("of five, %"),
];

/// Writes the page of `all`, which are of one text and in the order of their sizes.
pub(crate) fn html(all: &[Eval]) -> String {
    let names: Vec<String> =
        all.iter().enumerate().map(|(n, of)| format!("{} {}", n + 1, last(&of.model))).collect();
    let reference = all.iter().find_map(|of| Some((of.against.as_ref()?, of.against_size?, of)));
    let title = match reference {
        Some((against, ..)) => format!("{} against {}", many(all.len(), "model"), last(against)),
        None => many(all.len(), "model"),
    };
    let title = shown(&title, NAME);
    let against: Vec<(String, &EvalAgainst)> = names
        .iter()
        .zip(all)
        .filter_map(|(name, of)| Some((name.clone(), of.text.as_ref()?.against.as_ref()?)))
        .collect();
    let named: Vec<(String, &Eval)> = names.into_iter().zip(all).collect();
    let mut rows: Vec<Vec<Cell>> = all.iter().enumerate().map(|(n, of)| row(n + 1, of)).collect();
    rows.extend(reference.map(|(name, size, of)| reference_row(name, &size, of)));
    let body = html! {
        h1 { (title) }
        @if let Some(text) = all.iter().find_map(|of| of.text.as_ref()) { p { (scored(text)) } }
        @if let Some((name, of, _)) = reference { p class="faint" { "against " (shown(name, NAME)) ", " (size(&of)) } }
        @if all.iter().any(|of| of.text.is_some()) { h2 { "size and loss" } }
        (against_size("KL divergence", true, all, &|of| of.text.as_ref()?.against.as_ref().map(|a| a.kl), None))
        (against_size("perplexity", false, all, &|of| of.text.as_ref().map(|text| text.perplexity), reference))
        (table("sortable wide", &HEADINGS, &rows))
        p class="faint" { "± is half of the 95 % confidence interval, with tokens taken as independent" }
        @if !against.is_empty() {
            h2 { "agreement" }
            (agreement(&against))
            h2 { "KL divergence of single tokens" }
            (spread(&against))
        }
        (tasks(&named))
    };
    page(&title, &body, &[])
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

fn sized(size: &ModelSize) -> [Cell; 2] {
    [Cell::number(weighbridge::tensor::Bytes(size.bytes), size.bytes as f64), real(size.bits, 2)]
}

fn row(number: usize, of: &Eval) -> Vec<Cell> {
    let text = of.text.as_ref();
    let against = text.and_then(|text| text.against.as_ref());
    let some = |of: Option<&Estimate>, digits, unit| {
        of.map_or_else(|| Cell::text(""), |of| estimate(of, digits, unit))
    };
    let start = [Cell::number(number, number as f64), Cell::text(&of.model)];
    let figures = [
        some(text.map(|text| &text.perplexity), 3, 1.0),
        some(against.map(|a| &a.ratio), 4, 1.0),
        some(against.map(|a| &a.kl), 5, 1.0),
        real(against.and_then(|a| a.kl_median), 5),
        real(against.and_then(|a| a.kl_99), 4),
        some(against.map(|a| &a.top1), 2, 100.0),
        some(against.map(|a| &a.top5), 2, 100.0),
    ];
    start.into_iter().chain(sized(&of.size)).chain(figures).collect()
}

/// The row of the model that the others are compared with.
fn reference_row(name: &str, size: &ModelSize, of: &Eval) -> Vec<Cell> {
    let perplexity = of.text.as_ref().and_then(|text| text.against.as_ref()).map(|a| &a.perplexity);
    let perplexity = perplexity.map_or_else(|| Cell::text(""), |of| estimate(of, 3, 1.0));
    let start = [Cell::text(""), Cell::text(name)];
    let nothing = (0..6).map(|_| Cell::text(""));
    start.into_iter().chain(sized(size)).chain([perplexity]).chain(nothing).collect()
}

/// A figure over the size of each model.
fn against_size(
    what: &str,
    is_log: bool,
    all: &[Eval],
    of: &dyn Fn(&Eval) -> Option<Estimate>,
    reference: Option<(&String, ModelSize, &Eval)>,
) -> Markup {
    let point = |label: (String, String), name: &str, size: &ModelSize, of: &Estimate| Point {
        x: size.bytes as f64,
        y: of.ends(),
        tip: format!("{name}: {what} {}, {}", of.shown(5, 1.0), self::size(size)),
        is_hollow: label.0.is_empty(),
        label: Some(label),
    };
    let mut drawn: Vec<Point> = all
        .iter()
        .enumerate()
        .filter_map(|(n, model)| {
            let name = last(&model.model).to_owned();
            Some(point(((n + 1).to_string(), name), &model.model, &model.size, &of(model)?))
        })
        .collect();
    if drawn.is_empty() {
        return html! {};
    }
    let perplexity = reference.and_then(|(.., of)| of.text.as_ref()?.against.as_ref().map(|a| a.perplexity));
    if let (Some((name, size, _)), Some(perplexity)) = (reference, perplexity) {
        drawn.push(point((String::new(), last(name).to_owned()), name, &size, &perplexity));
    }
    let ends = drawn.iter().flat_map(|point| if is_log { [point.y.0; 2] } else { [point.y.1, point.y.2] });
    let y = if is_log { Axis::log(ends) } else { Axis::linear(ends) };
    let x = Axis::bytes(drawn.iter().map(|point| point.x));
    let scale = if is_log { ", on a logarithmic scale" } else { "" };
    let hollow =
        if perplexity.is_some() { "; hollow: the model that the others are compared with" } else { "" };
    let caption = format!("{what} by size{scale}, with the 95 % confidence interval{hollow}");
    figure(&caption, &points(&caption, (&x, &y), &drawn))
}

/// The range of divergences of each model.
fn spread(all: &[(String, &EvalAgainst)]) -> Markup {
    let drawn: Vec<Line> = all
        .iter()
        .map(|(name, of)| {
            let [median, most] = [of.kl_median, of.kl_99].map(|kl| kl.unwrap_or(f64::NAN));
            let mean = of.kl.pair().0;
            Line { label: name.clone(), colour: 0, value: (mean, median, most), shown: format!("{mean:.5}") }
        })
        .collect();
    let axis = Axis::log(drawn.iter().flat_map(|line| [line.value.0, line.value.1, line.value.2]));
    figure(
        "nats: the line goes from the median to what 99 % of the tokens do not exceed, the point is the mean",
        &lines("divergences of single tokens by model", &axis, &drawn),
    )
}
