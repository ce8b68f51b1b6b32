//! The picture of a plan: entries left, parameters right, and between them what moves where.

use maud::{Markup, html};
use weighbridge::Plan;
use weighbridge::load::Needs;
use weighbridge::plan::Summary;
use weighbridge::tensor::Bytes;

use super::colour::Palette;
use super::draw::{Mark, Picture, SMALL, TEXT, hatched, key, px, round_bytes, swatch, text};
use super::flow::{Band, EntryGroup, Flow, ParamGroup, Way};
use super::groups::Group;
use super::text::{NAME, many, shown, width_of};

/// What a picture of a plan shows.
pub(crate) struct PlanPage<'a> {
    /// What the checkpoint is called.
    pub(crate) name: &'a str,
    /// The layout, and whose share it is.
    pub(crate) what: String,
    pub(crate) plan: &'a Plan,
    pub(crate) summary: &'a Summary,
    pub(crate) needs: &'a Needs,
    /// Whether each parameter is borrowed.
    pub(crate) borrowed: &'a [bool],
}

/// The least width, and the least of it that the bands have.
const WIDTH: f64 = 880.0;
const FLOW: f64 = 230.0;
const MARGIN: f64 = 16.0;
/// Bytes of the larger side, as a height.
const HEIGHT: f64 = 320.0;
/// The least height of a bar and of a band.
const LEAST: f64 = 2.0;
const THIN: f64 = 1.2;
/// A bar's width.
const BAR: f64 = 9.0;
/// The least height of a row: a label of two lines.
const ROW: f64 = 28.0;
const GAP: f64 = 7.0;
/// The narrowest column of labels, which its heading fits, and the widest.
const LABELS: (f64, f64) = (240.0, 350.0);
const TOP: f64 = 112.0;

/// One bar, and the label beside it.
struct Row {
    /// Where the bar begins, and its height.
    y: f64,
    height: f64,
    lines: [String; 2],
}

/// Draws the picture as a file.
pub(crate) fn svg(page: &PlanPage<'_>) -> String {
    picture(page).file()
}

/// Draws the picture.
pub(super) fn picture(page: &PlanPage<'_>) -> Picture {
    let flow = Flow::new(page.plan, page.borrowed);
    let schemes = |group: &Group| (group.scheme.clone().unwrap_or_default(), group.bytes);
    let all: Vec<(String, u64)> = flow
        .entries
        .iter()
        .map(|e| schemes(&e.group))
        .chain(flow.params.iter().map(|p| schemes(&p.group)))
        .filter(|(scheme, _)| !scheme.is_empty())
        .collect();
    let palette = Palette::new(all.iter().map(|(scheme, bytes)| (scheme.as_str(), *bytes)));
    let sum = |groups: &mut dyn Iterator<Item = &Group>| groups.map(|g| g.bytes).sum::<u64>();
    let stored = sum(&mut flow.entries.iter().map(|e| &e.group));
    let held = sum(&mut flow.params.iter().map(|p| &p.group));
    let scale = HEIGHT / stored.max(held).max(1) as f64;
    let mut left = column(flow.entries.iter().map(|e| (entry_lines(e), e.group.bytes)), scale);
    let mut right = column(flow.params.iter().map(|p| (param_lines(p), p.group.bytes)), scale);
    let bottom = bottom(&left).max(bottom(&right));
    spread(&mut left, bottom);
    spread(&mut right, bottom);
    let label = |rows: &[Row]| {
        let width = |row: &Row| {
            width_of(&shown(&row.lines[0], NAME), TEXT).max(width_of(&shown(&row.lines[1], NAME), SMALL))
        };
        rows.iter().map(width).fold(LABELS.0, f64::max).min(LABELS.1)
    };
    let (names, params) = (label(&left), label(&right));
    let around = 2.0 * (MARGIN + 8.0 + BAR);
    let width = (names + params + around + FLOW).max(WIDTH);
    let sides = Sides { left: MARGIN + names + 8.0, right: width - MARGIN - params - 8.0 - BAR, width };
    let bands = bands(&flow, &left, &right, scale, &sides, &palette);
    let title = format!("{} → {}", shown(page.name, 80), page.what);
    let (marks, foot) = key(&marks(&flow, &palette), MARGIN, bottom + 24.0, sides.room());
    let body = html! {
        (head(page, &title, &sides))
        (heads(page, stored, held, &sides))
        g { (bands) }
        g { @for (group, row) in flow.entries.iter().zip(&left) { (entry(group, row, &sides, &palette, scale)) } }
        g { @for (group, row) in flow.params.iter().zip(&right) { (param(group, row, &sides, &palette, scale)) } }
        (ties(&flow, &right, &sides))
        (marks)
        (measure(scale, foot, &sides))
    };
    Picture { width: sides.width, height: foot + 30.0, title, description: page.summary.to_string(), body }
}

