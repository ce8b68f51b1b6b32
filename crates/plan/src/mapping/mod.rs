//! A user's rules applied to a checkpoint's entries: the tensors that a dialect then finds, each as an expression
//! over entries.

mod movement;
mod problem;
mod takers;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use tensor::{
    Captures, Expr, Made, MapOutcome, MapRule, MapStep, Mapping, OneWay, Pattern, Shape, TensorEntry,
    invert_knowing, nearest,
};

use crate::shapes;
use crate::why::Why;

use movement::{Tensor, joined, padded, permuted, sliced, split, stacked, unflattened};
use problem::Found;
pub use problem::{MapFault, MapProblem, MapProblems};
use takers::{Takers, count};

/// Tensors that rules may make.
const LIMIT: usize = 1 << 20;
/// Patterns of entries that are compared to find a near one.
const CANDIDATES: usize = 512;

/// One tensor, as rules make it of entries.
#[derive(Clone, Debug, PartialEq)]
pub struct MappedTensor {
    /// Its name.
    pub name: String,
    /// Its logical shape.
    pub shape: Shape,
    /// Movement over entry names.
    pub expr: Expr,
    /// The line of the rule that makes it; `None` for an entry that no rule takes.
    pub line: Option<usize>,
    /// The tensor before it that it is another name of.
    pub same_as: Option<String>,
}

/// Entries, with their shapes.
type Entries = Vec<(String, Shape)>;

/// The entries that rules make of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapped {
    tensors: Vec<MappedTensor>,
    index: HashMap<String, usize>,
    dropped: Vec<(String, String)>,
    /// The tensors of one rule and one set of captures, with the entries that they are made of.
    groups: Vec<(Range<usize>, Entries)>,
}

impl Mapped {
    /// Applies `mapping`. Tensors are ordered by the first entry of each, not by the order of rules.
    ///
    /// # Errors
    /// Every rule that matches nothing or lacks a part, every entry that two rules match, every name that two rules
    /// produce, every step that does not fit.
    pub fn of(entries: &[TensorEntry], mapping: &Mapping) -> Result<Mapped, MapProblems> {
        let mut work = Work::of(entries, mapping);
        let (taken, groups) = work.take();
        let mut mapped = Mapped::default();
        let mut groups: Vec<Option<Group<'_>>> = groups.into_iter().map(Some).collect();
        for (entry, taken) in entries.iter().zip(taken) {
            match taken {
                Taken::Left => {
                    let expr = Expr::source(&entry.name);
                    work.add(&mut mapped, &entry.name, entry.shape.clone(), expr, None);
                }
                Taken::Group(at) => {
                    // The first of its entries makes it.
                    if let Some(group) = groups[at].take() {
                        work.make(group, &mut mapped);
                    }
                }
                Taken::Twice => {}
            }
        }
        work.found.problems().map(|()| mapped)
    }

    /// The tensors.
    pub fn tensors(&self) -> &[MappedTensor] {
        &self.tensors
    }

    /// The tensor called `name`, with its index.
    pub fn find(&self, name: &str) -> Option<(usize, &MappedTensor)> {
        let at = *self.index.get(name)?;
        Some((at, &self.tensors[at]))
    }

    /// Entries that a rule drops, and why.
    pub fn dropped(&self) -> &[(String, String)] {
        &self.dropped
    }

    /// Inverts the mapping: returns every entry as an expression over the tensors.
    ///
    /// # Errors
    /// Everything that cannot be inverted, by name: tensors that were dropped, cut or padded.
    pub fn inverse(&self) -> Result<Vec<Made>, Vec<OneWay>> {
        let one_way = |name: &str, why| OneWay { name: name.to_owned(), why };
        let mut lost: Vec<OneWay> =
            self.dropped.iter().map(|(name, _)| one_way(name, "is dropped")).collect();
        let left = self.tensors.iter().filter(|t| t.line.is_none());
        let mut back: Vec<Made> = left
            .map(|t| Made { name: t.name.clone(), shape: t.shape.clone(), expr: Expr::source(&t.name) })
            .collect();
        for (tensors, entries) in &self.groups {
            let made: Vec<Made> = self.tensors[tensors.clone()]
                .iter()
                .filter(|t| t.same_as.is_none())
                .map(|t| Made { name: t.name.clone(), shape: t.shape.clone(), expr: t.expr.clone() })
                .collect();
            let shape = |name: &str| entries.iter().find(|(n, _)| n == name).map(|(_, shape)| shape.clone());
            match invert_knowing(&made, &shape) {
                Ok(made) => {
                    for (name, shape) in entries {
                        match made.iter().find(|m| m.name == *name) {
                            Some(m) if m.shape == *shape => back.push(m.clone()),
                            _ => lost.push(one_way(name, "is cut")),
                        }
                    }
                }
                Err(why) => lost.push(why),
            }
        }
        if lost.is_empty() { Ok(back) } else { Err(lost) }
    }
}

