//! Differences of two checkpoints.

use std::cmp::Ordering;

use quant::Difference;
use tensor::{Pattern, Shape};

use super::KeyDifference;

/// A parameter as one of the checkpoints has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredParam {
    /// The entries that it is made from.
    pub entries: Vec<String>,
    /// Its logical shape.
    pub shape: Shape,
    /// The name of its scheme.
    pub scheme: String,
}

/// How the two sides of one parameter compare, best first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The same scheme, and the same bytes.
    Identical,
    /// Other schemes or bytes that stand for the same values, as f32 holds them.
    SameValues,
    /// Other values.
    Values {
        /// Difference of B's values from A's.
        difference: Difference,
        /// Values that are not equal.
        unequal: u64,
        /// Values that are finite on one side only: `difference` leaves them out.
        not_finite: u64,
    },
    /// Other bytes, of which nothing here knows the values.
    Opaque,
    /// Other shapes.
    Shape,
}

impl Outcome {
    /// Whether the values are the same.
    pub fn is_same(&self) -> bool {
        matches!(self, Outcome::Identical | Outcome::SameValues)
    }

    /// For sorting: the kind, and in it the relative difference.
    fn badness(&self) -> (u8, f64) {
        match self {
            Outcome::Identical => (0, 0.0),
            Outcome::SameValues => (1, 0.0),
            // Lost numbers are worse than any error.
            Outcome::Values { not_finite: 1.., .. } => (2, f64::INFINITY),
            Outcome::Values { difference: d, .. } => (2, d.relative()),
            Outcome::Opaque => (3, 0.0),
            Outcome::Shape => (4, 0.0),
        }
    }

    /// Which is worse: by kind, then by relative difference.
    pub fn cmp_badness(&self, other: &Outcome) -> Ordering {
        let (a, b) = (self.badness(), other.badness());
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    }

    /// Joins the outcomes of parameters that are alike but for numbers in their names.
    pub(super) fn and(self, other: Outcome) -> Outcome {
        match (self, other) {
            (
                Outcome::Values { difference: a, unequal: n, not_finite: p },
                Outcome::Values { difference: b, unequal: m, not_finite: q },
            ) => Outcome::Values { difference: a.and(b), unequal: n + m, not_finite: p + q },
            (outcome, _) => outcome,
        }
    }
}

/// A parameter that both have.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// In A.
    pub a: StoredParam,
    /// In B.
    pub b: StoredParam,
    /// How they compare.
    pub outcome: Outcome,
}

/// Parameters with the same outcome whose names differ only in numbers.
#[derive(Clone, Debug)]
pub struct DiffGroup {
    /// Their name, with `{n}` for numbers if they are several.
    pub name: String,
    /// How many.
    pub count: usize,
    /// One of them in A.
    pub a: StoredParam,
    /// One of them in B.
    pub b: StoredParam,
    /// The joined outcome.
    pub outcome: Outcome,
}

/// The differences of two checkpoints, A and B.
#[derive(Clone, Debug, Default)]
pub struct DiffReport {
    /// The family, if the names are canonical ones.
    pub family: Option<&'static str>,
    /// The reason for comparing stored names, if the caller did not ask for it.
    pub why_stored: Option<String>,
    /// Differences of the configurations: field, A's value, B's value.
    pub configuration: Vec<(String, String, String)>,
    /// Differences beside the tensors: metadata, configuration, tokenizer, template.
    pub keys: Vec<KeyDifference>,
    /// Parts that were not compared, with the reason.
    pub not_compared: Vec<String>,
    /// Parameters that both have, in the order of A.
    pub params: Vec<Compared>,
    /// Parameters that one has, and that follow from the configuration of the other.
    pub implied: Vec<String>,
    /// Parameters that only A has.
    pub only_a: Vec<(String, StoredParam)>,
    /// Parameters that only B has.
    pub only_b: Vec<(String, StoredParam)>,
    /// Bytes that were read of both.
    pub bytes_read: u64,
    /// The most bytes that were held for parameters at one time.
    pub peak_memory: u64,
    /// Wall time.
    pub seconds: f64,
}

impl DiffReport {
    /// Whether both hold the same parameters with the same values and the same metadata, whatever their names and
    /// encodings.
    pub fn is_same(&self) -> bool {
        self.has_same_parameters() && self.configuration.is_empty() && self.differing_keys().next().is_none()
    }

    /// Whether both hold the same parameters with the same values.
    pub fn has_same_parameters(&self) -> bool {
        self.only_a.is_empty() && self.only_b.is_empty() && self.params.iter().all(|p| p.outcome.is_same())
    }

    /// Differences of keys that are more than bookkeeping.
    pub fn differing_keys(&self) -> impl Iterator<Item = &KeyDifference> {
        self.keys.iter().filter(|k| k.bookkeeping.is_none())
    }

    /// The difference of all parameters with other values.
    pub fn difference(&self) -> Option<Difference> {
        let one = |p: &Compared| match p.outcome {
            Outcome::Values { difference, .. } => Some(difference),
            _ => None,
        };
        self.params.iter().filter_map(one).reduce(Difference::and)
    }

    /// How many parameters compare as `is` says.
    pub fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.params.iter().filter(|p| is(&p.outcome)).count()
    }

    /// The parameters by pattern of names, schemes and kind of outcome, the worst first.
    pub fn groups(&self) -> Vec<DiffGroup> {
        let mut groups: Vec<(Pattern, DiffGroup)> = vec![];
        for p in &self.params {
            let pattern = Pattern::of(&p.name);
            let alike = |(of, g): &&mut (Pattern, DiffGroup)| {
                *of == pattern
                    && (&g.a.scheme, &g.b.scheme) == (&p.a.scheme, &p.b.scheme)
                    && (&g.a.shape, &g.b.shape) == (&p.a.shape, &p.b.shape)
                    && g.outcome.badness().0 == p.outcome.badness().0
            };
            if let Some((pattern, group)) = groups.iter_mut().find(alike) {
                group.name = pattern.to_string();
                group.count += 1;
                group.outcome = group.outcome.and(p.outcome);
                continue;
            }
            let (name, a, b) = (p.name.clone(), p.a.clone(), p.b.clone());
            groups.push((pattern, DiffGroup { name, count: 1, a, b, outcome: p.outcome }));
        }
        let mut groups: Vec<DiffGroup> = groups.into_iter().map(|(_, group)| group).collect();
        groups.sort_by(|x, y| y.outcome.cmp_badness(&x.outcome));
        groups
    }

    /// Parameters that are made from other entries in B than in A: both lists of entries by pattern, and how many.
    pub fn renamed(&self) -> Vec<(String, String, usize)> {
        let mut pairs: Vec<(String, String, usize)> = vec![];
        for p in self.params.iter().filter(|p| p.a.entries != p.b.entries) {
            let of = |entries: &[String]| -> String {
                entries.iter().map(|e| Pattern::of(e).to_string()).collect::<Vec<_>>().join(", ")
            };
            let (a, b) = (of(&p.a.entries), of(&p.b.entries));
            match pairs.iter_mut().find(|pair| (&pair.0, &pair.1) == (&a, &b)) {
                Some(pair) => pair.2 += 1,
                None => pairs.push((a, b, 1)),
            }
        }
        pairs
    }
}
