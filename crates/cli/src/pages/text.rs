//! Text of a checkpoint in a page. Every name is a stranger's: it may hold markup, control characters, marks that turn the
//! direction of text, or a megabyte.

use std::fmt::Write;

/// Characters of a name that a page holds at most.
pub(super) const NAME: usize = 240;

/// Returns `text` with what no font draws written out (`\u{202e}`), and its middle left out beyond `most` characters.
pub(super) fn shown(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return plain(text.chars());
    }
    let (head, tail) = (most - most / 3, most / 3);
    let start = plain(text.chars().take(head));
    format!("{start}…{}", plain(text.chars().skip(count - tail)))
}

/// Writes out what no font draws. Quotes and the like stay: whoever writes markup escapes them.
fn plain(text: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for c in text {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            // Writing to a `String` cannot fail.
            _ => _ = write!(out, "{}", c.escape_debug()),
        }
    }
    out
}

/// Returns `text` as [`shown`], cut in its middle so that no usual font draws it wider than `width` at `size`, in pixels.
pub(super) fn fitted(text: &str, width: f64, size: f64) -> String {
    let text = shown(text, NAME);
    if width_of(&text, size) <= width {
        return text;
    }
    let chars: Vec<char> = text.chars().collect();
    let mut kept = chars.len();
    loop {
        kept = kept.saturating_sub(1);
        let (head, tail) = (kept - kept / 2, kept / 2);
        let short: String = chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect();
        if kept == 0 || width_of(&short, size) <= width {
            return short;
        }
    }
}

/// The width of `text` in a sans-serif font of `size`, in pixels: never less than usual fonts take.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// The width of a character in DejaVu Sans, the widest of the usual fonts, in ems.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' => 0.29,
        ' ' | '.' | ',' | '·' | '/' | '\\' | ':' | ';' | 'I' | 'J' => 0.34,
        'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '!' => 0.42,
        's' | 'z' | 'c' | 'k' | '_' | '"' | '*' => 0.58,
        'm' | 'M' | 'W' | '%' | '…' | '@' => 1.0,
        'w' | '→' | '×' | '+' | '=' | '<' | '>' | '~' | '#' => 0.84,
        'A'..='Z' | '&' => 0.78,
        '\0'..='\u{7f}' => 0.64,
        '–' => 0.5,
        _ => 1.05,
    }
}

/// `1 tensor`, `3 tensors`.
pub(super) fn many(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_font_draws_is_written_out() {
        assert_eq!(shown("a\u{202e}b\n\u{0}\u{fffe}\"'\\é", 40), "a\\u{202e}b\\n\\0\\u{fffe}\"'\\é");
        let long = shown(&"x".repeat(1 << 20), 30);
        assert_eq!(long, format!("{}…{}", "x".repeat(20), "x".repeat(10)));
    }

    #[test]
    fn a_name_fits_its_column() {
        let name = "model.layers.{n}.self_attn.kv_a_proj_with_mqa.weight";
        let cut = fitted(name, 150.0, 12.0);
        assert!(
            width_of(&cut, 12.0) <= 150.0 && cut.starts_with("model.") && cut.ends_with("weight"),
            "{cut}"
        );
        assert_eq!(fitted(name, 1000.0, 12.0), name);
        assert_eq!(fitted(name, 0.0, 12.0), "…");
    }
}
