//! What moves where, by groups of entries and of parameters that are alike but for numbers in their names.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use weighbridge::plan::{Absent, Dropped, PlannedParam, Whole};
use weighbridge::tensor::Pattern;
use weighbridge::{Plan, Shape};

use super::groups::{Group, Grouping, merged};
use super::layers::Where;
use super::moved::{Marks, Moved, Part};

/// Groups that one side has at most; the smallest of more are one.
const MOST: usize = 48;

/// Entries, parameters, and what goes from these to those.
pub(super) struct Flow {
    pub(super) entries: Vec<EntryGroup>,
    pub(super) params: Vec<ParamGroup>,
    pub(super) bands: Vec<Band>,
}

/// Entries of one pattern and scheme.
pub(super) struct EntryGroup {
    pub(super) group: Group,
    /// Bytes that the plan takes, each counted once.
    pub(super) taken: u64,
    /// Why none is needed.
    pub(super) dropped: Option<String>,
}

/// Parameters of one pattern and scheme that come to be in one way.
pub(super) struct ParamGroup {
    pub(super) group: Group,
    /// Bytes of zeros.
    pub(super) padding: u64,
    pub(super) way: Way,
    /// What becomes of the bytes besides: `fused of 3`.
    pub(super) marks: Vec<String>,
    /// The changes of encoding: `q4_1 -> q4_1.r16`.
    pub(super) steps: String,
}

/// How parameters come to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// Used where the bytes lie in the file.
    Borrowed,
    /// Moved as they are.
    Copied,
    /// Changed by a codec.
    Encoded { exact: bool },
    /// In the slot of another, of this pattern.
    Tied(String),
    /// Not there, and this pattern allows it.
    Absent(String),
    /// Several of these.
    Several,
}

/// What goes from a group of entries to one of parameters.
pub(super) struct Band {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Bytes of entries.
    pub(super) read: u64,
    /// Bytes of slots.
    pub(super) written: u64,
    /// Its place among the bands to the same parameters: what comes first in their slots comes first.
    rank: usize,
}

/// Bands by what they join.
#[derive(Default)]
struct Bands(BTreeMap<(usize, usize), Band>);

impl Bands {
    /// Adds a band, or makes another between the same two groups thicker.
    fn add(&mut self, band: Band) {
        match self.0.entry((band.to, band.from)) {
            Entry::Vacant(new) => _ = new.insert(band),
            Entry::Occupied(mut there) => {
                let sum = there.get_mut();
                sum.read += band.read;
                sum.written += band.written;
                sum.rank = sum.rank.min(band.rank);
            }
        }
    }

    /// In the order of the parameters.
    fn list(self) -> Vec<Band> {
        let mut all: Vec<Band> = self.0.into_values().collect();
        all.sort_by_key(|band| (band.to, band.rank));
        all
    }
}

