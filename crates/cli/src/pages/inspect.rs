//! The page of `inspect`: what a checkpoint holds.

use std::collections::{BTreeMap, HashMap};

use maud::{Markup, html};
use weighbridge::tensor::{Bytes, Pattern};
use weighbridge::{Checkpoint, Model, TensorEntry};

use super::colour::Palette;
use super::html::{Alike, Cell, every, is_plain, list, numbers, page, table, words};
use super::layers::{Column, Layers, Schemes, chart, parts};
use super::text::{NAME, many, shown};

/// What the page shows.
pub(crate) struct InspectPage<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// Lines on the whole of it, as the command prints them.
    pub(crate) facts: Vec<String>,
    pub(crate) model: Option<&'a Model>,
    /// Tensors alike but for numbers in their names: pattern, how many, one of them.
    pub(crate) groups: Vec<(String, usize, &'a TensorEntry)>,
    /// Keys that are not known or not followed.
    pub(crate) doubts: Vec<String>,
    pub(crate) ties: Vec<String>,
    pub(crate) ignored: Vec<String>,
}

/// Items of a list that are shown.
const MOST: usize = 200;
/// Stacks of layers that have a chart.
const STACKS: usize = 6;
/// Tensors outside of the layers that have a line.
const OUTSIDE: usize = 12;

/// Writes the page.
pub(crate) fn html(of: &InspectPage<'_>) -> String {
    let name = shown(&of.checkpoint.location().file_name(), NAME);
    let body = html! {
        h1 { (name) }
        @for fact in of.facts.iter().flat_map(|fact| fact.lines()) { p { (shown(fact, 4 * NAME)) } }
        (parts_of(of))
    };
    page(&name, &body, &tensors(of.checkpoint.entries()))
}

/// What the page shows under the facts.
pub(super) fn parts_of(of: &InspectPage<'_>) -> Markup {
    let rows: Vec<Vec<Cell>> = of
        .groups
        .iter()
        .map(|(name, n, e)| {
            let bytes = e.byte_len() * *n as u64;
            let count =
                if *n == 1 { Cell::number("", 1.0) } else { Cell::number(format!("{n} ×"), *n as f64) };
            vec![
                count,
                Cell::text(name),
                shape(e),
                Cell::text(&e.scheme.name),
                Cell::number(Bytes(bytes), bytes as f64),
            ]
        })
        .collect();
    let headings = [numbers("tensors"), words("name"), words("shape"), words("encoding"), numbers("bytes")];
    html! {
        (bytes_by_layer(of.checkpoint.entries()))
        @if let Some(model) = of.model { (configuration(model)) }
        h2 { "tensors by name, shape and encoding" }
        (table("sortable wide", &headings, &rows))
        (every("every tensor", &headings[1..]))
        (list("keys that are unknown or not followed", &of.doubts, MOST))
        (list("one tensor under several names", &of.ties, MOST))
        (list("ignored", &of.ignored, MOST))
    }
}

fn shape(e: &TensorEntry) -> Cell {
    Cell::number(&e.shape, e.shape.elements().unwrap_or(u64::MAX) as f64)
}

/// The rows of every tensor, those alike but for numbers as one.
pub(super) fn tensors(entries: &[TensorEntry]) -> Vec<serde_json::Value> {
    let mut rows: Vec<Alike> = vec![];
    let mut at: HashMap<(String, String, &str, u64), usize> = HashMap::new();
    for e in entries {
        let new = || {
            let cells = [
                shape(e),
                Cell::text(&e.scheme.name),
                Cell::number(Bytes(e.byte_len()), e.byte_len() as f64),
            ];
            Alike::new(&e.name, &cells)
        };
        if !is_plain(&e.name) {
            rows.push(new());
            continue;
        }
        let key =
            (Pattern::of(&e.name).to_string(), e.shape.to_string(), e.scheme.name.as_ref(), e.byte_len());
        let i = *at.entry(key).or_insert_with(|| {
            rows.push(new());
            rows.len() - 1
        });
        rows[i].add(&e.name);
    }
    rows.into_iter().map(Alike::json).collect()
}

