//! Stage 1: what the model wants held against what the checkpoint has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tensor::{Dtype, Expr, Pattern, Scheme, Shape, Step, TensorEntry, nearest};

use crate::problem::{Fault, Problem, Problems, Why};
use crate::shapes::{shallow, shape_of};
use crate::sources::Sources;
use crate::steps::{effective, hoist};
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
}

/// One canonical parameter, made from entries.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedParam {
    /// Canonical name.
    pub name: String,
    /// Logical shape, as the model wants it.
    pub shape: Shape,
    /// What movement alone yields, before any step.
    pub scheme: Arc<Scheme>,
    /// Movement over entry names; the steps are taken out of it.
    pub expr: Expr,
    /// What is done after movement, in order.
    pub steps: Vec<Step>,
    /// The canonical parameter that this one is the same as, because it has no entries of its own.
    pub tied_to: Option<String>,
}

impl Resolved {
    /// The parameter called `name`.
    pub fn find(&self, name: &str) -> Option<&ResolvedParam> {
        self.params.iter().find(|p| p.name == name)
    }
}

/// Substitutes `entries` into `bindings` and checks names and shapes.
///
/// # Errors
/// Every problem at once: what is missing, unused, mis-shaped or stored in different schemes.
pub fn resolve(entries: &[TensorEntry], bindings: &Bindings) -> Result<Resolved, Problems> {
    let mut work =
        Work { sources: Sources::new(entries), used: vec![false; entries.len()], problems: vec![] };
    work.duplicates(entries, bindings);
    let mut missing = Missing::default();
    let states: Vec<State> = bindings.bindings.iter().map(|b| work.binding(b, &mut missing)).collect();
    let index: HashMap<&str, usize> =
        bindings.bindings.iter().enumerate().rev().map(|(i, b)| (b.name.as_str(), i)).collect();
    let params = work.ties(bindings, &states, &index, &mut missing);
    work.problems.splice(0..0, missing.problems);
    let dropped = work.unused(bindings);
    Problems::none(work.problems)?;
    Ok(Resolved { params, dropped })
}

/// What became of a binding.
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

/// Whether some of a source may be left out, so that its shape does not follow from the result's.
fn sliced(expr: &Expr) -> bool {
    match expr {
        Expr::Source(_) | Expr::Zero(_) => false,
        Expr::Slice { .. } => true,
        Expr::Concat { parts, .. } | Expr::Stack(parts) => parts.iter().any(sliced),
        Expr::Split { of, .. }
        | Expr::Merge { of, .. }
        | Expr::Permute { of, .. }
        | Expr::Encode { of, .. } => sliced(of),
    }
}

struct Work<'a> {
    sources: Sources<'a>,
    used: Vec<bool>,
    problems: Vec<Problem>,
}

impl Work<'_> {
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
        binding.expr.for_each_source(&mut |name| match self.sources.find(name) {
            Some((i, _)) => there.push(i),
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
        let hoisted = hoist(&binding.expr).map_err(|clash| Problem::Steps { param: param(), clash })?;
        let found = shape_of(&hoisted.movement, &|n| self.sources.shape(n))
            .map_err(|why| misfit(&binding.name, &hoisted.movement, &self.sources, why))?;
        fits(binding, found, &hoisted.movement)?;
        let scheme = scheme_of(&hoisted.movement, &self.sources)
            .map_err(|parts| Problem::Mixed { param: param(), parts })?
            .unwrap_or_else(|| Scheme::plain(Dtype::F32));
        Ok(ResolvedParam {
            name: param(),
            shape: binding.shape.clone(),
            steps: effective(&scheme, hoisted.steps),
            scheme,
            expr: hoisted.movement,
            tied_to: None,
        })
    }

    /// Gives each tied parameter what it is tied to, through as many ties as it takes.
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

    /// Lists what may be dropped, and notes what may not.
    fn unused(&mut self, bindings: &Bindings) -> Vec<(String, String)> {
        let mut dropped = vec![];
        let mut near = Near::new(bindings);
        let entries = self.sources.entries();
        for (entry, _) in entries.iter().zip(&self.used).filter(|(_, used)| !**used) {
            if let Some(drop) = bindings.drops.iter().find(|d| d.pattern.matches(&entry.name)) {
                dropped.push((entry.name.clone(), drop.why.clone()));
                continue;
            }
            self.problems.push(Problem::Unused {
                entry: entry.name.clone(),
                shape: entry.shape.clone(),
                nearest: near.find(&entry.name),
            });
        }
        dropped
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
    Problem::Expression { param: param.into(), sources, why, fault: Fault::Mismatch }
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
        near.as_ref().map(|n| fill(n, entry))
    }
}

/// Puts the numbers of `entry` in the holes of `pattern`.
fn fill(pattern: &str, entry: &str) -> String {
    let mut numbers = entry.split('.').filter(|s| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()));
    let segment = |s| if s == "{n}" { numbers.next().unwrap_or(s) } else { s };
    pattern.split('.').map(segment).collect::<Vec<_>>().join(".")
}

/// Why `expr` may not be walked, as a problem of `param`.
pub(crate) fn too_deep(param: &str, why: Why) -> Problem {
    Problem::Expression { param: param.into(), sources: vec![], why, fault: Fault::Misuse }
}