impl Flow {
    /// What `plan` moves; `borrowed` says which parameters stay in a map.
    pub(super) fn new(plan: &Plan, borrowed: &[bool]) -> Flow {
        let entries = plan.checkpoint().entries();
        let pieces = plan.pieces();
        let mut whole = Whole::default();
        whole.add(pieces);
        let taken = whole.taken(entries.len());
        // What is not needed is said as the command says it: by patterns that hold much.
        let reasons = weighbridge::plan::dropped(&pieces.dropped);
        let dropped: HashMap<&str, usize> =
            pieces.dropped.iter().filter_map(|one| group_of(one, &reasons)).collect();
        let mut left = Grouping::default();
        for entry in entries {
            let key = match dropped.get(entry.name.as_str()) {
                Some(reason) => Err(*reason),
                None => Ok((Pattern::of(&entry.name).to_string(), entry.scheme.name.to_string())),
            };
            left.add(key, &entry.name, &entry.shape, &entry.scheme.name, entry.byte_len());
        }
        let mut right = Grouping::default();
        let (mut padding, mut first) = (vec![], vec![]);
        let mut places = places(&pieces.params).into_iter();
        let mut bands = Bands::default();
        for (param, borrowed) in pieces.params.iter().zip(borrowed) {
            let (way, marks) = way(param, *borrowed, &pieces.params);
            let steps = if way == Way::Borrowed { String::new() } else { steps(param) };
            let own = if param.tied_to.is_some() { 0 } else { param.slot_bytes() };
            let key =
                (Pattern::of(&param.name).to_string(), param.scheme.name.to_string(), way, marks, steps);
            let to = right.add(key, &param.name, &param.shape, &param.scheme.name, own);
            let place = places.next().unwrap_or_default();
            padding.resize(right.groups.len(), 0);
            first.resize(right.groups.len(), place);
            first[to] = place.min(first[to]);
            let moved = Moved::of(param);
            padding[to] += moved.zeros;
            for (entry, Part { read, written, rank }) in moved.from {
                bands.add(Band { from: left.of[entry], to, read, written, rank });
            }
        }
        let mut flow = Flow {
            entries: left
                .groups
                .into_iter()
                .map(|(key, group)| match key {
                    Ok(_) => EntryGroup { group, taken: 0, dropped: None },
                    Err(reason) => {
                        let Dropped { pattern, why, .. } = reasons[reason].clone();
                        EntryGroup { group: Group { name: pattern, ..group }, taken: 0, dropped: Some(why) }
                    }
                })
                .collect(),
            params: right
                .groups
                .into_iter()
                .zip(padding)
                .map(|(((_, _, way, marks, steps), group), padding)| ParamGroup {
                    group,
                    padding,
                    way,
                    marks,
                    steps,
                })
                .collect(),
            bands: bands.list(),
        };
        for (of, taken) in left.of.into_iter().zip(taken) {
            flow.entries[of].taken += taken;
        }
        flow.params.extend(absent(&pieces.absent));
        flow.arrange(&first);
        flow.fewer();
        flow
    }

    /// Makes the smallest groups of each side one if there are too many.
    fn fewer(&mut self) {
        let (from, entries) = merged(std::mem::take(&mut self.entries), MOST, EntryGroup::and);
        self.entries = entries;
        let (to, params) = merged(std::mem::take(&mut self.params), MOST, ParamGroup::and);
        self.params = params;
        self.rejoin(&from, &to);
    }

    /// Puts parameters in the order of the model, with those of one layer together, however many layers have them; and
    /// entries in the order of what is made from them, so that few bands cross. What is not needed comes last.
    fn arrange(&mut self, place: &[(usize, usize)]) {
        let to = reorder(&mut self.params, |i| place.get(i).copied().unwrap_or((usize::MAX, i)));
        let same: Vec<usize> = (0..self.entries.len()).collect();
        self.rejoin(&same, &to);
        let mut first = vec![(usize::MAX, 0); self.entries.len()];
        for band in &self.bands {
            first[band.from] = first[band.from].min((band.to, band.rank));
        }
        let from = reorder(&mut self.entries, |i| first[i]);
        let same: Vec<usize> = (0..self.params.len()).collect();
        self.rejoin(&from, &same);
    }

    /// Gives each band the new places of what it joins.
    fn rejoin(&mut self, from: &[usize], to: &[usize]) {
        let mut bands = Bands::default();
        for band in self.bands.drain(..) {
            bands.add(Band { from: from[band.from], to: to[band.to], ..band });
        }
        self.bands = bands.list();
    }
}

/// Sorts `all` by the key of each place. Returns where each is now.
fn reorder<T, K: Ord>(all: &mut Vec<T>, key: impl Fn(usize) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|i| key(*i));
    let mut at = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        at[*old] = new;
    }
    let mut old: Vec<Option<T>> = all.drain(..).map(Some).collect();
    all.extend(order.into_iter().filter_map(|i| old[i].take()));
    at
}

/// For each parameter, where the picture has it: the first parameter of its stack of layers, and how far it is from the first
/// of its layer.
fn places(params: &[PlannedParam]) -> Vec<(usize, usize)> {
    let patterns: Vec<String> = params.iter().map(|param| Pattern::of(&param.name).to_string()).collect();
    let (mut stacks, mut layers) = (HashMap::new(), HashMap::new());
    let place = |(i, param): (usize, &PlannedParam)| match Where::of(&param.name) {
        Where::Outside(_) => (i, 0),
        Where::Layer(stack, n) => {
            let first = *stacks.entry(stack.clone()).or_insert(i);
            (first, i - *layers.entry((stack, n)).or_insert(i))
        }
    };
    let own: Vec<(usize, usize)> = params.iter().enumerate().map(place).collect();
    // Those of one pattern stay together.
    let mut first: HashMap<&str, (usize, usize)> = HashMap::new();
    for (pattern, place) in patterns.iter().zip(&own) {
        first.entry(pattern).and_modify(|first| *first = (*first).min(*place)).or_insert(*place);
    }
    patterns.iter().map(|pattern| first[pattern.as_str()]).collect()
}

