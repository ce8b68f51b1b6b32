//! Names that differ from the wanted ones only in a common prefix or suffix: reported as one problem, with the rule
//! that fixes it.

use std::collections::{BTreeSet, HashMap, HashSet};

use tensor::{Bindings, Pattern};

use crate::problem::{End, Problem};
use crate::shapes::shallow;

/// Fewer names than these are told one by one.
const FEW: usize = 3;
/// Missing names that are tried for what differs.
const TRIED: usize = 8;
/// Number of unused names that each missing name is compared with.
const AGAINST: usize = 1 << 14;

/// One way in which names differ: whole segments at one end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Affix {
    end: End,
    /// The segments that the checkpoint has there, without the dot between them and the rest.
    found: String,
    /// The segments that the model wants there.
    wanted: String,
}

impl Affix {
    /// Compares two names. Returns their difference if it is at `end` only, and both names have a part in common.
    fn of(end: End, wanted: &str, found: &str) -> Option<Affix> {
        let (a, b): (Vec<&str>, Vec<&str>) = (wanted.split('.').collect(), found.split('.').collect());
        let same = match end {
            End::Start => a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count(),
            End::Finish => a.iter().zip(&b).take_while(|(a, b)| a == b).count(),
        };
        let rest = |segments: &[&str]| match end {
            End::Start => segments[..segments.len() - same].join("."),
            End::Finish => segments[same..].join("."),
        };
        (same > 0).then(|| Affix { end, found: rest(&b), wanted: rest(&a) })
    }

    /// `name`, which begins or ends with `from`, with `to` instead.
    fn turned(&self, name: &str, from: &str, to: &str) -> Option<String> {
        let rest = match (self.end, from) {
            (_, "") => name,
            (End::Start, from) => name.strip_prefix(from)?.strip_prefix('.')?,
            (End::Finish, from) => name.strip_suffix(from)?.strip_suffix('.')?,
        };
        Some(match (self.end, to) {
            (_, "") => rest.to_owned(),
            (End::Start, to) => format!("{to}.{rest}"),
            (End::Finish, to) => format!("{rest}.{to}"),
        })
    }

    fn as_found(&self, wanted: &str) -> Option<String> {
        self.turned(wanted, &self.wanted, &self.found)
    }

    fn as_wanted(&self, found: &str) -> Option<String> {
        self.turned(found, &self.found, &self.wanted)
    }

    /// Rules, in TOML, that give the names in `moved` the wanted ones and take no name in `kept`.
    fn rule(&self, moved: &BTreeSet<&str>, kept: &[&str]) -> Option<String> {
        let plain = |text: &str| !text.contains(|c: char| c.is_control() || "{}\"\\".contains(c));
        if !plain(&self.found) || !plain(&self.wanted) {
            return None;
        }
        let with = |affix: &str, rest: &str| match (self.end, affix) {
            (_, "") => rest.to_owned(),
            (End::Start, affix) => format!("{affix}.{rest}"),
            (End::Finish, affix) => format!("{rest}.{affix}"),
        };
        let line = |rest: &str| {
            format!("{{ from = \"{}\", to = \"{}\" }}", with(&self.found, rest), with(&self.wanted, rest))
        };
        if !kept.iter().any(|name| self.as_wanted(name).is_some()) {
            return Some(format!("rule = [{}]", line("{rest..}")));
        }
        // By what stands next to it, which the names that stay have not.
        if self.end == End::Finish {
            return None;
        }
        let next = |name: &str| {
            let rest = self.turned(name, &self.found, "")?;
            let (first, more) = rest.split_once('.').map_or((&*rest, false), |(first, _)| (first, true));
            let first = if first.bytes().all(|b| b.is_ascii_digit()) { "{n}" } else { first };
            Some(if more { format!("{first}.{{rest..}}") } else { first.to_owned() })
        };
        let rests: BTreeSet<String> = moved.iter().filter_map(|name| next(name)).collect();
        let kept: BTreeSet<String> = kept.iter().filter_map(|name| next(name)).collect();
        let fits = rests.len() <= 8
            && rests.is_disjoint(&kept)
            && rests.iter().all(|r| plain(&r.replace("{rest..}", "").replace("{n}", "")));
        fits.then(|| {
            format!("rule = [{}]", rests.iter().map(|rest| line(rest)).collect::<Vec<_>>().join(", "))
        })
    }
}

