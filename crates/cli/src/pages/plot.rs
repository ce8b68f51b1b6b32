//! Plots in pages. Places along the page are in percent, those across it in pixels: a plot is as wide as the page, and its text
//! has the same size on a phone. Whatever a plot shows is in a table too.

use maud::{Markup, html};

use super::axis::Axis;
use super::draw::px;
use super::text::{NAME, shown};

/// The height of a plot, in pixels.
const HEIGHT: f64 = 250.0;
/// The first and the last pixel of its area: what lies below is for the marks of the axis along the page.
const AREA: (f64, f64) = (10.0, 222.0);
/// Pixels between the lines of labels.
const LINE: f64 = 15.0;
/// Labels nearer than this share of the width may touch.
const NEAR: f64 = 0.3;
/// Points beyond which they are small.
const MANY: usize = 100;

/// A place along the page, or a width: a share of it.
fn pc(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

/// Where a value is across the page.
fn down(axis: &Axis, value: f64) -> f64 {
    AREA.1 - (AREA.1 - AREA.0) * axis.place(value)
}

/// A plot with an axis across the page, and `marks` along it: places from 0 to 1 with texts.
fn frame<'a>(name: &str, axis: &Axis, marks: impl Iterator<Item = (f64, &'a str)>, body: &Markup) -> Markup {
    html! {
        div class="xy" {
            svg class="ys" width="58" height=(px(HEIGHT)) aria-hidden="true" {
                @for (place, text) in axis.ticks() {
                    text class="end" x="52" y=(px(AREA.1 - (AREA.1 - AREA.0) * place + 4.0)) { (text) }
                }
            }
            svg class="area" height=(px(HEIGHT)) role="img" aria-label=(name) {
                @for (place, _) in axis.ticks() {
                    @let y = px(AREA.1 - (AREA.1 - AREA.0) * place);
                    line class="rule" x1="0" x2="100%" y1=(y) y2=(y) {}
                }
                @for (place, text) in marks {
                    text class=(anchor(place)) x=(pc(place)) y=(px(AREA.1 + 20.0)) { (text) }
                }
                (body)
            }
        }
    }
}

/// How a text at `place` along the page is aligned, so that it stays within.
fn anchor(place: f64) -> &'static str {
    match place {
        p if p < 0.03 => "start",
        p if p > 0.97 => "end",
        _ => "middle",
    }
}

/// A figure with its caption.
pub(super) fn figure(caption: &str, plot: &Markup) -> Markup {
    html! { figure { figcaption { (caption) } (plot) } }
}

/// The table behind a plot, folded.
pub(super) fn behind(of: &str, table: &Markup) -> Markup {
    html! { details { summary { (of) } (table) } }
}

/// A measured value.
pub(super) struct Point {
    pub(super) x: f64,
    /// The value, and the two ends of its interval.
    pub(super) y: (f64, f64, f64),
    /// The text that shows where a pointer rests.
    pub(super) tip: String,
    /// A number, which a narrow page shows alone, and a name; `None` for one of many.
    pub(super) label: Option<(String, String)>,
    /// Not one of those that are compared.
    pub(super) is_hollow: bool,
}

/// Points in a plane.
pub(super) fn points(name: &str, (x, y): (&Axis, &Axis), points: &[Point]) -> Markup {
    let labels = labels((x, y), points);
    let (radius, class) = if points.len() > MANY { (2.0, "point few") } else { (4.5, "point") };
    let body = html! {
        @for (point, label) in points.iter().zip(labels) {
            @let along = pc(x.place(point.x));
            g class=(class) {
                title { (shown(&point.tip, 2 * NAME)) }
                line class="l0" x1=(along) x2=(along) y1=(px(down(y, point.y.1))) y2=(px(down(y, point.y.2))) {}
                circle class=(if point.is_hollow { "hollow" } else { "c0" }) cx=(along) cy=(px(down(y, point.y.0))) r=(px(radius)) {}
                @if let (Some((number, name)), Some((at, is_left))) = (&point.label, label) {
                    text class=(if is_left { "label end" } else { "label" }) x=(along) y=(px(at)) dx=(if is_left { "-9" } else { "9" }) {
                        (number) tspan class="name" { " " (shown(name, 28)) }
                    }
                }
            }
        }
    };
    frame(name, y, x.ticks(), &body)
}

/// Where the label of each point is across the page, and whether it is left of it: none covers another.
fn labels((x, y): (&Axis, &Axis), points: &[Point]) -> Vec<Option<(f64, bool)>> {
    let mut order: Vec<usize> = (0..points.len()).filter(|i| points[*i].label.is_some()).collect();
    order.sort_by(|a, b| down(y, points[*a].y.0).total_cmp(&down(y, points[*b].y.0)));
    let mut placed: Vec<(f64, f64)> = vec![];
    let mut labels = vec![None; points.len()];
    for i in order {
        let along = x.place(points[i].x);
        let mut at = down(y, points[i].y.0) + 4.0;
        // Each is pushed below those that are there; they come from above.
        for (other, taken) in &placed {
            if (along - other).abs() < NEAR && at < taken + LINE {
                at = taken + LINE;
            }
        }
        placed.push((along, at));
        labels[i] = Some((at.min(AREA.1 + 4.0), along > 0.6));
    }
    labels
}