/// Where the bars are, and how wide all is.
struct Sides {
    left: f64,
    right: f64,
    width: f64,
}

impl Sides {
    /// The width within the margins.
    fn room(&self) -> f64 {
        self.width - 2.0 * MARGIN
    }

    /// The width of the labels of the right side.
    fn label(&self) -> f64 {
        self.width - MARGIN - self.right - BAR - 8.0
    }
}

/// Rows one under the other.
fn column(groups: impl Iterator<Item = ([String; 2], u64)>, scale: f64) -> Vec<Row> {
    let mut y = TOP;
    groups
        .map(|(lines, bytes)| {
            let height = if bytes == 0 { 0.0 } else { (bytes as f64 * scale).max(LEAST) };
            let slot = height.max(ROW);
            let row = Row { y: y + (slot - height) / 2.0, height, lines };
            y += slot + GAP;
            row
        })
        .collect()
}

fn bottom(rows: &[Row]) -> f64 {
    rows.last().map_or(TOP, |row| row.y + row.height + (ROW - row.height).max(0.0) / 2.0)
}

/// Moves rows apart, so that the last ends at `end`.
fn spread(rows: &mut [Row], end: f64) {
    let room = (end - bottom(rows)) / (rows.len() as f64 - 1.0).max(1.0);
    for (i, row) in rows.iter_mut().enumerate() {
        row.y += i as f64 * room;
    }
}

fn entry_lines(one: &EntryGroup) -> [String; 2] {
    let EntryGroup { group, taken, dropped } = one;
    let taken = match (dropped, *taken) {
        (Some(why), _) => format!(", not needed: {why}"),
        (None, 0) if group.bytes > 0 => ", not taken".to_owned(),
        (None, taken) if taken < group.bytes => format!(", {} taken", Bytes(taken)),
        _ => String::new(),
    };
    if dropped.is_some() {
        return [group.title(), format!("{}{taken}", Bytes(group.bytes))];
    }
    let shape = group.shape.as_ref().map(ToString::to_string).unwrap_or_default();
    let scheme = group.scheme.as_deref().unwrap_or("several encodings");
    [group.title(), format!("{shape} {scheme}, {}{taken}", Bytes(group.bytes)).trim_start().to_owned()]
}

fn param_lines(one: &ParamGroup) -> [String; 2] {
    let ParamGroup { group, way, marks, .. } = one;
    let how: Vec<String> = marks.iter().cloned().chain([way.words()]).collect();
    let how = how.join(", ");
    let second = match way {
        Way::Tied(_) | Way::Absent(_) => how,
        _ => {
            let scheme = group.scheme.as_deref().unwrap_or("several encodings");
            format!("{scheme}, {}: {how}", Bytes(group.bytes))
        }
    };
    [group.title(), second]
}

/// The title, and what the load takes.
fn head(page: &PlanPage<'_>, title: &str, sides: &Sides) -> Markup {
    let Needs { read, borrowed, copied, encoded, .. } = page.needs;
    let mut parts = vec![];
    let mut part = |bytes: u64, what: &str| {
        if bytes > 0 {
            parts.push(format!("{} {what}", Bytes(bytes)));
        }
    };
    part(*read, "read");
    part(*borrowed, "mapped from the file");
    part(*copied, "copied");
    part(*encoded, "re-encoded");
    let room = sides.room();
    html! {
        (text(MARGIN, 32.0, "title", room, 16.5, title))
        (text(MARGIN, 54.0, "number", room, TEXT, &parts.join(" · ")))
    }
}

/// What stands over the two sides.
fn heads(page: &PlanPage<'_>, stored: u64, held: u64, sides: &Sides) -> Markup {
    let y = TOP - 22.0;
    let left = format!("in the file: {}, {}", many(page.summary.entries, "tensor"), Bytes(stored));
    let right = format!("in memory: {}, {}", many(page.summary.params, "parameter"), Bytes(held));
    html! {
        (text(sides.left - 8.0, y, "end", sides.left - MARGIN, TEXT, &left))
        (text(sides.right + BAR + 8.0, y, "", sides.label(), TEXT, &right))
        path class="rule" d=(format!("M{} {}H{}", px(MARGIN), px(y + 8.0), px(sides.width - MARGIN))) {}
    }
}

