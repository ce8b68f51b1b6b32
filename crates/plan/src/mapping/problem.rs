//! Problems between rules and a checkpoint.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tensor::{Diagnostic, Diagnostics, Expr, MapStep, Mapping, TensorEntry};

use super::takers::Taker;
use crate::why::Why;

/// A problem with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapFault {
    /// It takes no entry.
    Nothing,
    /// Another rule takes the same entry.
    TwoRules,
    /// Its result has the name of another tensor.
    TwoMake,
    /// Some of the entries that a rule takes together are missing.
    Lacks,
    /// A step does not fit its tensor.
    Step,
    /// It was not checked by itself.
    Unchecked,
}

/// One thing that is wrong between rules and a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapProblem {
    /// The kind of fault.
    pub fault: MapFault,
    /// The line of the rule.
    pub line: usize,
    /// The message, and what to do about it.
    pub what: Diagnostic,
    /// How many more of the same kind there are with the same rule.
    pub more: u64,
}

/// Everything that is wrong between rules and a checkpoint, in the order of lines.
#[derive(Clone, PartialEq, Eq)]
pub struct MapProblems {
    origin: String,
    problems: Vec<MapProblem>,
}

impl MapProblems {
    /// The problems. Never empty.
    pub fn iter(&self) -> std::slice::Iter<'_, MapProblem> {
        self.problems.iter()
    }

    /// Each problem with its place and its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let said = |problem: &MapProblem| {
            let more = match problem.more {
                0 => String::new(),
                more => format!(", and {more} more alike"),
            };
            let what = format!("`{}` line {}: {}{more}", self.origin, problem.line, problem.what.what);
            Diagnostic { what, hints: problem.what.hints.clone() }
        };
        self.problems.iter().map(said).collect()
    }

    /// Returns what to do about them.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

impl<'a> IntoIterator for &'a MapProblems {
    type Item = &'a MapProblem;
    type IntoIter = std::slice::Iter<'a, MapProblem>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for MapProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostics().problems())
    }
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for MapProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl std::error::Error for MapProblems {}

/// Problems as they are found: of each kind, the first with a rule.
pub(super) struct Found<'a> {
    mapping: &'a Mapping,
    problems: Vec<MapProblem>,
    index: HashMap<(MapFault, usize, usize), usize>,
    /// Rules whose entries do not match: parts missing because of that are not reported again.
    spoilt: HashSet<usize>,
}

impl<'a> Found<'a> {
    pub(super) fn of(mapping: &'a Mapping) -> Found<'a> {
        Found { mapping, problems: vec![], index: HashMap::new(), spoilt: HashSet::new() }
    }

    pub(super) fn problems(self) -> Result<(), MapProblems> {
        let mut problems = self.problems;
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|p| p.line);
        Err(MapProblems { origin: self.mapping.origin.clone(), problems })
    }

    fn line(&self, rule: usize) -> usize {
        self.mapping.rules[rule].line
    }

    /// `other` tells problems of a kind apart that one rule has several of.
    fn add(&mut self, fault: MapFault, rule: usize, other: usize, what: impl FnOnce() -> Diagnostic) {
        if let Some(&at) = self.index.get(&(fault, rule, other)) {
            self.problems[at].more += 1;
            return;
        }
        self.index.insert((fault, rule, other), self.problems.len());
        self.problems.push(MapProblem { fault, line: self.line(rule), what: what(), more: 0 });
    }

    pub(super) fn nothing(&mut self, rule: usize, wanted: &str, near: Option<&str>) {
        self.spoilt.insert(rule);
        let other = self.problems.len();
        self.add(MapFault::Nothing, rule, other, || {
            Diagnostic::new(format!("no tensor of the checkpoint is called `{wanted}`"))
                .with_hint(near.map(|near| format!("the nearest is `{near}`")))
        });
    }

    pub(super) fn two_rules(&mut self, entry: &str, a: Taker, b: Taker) {
        self.spoilt.extend([a.rule, b.rule]);
        let (mapping, other) = (self.mapping, self.line(b.rule));
        let from = |t: Taker| &mapping.rules[t.rule].from[t.place];
        self.add(MapFault::TwoRules, a.rule, b.rule, || {
            let what =
                format!("`{entry}` is taken twice: here by `{}`, in line {other} by `{}`", from(a), from(b));
            let hint =
                "at most one rule takes a tensor; only names with `{name..}` leave alone what others take";
            Diagnostic::new(what).with_hint(hint.to_owned())
        });
    }

    pub(super) fn two_make(
        &mut self,
        name: &str,
        (before, made_before): (Option<usize>, &Expr),
        (rule, made): (Option<usize>, &Expr),
    ) {
        // The message stands with a rule: of one that makes it, if the other is an entry.
        let line = |line: usize| self.mapping.rules.iter().position(|r| r.line == line);
        let (rule, made, other_line, other) = match (rule, before) {
            (Some(rule), _) => (rule, made, before, made_before),
            (None, Some(before)) => (line(before).unwrap_or(0), made_before, None, made),
            (None, None) => return,
        };
        let other_rule = other_line.and_then(line).unwrap_or(usize::MAX);
        self.add(MapFault::TwoMake, rule, other_rule, || {
            let also = match other_line {
                Some(line) => format!("of {} in line {line}", sources(other)),
                None => format!("{} has that name already, and no rule takes it", sources(other)),
            };
            Diagnostic::new(format!(
                "`{name}` would be two tensors: here it is made of {}, {also}",
                sources(made)
            ))
        });
    }

    pub(super) fn lacks(&mut self, rule: usize, place: usize, wanted: &str, with: &str) {
        if !self.spoilt.contains(&rule) {
            self.add(MapFault::Lacks, rule, place, || {
                Diagnostic::new(format!("`{wanted}` is missing: wanted together with `{with}`"))
            });
        }
    }

    pub(super) fn step(&mut self, rule: usize, step: &MapStep, first: &TensorEntry, why: Why) {
        let what = match why {
            Why::Shape(text) => format!("{text} does not fit"),
            Why::TooFine { limit } => format!("{} makes more than {limit} tensors", name(step)),
            _ => format!("{} overflows 64 bits", name(step)),
        };
        self.add(MapFault::Step, rule, 0, || {
            Diagnostic::new(format!("{what}, found `{}` {}", first.name, first.shape))
        });
    }

    pub(super) fn counts(&mut self, rule: usize, made: usize, names: usize) {
        self.add(MapFault::Unchecked, rule, 0, || {
            Diagnostic::new(format!("{made} tensors come of it, with {names} names"))
        });
    }
}

/// `a`, `a` and 3 more.
fn sources(expr: &Expr) -> String {
    let (mut first, mut more) = (None, 0u64);
    expr.for_each_source(&mut |name| match first {
        None => first = Some(name),
        Some(_) => more += 1,
    });
    let first = first.map_or("zeros".to_owned(), |name| format!("`{name}`"));
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// The name of a step, as it is written.
fn name(step: &MapStep) -> &'static str {
    match step {
        MapStep::Transpose => "transpose",
        MapStep::Permute(_) => "permute",
        MapStep::Unflatten { .. } => "unflatten",
        MapStep::Flatten { .. } => "flatten",
        MapStep::Slice { .. } => "slice",
        MapStep::Pad { .. } => "pad",
        MapStep::Split { .. } => "split",
        MapStep::Merge { .. } => "merge",
        MapStep::Stack { .. } => "stack",
        MapStep::Unstack { .. } => "unstack",
        MapStep::Tie => "tie",
    }
}
