//! Rules that a user writes: how the entries of a checkpoint become tensors of other names and forms. Plain data.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::diagnostic::Diagnostic;
use crate::template::{Takes, Template};

/// What a rule does with the tensors that it takes, after what it did before.
///
/// Axes are counted from 0, extents in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapStep {
    /// Swaps the last two axes.
    Transpose,
    /// Axis `i` becomes what was axis `axes[i]`.
    Permute(Vec<usize>),
    /// Axis `axis` becomes as many as there are `sizes`, whose product is its extent.
    Unflatten {
        /// The axis.
        axis: usize,
        /// The extents, slowest first; one of them may be left to follow from the others.
        sizes: Vec<Option<u64>>,
    },
    /// Axis `axis` and those after it, `count` together, become one.
    Flatten {
        /// The first axis.
        axis: usize,
        /// How many, at least 2.
        count: usize,
    },
    /// Keeps a range of an axis. There is no way back.
    Slice {
        /// The axis.
        axis: usize,
        /// The elements that are kept.
        range: Range<u64>,
    },
    /// Adds zeros at the end of an axis. There is no way back.
    Pad {
        /// The axis.
        axis: usize,
        /// The extent that it gets.
        to: u64,
    },
    /// One tensor becomes several, parts of an axis.
    Split {
        /// The axis.
        axis: usize,
        /// The extents of the parts; without them as many equal ones as the rule has names for.
        sizes: Option<Vec<u64>>,
    },
    /// Several tensors become one, along an axis that they have.
    Merge {
        /// The axis.
        axis: usize,
    },
    /// Numbered tensors, 0, 1, 2, …, become one along a new first axis.
    Stack {
        /// The capture that has the number.
        number: String,
    },
    /// The parts of the first axis become tensors numbered 0, 1, 2, …, which have it no more.
    Unstack {
        /// The capture that gets the number.
        number: String,
    },
    /// One tensor gets several names.
    Tie,
}

/// What becomes of what a rule takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapOutcome {
    /// It is made into tensors of these names.
    Make {
        /// What is done, in order.
        steps: Vec<MapStep>,
        /// The names that come of it, in order.
        to: Vec<Template>,
    },
    /// It is not used, and nothing is lost by that.
    Drop {
        /// Why.
        why: String,
    },
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRule {
    /// The names that it takes.
    pub from: Vec<Template>,
    /// What becomes of them.
    pub outcome: MapOutcome,
    /// Where it stands in the mapping's origin, counted from 1; for messages.
    pub line: usize,
}

/// Rules for the entries of a checkpoint. What no rule takes stays as it is.
///
/// At most one rule may take an entry, and what rules make is not looked at again: the order of rules means nothing.
/// A rule whose names have a capture of several segments leaves alone what another rule takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Where the rules come from: the name of a file, for messages.
    pub origin: String,
    /// The rules.
    pub rules: Vec<MapRule>,
}

impl MapRule {
    /// The capture that [`MapStep::Stack`] takes the number from.
    pub fn stacked(&self) -> Option<&str> {
        self.steps().iter().find_map(|s| match s {
            MapStep::Stack { number } => Some(number.as_str()),
            _ => None,
        })
    }

    /// The capture that [`MapStep::Unstack`] gives the number to.
    pub fn unstacked(&self) -> Option<&str> {
        self.steps().iter().find_map(|s| match s {
            MapStep::Unstack { number } => Some(number.as_str()),
            _ => None,
        })
    }

    /// What it does, in order.
    pub fn steps(&self) -> &[MapStep] {
        match &self.outcome {
            MapOutcome::Make { steps, .. } => steps,
            MapOutcome::Drop { .. } => &[],
        }
    }

    /// The names that it makes.
    pub fn to(&self) -> &[Template] {
        match &self.outcome {
            MapOutcome::Make { to, .. } => to,
            MapOutcome::Drop { .. } => &[],
        }
    }

    /// Everything that is wrong with it by itself: wanted, then found.
    pub fn check(&self) -> Vec<Diagnostic> {
        let mut wrong = vec![];
        if self.from.is_empty() {
            wrong.push(Diagnostic::new("wanted at least one name in `from`, found none"));
        }
        twice(&self.from, "from", &mut wrong);
        if matches!(self.outcome, MapOutcome::Make { .. }) {
            if self.to().is_empty() {
                wrong.push(Diagnostic::new("wanted at least one name in `to`, found none"));
            }
            twice(self.to(), "to", &mut wrong);
            if wrong.is_empty() {
                self.check_counts(&mut wrong);
                self.check_captures(&mut wrong);
            }
        }
        wrong
    }

