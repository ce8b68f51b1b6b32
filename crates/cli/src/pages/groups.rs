//! Tensors that are alike but for numbers in their names.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use weighbridge::tensor::Pattern;
use weighbridge::{Shape, TensorEntry};

use super::text::many;

/// What the members of a group have in common.
pub(super) struct Group {
    /// The name if there is one member, else the pattern.
    pub(super) name: String,
    pub(super) count: usize,
    /// None if they have several.
    pub(super) shape: Option<Shape>,
    /// None if they have several.
    pub(super) scheme: Option<String>,
    pub(super) bytes: u64,
    /// The first name and the last.
    pub(super) ends: (String, String),
}

/// Puts members into groups by key, in the order of the first of each.
pub(super) struct Grouping<K> {
    pub(super) groups: Vec<(K, Group)>,
    at: HashMap<K, usize>,
    /// The group of each member.
    pub(super) of: Vec<usize>,
}

impl<K> Default for Grouping<K> {
    fn default() -> Grouping<K> {
        Grouping { groups: vec![], at: HashMap::new(), of: vec![] }
    }
}

impl<K: Clone + Eq + Hash> Grouping<K> {
    /// Adds a member to the group of `key`. Returns that group.
    pub(super) fn add(&mut self, key: K, name: &str, shape: &Shape, scheme: &str, bytes: u64) -> usize {
        let groups = &mut self.groups;
        let at = *self.at.entry(key).or_insert_with_key(|key| {
            let group = Group {
                name: name.to_owned(),
                count: 0,
                shape: Some(shape.clone()),
                scheme: Some(scheme.to_owned()),
                bytes: 0,
                ends: (name.to_owned(), name.to_owned()),
            };
            groups.push((key.clone(), group));
            groups.len() - 1
        });
        let group = &mut groups[at].1;
        group.count += 1;
        if group.count == 2 {
            group.name = Pattern::of(name).to_string();
        }
        if group.shape.as_ref() != Some(shape) {
            group.shape = None;
        }
        if group.scheme.as_deref() != Some(scheme) {
            group.scheme = None;
        }
        group.bytes += bytes;
        name.clone_into(&mut group.ends.1);
        self.of.push(at);
        at
    }
}

/// Keeps the groups with the most bytes in their order, and makes the others one if there are more than `most`. Returns where
/// each of them is now.
pub(super) fn merged<T: AsRef<Group>>(
    all: Vec<T>,
    most: usize,
    and: impl Fn(&mut T, T),
) -> (Vec<usize>, Vec<T>) {
    if all.len() <= most {
        return ((0..all.len()).collect(), all);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(all[*i].as_ref().bytes));
    let kept: BTreeSet<usize> = order.into_iter().take(most - 1).collect();
    let (mut map, mut few, mut rest) = (vec![most - 1; all.len()], vec![], None);
    for (i, one) in all.into_iter().enumerate() {
        if kept.contains(&i) {
            map[i] = few.len();
            few.push(one);
        } else if let Some(rest) = &mut rest {
            and(rest, one);
        } else {
            rest = Some(one);
        }
    }
    few.extend(rest);
    (map, few)
}

impl AsRef<Group> for Group {
    fn as_ref(&self) -> &Group {
        self
    }
}

impl Group {
    /// Makes both one group.
    pub(super) fn and(&mut self, other: Group) {
        self.count += other.count;
        "other names".clone_into(&mut self.name);
        self.shape = None;
        self.scheme = self.scheme.take().filter(|scheme| other.scheme.as_ref() == Some(scheme));
        self.bytes += other.bytes;
        self.ends.1 = other.ends.1;
    }
}

impl Group {
    /// `30 × blk.{n}.attn_q.weight`.
    pub(super) fn title(&self) -> String {
        if self.count == 1 { self.name.clone() } else { format!("{} × {}", self.count, self.name) }
    }

    /// Names its members: by the first and the last.
    pub(super) fn members(&self) -> String {
        if self.count == 1 {
            return self.ends.0.clone();
        }
        format!("{}: {} … {}", many(self.count, "tensor"), self.ends.0, self.ends.1)
    }
}
/// All entries of a checkpoint by pattern and scheme, in its order: the group of each, and the groups.
pub(super) fn of_entries(entries: &[TensorEntry]) -> (Vec<usize>, Vec<Group>) {
    let mut groups = Grouping::default();
    for entry in entries {
        let key = (Pattern::of(&entry.name).to_string(), entry.scheme.name.to_string());
        groups.add(key, &entry.name, &entry.shape, &entry.scheme.name, entry.byte_len());
    }
    (groups.of, groups.groups.into_iter().map(|(_, group)| group).collect())
}
