//! The page of `diff`: in what two checkpoints differ.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maud::{Markup, html};
use weighbridge::convert::{Compared, DiffGroup, DiffReport, Outcome, StoredParam};

use super::html::{Alike, Cell, Heading, every, list, numbers, page, table, words};
use super::layers::{Column, Layers, chart};
use super::text::{NAME, many, shown};

/// What the page shows.
pub(crate) struct DiffPage<'a> {
    /// What A and B are called.
    pub(crate) names: [String; 2],
    pub(crate) report: &'a DiffReport,
    pub(crate) groups: &'a [DiffGroup],
    /// Lines on the whole, as the command prints them.
    pub(crate) facts: Vec<String>,
    /// The cells of a row, as the command prints them: unequal, largest error, relative error, cosine.
    pub(crate) cells: &'a dyn Fn(&StoredParam, &StoredParam, &Outcome) -> [String; 4],
}

/// Items of a list that are shown.
const MOST: usize = 200;
/// Stacks of layers that have a chart.
const STACKS: usize = 6;

/// The columns after the name.
const HEADINGS: [Heading; 6] = [
    words("A"),
    words("B"),
    numbers("unequal"),
    numbers("max error"),
    numbers("relative"),
    numbers("cosine"),
];

/// Writes the page.
pub(crate) fn html(of: &DiffPage<'_>) -> String {
    let report = of.report;
    let [a, b] = &of.names.each_ref().map(|name| shown(name, NAME));
    let mut params: Vec<&Compared> = report.params.iter().collect();
    params.sort_by(|x, y| y.outcome.cmp_badness(&x.outcome));
    let row = |p: &&Compared| Alike::one(&p.name, &cells(of, &p.a, &p.b, &p.outcome));
    let rows: Vec<serde_json::Value> = params.iter().map(row).collect();
    let groups: Vec<Vec<Cell>> = of
        .groups
        .iter()
        .map(|g| {
            let count = if g.count == 1 { String::new() } else { format!("{} ×", g.count) };
            let start = [Cell::number(count, g.count as f64), Cell::text(&g.name)];
            start.into_iter().chain(cells(of, &g.a, &g.b, &g.outcome)).collect()
        })
        .collect();
    let named: Vec<Heading> = [numbers("parameters"), words("name")].into_iter().chain(HEADINGS).collect();
    let body = html! {
        h1 { (a) " ↔ " (b) }
        p class="faint" { "A is " (a) ", B is " (b) ". Errors are those of B against A." }
        @for fact in of.facts.iter().flat_map(|fact| fact.lines()) { p { (shown(fact, 4 * NAME)) } }
        (outcomes(report))
        (by_layer(report))
        @if !groups.is_empty() {
            h2 { "parameters by name and encoding, the worst first" }
            (table("sortable wide", &named, &groups))
            (every("every parameter", &named[1..]))
        }
        (only("only in A", &report.only_a))
        (only("only in B", &report.only_b))
        (configuration(report))
        (keys(report))
        (list("not compared", &report.not_compared, MOST))
    };
    page(&format!("{a} ↔ {b}"), &body, &rows)
}

fn cells(of: &DiffPage<'_>, a: &StoredParam, b: &StoredParam, outcome: &Outcome) -> Vec<Cell> {
    let [unequal, max, relative, cosine] = (of.cells)(a, b, outcome);
    let values = match outcome {
        Outcome::Identical | Outcome::SameValues => [0.0, 0.0, 0.0, 1.0],
        Outcome::Values { difference: d, unequal, not_finite } => {
            let max = if *not_finite > 0 { f64::INFINITY } else { f64::from(d.max) };
            [*unequal as f64 / d.count.max(1) as f64, max, d.relative(), d.cosine()]
        }
        Outcome::Opaque | Outcome::Shape => [f64::INFINITY; 4],
    };
    let numbers = [unequal, max, relative, cosine]
        .into_iter()
        .zip(values)
        .map(|(text, value)| Cell::number(text, value));
    [Cell::text(&a.scheme), Cell::text(&b.scheme)].into_iter().chain(numbers).collect()
}

/// How many parameters compare in which way, as one bar.
fn outcomes(report: &DiffReport) -> Markup {
    let kinds: [(&str, &str, usize); 6] = [
        ("c0", "bit-equal", report.count(|o| matches!(o, Outcome::Identical))),
        ("c4", "of equal values", report.count(|o| matches!(o, Outcome::SameValues))),
        ("c1", "of other values", report.count(|o| matches!(o, Outcome::Values { .. }))),
        ("c2", "of other bytes", report.count(|o| matches!(o, Outcome::Opaque))),
        ("c5", "of other shapes", report.count(|o| matches!(o, Outcome::Shape))),
        ("c6", "in one only", report.only_a.len() + report.only_b.len()),
    ];
    let there: Vec<_> = kinds.into_iter().filter(|(.., n)| *n > 0).collect();
    let total: usize = there.iter().map(|(.., n)| n).sum();
    let mut at = 0;
    html! {
        @if total > 0 {
            figure {
                svg viewBox=(format!("0 0 {total} 10")) preserveAspectRatio="none" role="img"
                    aria-label="parameters by outcome" width="100%" height="22"
                {
                    @for (class, what, n) in &there {
                        rect class=(class) x=({ at += n; at - n }) y="0" width=(n) height="10" { title { (n) " " (what) } }
                    }
                }
                div class="legend" {
                    @for (class, what, n) in &there { span { i class=(class) {} (n) " " (what) } }
                }
            }
        }
    }
}

