//! Stage 1: matches the model's parameters with the checkpoint's entries.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use tensor::{Dtype, Expr, Pattern, Scheme, Shape, Step, TensorEntry, nearest};

use crate::affix::shortened;
use crate::mapping::Mapped;
use crate::partly::partly_used;
use crate::problem::{Blame, Problem, Problems};
use crate::shapes::{shallow, shape_of, sliced};
use crate::sources::Sources;
use crate::steps::{after, effective, hoist};
use crate::why::Why;
use tensor::{Binding, Bindings, Presence};

/// Unused and wanted patterns that are compared to find a near name.
const CANDIDATES: usize = 512;

/// The canonical parameters that a checkpoint gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// In the order of the bindings.
    pub params: Vec<ResolvedParam>,
    /// Entries that no parameter is made from, and why that is right.
    pub dropped: Vec<(String, String)>,
    /// Parameters that are not there, and may be absent.
    pub absent: Vec<Absent>,
}

/// A parameter whose absence the caller allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Canonical name.
    pub param: String,
    /// The entries that it would be made of.
    pub entries: Vec<String>,
    /// The pattern that lets it be absent.
    pub pattern: String,
}

/// How a checkpoint is read, beyond its dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResolveOptions<'a> {
    /// Replaces the entries: names of the dialect are looked up here.
    pub mapped: Option<&'a Mapped>,
    /// Parameters, or entries, that may be absent. Of a parameter that is made of several entries, all are.
    pub allow_missing: &'a [Pattern],
}

/// One canonical parameter, made from entries.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedParam {
    /// Canonical name.
    pub name: String,
    /// Logical shape, as the model wants it.
    pub shape: Shape,
    /// The scheme that movement alone yields, before any step.
    pub scheme: Arc<Scheme>,
    /// Movement over entry names; the steps are taken out of it.
    pub expr: Expr,
    /// The steps after movement, in order.
    pub steps: Vec<Step>,
    /// The canonical parameter that this one is the same as, because it has no entries of its own.
    pub tied_to: Option<String>,
}

impl ResolvedParam {
    /// The scheme that it has after its steps.
    pub fn becomes(&self) -> Arc<Scheme> {
        after(&self.scheme, &self.steps)
    }

    /// Encodes it in `scheme` after its other steps. A parameter that is stored so keeps its bytes.
    pub fn encode(&mut self, scheme: Arc<Scheme>) {
        let mut steps = std::mem::take(&mut self.steps);
        steps.push(Step::To(scheme));
        self.steps = effective(&self.scheme, steps);
    }
}

impl Resolved {
    /// Gives each tied parameter the steps of its root.
    pub fn follow_ties(&mut self) {
        let roots: HashSet<&str> = self.params.iter().filter_map(|p| p.tied_to.as_deref()).collect();
        let own = self.params.iter().filter(|p| roots.contains(p.name.as_str()));
        let steps: HashMap<String, Vec<Step>> = own.map(|p| (p.name.clone(), p.steps.clone())).collect();
        for param in &mut self.params {
            if let Some(steps) = param.tied_to.as_ref().and_then(|root| steps.get(root)) {
                param.steps.clone_from(steps);
            }
        }
    }

    /// The parameter called `name`.
    pub fn find(&self, name: &str) -> Option<&ResolvedParam> {
        self.params.iter().find(|p| p.name == name)
    }
}

/// Substitutes `entries` into `bindings` and checks names and shapes.
///
/// # Errors
/// Every problem at once: names that are missing or unused, wrong shapes, parts stored in different schemes.
pub fn resolve(entries: &[TensorEntry], bindings: &Bindings) -> Result<Resolved, Problems> {
    resolve_with(entries, bindings, &ResolveOptions::default())
}

