//! What the pages have in common: the frame, tables, and the data of the long table.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use weighbridge::tensor::Pattern;

use super::colour;
use super::text::{NAME, shown};

/// A page needs nothing but itself: a browser that is told so fetches nothing, whatever a name may hold.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A whole page. `rows` is what [`every`] shows.
pub(super) fn page(title: &str, body: &Markup, rows: &[Value]) -> String {
    let policy = html! { meta http-equiv="Content-Security-Policy" content=(POLICY); };
    let style = html! { style { (PreEscaped(style())) } };
    let script = html! { script { (PreEscaped(SCRIPT)) } };
    frame(title, &html! { (policy) (style) }, body, rows, &script)
}

/// The same for `serve`, whose style sheet and script are files of the server: its policy lets nothing inline run.
#[cfg(feature = "serve")]
pub(super) fn served(title: &str, body: &Markup, rows: &[Value]) -> String {
    let style = html! { link rel="icon" href="data:,"; link rel="stylesheet" href="page/model.css"; };
    frame(title, &style, body, rows, &html! { script src="page/model.js" {} })
}

/// The script of each page.
pub(super) const SCRIPT: &str = include_str!("page.js");

/// The style sheet of each page.
pub(super) fn style() -> String {
    format!("{}{}", colour::css(":root"), include_str!("page.css"))
}

fn frame(title: &str, style: &Markup, body: &Markup, rows: &[Value], script: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        (PreEscaped(super::file::MARK))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (title) }
                (style)
            }
            body {
                (body)
                script id="data" type="application/json" { (PreEscaped(data(rows))) }
                (script)
            }
        }
    };
    format!("{}\n", page.into_string())
}

/// JSON that nothing in it can end: no `<` is left that could begin a tag.
fn data(rows: &[Value]) -> String {
    let mut text = String::from("[");
    for (i, row) in rows.iter().enumerate() {
        text += if i == 0 { "\n" } else { ",\n" };
        text += &row.to_string().replace('<', "\\u003c");
    }
    text + "]"
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(super) struct Heading {
    pub(super) name: &'static str,
    pub(super) is_number: bool,
}

/// A column of texts.
pub(super) const fn words(name: &'static str) -> Heading {
    Heading { name, is_number: false }
}

/// A column of numbers.
pub(super) const fn numbers(name: &'static str) -> Heading {
    Heading { name, is_number: true }
}

/// A cell: what is shown, and what it sorts by if that is not its text.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) value: Option<f64>,
}

impl Cell {
    /// A text of ours or a stranger's.
    pub(super) fn text(text: &str) -> Cell {
        Cell { text: shown(text, NAME), value: None }
    }

    /// A number as it is shown, and as it is.
    pub(super) fn number(text: impl ToString, value: f64) -> Cell {
        Cell { text: text.to_string(), value: Some(value) }
    }

    /// What it sorts by, as JavaScript reads it; what is no number comes after all.
    fn key(&self) -> Option<String> {
        self.value.map(|value| if value.is_finite() { value.to_string() } else { "Infinity".to_owned() })
    }

    /// For the long table.
    fn json(&self) -> Value {
        match self.value {
            Some(value) => Value::from(vec![Value::from(self.text.as_str()), Value::from(value)]),
            None => Value::from(self.text.as_str()),
        }
    }
}