impl AsRef<Group> for EntryGroup {
    fn as_ref(&self) -> &Group {
        &self.group
    }
}

impl AsRef<Group> for ParamGroup {
    fn as_ref(&self) -> &Group {
        &self.group
    }
}

impl EntryGroup {
    fn and(&mut self, other: EntryGroup) {
        self.group.and(other.group);
        self.taken += other.taken;
        self.dropped = self.dropped.take().filter(|why| other.dropped.as_ref() == Some(why));
    }
}

impl ParamGroup {
    fn and(&mut self, other: ParamGroup) {
        self.group.and(other.group);
        self.padding += other.padding;
        if self.way != other.way {
            self.way = Way::Several;
        }
        self.marks.clear();
        self.steps.clear();
    }
}

/// How a parameter comes to be, and what becomes of its bytes on the way.
fn way(param: &PlannedParam, borrowed: bool, all: &[PlannedParam]) -> (Way, Vec<String>) {
    if let Some(root) = param.tied_to {
        return (Way::Tied(Pattern::of(&all[root].name).to_string()), vec![]);
    }
    let exact = |p: &PlannedParam| !matches!(p.fidelity, weighbridge::plan::Fidelity::Lossy(_));
    let way = match () {
        () if borrowed => Way::Borrowed,
        () if param.steps.is_empty() && param.staged.iter().all(|s| s.steps.is_empty()) => Way::Copied,
        () => Way::Encoded { exact: exact(param) && param.staged.iter().all(exact) },
    };
    // One run of a file: whatever the expression says comes to nothing.
    let moves = param.planes.iter().any(|plane| plane.borrowable().is_none());
    let marks = if moves { Marks::of(&param.expr).list() } else { vec![] };
    (way, marks)
}

fn steps(param: &PlannedParam) -> String {
    let mut steps: Vec<String> = vec![];
    for one in param.staged.iter().chain([param]) {
        let text: String = one.steps.iter().map(|step| format!(" {step}")).collect();
        let text = format!("{}{text}", one.moved.name);
        if !one.steps.is_empty() && !steps.contains(&text) {
            steps.push(text);
        }
    }
    steps.join(", then ")
}

/// The entry that is not needed, and which of `reasons` it is in.
fn group_of<'a>((entry, why): &'a (String, String), reasons: &[Dropped]) -> Option<(&'a str, usize)> {
    let holds = |one: &Dropped| one.why == *why && Pattern::new(&one.pattern).matches(entry);
    Some((entry.as_str(), reasons.iter().position(holds)?))
}

/// Parameters that may be absent, and are.
fn absent(all: &[Absent]) -> Vec<ParamGroup> {
    let mut groups = Grouping::default();
    for one in all {
        let key = (Pattern::of(&one.param).to_string(), one.pattern.clone());
        groups.add(key, &one.param, &Shape::from([0; 0]), "", 0);
    }
    let group = |((_, pattern), group): ((String, String), Group)| ParamGroup {
        group: Group { shape: None, scheme: None, ..group },
        padding: 0,
        way: Way::Absent(pattern),
        marks: vec![],
        steps: String::new(),
    };
    groups.groups.into_iter().map(group).collect()
}

impl Way {
    /// In a few words.
    pub(super) fn words(&self) -> String {
        match self {
            Way::Borrowed => "mapped".to_owned(),
            Way::Copied => "copied".to_owned(),
            Way::Encoded { exact: true } => "re-encoded, exact".to_owned(),
            Way::Encoded { exact: false } => "re-encoded, lossy".to_owned(),
            Way::Tied(root) => format!("tied to {root}"),
            Way::Absent(pattern) => format!("absent, as {pattern} allows"),
            Way::Several => "in several ways".to_owned(),
        }
    }
}
