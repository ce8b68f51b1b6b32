//! The filter `indent` of Jinja2: minijinja's own leaves out a line break at the end.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};

/// Spaces that a line may be indented by.
const WIDTH: usize = 1 << 10;

/// `indent(width=4, first=False, blank=False)`; `width` is a number of spaces, or the text to indent with.
///
/// Source: `do_indent`, src/jinja2/filters.py@3.1.6.
#[expect(clippy::needless_pass_by_value, reason = "the signature that minijinja wants")]
pub(super) fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    args: Kwargs,
) -> Result<String, Error> {
    let width = width.or(args.get("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(args.get("first")?).unwrap_or(false);
    let blank = blank.or(args.get("blank")?).unwrap_or(false);
    args.assert_all_used()?;
    let indent = match (width.as_str(), width.as_usize()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(width)) if width <= WIDTH => " ".repeat(width),
        _ => {
            let problem = format!("`width` of `indent` must be a text, or a number up to {WIDTH}");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    };
    let mut out = String::with_capacity(text.len());
    for (i, line) in lines(text).into_iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&indent);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// The lines of a text as Python's `(text + "\n").splitlines()` has them.
fn lines(text: &str) -> Vec<&str> {
    let is_end = |c| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let (mut lines, mut rest) = (vec![], text);
    while let Some(at) = rest.find(is_end) {
        let (line, after) = rest.split_at(at);
        lines.push(line);
        let end = if after.starts_with("\r\n") { 2 } else { after.chars().next().map_or(0, char::len_utf8) };
        rest = &after[end..];
    }
    lines.push(rest);
    lines
}
