//! The picture of all ranks: a row for each, a column for each group of entries, and in it what the rank takes.

use maud::{Markup, html};
use weighbridge::tensor::Bytes;

use super::colour::Palette;
use super::draw::{Mark, Picture, SMALL, TEXT, hatched, key, px, swatch, text};
use super::shares::{Column, RankRow, Shares};
use super::text::{NAME, fitted, many, shown, width_of};

/// What a picture of all ranks shows.
pub(crate) struct RanksPage<'a> {
    /// What the checkpoint is called.
    pub(crate) name: &'a str,
    /// The layout, and the mesh.
    pub(crate) what: String,
    /// What all of them take together.
    pub(crate) sums: &'a str,
    pub(crate) shares: &'a Shares<'a>,
}

const WIDTH: f64 = 880.0;
const MARGIN: f64 = 16.0;
/// The least width of a column: a line of its label.
const LEAST: f64 = 14.0;
const GAP: f64 = 3.0;
/// The longest label over a column, and how far it is turned.
const LABEL: f64 = 205.0;
const TURN: f64 = 52.0;
/// A column of numbers.
const NUMBER: f64 = 66.0;
const NUMBERS: [&str; 3] = ["holds", "takes", "reads"];

/// Draws the picture.
pub(crate) fn svg(page: &RanksPage<'_>) -> String {
    let shares = page.shares;
    let schemes = shares.columns.iter().filter_map(|c| Some((c.group.scheme.as_deref()?, c.group.bytes)));
    let palette = Palette::new(schemes);
    let names = shares.rows.iter().map(|row| width_of(&row.label, TEXT)).fold(60.0, f64::max).min(190.0);
    let left = MARGIN + names + 10.0;
    let right = WIDTH - MARGIN - NUMBER * NUMBERS.len() as f64;
    let order = shares.order();
    let widths =
        widths(&order.iter().map(|c| shares.columns[*c].group.bytes).collect::<Vec<_>>(), right - left);
    let mut x = left;
    let columns: Vec<Place<'_>> = order
        .iter()
        .zip(widths)
        .map(|(index, width)| {
            let place = Place { index: *index, column: &shares.columns[*index], x, width };
            x += width + GAP;
            place
        })
        .collect();
    let title = format!("{} → {}", shown(page.name, 80), page.what);
    let longest = columns
        .iter()
        .map(|c| width_of(&fitted(&c.column.group.title(), LABEL, SMALL), SMALL))
        .fold(0.0, f64::max);
    let top = 78.0 + longest * TURN.to_radians().sin() + 12.0;
    let height = match shares.rows.len() {
        0..=4 => 40.0,
        5..=16 => 26.0,
        17..=32 => 18.0,
        _ => 13.0,
    };
    let mut y = top;
    let mut rows = vec![];
    for row in &shares.rows {
        rows.push(rank(row, &columns, (y, height), &palette));
        y += height + 4.0;
    }
    if shares.more > 0 {
        let more = format!("and {}, which the last row counts too", many(shares.more, "more rank"));
        rows.push(text(MARGIN, y + 11.0, "small", WIDTH - 2.0 * MARGIN, SMALL, &more));
        y += 20.0;
    }
    y += 8.0;
    let all = all(&columns, (y, height.max(18.0)), &palette);
    let rule = format!("M{} {}H{}", px(MARGIN), px(y - 6.0), px(WIDTH - MARGIN));
    y += height.max(18.0);
    let (marks, foot) = key(&marks(&palette, &columns), MARGIN, y + 22.0, WIDTH - 2.0 * MARGIN);
    let width = WIDTH - 2.0 * MARGIN;
    let note = "The width of a column is the bytes of its tensors, but at least a line of its label. A row fills what its rank takes.";
    let body = html! {
        (text(MARGIN, 32.0, "title", width, 16.5, &title))
        (text(MARGIN, 54.0, "number", width, TEXT, page.sums))
        @for column in &columns { (heading(column, top - 6.0)) }
        @for (i, what) in NUMBERS.iter().enumerate() {
            (text(number_x(i), top - 8.0, "small end", NUMBER, SMALL, what))
        }
        @for row in rows { (row) }
        path class="rule" d=(rule) {}
        (all)
        (marks)
        (text(MARGIN, foot + 9.0, "small", width, SMALL, note))
    };
    let description = page.sums.to_owned();
    Picture { width: WIDTH, height: foot + 24.0, title, description, body }.file()
}

