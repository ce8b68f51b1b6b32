//! The user's rules as TOML: text to a [`Mapping`]. docs/rules.md says what can be written.

use std::fmt;
use std::path::Path;

use tensor::{Diagnostic, Diagnostics, MapOutcome, MapRule, MapStep, Mapping, Template, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Error;

/// A file of rules may be this long, in bytes.
const LONGEST: u64 = 16 << 20;

/// Everything that is wrong with a text of rules, in the order of lines.
#[derive(Clone, PartialEq, Eq)]
pub struct RulesProblems {
    origin: String,
    /// The line, counted from 1, and the message.
    problems: Vec<(usize, Diagnostic)>,
}

impl RulesProblems {
    /// Each problem with its place and its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let said = |(line, said): &(usize, Diagnostic)| Diagnostic {
            what: format!("`{}` line {line}: {}", self.origin, said.what),
            hints: said.hints.clone(),
        };
        self.problems.iter().map(said).collect()
    }

    /// Returns what to do about them.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

impl fmt::Display for RulesProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostics().problems())
    }
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for RulesProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl std::error::Error for RulesProblems {}

/// The rules of a TOML file.
///
/// # Errors
/// If it cannot be read; everything that is wrong with it, at once.
pub fn read_rules(path: impl AsRef<Path>) -> Result<Mapping, Error> {
    let path = path.as_ref();
    let origin = path.display().to_string();
    let io = |source| Error::RulesIo { path: origin.clone(), source };
    let length = std::fs::metadata(path).map_err(io)?.len();
    if length > LONGEST {
        let what = format!("wanted at most {LONGEST} bytes, found {length}");
        return Err(Error::Rules(RulesProblems { origin, problems: vec![(1, Diagnostic::new(what))] }));
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    Ok(parse_rules(&origin, &text)?)
}

/// The rules of a TOML text; `origin` is what messages call it.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn parse_rules(origin: &str, text: &str) -> Result<Mapping, RulesProblems> {
    let mut reader = Reader { text, problems: vec![] };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.wrong(at, error.message().to_owned());
    }
    let rules = if reader.problems.is_empty() { reader.document(document.get_ref()) } else { vec![] };
    if reader.problems.is_empty() {
        return Ok(Mapping { origin: origin.to_owned(), rules });
    }
    let mut problems = reader.problems;
    problems.sort_by_key(|(line, _)| *line);
    Err(RulesProblems { origin: origin.to_owned(), problems })
}

type Value<'i> = Spanned<DeValue<'i>>;

struct Reader<'t> {
    text: &'t str,
    problems: Vec<(usize, Diagnostic)>,
}