/// The same, of a checkpoint that is read in a way of one's own.
///
/// # Errors
/// As [`resolve`]; and a pattern of what may be absent that no parameter has.
pub fn resolve_with(
    entries: &[TensorEntry],
    bindings: &Bindings,
    reading: &ResolveOptions<'_>,
) -> Result<Resolved, Problems> {
    let count = reading.mapped.map_or(entries.len(), |m| m.tensors().len());
    let mut work = Work {
        sources: Sources::new(entries),
        reading: *reading,
        used: vec![false; count],
        absent: vec![],
        problems: vec![],
    };
    work.duplicates(entries, bindings);
    let mut missing = Missing::default();
    let states: Vec<State> = bindings.bindings.iter().map(|b| work.binding(b, &mut missing)).collect();
    let index: HashMap<&str, usize> =
        bindings.bindings.iter().enumerate().rev().map(|(i, b)| (b.name.as_str(), i)).collect();
    let mut params = work.ties(bindings, &states, &index, &mut missing);
    work.tied_by_rule(bindings, &mut params);
    work.problems.splice(0..0, missing.problems);
    work.unknown_patterns(bindings);
    let mut dropped = work.unused(bindings);
    if !work.problems.is_empty() {
        let used = work.used_names();
        work.problems = shortened(work.problems, bindings, &used, reading.mapped.is_some());
    }
    if work.problems.is_empty() && reading.mapped.is_none() {
        let (problems, partly) = partly_used(&params, &work.sources, &bindings.drops);
        work.problems = problems;
        dropped.extend(partly);
    }
    Problems::none(work.problems)?;
    Ok(Resolved { params, dropped, absent: work.absent })
}

/// The outcome of a binding.
enum State {
    Ready(Box<ResolvedParam>),
    Absent,
    TiedTo(String),
    /// A problem is already noted.
    Broken,
}

/// Missing entries, each once, however many parameters are made from it.
#[derive(Default)]
struct Missing {
    problems: Vec<Problem>,
    index: HashMap<String, usize>,
}

impl Missing {
    fn add(&mut self, entry: &str, binding: &Binding) {
        if let Some(&at) = self.index.get(entry) {
            if let Problem::Missing { params, .. } = &mut self.problems[at]
                && params.last() != Some(&binding.name)
            {
                params.push(binding.name.clone());
            }
            return;
        }
        self.index.insert(entry.into(), self.problems.len());
        self.problems.push(Problem::Missing {
            entry: entry.into(),
            params: vec![binding.name.clone()],
            wants: entry_shape(binding),
        });
    }
}

/// The shape that each entry of `binding` must have, found by trying: expressions have no inverse.
fn entry_shape(binding: &Binding) -> Option<Shape> {
    if sliced(&binding.expr) {
        return None;
    }
    let shape = &binding.shape;
    let reversed = |of: &[u64]| of.iter().rev().copied().collect::<Vec<_>>();
    let inner = shape.get(1..).unwrap_or_default();
    [shape.to_vec(), reversed(shape), inner.to_vec(), reversed(inner)]
        .into_iter()
        .map(Shape::from)
        .find(|guess| shape_of(&binding.expr, &|_| Some(guess.clone())).as_ref() == Ok(shape))
}

struct Work<'a> {
    sources: Sources<'a>,
    reading: ResolveOptions<'a>,
    /// Whether each entry, or each tensor that rules make, is used.
    used: Vec<bool>,
    absent: Vec<Absent>,
    problems: Vec<Problem>,
}

impl<'a> Work<'a> {
    /// Where the tensor that a dialect calls `name` is.
    fn find(&self, name: &str) -> Option<usize> {
        match self.reading.mapped {
            Some(mapped) => mapped.find(name).map(|(i, _)| i),
            None => self.sources.find(name).map(|(i, _)| i),
        }
    }

