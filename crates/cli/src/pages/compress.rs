//! The page of `compress`: what each matrix becomes, and what that is expected to cost.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use weighbridge::convert::compress::{Choice, Compression};
use weighbridge::engine::eval::Agreement;
use weighbridge::tensor::{Bytes, Pattern};

use super::colour::Palette;
use super::html::{Alike, Cell, Heading, every, numbers, page, table, words};
use super::layers::{Schemes, Where, parts};
use super::plot::{Heat, Line, figure, heat, lines};
use super::text::{NAME, shown};
use crate::estimate::{CONFIDENCE, interval};

/// The content of the page.
pub(crate) struct CompressPage<'a> {
    /// The paths of the source and of the result.
    pub(crate) names: [String; 2],
    pub(crate) found: &'a Compression,
    /// Lines on the whole, as the command prints them.
    pub(crate) facts: Vec<String>,
    /// The measurement on the text that was held back.
    pub(crate) cost: Option<&'a Agreement>,
}

/// Layers that a heat map has, at most.
const LAYERS: usize = 512;

/// The columns of every matrix, after its name.
const HEADINGS: [Heading; 9] = [
    words("shape"),
    words("from"),
    words("to"),
    numbers("bits"),
    numbers("bytes"),
    numbers("error, %"),
    numbers("cost"),
    numbers("outlier of a row"),
    words("policy"),
];

/// Writes the page.
pub(crate) fn html(of: &CompressPage<'_>) -> String {
    let [source, destination] = &of.names.each_ref().map(|name| shown(name, NAME));
    let (choices, title) = (&of.found.choices, format!("{source} → {destination}"));
    let rows: Vec<serde_json::Value> =
        choices.iter().map(|choice| Alike::one(&choice.name, &cells(choice))).collect();
    let headings: Vec<Heading> = [words("matrix")].into_iter().chain(HEADINGS).collect();
    let cost = if of.found.is_divergence { "expected KL divergence" } else { "squared relative error" };
    let kinds = Kind::all(choices);
    let body = html! {
        h1 { (title) }
        @for fact in of.facts.iter().flat_map(|fact| fact.lines()) { p { (shown(fact, 4 * NAME)) } }
        @if let Some(cost) = of.cost { (measured(cost)) }
        h2 { "bytes by encoding" }
        (by_encoding(choices))
        (by_layer(&kinds, cost))
        h2 { "matrices by kind" }
        (table("sortable wide", &KIND, &kinds.iter().map(Kind::cells).collect::<Vec<_>>()))
        p class="faint" { "cost: " (cost) (if of.found.is_divergence { ", in nats a token" } else { "" }) "; error: of the matrix's results, root of the mean square" }
        (every("every matrix", &headings))
    };
    page(&title, &body, &rows)
}

fn cells(choice: &Choice) -> Vec<Cell> {
    let becomes = choice.becomes();
    vec![
        Cell::number(&choice.shape, choice.elements() as f64),
        Cell::text(&choice.from),
        Cell::text(&becomes.scheme.name),
        Cell::number(format!("{:.2}", choice.bits()), choice.bits()),
        Cell::number(Bytes(becomes.bytes), becomes.bytes as f64),
        Cell::number(format!("{:.2}", 100.0 * becomes.error), becomes.error),
        Cell::number(power(becomes.cost), becomes.cost),
        Cell::number(format!("{:.1}", choice.outliers.row), choice.outliers.row),
        Cell::text(&choice.policy),
    ]
}

/// A cost, as a number and a power of ten.
fn power(cost: f64) -> String {
    if cost > 0.0 { format!("{cost:.2e}") } else { "0".to_owned() }
}