impl Reader<'_> {
    /// The line that byte `at` is in.
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
    }

    fn wrong(&mut self, at: usize, what: impl Into<Diagnostic>) {
        self.problems.push((self.line(at), what.into()));
    }

    /// Records that `value` is not of the kind wanted.
    fn wanted<T>(&mut self, value: &Value<'_>, key: &str, wanted: &str) -> Option<T> {
        let found = match value.get_ref() {
            DeValue::String(s) => format!("`{s}`"),
            DeValue::Integer(n) => n.to_string(),
            other => format!("a value of type {}", other.type_str()),
        };
        self.wrong(value.span().start, format!("wanted {wanted} for `{key}`, found {found}"));
        None
    }

    /// Records a problem for each key of `table` that is not in `known`. Returns whether there was none.
    fn keys(&mut self, table: &DeTable<'_>, known: &[&str]) -> bool {
        let before = self.problems.len();
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let hint = nearest(name, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
                let what = format!("wanted {}, found the key `{name}`", either(known));
                self.wrong(key.span().start, Diagnostic::new(what).with_hint(hint));
            }
        }
        self.problems.len() == before
    }

    fn document(&mut self, document: &DeTable<'_>) -> Vec<MapRule> {
        self.keys(document, &["rule"]);
        let Some(rules) = document.get("rule") else {
            if self.problems.is_empty() {
                self.wrong(0, "wanted at least one `[[rule]]`, found none".to_owned());
            }
            return vec![];
        };
        let tables = rules.get_ref().as_array().map(|all| all.iter().map(|r| (r, r.get_ref().as_table())));
        let Some(tables) = tables else {
            self.wanted::<()>(rules, "rule", "tables, each headed `[[rule]]`,");
            return vec![];
        };
        let mut out = vec![];
        for (value, table) in tables {
            match table {
                Some(table) => out.extend(self.rule(table, value.span().start)),
                None => {
                    self.wanted::<()>(value, "rule", "a table");
                }
            }
        }
        out
    }

    fn rule(&mut self, table: &DeTable<'_>, at: usize) -> Option<MapRule> {
        let known = self.keys(table, &["from", "to", "do", "drop"]);
        let from = match table.get("from") {
            Some(value) => self.names(value, "from"),
            // It may be meant by a key that is not known.
            None if !known => None,
            None => {
                self.wrong(at, "wanted `from`, the names that the rule takes, found none".to_owned());
                None
            }
        };
        let outcome = match (table.get("drop"), table.get("to")) {
            (Some(drop), None) => {
                if let Some(steps) = table.get("do") {
                    self.wrong(steps.span().start, "wanted `drop` or `do`, found both".to_owned());
                }
                match drop.get_ref().as_str() {
                    Some(why) if !why.trim().is_empty() => Some(MapOutcome::Drop { why: why.to_owned() }),
                    _ => self.wanted(drop, "drop", "the reason why nothing is lost"),
                }
            }
            (Some(drop), Some(_)) => {
                self.wrong(drop.span().start, "wanted `drop` or `to`, found both".to_owned());
                None
            }
            (None, to) => {
                let steps = table.get("do").map_or(Some(vec![]), |value| self.steps(value));
                match to {
                    Some(to) => {
                        let to = self.names(to, "to");
                        steps.zip(to).map(|(steps, to)| MapOutcome::Make { steps, to })
                    }
                    None if !known => None,
                    None => {
                        let what = "wanted `to`, the names that come of it, or `drop`, found neither";
                        self.wrong(at, what.to_owned());
                        None
                    }
                }
            }
        };
        let rule = MapRule { from: from?, outcome: outcome?, line: self.line(at) };
        let wrong = rule.check();
        for what in &wrong {
            self.wrong(at, what.clone());
        }
        wrong.is_empty().then_some(rule)
    }

    /// One name, or several.
    fn names(&mut self, value: &Value<'_>, key: &str) -> Option<Vec<Template>> {
        let one = std::slice::from_ref(value);
        let values = value.get_ref().as_array().map_or(one, |all| all);
        let mut names = vec![];
        for value in values {
            let Some(text) = value.get_ref().as_str() else {
                self.wanted::<()>(value, key, "a name, or a list of names,");
                continue;
            };
            match Template::parse(text) {
                Ok(template) => names.push(template),
                Err(what) => self.wrong(value.span().start, what),
            }
        }
        (names.len() == values.len()).then_some(names)
    }

    fn steps(&mut self, value: &Value<'_>) -> Option<Vec<MapStep>> {
        let one = std::slice::from_ref(value);
        let values = value.get_ref().as_array().map_or(one, |all| all);
        let steps: Vec<Option<MapStep>> = values.iter().map(|v| self.step(v)).collect();
        steps.into_iter().collect()
    }

    fn step(&mut self, value: &Value<'_>) -> Option<MapStep> {
        match value.get_ref() {
            DeValue::String(name) => match name.as_ref() {
                "transpose" => Some(MapStep::Transpose),
                "tie" => Some(MapStep::Tie),
                name => {
                    let known = ["transpose", "tie"].iter().chain(STEPS).copied();
                    let hint = match nearest(name, known) {
                        Some(near) if STEPS.contains(&near) => {
                            Some(format!("it is written {}", example(near)))
                        }
                        near => near.map(|near| format!("did you mean `{near}`?")),
                    };
                    let what = format!("wanted `transpose`, `tie` or a table for `do`, found `{name}`");
                    self.wrong(value.span().start, Diagnostic::new(what).with_hint(hint));
                    None
                }
            },
            DeValue::Table(table) => {
                self.keys(table, STEPS);
                let mut steps = table.iter().filter(|(key, _)| STEPS.contains(&key.get_ref().as_ref()));
                match (steps.next(), steps.next()) {
                    (Some((key, value)), None) => self.named(key.get_ref(), value),
                    (None, _) if !table.is_empty() => None,
                    _ => {
                        let wanted = format!("one of {} in a table", either(STEPS));
                        self.wanted(value, "do", &format!("{wanted}, and a list of tables for several,"))
                    }
                }
            }
            _ => self.wanted(value, "do", &format!("a step, as {},", example("merge"))),
        }
    }

    fn named(&mut self, name: &str, value: &Value<'_>) -> Option<MapStep> {
        match name {
            "permute" => {
                let axes = self.numbers(value, name)?;
                axes.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<_>>().map(MapStep::Permute)
            }
            "stack" | "unstack" => {
                let number = match value.get_ref().as_str() {
                    Some(number) if !number.is_empty() && !number.contains(['{', '}', '.']) => {
                        number.to_owned()
                    }
                    _ => return self.wanted(value, name, "the name of a capture, without braces,"),
                };
                Some(if name == "stack" { MapStep::Stack { number } } else { MapStep::Unstack { number } })
            }
            _ => {
                let Some(table) = value.get_ref().as_table() else {
                    return self.wanted(value, name, &format!("a table, as {},", example(name)));
                };
                let known: &[&str] = match name {
                    "slice" => &["axis", "start", "end"],
                    "pad" => &["axis", "to"],
                    "flatten" => &["axis", "count"],
                    "unflatten" | "split" => &["axis", "sizes"],
                    _ => &["axis"],
                };
                self.keys(table, known);
                let axis = self.number(table, "axis", value, None);
                let axis = axis.and_then(|n| usize::try_from(n).ok());
                match name {
                    "slice" => {
                        let start = self.number(table, "start", value, Some(0));
                        let end = self.number(table, "end", value, None);
                        let (axis, range) = (axis?, start?..end?);
                        if range.start >= range.end {
                            let found = format!("found {}..{}", range.start, range.end);
                            self.wrong(value.span().start, format!("wanted `start` before `end`, {found}"));
                            return None;
                        }
                        Some(MapStep::Slice { axis, range })
                    }
                    "pad" => {
                        let to = self.number(table, "to", value, None);
                        Some(MapStep::Pad { axis: axis?, to: to? })
                    }
                    "flatten" => {
                        let count = self.number(table, "count", value, Some(2));
                        let (axis, count) = (axis?, usize::try_from(count?).ok()?);
                        if !(2..=8).contains(&count) {
                            let what = format!("wanted from 2 to 8 axes for `count`, found {count}");
                            self.wrong(value.span().start, what);
                            return None;
                        }
                        Some(MapStep::Flatten { axis, count })
                    }
                    "merge" => Some(MapStep::Merge { axis: axis? }),
                    _ => match (name, table.get("sizes")) {
                        ("split", None) => Some(MapStep::Split { axis: axis?, sizes: None }),
                        ("split", Some(sizes)) => {
                            let sizes = Some(self.numbers(sizes, "sizes")?);
                            Some(MapStep::Split { axis: axis?, sizes })
                        }
                        (_, Some(sizes)) => {
                            let sizes = self.sizes(sizes)?;
                            Some(MapStep::Unflatten { axis: axis?, sizes })
                        }
                        (_, None) => {
                            let what = format!("wanted `sizes`, as {}, found none", example(name));
                            self.wrong(value.span().start, what);
                            None
                        }
                    },
                }
            }
        }
    }

    /// Whole numbers, or −1 for what follows from the others.
    fn sizes(&mut self, value: &Value<'_>) -> Option<Vec<Option<u64>>> {
        let size = |v: &Value<'_>| {
            let free = v.get_ref().as_integer().is_some_and(|n| n.as_str() == "-1");
            if free { Some(None) } else { whole(v.get_ref()).map(Some) }
        };
        let sizes: Option<Vec<Option<u64>>> =
            value.get_ref().as_array().and_then(|all| all.iter().map(size).collect());
        match sizes.filter(|n| !n.is_empty()) {
            None => self.wanted(value, "sizes", "a list of whole numbers, one of which may be -1,"),
            some => some,
        }
    }

    fn numbers(&mut self, value: &Value<'_>, key: &str) -> Option<Vec<u64>> {
        let numbers: Option<Vec<u64>> =
            value.get_ref().as_array().and_then(|all| all.iter().map(|v| whole(v.get_ref())).collect());
        match numbers.filter(|n| !n.is_empty()) {
            None => self.wanted(value, key, "a list of whole numbers"),
            some => some,
        }
    }

    fn number(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        at: &Value<'_>,
        default: Option<u64>,
    ) -> Option<u64> {
        match table.get(key) {
            None if default.is_some() => default,
            None => {
                self.wrong(at.span().start, format!("wanted `{key}`, a whole number, found none"));
                None
            }
            Some(value) => match whole(value.get_ref()) {
                None => self.wanted(value, key, "a whole number"),
                some => some,
            },
        }
    }
}

/// Values of `do`, besides `transpose` and `tie`.
const STEPS: &[&str] =
    &["permute", "unflatten", "flatten", "slice", "pad", "split", "merge", "stack", "unstack"];

fn example(step: &str) -> &'static str {
    match step {
        "permute" => "`{ permute = [1, 0, 2] }`",
        "unflatten" => "`{ unflatten = { axis = 0, sizes = [-1, 128] } }`",
        "flatten" => "`{ flatten = { axis = 0 } }`",
        "slice" => "`{ slice = { axis = 0, start = 0, end = 50257 } }`",
        "pad" => "`{ pad = { axis = 0, to = 50304 } }`",
        "split" => "`{ split = { axis = 0, sizes = [4096, 1024, 1024] } }`",
        "stack" => "`{ stack = \"expert\" }`",
        "unstack" => "`{ unstack = \"expert\" }`",
        _ => "`{ merge = { axis = 0 } }`",
    }
}

/// A whole number of TOML.
fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// `a`, `b` or `c`.
fn either(of: &[&str]) -> String {
    let quoted: Vec<String> = of.iter().map(|n| format!("`{n}`")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}
