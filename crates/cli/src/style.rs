//! Colour, on a terminal only.

use std::io::IsTerminal;

/// Whether colour is wanted on a stream: it is a terminal, and `NO_COLOR` is not set (no-color.org).
fn coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
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
    let on = coloured(std::io::stderr().is_terminal());
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
    paint(coloured(std::io::stderr().is_terminal()), "2", text)
}

/// Where a person types.
pub(crate) fn prompt(text: &str) -> String {
    paint(coloured(std::io::stderr().is_terminal()), "1;32", text)
}

/// A heading on stdout.
pub(crate) fn heading(text: &str) -> String {
    paint(coloured(std::io::stdout().is_terminal()), "1", text)
}

/// What matters less, on stdout.
pub(crate) fn faint(text: &str) -> String {
    paint(coloured(std::io::stdout().is_terminal()), "2", text)
}

/// A table with aligned columns; those in `right` are flush right. Each row is indented by two spaces.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::from("  ");
        for (c, cell) in row.iter().enumerate() {
            let pad = widths[c] - cell.chars().count();
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
