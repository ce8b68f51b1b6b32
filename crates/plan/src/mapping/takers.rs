//! Which rules take an entry: templates as a tree of segments, so that a name is walked once, however many there are.

use std::collections::HashMap;

use tensor::{MapRule, Segment, Takes};

/// One of a rule's `from`: the rule, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taker {
    pub(super) rule: usize,
    pub(super) place: usize,
}

#[derive(Default)]
struct Node {
    words: HashMap<String, usize>,
    number: Option<usize>,
    one: Option<usize>,
    /// Templates that end here.
    ends: Vec<Taker>,
    /// Templates that take any number of segments from here on.
    open: Vec<Taker>,
}

/// The templates of all rules.
pub(super) struct Takers<'a> {
    rules: &'a [MapRule],
    nodes: Vec<Node>,
}

impl<'a> Takers<'a> {
    pub(super) fn of(rules: &'a [MapRule]) -> Takers<'a> {
        let mut takers = Takers { rules, nodes: vec![Node::default()] };
        for (rule, r) in rules.iter().enumerate() {
            for (place, template) in r.from.iter().enumerate() {
                takers.add(Taker { rule, place }, template.segments());
            }
        }
        takers
    }

    fn add(&mut self, taker: Taker, segments: &[Segment]) {
        let mut at = 0;
        for segment in segments {
            let next = self.nodes.len();
            let node = &mut self.nodes[at];
            at = match segment {
                Segment::Word(word) => *node.words.entry(word.clone()).or_insert(next),
                Segment::Capture(_, Takes::Number) => *node.number.get_or_insert(next),
                Segment::Capture(_, Takes::One) => *node.one.get_or_insert(next),
                Segment::Capture(_, Takes::Many) => {
                    node.open.push(taker);
                    return;
                }
            };
            if at == next {
                self.nodes.push(Node::default());
            }
        }
        self.nodes[at].ends.push(taker);
    }

    /// Returns every template that matches `name`; templates of any number of segments only if no other does.
    pub(super) fn find(&self, name: &str) -> Vec<Taker> {
        let (mut found, mut open) = (vec![], vec![]);
        self.walk(0, Some(name), &mut found, &mut open);
        if found.is_empty() {
            open.retain(|t| self.rules[t.rule].from[t.place].captures(name).is_some());
            found = open;
        }
        found.retain(|t| self.is_counted(*t, name));
        found.sort_unstable();
        found
    }

    fn walk(&self, at: usize, rest: Option<&str>, found: &mut Vec<Taker>, open: &mut Vec<Taker>) {
        let node = &self.nodes[at];
        let Some(rest) = rest else {
            found.extend(&node.ends);
            return;
        };
        open.extend(&node.open);
        let (word, after) = rest.split_once('.').map_or((rest, None), |(word, after)| (word, Some(after)));
        if let Some(&next) = node.words.get(word) {
            self.walk(next, after, found, open);
        }
        if let Some(next) =
            node.number.filter(|_| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()))
        {
            self.walk(next, after, found, open);
        }
        if let Some(next) = node.one {
            self.walk(next, after, found, open);
        }
    }

    /// A number that tensors are stacked by is one, written the one way.
    fn is_counted(&self, taker: Taker, name: &str) -> bool {
        let rule = &self.rules[taker.rule];
        rule.stacked().is_none_or(|number| {
            let captures = rule.from[taker.place].captures(name).unwrap_or_default();
            captures.iter().any(|(hole, value)| *hole == number && count(value).is_some())
        })
    }
}

/// A number without leading zeros.
pub(super) fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}