    /// How many tensors there are after each step.
    fn check_counts(&self, wrong: &mut Vec<Diagnostic>) {
        let (mut now, names) = (self.from.len(), self.to().len());
        let (mut numbered, last) = (0, self.steps().len().saturating_sub(1));
        for (i, step) in self.steps().iter().enumerate() {
            match step {
                MapStep::Split { sizes, .. } => {
                    if now != 1 {
                        wrong.push(Diagnostic::new(format!("`split` takes one tensor, found {now}")));
                    }
                    now = sizes.as_ref().map_or(names, Vec::len);
                }
                MapStep::Merge { .. } => {
                    if now < 2 {
                        wrong.push(Diagnostic::new("`merge` takes at least two tensors, found one"));
                    }
                    now = 1;
                }
                MapStep::Tie => {
                    if now != 1 || i != last {
                        wrong.push(Diagnostic::new(
                            "`tie` gives one tensor several names, and is the last to be done",
                        ));
                    }
                    now = names;
                }
                MapStep::Stack { .. } | MapStep::Unstack { .. } => {
                    numbered += 1;
                }
                MapStep::Unflatten { sizes, .. } if sizes.iter().filter(|s| s.is_none()).count() > 1 => {
                    wrong.push(Diagnostic::new(
                        "`unflatten` leaves at most one size to follow from the others",
                    ));
                }
                _ => {}
            }
        }
        if numbered > 1 {
            wrong.push(Diagnostic::new("one `stack` or `unstack` is the most in a rule"));
        }
        if wrong.is_empty() && now != names {
            let hint = match (now, names) {
                (1, _) => Some("`split` makes several tensors of one, `tie` gives one several names"),
                (_, 1) => Some("`merge` makes one tensor of several"),
                _ => None,
            };
            wrong.push(
                Diagnostic::new(format!(
                    "wanted as many names in `to` as there are tensors, {now}, found {names}"
                ))
                .with_hint(hint.map(str::to_owned)),
            );
        }
    }

    /// That the same captures stand on both sides.
    fn check_captures(&self, wrong: &mut Vec<Diagnostic>) {
        let of = |t: &Template| t.holes().map(|(n, t)| (n.to_owned(), t == Takes::Many)).collect();
        let first: BTreeSet<(String, bool)> = of(&self.from[0]);
        let mut wanted = first.clone();
        let one = |name: &str| (name.to_owned(), false);
        if let Some(number) = self.stacked()
            && !wanted.remove(&one(number))
        {
            wrong.push(Diagnostic::new(format!(
                "wanted the capture `{{{number}}}` of `stack` in `from`, found `{}`",
                self.from[0]
            )));
            return;
        }
        if let Some(number) = self.unstacked()
            && !wanted.insert(one(number))
        {
            wrong.push(Diagnostic::new(format!(
                "wanted a new capture for `unstack`, found `{{{number}}}` in `from` already"
            )));
            return;
        }
        let sides = self
            .from
            .iter()
            .map(|t| (t, &first, "`from` has"))
            .chain(self.to().iter().map(|t| (t, &wanted, "`from` gives")));
        for (template, want, whose) in sides {
            let found: BTreeSet<(String, bool)> = of(template);
            if found != *want {
                wrong.push(Diagnostic::new(format!(
                    "{whose} {}, found {} in `{template}`",
                    listed(want),
                    listed(&found)
                )));
            }
        }
    }
}

fn twice(templates: &[Template], key: &str, wrong: &mut Vec<Diagnostic>) {
    for (i, template) in templates.iter().enumerate() {
        if templates[..i].contains(template) {
            wrong.push(Diagnostic::new(format!("`{template}` is twice in `{key}`")));
        }
    }
}

fn listed(captures: &BTreeSet<(String, bool)>) -> String {
    let text = |(name, many): &(String, bool)| format!("`{{{name}{}}}`", if *many { ".." } else { "" });
    match captures.len() {
        0 => "no captures".to_owned(),
        1 => format!("the capture {}", captures.iter().map(text).collect::<String>()),
        _ => format!("the captures {}", captures.iter().map(text).collect::<Vec<_>>().join(", ")),
    }
}