/// The bands, and where each begins on either side.
fn bands(flow: &Flow, left: &[Row], right: &[Row], scale: f64, sides: &Sides, palette: &Palette) -> Markup {
    let (mut out, mut into) = (vec![0.0; left.len()], vec![0.0; right.len()]);
    let mut drawn = vec![];
    for (i, band) in flow.bands.iter().enumerate() {
        let (from, to) = (&left[band.from], &right[band.to]);
        // What is taken twice is taken from the same place.
        let thick = |bytes: u64, row: &Row| (bytes as f64 * scale).max(THIN).min(row.height.max(THIN));
        let start = thick(band.read, from);
        if out[band.from] + start > from.height + 0.5 {
            out[band.from] = 0.0;
        }
        let end = thick(band.written, to);
        let y0 = from.y + out[band.from];
        let y1 = to.y + f64::min(into[band.to], to.height - end).max(0.0);
        out[band.from] += start;
        into[band.to] += end;
        drawn.push(one_band(i, flow, band, (y0, start), (y1, end), sides, palette));
    }
    html! { @for one in drawn { (one) } }
}

fn one_band(
    index: usize,
    flow: &Flow,
    band: &Band,
    (y0, start): (f64, f64),
    (y1, end): (f64, f64),
    sides: &Sides,
    palette: &Palette,
) -> Markup {
    let (entry, param) = (&flow.entries[band.from], &flow.params[band.to]);
    let (x0, x1) = (sides.left + BAR, sides.right);
    let middle = f64::midpoint(x0, x1);
    let [x0, x1, xm] = [x0, x1, middle].map(px);
    let [a0, b0, a1, b1] = [y0, y0 + start, y1, y1 + end].map(px);
    let path = format!("M{x0} {a0}C{xm} {a0} {xm} {a1} {x1} {a1}V{b1}C{xm} {b1} {xm} {b0} {x0} {b0}Z");
    let colour = |group: &Group| palette.colour(group.scheme.as_deref().unwrap_or_default());
    let (from, to) = (colour(&entry.group), colour(&param.group));
    let gradient = format!("g{index}");
    let (class, hatch) = match &param.way {
        Way::Borrowed => ("borrowed", None),
        Way::Encoded { exact: true } => ("encoded", Some("url(#hatch)")),
        Way::Encoded { exact: false } => ("encoded", Some("url(#dense)")),
        _ => ("copied", None),
    };
    // A thread has no room for a filling.
    let (class, hatch) = if start.max(end) < 3.0 { ("thread", None) } else { (class, hatch) };
    let steps = if param.steps.is_empty() { String::new() } else { format!(": {}", param.steps) };
    let tip = format!(
        "{} → {}\n{} read, {} written, {}{steps}",
        shown(&entry.group.title(), NAME),
        shown(&param.group.title(), NAME),
        Bytes(band.read),
        Bytes(band.written),
        shown(&param_lines(param)[1], NAME),
    );
    html! {
        g class="band" data-read=(band.read) data-written=(band.written) {
            title { (tip) }
            @if from == to {
                path class=(format!("{class} c{from}")) d=(path) {}
            } @else {
                linearGradient id=(gradient) gradientUnits="userSpaceOnUse" x1=(x0) y1="0" x2=(x1) y2="0" {
                    stop class=(format!("s{from}")) offset="0" {}
                    stop class=(format!("s{to}")) offset="1" {}
                }
                path class=(class) fill=(format!("url(#{gradient})")) d=(path) {}
            }
            @if let Some(hatch) = hatch {
                path fill=(hatch) d=(path) {}
            }
        }
    }
}

/// A bar of the left side with its label: filled as far as it is taken.
fn entry(one: &EntryGroup, row: &Row, sides: &Sides, palette: &Palette, scale: f64) -> Markup {
    let colour = palette.colour(one.group.scheme.as_deref().unwrap_or_default());
    let taken = (one.taken as f64 * scale).max(if one.taken > 0 { LEAST } else { 0.0 }).min(row.height);
    let x = sides.left;
    html! {
        g class="entry" data-bytes=(one.group.bytes) data-taken=(one.taken) data-count=(one.group.count) {
            title { (shown(&one.group.members(), 2 * NAME)) }
            @if taken < row.height {
                rect class="hollow" x=(px(x + 0.5)) y=(px(row.y + 0.5)) width=(px(BAR - 1.0))
                    height=(px((row.height - 1.0).max(0.5))) {}
            }
            rect class=(format!("c{colour}")) x=(px(x)) y=(px(row.y)) width=(px(BAR)) height=(px(taken)) {}
            (label(x - 8.0, row, x - 8.0 - MARGIN + 1.0, " end"))
        }
    }
}

/// A bar of the right side with its label: hollow where it is padding.
fn param(one: &ParamGroup, row: &Row, sides: &Sides, palette: &Palette, scale: f64) -> Markup {
    let colour = palette.colour(one.group.scheme.as_deref().unwrap_or_default());
    let filled = (row.height - one.padding as f64 * scale).max(0.0);
    let x = sides.right;
    html! {
        g class="param" data-bytes=(one.group.bytes) data-padding=(one.padding) data-count=(one.group.count)
            data-way=(way_name(&one.way))
        {
            title { (shown(&one.group.members(), 2 * NAME)) }
            @match one.way {
                Way::Tied(_) | Way::Absent(_) => {
                    rect class="dashed" x=(px(x + 0.5)) y=(px(row.y - 3.0)) width=(px(BAR - 1.0)) height="6" {}
                }
                _ => {
                    @if filled < row.height {
                        rect class="hollow" x=(px(x + 0.5)) y=(px(row.y + 0.5)) width=(px(BAR - 1.0))
                            height=(px((row.height - 1.0).max(0.5))) {}
                    }
                    rect class=(format!("c{colour}")) x=(px(x)) y=(px(row.y)) width=(px(BAR)) height=(px(filled)) {}
                }
            }
            (label(x + BAR + 8.0, row, sides.label() + 1.0, ""))
        }
    }
}