/// A column over a part of the width.
pub(super) struct Column {
    pub(super) height: f64,
    pub(super) tip: String,
}

/// Columns side by side, with `marks` at the edges between them: the number of columns before each, and its text.
pub(super) fn columns(name: &str, axis: &Axis, columns: &[Column], marks: &[(usize, &str)]) -> Markup {
    let count = columns.len().max(1) as f64;
    let body = html! {
        @for (i, column) in columns.iter().enumerate() {
            @let top = down(axis, column.height);
            g class="column" {
                title { (shown(&column.tip, 2 * NAME)) }
                rect class="c0" x=(pc((i as f64 + 0.04) / count)) width=(pc(0.92 / count)) y=(px(top)) height=(px((AREA.1 - top).max(0.0))) {}
            }
        }
    };
    frame(name, axis, marks.iter().map(|(at, text)| (*at as f64 / count, *text)), &body)
}

/// A value with its interval, on a line of its own.
pub(super) struct Line {
    pub(super) label: String,
    /// The number of its colour.
    pub(super) colour: usize,
    /// The value, and the two ends of its interval or range.
    pub(super) value: (f64, f64, f64),
    /// As text.
    pub(super) shown: String,
}

/// Values one below the other, over one axis along the page.
pub(super) fn lines(name: &str, axis: &Axis, lines: &[Line]) -> Markup {
    html! {
        div class="lines" role="img" aria-label=(name) {
            @for line in lines {
                @let (value, low, high) = line.value;
                span class="of" { (shown(&line.label, NAME)) }
                svg height="20" {
                    @for (place, _) in axis.ticks() { line class="rule" x1=(pc(place)) x2=(pc(place)) y1="0" y2="20" {} }
                    line class=(format!("l{}", line.colour)) x1=(pc(axis.place(low))) x2=(pc(axis.place(high))) y1="10" y2="10" {}
                    circle class=(format!("c{}", line.colour)) cx=(pc(axis.place(value))) cy="10" r="4.5" {}
                }
                span class="number" { (line.shown) }
            }
            span class="of" {}
            svg height="18" aria-hidden="true" {
                @for (place, text) in axis.ticks() { text class=(anchor(place)) x=(pc(place)) y="13" { (text) } }
            }
            span {}
        }
    }
}

/// One cell of a heat map.
pub(super) struct Heat {
    /// From 0 to 1; `None` if there is nothing.
    pub(super) share: Option<f64>,
    pub(super) tip: String,
}

/// Rows of cells, each row with a label, that share columns; `ends` are said below the first and the last.
pub(super) fn heat(name: &str, rows: &[(String, Vec<Heat>)], ends: [String; 2]) -> Markup {
    html! {
        div class="heat" role="img" aria-label=(name) {
            @for (label, cells) in rows {
                @let count = cells.len().max(1) as f64;
                span class="of" { (shown(label, NAME)) }
                svg height="20" {
                    @for (i, cell) in cells.iter().enumerate() {
                        @if let Some(share) = cell.share {
                            rect class="c0" x=(pc(i as f64 / count)) width=(pc(0.94 / count)) y="1" height="18"
                                fill-opacity=(format!("{:.3}", 0.06 + 0.94 * share.clamp(0.0, 1.0)))
                            { title { (shown(&cell.tip, 2 * NAME)) } }
                        }
                    }
                }
            }
            span class="of" {}
            div class="axis" { @for end in &ends { span { (end) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        Point {
            x,
            y: (y, y, y),
            tip: String::new(),
            label: Some(("1".to_owned(), "m".to_owned())),
            is_hollow: false,
        }
    }

    #[test]
    fn labels_of_near_points_do_not_touch() {
        let points = [point(1.0, 5.0), point(1.1, 5.01), point(1.05, 4.99), point(9.0, 5.0)];
        let axes = (Axis::linear([0.0, 10.0]), Axis::linear([0.0, 10.0]));
        let labels: Vec<(f64, bool)> = labels((&axes.0, &axes.1), &points).into_iter().flatten().collect();
        for (i, a) in labels[..3].iter().enumerate() {
            for b in &labels[i + 1..3] {
                assert!((a.0 - b.0).abs() > LINE - 1e-9, "{labels:?}");
            }
        }
        // The one that is far from the others stays beside its point, on the side where there is room.
        assert!((labels[3].0 - down(&axes.1, 5.0) - 4.0).abs() < 1e-9 && labels[3].1, "{labels:?}");
    }

    #[test]
    fn a_higher_value_is_higher_and_all_are_within() {
        let axis = Axis::linear([0.0, 10.0]);
        assert!(down(&axis, 10.0) < down(&axis, 0.0));
        for value in [-99.0, 0.0, 5.0, 99.0, f64::NAN] {
            assert!((AREA.0..=AREA.1).contains(&down(&axis, value)));
        }
    }
}
