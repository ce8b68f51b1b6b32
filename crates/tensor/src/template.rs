//! Names with captures: what a rule takes, and what it makes of that.

use std::fmt;

/// What a capture stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takes {
    /// One segment of digits: `{n}`.
    Number,
    /// One segment: any other `{name}`.
    One,
    /// One segment or several: `{name..}`.
    Many,
}

/// One segment of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The word itself.
    Word(String),
    /// A capture, by name.
    Capture(String, Takes),
}

/// A name with captures that stand for whole segments between dots: `layers.{n}.attention.{part}.weight`.
///
/// `{n}` takes digits, any other `{name}` one segment, `{name..}` one or more; there is at most one of the last.
/// The same text is read both ways: [`Template::captures`] takes a name apart, [`Template::fill`] puts one together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    segments: Vec<Segment>,
}

/// What a name's captures are, in the order of the template.
pub type Captures<'a> = Vec<(&'a str, &'a str)>;

impl Template {
    /// A template from its text.
    ///
    /// # Errors
    /// What is wrong with the text: wanted, then found.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut segments: Vec<Segment> = vec![];
        let mut many = 0;
        for part in cut(text) {
            if part.is_empty() {
                return Err(format!("wanted a name of segments with dots between, found `{text}`"));
            }
            let Some(inside) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) else {
                if part.contains(['{', '}']) {
                    return Err(format!("a capture stands for a whole segment, found `{part}` in `{text}`"));
                }
                segments.push(Segment::Word(part.to_owned()));
                continue;
            };
            let (name, takes) = match inside.strip_suffix("..") {
                Some(name) => (name, Takes::Many),
                None if inside == "n" => (inside, Takes::Number),
                None => (inside, Takes::One),
            };
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(format!(
                    "wanted a capture as `{{name}}` or `{{name..}}`, found `{part}` in `{text}`"
                ));
            }
            if segments.iter().any(|s| matches!(s, Segment::Capture(other, _) if other == name)) {
                return Err(format!("the capture `{{{name}}}` is twice in `{text}`"));
            }
            many += usize::from(takes == Takes::Many);
            segments.push(Segment::Capture(name.to_owned(), takes));
        }
        if many > 1 {
            return Err(format!("one capture of several segments is the most, found {many} in `{text}`"));
        }
        Ok(Template { segments })
    }

    /// The segments, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The captures, in order.
    pub fn holes(&self) -> impl Iterator<Item = (&str, Takes)> {
        self.segments.iter().filter_map(|s| match s {
            Segment::Word(_) => None,
            Segment::Capture(name, takes) => Some((name.as_str(), *takes)),
        })
    }

    /// Whether it takes names of any number of segments: such a template leaves alone what another one takes.
    pub fn is_open(&self) -> bool {
        self.holes().any(|(_, takes)| takes == Takes::Many)
    }

    /// What `name`'s captures are, if it fits.
    pub fn captures<'a>(&'a self, name: &'a str) -> Option<Captures<'a>> {
        let mut captures = vec![];
        let mut segments = self.segments.iter();
        let mut rest = Some(name);
        while let Some(segment) = segments.next() {
            let left = rest?;
            let (word, after) = match segment {
                Segment::Capture(_, Takes::Many) => {
                    let behind = segments.as_slice().len();
                    // The dots before the last `behind` segments.
                    let end = match behind.checked_sub(1) {
                        None => left.len(),
                        Some(nth) => left.rmatch_indices('.').nth(nth)?.0,
                    };
                    let (word, after) = left.split_at_checked(end)?;
                    (word, after.strip_prefix('.'))
                }
                _ => left.split_once('.').map_or((left, None), |(word, after)| (word, Some(after))),
            };
            match segment {
                Segment::Word(want) if want != word => return None,
                Segment::Word(_) => {}
                Segment::Capture(_, Takes::Number)
                    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit()) =>
                {
                    return None;
                }
                Segment::Capture(_, Takes::Many) if word.is_empty() => return None,
                Segment::Capture(hole, _) => captures.push((hole.as_str(), word)),
            }
            rest = after;
        }
        rest.is_none().then_some(captures)
    }

    /// The name whose captures are what `value` says; `None` if it does not know one.
    pub fn fill<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let mut name = String::new();
        for (i, segment) in self.segments.iter().enumerate() {
            if i > 0 {
                name.push('.');
            }
            name.push_str(match segment {
                Segment::Word(word) => word,
                Segment::Capture(hole, _) => value(hole)?,
            });
        }
        Some(name)
    }
}

/// The segments of a template's text: dots between braces are none between segments.
fn cut(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (vec![], 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '{' => inside = true,
            '}' => inside = false,
            '.' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            f.write_str(if i > 0 { "." } else { "" })?;
            match segment {
                Segment::Word(word) => f.write_str(word)?,
                Segment::Capture(name, Takes::Many) => write!(f, "{{{name}..}}")?,
                Segment::Capture(name, _) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(template: &str, name: &str) -> Option<Vec<String>> {
        let template = Template::parse(template).unwrap();
        assert!(template.captures(name).is_none_or(|c| {
            template.fill(|hole| c.iter().find(|(h, _)| *h == hole).map(|(_, v)| *v)).as_deref() == Some(name)
        }));
        let captures = template.captures(name)?;
        Some(captures.into_iter().map(|(hole, value)| format!("{hole}={value}")).collect())
    }

    #[test]
    fn captures_are_whole_segments() {
        let t = "layers.{n}.attention.{part}.weight";
        assert_eq!(taken(t, "layers.12.attention.wq.weight").unwrap(), ["n=12", "part=wq"]);
        for other in
            ["layers.x.attention.wq.weight", "layers.1.attention.wq", "layers.1.attention.wq.weight.more", ""]
        {
            assert_eq!(taken(t, other), None, "{other}");
        }
    }

    #[test]
    fn several_segments_are_taken_anywhere() {
        assert_eq!(taken("model.{rest..}", "model.a.b.c").unwrap(), ["rest=a.b.c"]);
        assert_eq!(taken("{rest..}.{last}", "a.b.c").unwrap(), ["rest=a.b", "last=c"]);
        assert_eq!(taken("a.{rest..}.z", "a.b.z").unwrap(), ["rest=b"]);
        assert_eq!(taken("{all..}", "a").unwrap(), ["all=a"]);
        for (t, other) in [("model.{rest..}", "model"), ("a.{rest..}.z", "a.z"), ("a.{rest..}", "a.")] {
            assert_eq!(taken(t, other), None, "{t} {other}");
        }
    }

    #[test]
    fn what_is_no_template_is_said() {
        for (text, what) in [
            ("", "wanted a name of segments with dots between, found ``"),
            ("a..b", "wanted a name of segments with dots between, found `a..b`"),
            ("h{n}.w", "a capture stands for a whole segment, found `h{n}` in `h{n}.w`"),
            ("a.{n}.{n}", "the capture `{n}` is twice in `a.{n}.{n}`"),
            ("{a..}.{b..}", "one capture of several segments is the most, found 2 in `{a..}.{b..}`"),
            ("{}", "wanted a capture as `{name}` or `{name..}`, found `{}` in `{}`"),
            ("{a.b}", "wanted a capture as `{name}` or `{name..}`, found `{a.b}` in `{a.b}`"),
            ("{a.b", "a capture stands for a whole segment, found `{a.b` in `{a.b`"),
        ] {
            assert_eq!(Template::parse(text).unwrap_err(), what);
        }
        let text = "a.{n}.{x}.{rest..}.w";
        assert_eq!(Template::parse(text).unwrap().to_string(), text);
    }
}