/// A column, and where it is.
struct Place<'a> {
    index: usize,
    column: &'a Column,
    x: f64,
    width: f64,
}

/// The right end of a column of numbers.
fn number_x(i: usize) -> f64 {
    WIDTH - MARGIN - NUMBER * (NUMBERS.len() - 1 - i) as f64
}

/// Widths by bytes, none of them less than [`LEAST`], that fill `room` with gaps between.
fn widths(bytes: &[u64], room: f64) -> Vec<f64> {
    let room = room - GAP * bytes.len() as f64;
    let mut narrow = vec![false; bytes.len()];
    loop {
        let fixed = narrow.iter().filter(|is| **is).count() as f64 * LEAST;
        let rest: f64 = bytes.iter().zip(&narrow).filter(|(_, is)| !**is).map(|(n, _)| *n as f64).sum();
        let scale = (room - fixed).max(0.0) / rest.max(1.0);
        let more: Vec<bool> = bytes.iter().map(|n| *n as f64 * scale < LEAST).collect();
        let next: Vec<bool> = narrow.iter().zip(more).map(|(was, is)| *was || is).collect();
        if next == narrow {
            let width = |(n, narrow): (&u64, &bool)| if *narrow { LEAST } else { *n as f64 * scale };
            return bytes.iter().zip(&narrow).map(width).collect();
        }
        narrow = next;
    }
}

/// The label over a column.
fn heading(place: &Place<'_>, y: f64) -> Markup {
    let group = &place.column.group;
    let (x, text) =
        (place.x + place.width.min(2.0 * LEAST) / 2.0 + 3.0, fitted(&group.title(), LABEL, SMALL));
    let scheme = group.scheme.as_deref().unwrap_or("several encodings");
    let tip = format!("{}\n{scheme}, {}", shown(&group.members(), 2 * NAME), Bytes(group.bytes));
    html! {
        text class="small" transform=(format!("translate({} {})rotate(-{TURN})", px(x), px(y))) {
            (text)
            title { (tip) }
        }
    }
}