/// A table whose rows are all there.
pub(super) fn table(class: &str, headings: &[Heading], rows: &[Vec<Cell>]) -> Markup {
    html! {
        div class="scroll" {
            table class=(class) {
                (head(headings))
                tbody {
                    @for row in rows {
                        tr {
                            @for (cell, heading) in row.iter().zip(headings) {
                                td class=[heading.is_number.then_some("number")] data-value=[cell.key()] { (cell.text) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn head(headings: &[Heading]) -> Markup {
    html! {
        thead { tr { @for h in headings { th scope="col" class=[h.is_number.then_some("number")] { (h.name) } } } }
    }
}

/// The long table, whose rows a script makes as they come into view. Without one, nothing of it is shown.
pub(super) fn every(title: &str, headings: &[Heading]) -> Markup {
    html! {
        section id="all" hidden {
            h2 { (title) }
            p {
                input id="filter" type="search" placeholder="filter: words of a row" aria-label="filter";
                " " span id="found" class="faint" aria-live="polite" {}
            }
            div class="scroll" { table class="wide" { (head(headings)) tbody {} } }
            p id="end" class="faint" { "…" }
        }
    }
}

/// Rows of the long table that are alike but for numbers in their names, as one.
pub(super) struct Alike {
    /// The name without its numbers.
    parts: Vec<String>,
    numbers: Vec<Value>,
    cells: Vec<Value>,
}

impl Alike {
    pub(super) fn new(name: &str, cells: &[Cell]) -> Alike {
        let mut alike =
            Alike { parts: vec![], numbers: vec![], cells: cells.iter().map(Cell::json).collect() };
        if !is_plain(name) {
            alike.parts.push(shown(name, NAME));
            return alike;
        }
        let mut part = String::new();
        for (i, segment) in name.split('.').enumerate() {
            part += if i == 0 { "" } else { "." };
            if is_number(segment) {
                alike.parts.push(std::mem::take(&mut part));
            } else {
                part += segment;
            }
        }
        alike.parts.push(part);
        alike
    }

    /// A row of its own.
    pub(super) fn one(name: &str, cells: &[Cell]) -> Value {
        let cells = cells.iter().map(Cell::json).collect();
        Alike { parts: vec![shown(name, NAME)], numbers: vec![], cells }.json()
    }

    /// Adds a name that differs in its numbers only.
    pub(super) fn add(&mut self, name: &str) {
        if self.parts.len() < 2 {
            return;
        }
        let number = |digits: &str| match digits.parse::<u32>() {
            Ok(n) if n.to_string() == digits => Value::from(n),
            _ => Value::from(digits),
        };
        self.numbers.extend(name.split('.').filter(|s| is_number(s)).map(number));
    }

    pub(super) fn json(self) -> Value {
        let start = [Value::from(self.parts), Value::from(self.numbers)];
        Value::from(start.into_iter().chain(self.cells).collect::<Vec<_>>())
    }
}

/// Whether a name is shown as it is. Only such names may be one row with others.
pub(super) fn is_plain(name: &str) -> bool {
    name.len() <= NAME && name.bytes().all(|b| b.is_ascii_graphic())
}

fn is_number(segment: &str) -> bool {
    Pattern::of(segment).as_str() == "{n}" && segment != "{n}"
}

/// A list under a heading; nothing for none. Beyond `most`, items are counted only.
pub(super) fn list(heading: &str, items: &[String], most: usize) -> Markup {
    html! {
        @if !items.is_empty() {
            h2 { (heading) }
            ul {
                @for item in items.iter().take(most) { li { (shown(item, 4 * NAME)) } }
                @if items.len() > most { li class="faint" { "and " (items.len() - most) " more: --json lists all" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_one_row() {
        let mut rows = Alike::new("blk.0.w.7", &[Cell::text("f32")]);
        rows.add("blk.0.w.7");
        rows.add("blk.12.w.007");
        assert_eq!(rows.json().to_string(), r#"[["blk.",".w.",""],[0,7,12,"007"],"f32"]"#);
        let mut odd = Alike::new("a.{n}.\u{202e}3", &[]);
        odd.add("a.{n}.\u{202e}3");
        assert_eq!(odd.json().to_string(), r#"[["a.{n}.\\u{202e}3"],[]]"#);
    }

    #[test]
    fn data_cannot_end_its_element() {
        let row = Alike::new("</script><!--", &[Cell::text("</SCRIPT ")]).json();
        assert!(!data(&[row]).contains('<'));
    }
}