/// Returns `problems`, with those that one prefix or suffix explains joined into one. `used` are the names that
/// parameters are made of; `ruled` says whether rules have already changed the names.
pub(crate) fn shortened(
    problems: Vec<Problem>,
    bindings: &Bindings,
    used: &[&str],
    ruled: bool,
) -> Vec<Problem> {
    let Some(affix) = found(&problems) else { return problems };
    let mut known: HashSet<&str> = HashSet::new();
    for binding in bindings.bindings.iter().filter(|b| shallow(&b.expr).is_ok()) {
        binding.expr.for_each_source(&mut |name| {
            known.insert(name);
        });
    }
    // Entries that the model would take or drop under the rule's names.
    let explained = |found: &str| {
        let wanted = affix.as_wanted(found)?;
        let has =
            known.contains(wanted.as_str()) || bindings.drops.iter().any(|d| d.pattern.matches(&wanted));
        has.then_some(wanted)
    };
    let unused: HashSet<String> = problems
        .iter()
        .filter_map(|problem| match problem {
            Problem::Unused { entry, .. } => Some(entry.clone()),
            _ => None,
        })
        .collect();
    let is_part = |problem: &Problem| match problem {
        Problem::Missing { entry, .. } => affix.as_found(entry).is_some_and(|found| unused.contains(&found)),
        Problem::Unused { entry, .. } => explained(entry).is_some(),
        _ => false,
    };
    let (parts, mut rest): (Vec<Problem>, Vec<Problem>) = problems.iter().cloned().partition(is_part);
    let moved: BTreeSet<&str> = parts
        .iter()
        .filter_map(|problem| match problem {
            Problem::Unused { entry, .. } => Some(entry.as_str()),
            _ => None,
        })
        .collect();
    let Some(example) = moved.first().and_then(|found| Some(((*found).to_owned(), affix.as_wanted(found)?)))
    else {
        return problems;
    };
    // Of what has its place already the rule takes nothing.
    let rule = if ruled { None } else { affix.rule(&moved, used) };
    let Affix { end, found, wanted } = affix.clone();
    rest.insert(0, Problem::Renamed { end, found, wanted, count: moved.len(), example, rule });
    rest
}

/// The one way in which names differ: that of all the missing ones, or of nearly all.
fn found(problems: &[Problem]) -> Option<Affix> {
    let mut missing = vec![];
    let mut unused = HashMap::new();
    for problem in problems {
        match problem {
            Problem::Missing { entry, wants, .. } => missing.push((entry.as_str(), wants.as_ref())),
            Problem::Unused { entry, shape, .. } => {
                unused.insert(entry.as_str(), shape);
            }
            _ => {}
        }
    }
    if missing.len() < FEW || unused.len() < FEW {
        return None;
    }
    let mut tried: HashSet<Affix> = HashSet::new();
    let step = missing.len().div_ceil(TRIED);
    for (wanted, _) in missing.iter().step_by(step) {
        for end in [End::Start, End::Finish] {
            let ways = unused.keys().take(AGAINST).filter_map(|found| Affix::of(end, wanted, found));
            // The less that differs, the likelier.
            let least = ways.min_by_key(|way| (way.found.len() + way.wanted.len(), way.found.clone()));
            tried.extend(least);
        }
    }
    let explained = |affix: &Affix| {
        let same = |(entry, wants): &&(&str, Option<&tensor::Shape>)| {
            let there = affix.as_found(entry).and_then(|found| unused.get(found.as_str()).copied());
            there.is_some_and(|shape| wants.is_none_or(|wants| wants == shape))
        };
        let pairs: Vec<&str> = missing.iter().filter(same).map(|(entry, _)| *entry).collect();
        let kinds: HashSet<String> = pairs.iter().map(|entry| Pattern::of(entry).to_string()).collect();
        (pairs.len(), kinds.len())
    };
    let mut ways: Vec<(usize, usize, Affix)> = tried
        .into_iter()
        .map(|affix| {
            let (pairs, kinds) = explained(&affix);
            (pairs, kinds, affix)
        })
        .collect();
    ways.retain(|(pairs, kinds, _)| *pairs >= FEW && *kinds > 1 && 10 * pairs >= 9 * missing.len());
    ways.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.2.found.cmp(&b.2.found)));
    ways.into_iter().next().map(|(.., affix)| affix)
}
