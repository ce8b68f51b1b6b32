//! Colour, on a terminal only.

use std::io::IsTerminal;

/// Whether colour is wanted on a stream: it is a terminal that has styles, and `NO_COLOR` is not set (no-color.org).
fn coloured(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Whether stderr has colour.
pub(crate) fn on_stderr() -> bool {
    coloured(std::io::stderr().is_terminal())
}

/// Whether stdout has colour.
pub(crate) fn on_stdout() -> bool {
    coloured(std::io::stdout().is_terminal())
}

fn paint(on: bool, code: &str, text: &str) -> String {
    if on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// What strangers' files say must not steer the terminal: control characters are escaped.
fn without_control(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// An error with its hints, for stderr.
pub(crate) fn error(message: &str) -> String {
    let message = without_control(message);
    let on = on_stderr();
    let mut out = paint(on, "1;31", "error:");
    for (i, line) in message.lines().enumerate() {
        out.push_str(if i == 0 { " " } else { "\n" });
        match line.trim_start().strip_prefix("hint:") {
            Some(hint) => {
                let indent = &line[..line.len() - line.trim_start().len()];
                out.push_str(indent);
                out.push_str(&paint(on, "1;36", "hint:"));
                out.push_str(hint);
            }
            None => out.push_str(line),
        }
    }
    out
}

/// Side information on stderr.
pub(crate) fn note(text: &str) -> String {
    paint(on_stderr(), "2", text)
}

/// Where a person types.
pub(crate) fn prompt(text: &str) -> String {
    paint(on_stderr(), "1;32", text)
}

/// A heading on stdout.
pub(crate) fn heading(text: &str) -> String {
    paint(on_stdout(), "1", text)
}

/// What matters less, on stdout.
pub(crate) fn faint(text: &str) -> String {
    paint(on_stdout(), "2", text)
}

/// Columns of the terminal that stdout is, or of `COLUMNS`; a file or a pipe has no end.
fn columns() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || {
        let stdout = std::io::stdout();
        stdout.is_terminal().then(|| terminal_size::terminal_size_of(stdout)).flatten()
    };
    let found = said.or_else(|| terminal().map(|(width, _)| usize::from(width.0)));
    found.filter(|columns| *columns > 0).unwrap_or(usize::MAX)
}

/// A table with aligned columns; those in `right` are flush right. Each row is indented by two spaces. Without a `heading`
/// it has none.
///
/// A row that is wider than the terminal takes several lines: its title, then the other cells, each after its heading.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    table_of(heading, rows, right, columns())
}

fn table_of(heading: &[&str], rows: &[Vec<String>], right: &[usize], limit: usize) -> String {
    let head: Option<Vec<String>> =
        (!heading.is_empty()).then(|| heading.iter().map(|cell| faint(cell)).collect());
    let all: Vec<&Vec<String>> = head.iter().chain(rows).collect();
    let columns = all.iter().map(|row| row.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| all.iter().filter_map(|r| r.get(c)).map(|s| width(s)).max().unwrap_or(0))
        .collect();
    if widths.iter().map(|w| w + 2).sum::<usize>() > limit {
        return rows.iter().map(|row| stacked(heading, row, right, limit)).collect();
    }
    let mut out = String::new();
    for row in all {
        let mut line = String::from("  ");
        for (c, cell) in row.iter().enumerate() {
            let pad = widths[c] - width(cell);
            let (before, after) = if right.contains(&c) { (pad, 0) } else { (0, pad) };
            line.push_str(&" ".repeat(before));
            line.push_str(cell);
            line.push_str(&" ".repeat(after + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// One row on several lines.
fn stacked(heading: &[&str], row: &[String], right: &[usize], limit: usize) -> String {
    // A count stands before what it counts.
    let first = usize::from(right.contains(&0) && row.len() > 1);
    let title: Vec<&str> =
        row.iter().take(first + 1).map(String::as_str).filter(|cell| !cell.is_empty()).collect();
    let mut out = format!("  {}\n", title.join(" "));
    let mut line = String::new();
    let rest = row.iter().enumerate().skip(first + 1).filter(|(_, cell)| !cell.is_empty());
    for (c, cell) in rest {
        let word = heading.get(c).map(|word| format!("{} ", faint(word))).unwrap_or_default();
        let cell = format!("{word}{cell}");
        // A cell that is longer than a line is cut between its words.
        let words: Vec<&str> = if 6 + width(&cell) > limit { cell.split(' ').collect() } else { vec![&cell] };
        for (i, word) in words.into_iter().enumerate() {
            let gap = if i == 0 { "  " } else { " " };
            if !line.is_empty() && 6 + width(&line) + gap.len() + width(word) > limit {
                out += &["      ", &line, "\n"].concat();
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { gap });
            line.push_str(word);
        }
    }
    if !line.is_empty() {
        out += &["      ", &line, "\n"].concat();
    }
    out
}

/// Columns that a text takes, its colours left out.
fn width(text: &str) -> usize {
    let mut columns = 0;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        columns += before.chars().count();
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    columns + rest.chars().count()
}

/// The location of a model for messages: a path, or a URL without what is secret in it.
pub(crate) fn shown(path: &std::path::Path) -> String {
    weighbridge::storage::shown(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![
            row(["30 ×", "blk.{n}.attn_q.weight", "q4_1", "5.00"]),
            row(["", "output.weight", "\x1b[2mq8_0\x1b[0m", "8.50"]),
        ]
    }

    #[test]
    fn a_table_is_aligned_where_it_fits() {
        let text = table_of(&["", "tensor", "to", "bits"], &rows(), &[0, 3], 80);
        let wanted = "        tensor                 to    bits\n  30 ×  blk.{n}.attn_q.weight  q4_1  5.00\n        \
                      output.weight          \x1b[2mq8_0\x1b[0m  8.50\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_table_that_is_too_wide_has_rows_of_several_lines() {
        let text = table_of(&["", "tensor", "to", "bits"], &rows(), &[0, 3], 30);
        let wanted = "  30 × blk.{n}.attn_q.weight\n      to q4_1  bits 5.00\n  output.weight\n      to \
                      \x1b[2mq8_0\x1b[0m  bits 8.50\n";
        assert_eq!(text, wanted);
        assert!(text.lines().all(|line| width(line) <= 30));
        assert_eq!(
            table_of(&[], &[vec!["a".repeat(9), "b".into()]], &[], 8),
            format!("  {}\n      b\n", "a".repeat(9))
        );
    }
}