    /// `expr`, which a dialect gives, over the entries themselves.
    fn over_entries<'e>(&self, expr: &'e Expr) -> Cow<'e, Expr> {
        let Some(mapped) = self.reading.mapped else { return Cow::Borrowed(expr) };
        let made = |name: &str| match mapped.find(name) {
            Some((_, tensor)) => Cow::Borrowed(&tensor.expr),
            None => Cow::Owned(Expr::source(name)),
        };
        let expr = expr.substitute::<Infallible>(&mut |name| Ok(made(name)));
        Cow::Owned(expr.unwrap_or_else(|never| match never {}))
    }

    /// The pattern that lets `binding`, of which nothing is there, be absent.
    fn allowed(&self, binding: &Binding, absent: &[&str]) -> Option<&'a Pattern> {
        let fits = |p: &&Pattern| p.matches(&binding.name) || absent.iter().all(|entry| p.matches(entry));
        self.reading.allow_missing.iter().find(fits)
    }

    /// Patterns of what may be absent that mean nothing.
    fn unknown_patterns(&mut self, bindings: &Bindings) {
        for pattern in self.reading.allow_missing {
            let mut names = vec![];
            for binding in &bindings.bindings {
                names.push(binding.name.as_str());
                if shallow(&binding.expr).is_ok() {
                    binding.expr.for_each_source(&mut |n| names.push(n));
                }
            }
            if !names.iter().any(|n| pattern.matches(n)) {
                let mut seen = HashSet::new();
                let patterns = names.iter().map(|n| Pattern::of(n).to_string());
                let patterns: Vec<String> =
                    patterns.filter(|p| seen.insert(p.clone())).take(CANDIDATES).collect();
                let near = nearest(pattern.as_str(), patterns.iter().map(String::as_str));
                let nearest = near.map(str::to_string);
                self.problems.push(Problem::NothingToAllow { pattern: pattern.to_string(), nearest });
            }
        }
    }

    fn duplicates(&mut self, entries: &[TensorEntry], bindings: &Bindings) {
        for (i, entry) in entries.iter().enumerate() {
            if self.sources.find(&entry.name).is_some_and(|(first, _)| first != i) {
                self.used[i] = true;
                self.problems.push(Problem::Duplicate { what: "entry", name: entry.name.clone() });
            }
        }
        let mut seen = HashSet::new();
        for b in &bindings.bindings {
            if !seen.insert(b.name.as_str()) {
                self.problems.push(Problem::Duplicate { what: "parameter", name: b.name.clone() });
            }
        }
    }

    fn binding(&mut self, binding: &Binding, missing: &mut Missing) -> State {
        if let Err(why) = shallow(&binding.expr) {
            self.problems.push(too_deep(&binding.name, why));
            return State::Broken;
        }
        let (mut there, mut absent) = (vec![], vec![]);
        binding.expr.for_each_source(&mut |name| match self.find(name) {
            Some(i) => there.push(i),
            None => absent.push(name),
        });
        for &i in &there {
            self.used[i] = true;
        }
        if absent.is_empty() {
            return match self.made(binding) {
                Ok(param) => State::Ready(Box::new(param)),
                Err(problem) => {
                    self.problems.push(problem);
                    State::Broken
                }
            };
        }
        match &binding.presence {
            Presence::Optional if there.is_empty() => State::Absent,
            Presence::TiedTo(root) if there.is_empty() => State::TiedTo(root.clone()),
            _ if there.is_empty()
                && let Some(pattern) = self.allowed(binding, &absent) =>
            {
                self.absent.push(Absent {
                    param: binding.name.clone(),
                    entries: absent.into_iter().map(str::to_owned).collect(),
                    pattern: pattern.to_string(),
                });
                State::Absent
            }
            _ => {
                for entry in absent {
                    missing.add(entry, binding);
                }
                State::Broken
            }
        }
    }

    fn made(&self, binding: &Binding) -> Result<ResolvedParam, Problem> {
        let param = || binding.name.clone();
        let expr = self.over_entries(&binding.expr);
        shallow(&expr).map_err(|why| too_deep(&binding.name, why))?;
        let hoisted = hoist(&expr).map_err(|clash| Problem::Steps { param: param(), clash })?;
        let found = shape_of(&hoisted.movement, &|n| self.sources.shape(n))
            .map_err(|why| misfit(&binding.name, &hoisted.movement, &self.sources, why))?;
        let movement = match scalar(binding, &found, hoisted.movement) {
            Ok(movement) => movement,
            Err(movement) => {
                fits(binding, found, &movement)?;
                movement
            }
        };
        let scheme = scheme_of(&movement, &self.sources)
            .map_err(|parts| Problem::Mixed { param: param(), parts })?
            .unwrap_or_else(|| Scheme::plain(Dtype::F32));
        Ok(ResolvedParam {
            name: param(),
            shape: binding.shape.clone(),
            steps: effective(&scheme, hoisted.steps),
            scheme,
            expr: movement,
            tied_to: None,
        })
    }

    /// Resolves each tied parameter to its root, through any number of ties.
    fn ties(
        &mut self,
        bindings: &Bindings,
        states: &[State],
        index: &HashMap<&str, usize>,
        missing: &mut Missing,
    ) -> Vec<ResolvedParam> {
        let mut params = vec![];
        for (binding, state) in bindings.bindings.iter().zip(states) {
            let mut at = state;
            let mut root = binding.name.as_str();
            let mut hops = 0;
            while let State::TiedTo(next) = at {
                let Some(&i) = index.get(next.as_str()) else {
                    let near = nearest(next, index.keys().copied()).map(str::to_string);
                    let (param, name) = (root.to_string(), next.clone());
                    self.problems.push(Problem::Unknown { param, name, nearest: near });
                    at = &State::Broken;
                    break;
                };
                hops += 1;
                if hops > states.len() {
                    self.problems.push(Problem::Circle { param: binding.name.clone() });
                    at = &State::Broken;
                    break;
                }
                (at, root) = (&states[i], next);
            }
            match at {
                State::Ready(param) if hops == 0 => params.push((**param).clone()),
                State::Ready(param) => match fits(binding, param.shape.clone(), &param.expr) {
                    Ok(()) => params.push(ResolvedParam {
                        name: binding.name.clone(),
                        tied_to: Some(root.to_string()),
                        ..(**param).clone()
                    }),
                    Err(problem) => self.problems.push(problem),
                },
                // Tied to something that is not there: then its own entries are what is missing.
                State::Absent if hops > 0 => {
                    binding.expr.for_each_source(&mut |entry| missing.add(entry, binding));
                }
                State::Absent | State::Broken | State::TiedTo(_) => {}
            }
        }
        params
    }

    /// Ties parameters made from another name of a tensor to those made from its first name.
    fn tied_by_rule(&self, bindings: &Bindings, params: &mut [ResolvedParam]) {
        let Some(mapped) = self.reading.mapped else { return };
        let tied: HashSet<&str> =
            mapped.tensors().iter().filter(|t| t.same_as.is_some()).map(|t| t.name.as_str()).collect();
        if tied.is_empty() {
            return;
        }
        let mut also: HashSet<&str> = HashSet::new();
        for binding in &bindings.bindings {
            binding.expr.for_each_source(&mut |name| {
                if tied.contains(name) {
                    also.insert(&binding.name);
                }
            });
        }
        for i in 0..params.len() {
            let param = &params[i];
            if param.tied_to.is_some() || !also.contains(param.name.as_str()) {
                continue;
            }
            let same = |p: &&ResolvedParam| {
                !also.contains(p.name.as_str())
                    && p.tied_to.is_none()
                    && (&p.expr, &p.steps, &p.scheme) == (&param.expr, &param.steps, &param.scheme)
            };
            params[i].tied_to = params.iter().find(same).map(|root| root.name.clone());
        }
    }

    /// The names that something is made of.
    fn used_names(&self) -> Vec<&'a str> {
        let entries = self.sources.entries();
        let name = |i: usize| match self.reading.mapped {
            Some(mapped) => mapped.tensors()[i].name.as_str(),
            None => entries[i].name.as_str(),
        };
        self.used.iter().enumerate().filter(|(_, used)| **used).map(|(i, _)| name(i)).collect()
    }

    /// Lists entries that may be dropped, and records problems for unused ones that may not.
    fn unused(&mut self, bindings: &Bindings) -> Vec<(String, String)> {
        let mut dropped = self.reading.mapped.map_or(vec![], |m| m.dropped().to_vec());
        // Only where something is wrong.
        let mut near = None;
        let entries = self.sources.entries();
        for i in self.used.iter().enumerate().filter(|(_, used)| !**used).map(|(i, _)| i) {
            let (name, shape, made_of) = match self.reading.mapped {
                Some(mapped) => {
                    let t = &mapped.tensors()[i];
                    let made = t.line.is_some().then(|| first_source(&t.expr)).flatten();
                    (&t.name, &t.shape, made.filter(|entry| *entry != t.name))
                }
                None => (&entries[i].name, &entries[i].shape, None),
            };
            if let Some(drop) = bindings.drops.iter().find(|d| d.pattern.matches(name)) {
                dropped.push((name.clone(), drop.why.clone()));
                continue;
            }
            self.problems.push(Problem::Unused {
                entry: name.clone(),
                shape: shape.clone(),
                nearest: near.get_or_insert_with(|| Near::new(bindings)).find(name),
                made_of,
            });
        }
        dropped
    }
}