/// The name of a way for programs that read the picture.
fn way_name(way: &Way) -> &'static str {
    match way {
        Way::Borrowed => "borrowed",
        Way::Copied => "copied",
        Way::Encoded { .. } => "encoded",
        Way::Tied(_) => "tied",
        Way::Absent(_) => "absent",
        Way::Several => "several",
    }
}

/// The two lines of a label, beside the middle of the bar.
fn label(x: f64, row: &Row, width: f64, class: &str) -> Markup {
    let y = row.y + row.height / 2.0;
    html! {
        (text(x, y - 2.5, class.trim_start(), width, TEXT, &row.lines[0]))
        (text(x, y + 11.0, &format!("small number{class}"), width, SMALL, &row.lines[1]))
    }
}

/// Dashed lines from what shares a slot to the one whose slot it is.
fn ties(flow: &Flow, right: &[Row], sides: &Sides) -> Markup {
    let mut lines = vec![];
    for (param, row) in flow.params.iter().zip(right) {
        let Way::Tied(root) = &param.way else { continue };
        let is_root = |p: &ParamGroup| !matches!(p.way, Way::Tied(_)) && p.group.name == *root;
        let Some(at) = flow.params.iter().position(is_root) else { continue };
        let (y, to) = (row.y, right[at].y + right[at].height / 2.0);
        let x = sides.right;
        let bow = x - 46.0;
        lines.push(format!(
            "M{} {}C{} {} {} {} {} {}",
            px(x),
            px(y),
            px(bow),
            px(y),
            px(bow),
            px(to),
            px(x),
            px(to)
        ));
    }
    html! { @for line in lines { path class="dashed" d=(line) {} } }
}

/// What the colours and the fillings mean, of those that are there.
fn marks(flow: &Flow, palette: &Palette) -> Vec<Mark> {
    let mut marks: Vec<Mark> = palette
        .legend()
        .into_iter()
        .map(|(colour, means)| Mark { drawn: swatch(&format!("c{colour}")), means })
        .collect();
    let mut mark = |is: bool, drawn: Markup, means: &str| {
        if is {
            marks.push(Mark { drawn, means: means.to_owned() });
        }
    };
    let any = |is: &dyn Fn(&ParamGroup) -> bool| flow.params.iter().any(is);
    mark(any(&|p| p.way == Way::Borrowed), swatch("c0 borrowed"), "mapped: used where it lies in the file");
    mark(any(&|p| p.way == Way::Copied), swatch("c0 copied"), "copied: moved as it is");
    mark(
        any(&|p| p.way == Way::Encoded { exact: true }),
        hatched("c0 encoded", "hatch"),
        "re-encoded: no value lost",
    );
    mark(
        any(&|p| p.way == Way::Encoded { exact: false }),
        hatched("c0 encoded", "dense"),
        "re-encoded, with losses",
    );
    mark(
        any(&|p| matches!(p.way, Way::Tied(_) | Way::Absent(_))),
        html! { rect class="dashed" x="0.5" y="0.5" width="17" height="10" {} },
        "no bytes of its own",
    );
    let untaken = flow.entries.iter().any(|e| e.taken < e.group.bytes);
    let means = match (untaken, any(&|p| p.padding > 0)) {
        (true, true) => "left: not taken; right: padding",
        (true, false) => "not taken",
        (false, _) => "padding",
    };
    let hollow = html! { rect class="hollow" x="0.5" y="0.5" width="17" height="10" {} };
    mark(untaken || any(&|p| p.padding > 0), hollow, means);
    marks
}

/// How many bytes a height is.
fn measure(scale: f64, y: f64, sides: &Sides) -> Markup {
    let bytes = round_bytes(24.0 / scale);
    let height = bytes as f64 * scale;
    let means = format!("{}, on either side; no bar is lower than {LEAST} px", Bytes(bytes));
    html! {
        path class="rule ink" d=(format!("M{0} {1}h6m-3 0v{2}m-3 0h6", px(MARGIN + 6.0), px(y), px(height))) {}
        (text(MARGIN + 24.0, y + height / 2.0 + 4.0, "small", sides.room() - 24.0, SMALL, &means))
    }
}