/// What is known of a layer.
#[derive(Default)]
struct Layer {
    all: Option<Outcome>,
    params: usize,
    /// Parameters that cannot be compared.
    cannot: usize,
}

impl Layer {
    fn add(&mut self, outcome: Outcome) {
        self.params += 1;
        match (self.all, outcome) {
            (_, Outcome::Opaque | Outcome::Shape) => self.cannot += 1,
            (
                Some(Outcome::Values { difference: a, unequal: n, not_finite: p }),
                Outcome::Values { difference: b, unequal: m, not_finite: q },
            ) => {
                self.all = Some(Outcome::Values { difference: a.and(b), unequal: n + m, not_finite: p + q });
            }
            (Some(Outcome::Values { .. }), _) => {}
            (_, outcome) => self.all = Some(outcome),
        }
    }

    fn relative(&self) -> f64 {
        match &self.all {
            Some(Outcome::Values { difference, .. }) => difference.relative(),
            _ => 0.0,
        }
    }

    /// In a few words.
    fn words(&self) -> String {
        let cannot =
            if self.cannot > 0 { format!(", {} cannot be compared", self.cannot) } else { String::new() };
        let error = self.relative();
        let relative =
            if error > 0.0 { format!("relative error {error:.2e}") } else { "no difference".to_owned() };
        format!("{}: {relative}{cannot}", many(self.params, "parameter"))
    }
}

/// The relative error of each layer.
fn by_layer(report: &DiffReport) -> Markup {
    let mut layers: Layers<Layer> = Layers::default();
    for p in &report.params {
        layers.at(&p.name).add(p.outcome);
    }
    for (name, _) in report.only_a.iter().chain(&report.only_b) {
        layers.at(name).add(Outcome::Shape);
    }
    let finite = |error: f64| if error.is_finite() { error } else { 0.0 };
    let most = layers
        .stacks
        .values()
        .flat_map(BTreeMap::values)
        .map(|layer| finite(layer.relative()))
        .fold(0.0, f64::max);
    let any = |layer: &Layer| layer.relative() > 0.0 || layer.cannot > 0;
    let mut stacks: Vec<_> = layers.stacks.iter().filter(|(_, layers)| layers.values().any(any)).collect();
    stacks.sort_by_key(|(_, layers)| Reverse(layers.len()));
    let more = stacks.len().saturating_sub(STACKS);
    let every = layers.stacks.values().flat_map(BTreeMap::values).chain(layers.outside.values());
    let differ = every.map(Layer::relative).any(|error| error > 0.0);
    let mut outside: Vec<(&String, &Layer)> = layers.outside.iter().filter(|(_, layer)| any(layer)).collect();
    outside.sort_by(|a, b| b.1.relative().total_cmp(&a.1.relative()));
    let outside: Vec<Vec<Cell>> = outside
        .into_iter()
        .take(MOST)
        .map(|(name, layer)| vec![Cell::text(name), Cell::text(&layer.words())])
        .collect();
    html! {
        @if differ {
            h2 { "relative error by layer" }
            @for (stack, layers) in stacks.into_iter().take(STACKS) {
                @let columns: Vec<Column> = layers.iter().map(|(n, layer)| Column {
                    label: *n,
                    tip: format!("layer {n}, {}", layer.words()),
                    boxes: vec![("c1".to_owned(), finite(layer.relative()))],
                    cannot: layer.cannot > 0 || !layer.relative().is_finite(),
                }).collect();
                @let highest = layers.values().map(|layer| finite(layer.relative())).fold(0.0, f64::max);
                @let highest = if highest > 0.0 { format!("up to {highest:.2e}") } else { "not comparable".to_owned() };
                (chart(&html! { (shown(stack, NAME)) ", " (highest) }, &columns, most))
            }
            @if more > 0 { p class="faint" { "and " (many(more, "more stack")) " of layers, which the tables have" } }
            @if !outside.is_empty() {
                p class="faint" { "outside of layers" }
                (table("", &[words("parameter"), words("difference")], &outside))
            }
        }
    }
}

fn only(heading: &str, params: &[(String, StoredParam)]) -> Markup {
    let lines: Vec<String> =
        params.iter().map(|(name, held)| format!("{name} {} {}", held.shape, held.scheme)).collect();
    list(heading, &lines, MOST)
}

fn configuration(report: &DiffReport) -> Markup {
    let row = |(name, a, b): &(String, String, String)| vec![Cell::text(name), Cell::text(a), Cell::text(b)];
    let rows: Vec<Vec<Cell>> = report.configuration.iter().map(row).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "configuration" }
            (table("sortable", &[words("field"), words("A"), words("B")], &rows))
        }
    }
}

fn keys(report: &DiffReport) -> Markup {
    let side = |value: &Option<String>| Cell::text(value.as_deref().unwrap_or("absent"));
    let rows: Vec<Vec<Cell>> = report
        .keys
        .iter()
        .take(5 * MOST)
        .map(|k| {
            let why = k.bookkeeping.map_or(String::new(), |why| format!("no difference, since it {why}"));
            vec![Cell::text(&k.file), Cell::text(&k.key), side(&k.a), side(&k.b), Cell::text(&why)]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h2 { "keys" }
            (table("sortable wide", &[words("file"), words("key"), words("A"), words("B"), words("")], &rows))
            @if report.keys.len() > rows.len() {
                p class="faint" { "and " (report.keys.len() - rows.len()) " more: --json lists all" }
            }
        }
    }
}