fn measured(cost: &Agreement) -> Markup {
    let ends = |value: f64, error: f64| (value, value - CONFIDENCE * error, value + CONFIDENCE * error);
    let line = |what: &str, colour, (value, error): (f64, f64)| Line {
        label: what.to_owned(),
        colour,
        value: ends(value, error),
        shown: format!("{} %", interval((value, error), 2, 100.0)),
    };
    let drawn = [
        line("same most likely", 0, (cost.top1.mean(), cost.top1.error())),
        line("of the five most likely", 2, (cost.top5.mean(), cost.top5.error())),
    ];
    let axis = super::axis::Axis::shares(drawn.iter().flat_map(|line| [line.value.0, line.value.1]));
    let row = |name: &str, pair: (f64, f64), digits, unit| {
        vec![Cell::text(name), Cell::number(interval(pair, digits, unit), pair.0)]
    };
    let rows = [
        row("KL divergence, nats", (cost.kl.mean(), cost.kl.error()), 5, 1.0),
        row("ratio of perplexities", cost.ratio(), 4, 1.0),
        row("same most likely token, %", (cost.top1.mean(), cost.top1.error()), 2, 100.0),
        row("of the five most likely, %", (cost.top5.mean(), cost.top5.error()), 2, 100.0),
    ];
    html! {
        h2 { "measured on the text that was held back" }
        (figure(
            "share of the tokens for which source and result agree, with the 95 % confidence interval",
            &lines("agreement of the most likely tokens", &axis, &drawn),
        ))
        (table("", &[words("figure"), numbers("value")], &rows))
    }
}

fn by_encoding(choices: &[Choice]) -> Markup {
    let mut by: BTreeMap<&str, u64> = BTreeMap::new();
    for choice in choices {
        *by.entry(&choice.becomes().scheme.name).or_default() += choice.becomes().bytes;
    }
    let palette = Palette::new(by.iter().map(|(scheme, bytes)| (*scheme, *bytes)));
    let mut all: Vec<(String, Schemes)> = by
        .iter()
        .map(|(scheme, bytes)| ((*scheme).to_owned(), Schemes::from([((*scheme).to_owned(), *bytes)])))
        .collect();
    all.sort_by_key(|(_, schemes)| std::cmp::Reverse(schemes.values().sum::<u64>()));
    parts(&all, |scheme| format!("c{}", palette.colour(scheme)))
}

/// The columns of a kind.
const KIND: [Heading; 7] = [
    numbers("matrices"),
    words("kind"),
    words("to"),
    numbers("bits"),
    numbers("bytes"),
    numbers("error, %"),
    numbers("cost"),
];

/// Matrices whose names differ only in numbers.
struct Kind<'a> {
    name: String,
    all: Vec<&'a Choice>,
    /// By the number of the layer; nothing if it is in none.
    layers: BTreeMap<u64, Vec<&'a Choice>>,
}

impl<'a> Kind<'a> {
    /// In the order of the result.
    fn all(choices: &'a [Choice]) -> Vec<Kind<'a>> {
        let mut kinds: Vec<Kind<'_>> = vec![];
        for choice in choices {
            let name = Pattern::of(&choice.name).to_string();
            let at = kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
                kinds.push(Kind { name, all: vec![], layers: BTreeMap::new() });
                kinds.len() - 1
            });
            kinds[at].all.push(choice);
            if let Where::Layer(_, n) = Where::of(&choice.name) {
                kinds[at].layers.entry(n).or_default().push(choice);
            }
        }
        kinds
    }

    fn cells(&self) -> Vec<Cell> {
        let (bits, bytes, error, cost) = sums(&self.all);
        let mut to: Vec<&str> = self.all.iter().map(|choice| &*choice.becomes().scheme.name).collect();
        to.sort_unstable();
        to.dedup();
        let name = if let [one] = self.all[..] { &one.name } else { &self.name };
        vec![
            Cell::number(self.all.len(), self.all.len() as f64),
            Cell::text(name),
            Cell::text(&to.join(", ")),
            Cell::number(format!("{bits:.2}"), bits),
            Cell::number(Bytes(bytes), bytes as f64),
            Cell::number(format!("{:.2}", 100.0 * error), error),
            Cell::number(power(cost), cost),
        ]
    }
}