/// The group of a rule and captures.
type Keys<'a> = HashMap<(usize, Captures<'a>), usize>;

/// The outcome for an entry.
enum Taken {
    /// No rule takes it.
    Left,
    /// It is a part of what this group makes.
    Group(usize),
    /// Several rules take it, which is noted; or its name is there twice.
    Twice,
}

/// The entries that one rule makes its tensors of, for one set of captures.
struct Group<'a> {
    rule: usize,
    captures: Captures<'a>,
    /// Entries by the number that is stacked, 0 if none is; then in the order of the rule's `from`.
    members: BTreeMap<u64, Vec<Option<usize>>>,
}

struct Work<'a> {
    entries: &'a [TensorEntry],
    mapping: &'a Mapping,
    found: Found<'a>,
    made: usize,
}

impl<'a> Work<'a> {
    fn of(entries: &'a [TensorEntry], mapping: &'a Mapping) -> Work<'a> {
        Work { entries, mapping, found: Found::of(mapping), made: 0 }
    }

    /// Hands every entry to the rule that takes it.
    fn take(&mut self) -> (Vec<Taken>, Vec<Group<'a>>) {
        let rules = &self.mapping.rules;
        let takers = Takers::of(rules);
        let mut groups: Vec<Group<'a>> = vec![];
        // By rule and captures.
        let mut keys: Keys<'_> = HashMap::new();
        let mut taken = Vec::with_capacity(self.entries.len());
        let mut met: Vec<Vec<bool>> = rules.iter().map(|r| vec![false; r.from.len()]).collect();
        let mut names = HashSet::with_capacity(self.entries.len());
        for (i, entry) in self.entries.iter().enumerate() {
            let found = takers.find(&entry.name);
            for taker in &found {
                met[taker.rule][taker.place] = true;
            }
            if !names.insert(entry.name.as_str()) {
                taken.push(Taken::Twice);
                continue;
            }
            let taker = match found[..] {
                [] => {
                    taken.push(Taken::Left);
                    continue;
                }
                [one] => one,
                [a, b, ..] => {
                    self.found.two_rules(&entry.name, a, b);
                    taken.push(Taken::Twice);
                    continue;
                }
            };
            let rule = &rules[taker.rule];
            let mut captures = rule.from[taker.place].captures(&entry.name).unwrap_or_default();
            captures.sort_unstable();
            let mut number = 0;
            if let Some(stacked) = rule.stacked() {
                let value = captures.iter().find(|(hole, _)| *hole == stacked).and_then(|(_, v)| count(v));
                number = value.unwrap_or(0);
                captures.retain(|(hole, _)| *hole != stacked);
            }
            let alone = rule.from.len() == 1 && rule.stacked().is_none();
            let at = if alone {
                groups.len()
            } else {
                *keys.entry((taker.rule, captures.clone())).or_insert(groups.len())
            };
            if at == groups.len() {
                groups.push(Group { rule: taker.rule, captures, members: BTreeMap::new() });
            }
            let members = groups[at].members.entry(number).or_insert_with(|| vec![None; rule.from.len()]);
            members[taker.place] = Some(i);
            taken.push(Taken::Group(at));
        }
        self.unmet(&met);
        (taken, groups)
    }

    /// Rules that take nothing.
    fn unmet(&mut self, met: &[Vec<bool>]) {
        let mut patterns: Option<Vec<String>> = None;
        for (rule, places) in met.iter().enumerate() {
            for place in places.iter().enumerate().filter(|(_, met)| !**met).map(|(place, _)| place) {
                let patterns = patterns.get_or_insert_with(|| {
                    let mut seen = HashSet::new();
                    let mut of = self.entries.iter().map(|e| Pattern::of(&e.name).to_string());
                    of.by_ref().filter(|p| seen.insert(p.clone())).take(CANDIDATES).collect()
                });
                let wanted = self.mapping.rules[rule].from[place].to_string();
                let near = nearest(&wanted, patterns.iter().map(String::as_str));
                self.found.nothing(rule, &wanted, near);
            }
        }
    }

    /// Makes the tensors of a group.
    fn make(&mut self, group: Group<'a>, mapped: &mut Mapped) {
        let rule: &'a MapRule = &self.mapping.rules[group.rule];
        let Some(members) = self.complete(&group, rule) else { return };
        let (steps, to) = match &rule.outcome {
            MapOutcome::Drop { why } => {
                let names = members.iter().flatten().map(|i| (self.entries[*i].name.clone(), why.clone()));
                mapped.dropped.extend(names);
                return;
            }
            MapOutcome::Make { steps, to } => (steps, to),
        };
        let tensor = |i: &usize| Tensor {
            expr: Expr::source(&self.entries[*i].name),
            shape: self.entries[*i].shape.clone(),
        };
        let mut now: Vec<Vec<Tensor>> = members.iter().map(|m| m.iter().map(tensor).collect()).collect();
        for step in steps {
            now = match self.step(step, now, to.len()) {
                Ok(now) => now,
                Err(why) => {
                    let first = &self.entries[members[0][0]];
                    self.found.step(group.rule, step, first, why);
                    return;
                }
            };
        }
        let start = mapped.tensors.len();
        let tied = steps.iter().any(|s| matches!(s, MapStep::Tie));
        for (number, made) in now.into_iter().enumerate() {
            if made.len() != to.len() {
                // Only where the rule was not checked.
                self.found.counts(group.rule, made.len(), to.len());
                return;
            }
            let number = number.to_string();
            let mut root: Option<String> = None;
            for (tensor, template) in made.into_iter().zip(to) {
                let value = |hole: &str| match group.captures.iter().find(|(h, _)| *h == hole) {
                    Some((_, value)) => Some(*value),
                    None => Some(number.as_str()).filter(|_| rule.unstacked() == Some(hole)),
                };
                let Some(name) = template.fill(value) else {
                    self.found.counts(group.rule, 0, 0);
                    return;
                };
                self.add(mapped, &name, tensor.shape, tensor.expr, Some((group.rule, root.clone())));
                if tied {
                    root.get_or_insert(name);
                }
            }
        }
        let parts = members.iter().flatten().map(|i| &self.entries[*i]);
        let parts = parts.map(|e| (e.name.clone(), e.shape.clone())).collect();
        mapped.groups.push((start..mapped.tensors.len(), parts));
    }

    /// The entries of a group, if none is missing.
    fn complete(&mut self, group: &Group<'_>, rule: &MapRule) -> Option<Vec<Vec<usize>>> {
        let name = |i: usize| self.entries[i].name.clone();
        let present = group.members.values().flatten().flatten().next().copied()?;
        let mut all = vec![];
        for (wanted, (number, members)) in (0..).zip(&group.members) {
            let text = wanted.to_string();
            let fill = |place: usize| {
                let value = |hole: &str| {
                    let captured = group.captures.iter().find(|(h, _)| *h == hole).map(|(_, v)| *v);
                    captured.or((rule.stacked() == Some(hole)).then_some(text.as_str()))
                };
                rule.from[place].fill(value).unwrap_or_else(|| rule.from[place].to_string())
            };
            if *number != wanted {
                self.found.lacks(group.rule, 0, &fill(0), &name(present));
                return None;
            }
            let mut here = vec![];
            for (place, member) in members.iter().enumerate() {
                let several = matches!(rule.outcome, MapOutcome::Make { .. });
                match member {
                    Some(i) => here.push(*i),
                    None if several => {
                        self.found.lacks(group.rule, place, &fill(place), &name(present));
                        return None;
                    }
                    None => {}
                }
            }
            all.push(here);
        }
        Some(all)
    }

    /// Applies one step to the current tensors: by number, then in the order of names.
    fn step(&mut self, step: &MapStep, now: Vec<Vec<Tensor>>, names: usize) -> Result<Vec<Vec<Tensor>>, Why> {
        let each = |f: &dyn Fn(Tensor) -> Result<Tensor, Why>| -> Result<Vec<Vec<Tensor>>, Why> {
            now.iter().map(|here| here.iter().cloned().map(f).collect()).collect()
        };
        match step {
            MapStep::Transpose => each(&|t| {
                let rank = t.shape.len();
                if rank < 2 {
                    return Err(Why::Shape(format!("transpose of {}", t.shape)));
                }
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.swap(rank - 2, rank - 1);
                permuted(t, &axes)
            }),
            MapStep::Permute(axes) => each(&|t| permuted(t, axes)),
            MapStep::Unflatten { axis, sizes } => each(&|t| unflattened(t, *axis, sizes)),
            MapStep::Flatten { axis, count } => each(&|mut t| {
                for _ in 1..*count {
                    t = Tensor { shape: shapes::merge(&t.shape, *axis)?, expr: t.expr.merge(*axis) };
                }
                Ok(t)
            }),
            MapStep::Slice { axis, range } => each(&|t| sliced(&t, *axis, range.clone())),
            MapStep::Pad { axis, to } => each(&|t| padded(t, *axis, *to)),
            MapStep::Split { axis, sizes } => now
                .iter()
                .map(|here| {
                    here.iter()
                        .map(|t| split(t, *axis, sizes.as_deref(), names))
                        .collect::<Result<Vec<_>, _>>()
                })
                .map(|here| here.map(|parts| parts.into_iter().flatten().collect()))
                .collect(),
            MapStep::Merge { axis } => now.into_iter().map(|here| Ok(vec![joined(here, *axis)?])).collect(),
            MapStep::Stack { .. } => {
                let places = now.first().map_or(0, Vec::len);
                (0..places)
                    .map(|place| stacked(now.iter().filter_map(|here| here.get(place)).cloned().collect()))
                    .collect::<Result<Vec<_>, _>>()
                    .map(|here| vec![here])
            }
            MapStep::Unstack { .. } => self.unstacked(&now),
            MapStep::Tie => {
                Ok(now.into_iter().map(|here| here.into_iter().cycle().take(names).collect()).collect())
            }
        }
    }

    fn unstacked(&self, now: &[Vec<Tensor>]) -> Result<Vec<Vec<Tensor>>, Why> {
        let here = now.iter().flatten();
        let first = here.clone().next().map(|t| t.shape.clone()).unwrap_or_default();
        let numbers = *first.first().ok_or_else(|| Why::Shape("unstack of a scalar".into()))?;
        if first.len() < 2 {
            return Err(Why::Shape(format!("unstack of {first}, whose parts have no axes")));
        }
        let room = LIMIT.saturating_sub(self.made) as u64;
        if numbers > room {
            return Err(Why::TooFine { limit: LIMIT as u64 });
        }
        let part = |t: &Tensor, i: u64| {
            let t = sliced(t, 0, i..i + 1)?;
            Ok(Tensor { shape: shapes::merge(&t.shape, 0)?, expr: t.expr.merge(0) })
        };
        (0..numbers).map(|i| here.clone().map(|t| part(t, i)).collect()).collect()
    }

    /// Adds a tensor, if its name is not there.
    fn add(
        &mut self,
        mapped: &mut Mapped,
        name: &str,
        shape: Shape,
        expr: Expr,
        rule: Option<(usize, Option<String>)>,
    ) {
        if let Some(&at) = mapped.index.get(name) {
            let (before, now) = (&mapped.tensors[at], rule.as_ref().map(|(rule, _)| *rule));
            self.found.two_make(name, (before.line, &before.expr), (now, &expr));
            return;
        }
        self.made += usize::from(rule.is_some());
        mapped.index.insert(name.to_owned(), mapped.tensors.len());
        let line = rule.as_ref().map(|(rule, _)| self.mapping.rules[*rule].line);
        let same_as = rule.and_then(|(_, root)| root);
        mapped.tensors.push(MappedTensor { name: name.to_owned(), shape, expr, line, same_as });
    }
}