/// The row of one rank.
fn rank(row: &RankRow, columns: &[Place<'_>], (y, height): (f64, f64), palette: &Palette) -> Markup {
    let middle = y + height / 2.0 + 4.0;
    let numbers = [Bytes(row.held).to_string(), Bytes(row.taken).to_string(), row.reads.to_string()];
    html! {
        g class="rank" {
            (text(MARGIN, middle, "", 190.0, TEXT, &row.label))
            @for place in columns { (cell(row, place, (y, height), palette)) }
            @for (i, number) in numbers.iter().enumerate() {
                (text(number_x(i), middle, "number end", NUMBER, TEXT, number))
            }
        }
    }
}

/// What a rank takes of a column: as wide as the entries, as high as its part of them.
fn cell(row: &RankRow, place: &Place<'_>, (y, height): (f64, f64), palette: &Palette) -> Markup {
    let Place { index, column, x, width } = place;
    let class = format!("c{}", palette.colour(column.group.scheme.as_deref().unwrap_or_default()));
    let total = column.group.bytes.max(1) as f64;
    let taken: u64 = row.cells[*index].iter().map(|share| share.bytes).sum();
    let (mut boxes, mut at): (Vec<Filled>, f64) = (vec![], *x);
    for (i, share) in row.cells[*index].iter().enumerate() {
        let bytes = column.bins[i];
        let wide = width * bytes as f64 / total;
        let part = share.bytes as f64 / bytes.max(1) as f64;
        if share.bytes > 0 {
            let start = share.start().min(1.0 - part).max(0.0);
            let filled = Filled {
                x: at,
                width: wide,
                y: y + start * height,
                height: (part * height).max(1.0),
                several: column.taken[i] > bytes,
            };
            match boxes.last_mut() {
                Some(last) if last.continues(&filled) => last.width += wide,
                _ => boxes.push(filled),
            }
        }
        at += wide;
    }
    let tip =
        format!("{}: {} of {}", shown(&column.group.title(), NAME), Bytes(taken), Bytes(column.group.bytes));
    html! {
        g class="share" data-column=(index) data-taken=(taken) {
            title { (tip) }
            rect class="frame" x=(px(*x)) y=(px(y)) width=(px(*width)) height=(px(height)) {}
            @for one in boxes { (one.draw(&class)) }
        }
    }
}

/// A filled box.
struct Filled {
    x: f64,
    width: f64,
    y: f64,
    height: f64,
    /// Several ranks take it.
    several: bool,
}

impl Filled {
    fn continues(&self, next: &Filled) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() < 0.05;
        self.several == next.several
            && near(self.y, next.y)
            && near(self.height, next.height)
            && near(self.x + self.width, next.x)
    }

    fn draw(&self, class: &str) -> Markup {
        let [x, y, width, height] = [self.x, self.y, self.width.max(0.6), self.height].map(px);
        html! {
            rect class=(class) x=(x) y=(y) width=(width) height=(height) {}
            @if self.several { rect fill="url(#hatch)" x=(x) y=(y) width=(width) height=(height) {} }
        }
    }
}

/// The row of all ranks: what is taken, and what more than once.
fn all(columns: &[Place<'_>], (y, height): (f64, f64), palette: &Palette) -> Markup {
    html! {
        g class="all" {
            (text(MARGIN, y + height / 2.0 + 4.0, "", 190.0, TEXT, "all ranks"))
            @for Place { column, x, width, .. } in columns {
                @let class = format!("c{}", palette.colour(column.group.scheme.as_deref().unwrap_or_default()));
                @let taken: u64 = column.taken.iter().sum();
                @let part = (taken as f64 / column.group.bytes.max(1) as f64).min(1.0);
                @let filled = Filled { x: *x, width: *width, y, height: part * height, several: taken > column.group.bytes };
                @let times = taken as f64 / column.group.bytes.max(1) as f64;
                g {
                    title { (shown(&column.group.title(), NAME)) ": " (Bytes(taken)) " taken of " (Bytes(column.group.bytes)) }
                    rect class="frame" x=(px(*x)) y=(px(y)) width=(px(*width)) height=(px(height)) {}
                    (filled.draw(&class))
                    @if times > 1.05 && *width >= LEAST {
                        text class="small middle" x=(px(x + width / 2.0)) y=(px(y + height + 11.0)) { (format!("{times:.0}×")) }
                    }
                }
            }
        }
    }
}

/// What the colours and the fillings mean.
fn marks(palette: &Palette, columns: &[Place<'_>]) -> Vec<Mark> {
    let mut marks: Vec<Mark> = palette
        .legend()
        .into_iter()
        .map(|(colour, means)| Mark { drawn: swatch(&format!("c{colour}")), means })
        .collect();
    let several =
        |c: &Place<'_>| c.column.taken.iter().zip(&c.column.bins).any(|(taken, bytes)| taken > bytes);
    if columns.iter().any(several) {
        marks.push(Mark {
            drawn: hatched("c0", "hatch"),
            means: "taken by several ranks (3×: three times)".to_owned(),
        });
    }
    marks.push(Mark { drawn: swatch("frame"), means: "not taken by this rank".to_owned() });
    marks
}