/// The first entry that `expr` is made of.
fn first_source(expr: &Expr) -> Option<String> {
    let mut first = None;
    expr.for_each_source(&mut |name| {
        first.get_or_insert_with(|| name.to_owned());
    });
    first
}

/// One number is the same with an axis of one and with none, as PyTorch has it: `movement` as `binding` wants it, or as it
/// was if this is not that.
fn scalar(binding: &Binding, found: &Shape, movement: Expr) -> Result<Expr, Expr> {
    match (&binding.shape[..], &found[..]) {
        ([1], []) => Ok(Expr::Stack(vec![movement])),
        // Its one byte range is the same; nothing can be cut out of a shape without axes.
        ([], [1]) => Ok(movement),
        _ => Err(movement),
    }
}

fn fits(binding: &Binding, found: Shape, made_from: &Expr) -> Result<(), Problem> {
    if found == binding.shape {
        return Ok(());
    }
    let mut entries: Vec<String> = vec![];
    made_from.for_each_source(&mut |n| {
        if entries.last().is_none_or(|last| last != n) {
            entries.push(n.into());
        }
    });
    Err(Problem::Shape {
        param: binding.name.clone(),
        entries,
        as_stored: matches!(made_from, Expr::Source(_)),
        wants: binding.shape.clone(),
        found,
    })
}