fn configuration(model: &Model) -> Markup {
    let row = |(name, value, origin): (&str, String, &weighbridge::model::Origin)| {
        vec![Cell::text(name), Cell::text(&value), Cell::text(&origin.to_string().replace('`', ""))]
    };
    let rows: Vec<Vec<Cell>> = model.fields().into_iter().map(row).collect();
    html! {
        h2 { "configuration" }
        (table("", &[words("field"), words("value"), words("from")], &rows))
    }
}

/// Which part of the checkpoint takes how many bytes, and how many each layer does.
fn bytes_by_layer(entries: &[TensorEntry]) -> Markup {
    let palette = Palette::new(entries.iter().map(|e| (e.scheme.name.as_ref(), e.byte_len())));
    let class = |scheme: &str| format!("c{}", palette.colour(scheme));
    let mut layers: Layers<Schemes> = Layers::default();
    for e in entries {
        *layers.at(&e.name).entry(e.scheme.name.to_string()).or_default() += e.byte_len();
    }
    let together = |all: &mut dyn Iterator<Item = &Schemes>| {
        let mut sum = Schemes::new();
        for schemes in all {
            for (scheme, bytes) in schemes {
                *sum.entry(scheme.clone()).or_default() += bytes;
            }
        }
        sum
    };
    let bytes = |schemes: &Schemes| schemes.values().sum::<u64>();
    let mut stacks: Vec<_> = layers
        .stacks
        .iter()
        .map(|(stack, layers)| {
            (format!("{} of {stack}", many(layers.len(), "layer")), together(&mut layers.values()), layers)
        })
        .collect();
    stacks.sort_by_key(|(_, schemes, _)| std::cmp::Reverse(bytes(schemes)));
    let mut outside: Vec<(String, Schemes)> = layers.outside.clone().into_iter().collect();
    outside.sort_by_key(|(_, schemes)| std::cmp::Reverse(bytes(schemes)));
    let rest = outside.split_off(outside.len().min(OUTSIDE));
    let fewer = stacks.len().min(STACKS);
    let mut all: Vec<(String, Schemes)> =
        stacks[..fewer].iter().map(|(name, sum, _)| (name.clone(), sum.clone())).collect();
    all.append(&mut outside);
    let more = rest.len() + stacks.len() - fewer;
    if more > 0 {
        let mut others = rest.iter().map(|(_, s)| s).chain(stacks[fewer..].iter().map(|(_, s, _)| s));
        all.push((format!("{more} more"), together(&mut others)));
    }
    all.sort_by_key(|(_, schemes)| std::cmp::Reverse(bytes(schemes)));
    html! {
        h2 { "bytes by layer" }
        div class="legend" {
            @for (colour, means) in palette.legend() { span { i class=(format!("c{colour}")) {} (shown(&means, NAME)) } }
        }
        (parts(&all, class))
        @for (name, _, layers) in stacks.iter().take(fewer).filter(|(_, _, layers)| layers.len() > 1) {
            (stack(name, layers, &class))
        }
    }
}

/// A chart of one stack.
fn stack(name: &str, layers: &BTreeMap<u64, Schemes>, class: &dyn Fn(&str) -> String) -> Markup {
    let bytes = |schemes: &Schemes| schemes.values().sum::<u64>();
    let (least, most) =
        (layers.values().map(bytes).min().unwrap_or(0), layers.values().map(bytes).max().unwrap_or(0));
    let columns: Vec<Column> = layers
        .iter()
        .map(|(n, schemes)| {
            let mut order: Vec<(&String, &u64)> = schemes.iter().collect();
            order.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
            let each =
                order.iter().map(|(scheme, bytes)| format!("\n{} {}", shown(scheme, NAME), Bytes(**bytes)));
            Column {
                label: *n,
                tip: format!("layer {n}: {}{}", Bytes(bytes(schemes)), each.collect::<String>()),
                boxes: order.iter().map(|(scheme, bytes)| (class(scheme), **bytes as f64)).collect(),
                cannot: false,
            }
        })
        .collect();
    let range = if least == most {
        format!("{} each", Bytes(most))
    } else {
        format!("{} to {} each", Bytes(least), Bytes(most))
    };
    chart(&html! { (shown(name, NAME)) ", " (range) }, &columns, most as f64)
}
