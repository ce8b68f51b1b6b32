//! The filter `tojson` as chat templates know it: Python's `json.dumps`, not Jinja's, which escapes for HTML.

use std::fmt::Write;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};

/// Spaces that a level may be indented by.
const INDENT: usize = 64;

/// `tojson(indent=None, ensure_ascii=False, separators=None, sort_keys=False)`.
///
/// `sort_keys` is not taken: no template that we know sets it. Source: `_compile_jinja_template`,
/// src/transformers/utils/chat_template_utils.py@v4.57.
#[expect(clippy::needless_pass_by_value, reason = "the signature that minijinja wants")]
pub(super) fn tojson(value: &Value, indent: Option<Value>, args: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = indent.or(args.get("indent")?).filter(|indent| !indent.is_none());
    if indent.as_ref().and_then(Value::as_usize).is_some_and(|indent| indent > INDENT) {
        let problem = format!("`indent` of `tojson` must be at most {INDENT}");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    let ascii = args.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let separators: Option<Vec<String>> = args.get("separators")?;
    let separators = match separators.as_deref() {
        None => None,
        Some([item, key]) => Some((item.as_str(), key.as_str())),
        Some(_) => {
            let problem = "`separators` of `tojson` must be two strings";
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    };
    if args.get::<Option<bool>>("sort_keys")?.unwrap_or(false) {
        return Err(Error::new(ErrorKind::InvalidOperation, "`sort_keys` of `tojson` is not supported"));
    }
    args.assert_all_used()?;
    let pretty = indent.is_some();
    let html = minijinja::filters::tojson(value, indent, Kwargs::from_iter([] as [(&str, Value); 0]))?;
    let html = html.as_str().unwrap_or_default();
    Ok(Value::from(from_html_safe(html, ascii, separators, pretty)))
}

/// JSON that is safe in HTML, as `json.dumps` would write it.
///
/// `separators` between items, and between key and value; in `pretty` text the items are on lines of their own.
fn from_html_safe(html: &str, ascii: bool, separators: Option<(&str, &str)>, pretty: bool) -> String {
    let mut out = String::with_capacity(html.len());
    let mut rest = html.chars();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' => {
                let text = rest.as_str();
                let html = ["u003c", "u003e", "u0026", "u0027"];
                if let Some(at) = html.iter().position(|code| text.starts_with(code)) {
                    out.push(['<', '>', '&', '\''][at]);
                    rest = text[5..].chars();
                } else {
                    out.push('\\');
                    out.extend(rest.next());
                }
                continue;
            }
            ',' | ':' if !in_string => {
                if let Some((item, key)) = separators {
                    out.push_str(if c == ',' { item } else { key });
                    // The space after it belongs to the separator; a line break stays.
                    if !(pretty && c == ',') {
                        rest = rest.as_str().strip_prefix(' ').unwrap_or(rest.as_str()).chars();
                    }
                    continue;
                }
            }
            _ if ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a `String` cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_html_go_and_those_of_json_stay() {
        let html = r#"{"a\\u003c": "\u003c\"\\\u0027", "b": [1, 2]}"#;
        assert_eq!(from_html_safe(html, false, None, false), r#"{"a\\u003c": "<\"\\'", "b": [1, 2]}"#);
        assert_eq!(
            from_html_safe(html, false, Some((",", ":")), false),
            r#"{"a\\u003c":"<\"\\'","b":[1,2]}"#
        );
        assert_eq!(
            from_html_safe(r#""é👍, : x""#, true, Some((";", "=")), false),
            r#""\u00e9\ud83d\udc4d, : x""#
        );
    }
}