/// `expr` does not fit the entries that it is made from.
pub(crate) fn misfit(param: &str, expr: &Expr, sources: &Sources, why: Why) -> Problem {
    let sources = named_shapes(expr, sources);
    Problem::Expression { param: param.into(), sources, why, blame: Blame::Mismatch }
}

/// The sources of `expr` that are there, with their shapes.
fn named_shapes(expr: &Expr, sources: &Sources) -> Vec<(String, Shape)> {
    let mut out: Vec<(String, Shape)> = vec![];
    expr.for_each_source(&mut |n| {
        if let Some(shape) = sources.shape(n)
            && out.last().is_none_or(|last| last.0 != n)
        {
            out.push((n.into(), shape));
        }
    });
    out
}

/// The scheme that all sources of `expr` are stored in, `None` if there are no sources.
///
/// # Errors
/// One entry of each scheme, with the scheme's name, if there are several.
pub(crate) fn scheme_of(
    expr: &Expr,
    sources: &Sources,
) -> Result<Option<Arc<Scheme>>, Vec<(String, String)>> {
    let mut found: Vec<(String, Arc<Scheme>)> = vec![];
    expr.for_each_source(&mut |n| {
        if let Some((_, entry)) = sources.find(n)
            && found.iter().all(|(_, s)| !Arc::ptr_eq(s, &entry.scheme) && *s != entry.scheme)
        {
            found.push((n.into(), Arc::clone(&entry.scheme)));
        }
    });
    match &found[..] {
        [] => Ok(None),
        [(_, one)] => Ok(Some(Arc::clone(one))),
        several => Err(several.iter().map(|(n, s)| (n.clone(), s.name.to_string())).collect()),
    }
}

/// The nearest name that a model wants, looked up once for each pattern of names.
struct Near {
    wanted: Vec<String>,
    known: HashMap<String, Option<String>>,
}

impl Near {
    fn new(bindings: &Bindings) -> Near {
        let mut seen = HashSet::new();
        let mut wanted = vec![];
        for b in &bindings.bindings {
            if shallow(&b.expr) == Ok(()) {
                b.expr.for_each_source(&mut |n| {
                    let pattern = Pattern::of(n).to_string();
                    if seen.insert(pattern.clone()) {
                        wanted.push(pattern);
                    }
                });
            }
        }
        wanted.truncate(CANDIDATES);
        Near { wanted, known: HashMap::new() }
    }

    fn find(&mut self, entry: &str) -> Option<String> {
        let pattern = Pattern::of(entry).to_string();
        if self.known.len() >= CANDIDATES && !self.known.contains_key(&pattern) {
            return None;
        }
        let wanted = &self.wanted;
        let near = self
            .known
            .entry(pattern)
            .or_insert_with_key(|p| nearest(p, wanted.iter().map(String::as_str)).map(str::to_string));
        near.as_ref().map(|n| Pattern::new(n.as_str()).with_numbers_of(entry))
    }
}

/// Why `expr` may not be walked, as a problem of `param`.
pub(crate) fn too_deep(param: &str, why: Why) -> Problem {
    Problem::Expression { param: param.into(), sources: vec![], why, blame: Blame::Misuse }
}