/// Bits for each value, bytes, the root of the mean square of the errors, and the sum of the costs.
fn sums(all: &[&Choice]) -> (f64, u64, f64, f64) {
    let bytes: u64 = all.iter().map(|choice| choice.becomes().bytes).sum();
    let elements: u64 = all.iter().map(|choice| choice.elements()).sum();
    let squares: f64 = all.iter().map(|choice| choice.becomes().error.powi(2)).sum();
    let cost = all.iter().map(|choice| choice.becomes().cost).sum();
    (bytes as f64 * 8.0 / elements.max(1) as f64, bytes, (squares / all.len().max(1) as f64).sqrt(), cost)
}

/// Bits and costs by kind and layer.
fn by_layer(kinds: &[Kind<'_>], cost: &str) -> Markup {
    let layers: BTreeSet<u64> = kinds.iter().flat_map(|kind| kind.layers.keys().copied()).collect();
    let layers: Vec<u64> = layers.into_iter().take(LAYERS).collect();
    let (Some(first), Some(last)) = (layers.first(), layers.last()) else { return html! {} };
    let ends = [format!("layer {first}"), last.to_string()];
    let stacked: Vec<&Kind<'_>> = kinds.iter().filter(|kind| !kind.layers.is_empty()).collect();
    let map = |share: &dyn Fn(&[&Choice]) -> f64| -> Vec<(String, Vec<Heat>)> {
        let cell = |kind: &Kind<'_>, layer| {
            let Some(all) = kind.layers.get(layer) else { return Heat { share: None, tip: String::new() } };
            let (bits, _, error, cost) = sums(all);
            let mut to: Vec<&str> = all.iter().map(|choice| &*choice.becomes().scheme.name).collect();
            to.dedup();
            let tip = format!(
                "{} of layer {layer}: {}, {bits:.2} bits, error {:.2} %, cost {}",
                kind.name,
                to.join(", "),
                100.0 * error,
                power(cost)
            );
            Heat { share: Some(share(all)), tip }
        };
        stacked
            .iter()
            .map(|kind| (kind.name.clone(), layers.iter().map(|layer| cell(kind, layer)).collect()))
            .collect()
    };
    let each = || stacked.iter().flat_map(|kind| kind.layers.values());
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)))
    };
    let (fewest, most) = range(&mut each().map(|all| sums(all).0));
    let bits = |all: &[&Choice]| {
        if most > fewest { (sums(all).0 - fewest) / (most - fewest) } else { 1.0 }
    };
    // Costs are powers apart; what costs nothing is as pale as the least.
    let (least, dearest) = range(&mut each().map(|all| sums(all).3).filter(|cost| *cost > 0.0));
    let costs = |all: &[&Choice]| {
        let span = (dearest / least).ln();
        if sums(all).3 > 0.0 && span > 0.0 { (sums(all).3 / least).ln() / span } else { 0.0 }
    };
    html! {
        h2 { "bits by layer" }
        @if most > fewest {
            (scale(&format!("{fewest:.2}"), &format!("{most:.2} bits a weight")))
        } @else {
            p class="faint" { (format!("{most:.2} bits a weight in every matrix of a layer")) }
        }
        (figure("one cell for each layer", &heat("bits of each matrix by layer", &map(&bits), ends.clone())))
        @if dearest > 0.0 {
            h2 { (cost) " by layer" }
            (scale(&format!("{least:.1e}"), &format!("{dearest:.1e}, on a logarithmic scale")))
            (figure("one cell for each layer", &heat("costs of each matrix by layer", &map(&costs), ends)))
        }
    }
}

/// The values of the palest and of the full colour.
fn scale(from: &str, to: &str) -> Markup {
    html! {
        div class="scale" {
            span { (from) }
            svg aria-hidden="true" {
                @for n in 0..8 {
                    rect class="c0" x=(format!("{}%", 12.5 * f64::from(n))) width="12.5%" y="0" height="11"
                        fill-opacity=(format!("{:.3}", 0.06 + 0.94 * f64::from(n) / 7.0)) {}
                }
            }
            span { (to) }
        }
    }
}
