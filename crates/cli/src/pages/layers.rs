//! Tensors by layer, and charts of what is by layer.

use std::collections::BTreeMap;

use maud::{Markup, html};
use weighbridge::tensor::{Bytes, Pattern};

use super::draw::px;
use super::text::{NAME, many, shown};

/// Layers of a stack that have a column.
const COLUMNS: usize = 512;

/// Where a tensor is, by its name.
pub(super) enum Where {
    /// In a layer of a stack: `blk.{n}` and 3.
    Layer(String, u64),
    /// Elsewhere: the pattern of its name.
    Outside(String),
}

impl Where {
    /// The first number in a name is that of a layer.
    pub(super) fn of(name: &str) -> Where {
        let outside = || Where::Outside(Pattern::of(name).to_string());
        let mut before = vec![];
        for segment in name.split('.') {
            if !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit()) {
                before.push("{n}");
                return segment.parse().map_or_else(|_| outside(), |n| Where::Layer(before.join("."), n));
            }
            before.push(segment);
        }
        outside()
    }
}

/// Something of each layer, and of what is outside of all.
pub(super) struct Layers<T> {
    /// By the pattern of a stack, by number.
    pub(super) stacks: BTreeMap<String, BTreeMap<u64, T>>,
    pub(super) outside: BTreeMap<String, T>,
}

impl<T: Default> Default for Layers<T> {
    fn default() -> Layers<T> {
        Layers { stacks: BTreeMap::new(), outside: BTreeMap::new() }
    }
}

impl<T: Default> Layers<T> {
    /// What is kept of the layer that `name` is in.
    pub(super) fn at(&mut self, name: &str) -> &mut T {
        match Where::of(name) {
            Where::Layer(stack, n) => self.stacks.entry(stack).or_default().entry(n).or_default(),
            Where::Outside(name) => self.outside.entry(name).or_default(),
        }
    }
}

/// One column of a chart.
pub(super) struct Column {
    pub(super) label: u64,
    pub(super) tip: String,
    /// Heights with their classes, from below.
    pub(super) boxes: Vec<(String, f64)>,
    /// Something of it has no height.
    pub(super) cannot: bool,
}

/// Columns as high as the sums of their boxes, of which `most` is the highest.
pub(super) fn chart(caption: &Markup, columns: &[Column], most: f64) -> Markup {
    let shown = &columns[..columns.len().min(COLUMNS)];
    let count = shown.len().max(1);
    let middle = (count > 8).then_some(count / 2);
    html! {
        figure {
            figcaption { (caption) }
            div class="plot" {
                svg viewBox=(format!("0 0 {} 100", 10 * count)) preserveAspectRatio="none" role="img" aria-label="one column for each layer" {
                    @for (i, column) in shown.iter().enumerate() { (one(i, column, most)) }
                }
            }
            div class="axis" {
                @if let [first, .., last] = shown {
                    span { "layer " (first.label) }
                    @if let Some(middle) = middle { span { (shown[middle].label) } }
                    span { (last.label) }
                } @else {
                    @for column in shown { span { "layer " (column.label) } }
                }
            }
            @if columns.len() > COLUMNS { p class="faint" { "and " (many(columns.len() - COLUMNS, "more layer")) } }
        }
    }
}

fn one(at: usize, column: &Column, most: f64) -> Markup {
    let x = 10 * at;
    let mut top = 100.0;
    let boxes: Vec<(&str, f64, f64)> = column
        .boxes
        .iter()
        .map(|(class, height)| {
            let height = 97.0 * height / most.max(f64::MIN_POSITIVE);
            top -= height;
            (class.as_str(), top, height)
        })
        .collect();
    html! {
        g {
            title { (column.tip) }
            @if column.cannot { rect class="cannot" x=(x + 1) y="1" width="8" height="98" vector-effect="non-scaling-stroke" {} }
            @for (class, y, height) in boxes {
                rect class=(class) x=(x) y=(px2(y)) width="8.6" height=(px2(height)) {}
            }
        }
    }
}

/// A coordinate with two digits, since a hundred of them are the height.
fn px2(n: f64) -> String {
    format!("{n:.2}")
}

/// Bytes by scheme.
pub(super) type Schemes = BTreeMap<String, u64>;

/// A table of parts with bars of their bytes, by scheme.
pub(super) fn parts(parts: &[(String, Schemes)], class: impl Fn(&str) -> String) -> Markup {
    let sum = |schemes: &Schemes| schemes.values().sum::<u64>();
    let most = parts.iter().map(|(_, schemes)| sum(schemes)).max().unwrap_or(0).max(1) as f64;
    let all = parts.iter().map(|(_, schemes)| sum(schemes)).sum::<u64>().max(1) as f64;
    html! {
        table class="wide" {
            tbody {
                @for (name, schemes) in parts {
                    tr {
                        td class="name" { (shown(name, NAME)) }
                        td class="bar" {
                            svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(Bytes(sum(schemes))) {
                                @for (scheme, start, width) in stacked(schemes, 1000.0 / most) {
                                    rect class=(class(scheme)) x=(px(start)) y="0" width=(px(width.max(1.0))) height="10" {
                                        title { (shown(scheme, NAME)) " " (Bytes(schemes[scheme])) }
                                    }
                                }
                            }
                        }
                        td class="number" { (Bytes(sum(schemes))) }
                        td class="number" { (format!("{:.1} %", 100.0 * sum(schemes) as f64 / all)) }
                    }
                }
            }
        }
    }
}

fn stacked(schemes: &Schemes, scale: f64) -> Vec<(&str, f64, f64)> {
    let mut order: Vec<(&String, &u64)> = schemes.iter().collect();
    order.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let mut at = 0.0;
    order
        .into_iter()
        .map(|(scheme, bytes)| {
            let (start, width) = (at, *bytes as f64 * scale);
            at += width;
            (scheme.as_str(), start, width)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_name_is_the_layer() {
        let layer = |name: &str| match Where::of(name) {
            Where::Layer(stack, n) => format!("{stack} {n}"),
            Where::Outside(name) => name,
        };
        assert_eq!(layer("model.layers.3.mlp.experts.12.w"), "model.layers.{n} 3");
        assert_eq!(layer("0.weight"), "{n} 0");
        assert_eq!(layer("output_norm.weight"), "output_norm.weight");
        assert_eq!(layer("a.99999999999999999999999.b"), "a.{n}.b");
    }
}
