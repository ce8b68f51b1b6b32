//! `diff --json`.

use std::path::Path;

use serde::Serialize;
use weighbridge::convert::{
    Compared as Pair, DiffGroup, DiffReport, KeyDifference, Outcome as Compares, StoredParam,
};

use super::{Real, real};
use crate::style::shown;

/// What `weighbridge diff --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Diff<'a> {
    /// The path of the first checkpoint.
    a: String,
    /// The path of the second.
    b: String,
    /// Whether both hold the same values under the same names, and say the same beside them.
    same: bool,
    /// Whose names are compared.
    names: Names,
    /// The family of both; null if names are compared as stored.
    family: Option<&'a str>,
    /// Why names are compared as stored; null if they are not, or that was asked for.
    why_stored: Option<&'a str>,
    /// Fields of the configuration that differ.
    configuration: Vec<Field<'a>>,
    /// Keys beside the tensors that differ.
    keys: Vec<DifferingKey<'a>>,
    /// What beside the tensors was not compared, and why.
    not_compared: &'a [String],
    /// Parameters that one has, and that follow from the configuration of the other.
    implied: &'a [String],
    only_in_a: Vec<Only<'a>>,
    only_in_b: Vec<Only<'a>>,
    /// Parameters alike but for numbers in their names, that compare alike.
    groups: Vec<Group<'a>>,
    /// Parameters that both have.
    parameters: Vec<Parameter<'a>>,
    /// Bytes read of both.
    bytes_read: u64,
    /// The most bytes that were held for parameters at one time.
    peak_memory: u64,
    seconds: f64,
}

/// Whose names are compared.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Names {
    /// Those of the family.
    Canonical,
    /// Those of the files.
    Source,
}

/// A field of the configuration that differs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Field<'a> {
    field: &'a str,
    a: &'a str,
    b: &'a str,
}

/// A key that differs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DifferingKey<'a> {
    file: &'a str,
    key: &'a str,
    /// Its value in A; null if it is absent.
    a: Option<&'a str>,
    /// Its value in B; null if it is absent.
    b: Option<&'a str>,
    /// Why this counts as no difference; null if it counts.
    bookkeeping: Option<&'a str>,
}

/// A parameter as one checkpoint stores it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Stored<'a> {
    /// The entries that it is made from.
    entries: &'a [String],
    shape: Vec<u64>,
    encoding: &'a str,
}

/// A parameter that one checkpoint has.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Only<'a> {
    name: &'a str,
    #[serde(flatten)]
    stored: Stored<'a>,
}

/// Parameters alike but for numbers in their names, that compare alike.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Group<'a> {
    /// The name, with `{n}` for numbers if they are several.
    name: &'a str,
    count: usize,
    /// The encoding in A.
    a: &'a str,
    /// The encoding in B.
    b: &'a str,
    outcome: Outcome,
    /// Null unless values differ.
    difference: Option<Difference>,
}

/// A parameter that both have.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Parameter<'a> {
    name: &'a str,
    a: Stored<'a>,
    b: Stored<'a>,
    outcome: Outcome,
    /// Null unless values differ.
    difference: Option<Difference>,
}

/// How a parameter of both compares.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// Its bytes are the same.
    BitEqual,
    /// Its values are the same, its bytes are not.
    EqualValues,
    OtherValues,
    /// Its bytes differ, and nothing here decodes them.
    OtherBytes,
    OtherShapes,
}

/// How far the values of B are from those of A.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Difference {
    /// The number of values.
    values: u64,
    /// The number of values that differ.
    unequal: u64,
    /// The largest error.
    max: Real,
    /// The root of the mean square of the errors.
    rmse: Real,
    /// That, divided by the root of the mean square of the values of A.
    relative: Real,
    /// The cosine of the angle between both.
    cosine: Real,
    /// The number of values that are finite in one of them only.
    finite_in_one_only: u64,
}

impl<'a> Diff<'a> {
    pub(crate) fn of((a, b): (&Path, &Path), report: &'a DiffReport, groups: &'a [DiffGroup]) -> Diff<'a> {
        let only = |list: &'a [(String, StoredParam)]| -> Vec<Only<'a>> {
            list.iter().map(|(name, stored)| Only { name, stored: stored.into() }).collect()
        };
        Diff {
            a: shown(a),
            b: shown(b),
            same: report.is_same(),
            names: if report.family.is_some() { Names::Canonical } else { Names::Source },
            family: report.family,
            why_stored: report.why_stored.as_deref(),
            configuration: report.configuration.iter().map(|(field, a, b)| Field { field, a, b }).collect(),
            keys: report.keys.iter().map(DifferingKey::from).collect(),
            not_compared: &report.not_compared,
            implied: &report.implied,
            only_in_a: only(&report.only_a),
            only_in_b: only(&report.only_b),
            groups: groups.iter().map(Group::from).collect(),
            parameters: report.params.iter().map(Parameter::from).collect(),
            bytes_read: report.bytes_read,
            peak_memory: report.peak_memory,
            seconds: report.seconds,
        }
    }
}

impl<'a> From<&'a KeyDifference> for DifferingKey<'a> {
    fn from(key: &'a KeyDifference) -> DifferingKey<'a> {
        DifferingKey {
            file: &key.file,
            key: &key.key,
            a: key.a.as_deref(),
            b: key.b.as_deref(),
            bookkeeping: key.bookkeeping,
        }
    }
}

impl<'a> From<&'a StoredParam> for Stored<'a> {
    fn from(stored: &'a StoredParam) -> Stored<'a> {
        Stored { entries: &stored.entries, shape: stored.shape.to_vec(), encoding: &stored.scheme }
    }
}

impl<'a> From<&'a DiffGroup> for Group<'a> {
    fn from(group: &'a DiffGroup) -> Group<'a> {
        let (outcome, difference) = compared(&group.outcome);
        Group {
            name: &group.name,
            count: group.count,
            a: &group.a.scheme,
            b: &group.b.scheme,
            outcome,
            difference,
        }
    }
}

impl<'a> From<&'a Pair> for Parameter<'a> {
    fn from(pair: &'a Pair) -> Parameter<'a> {
        let (outcome, difference) = compared(&pair.outcome);
        Parameter { name: &pair.name, a: (&pair.a).into(), b: (&pair.b).into(), outcome, difference }
    }
}

fn compared(outcome: &Compares) -> (Outcome, Option<Difference>) {
    match outcome {
        Compares::Identical => (Outcome::BitEqual, None),
        Compares::SameValues => (Outcome::EqualValues, None),
        Compares::Opaque => (Outcome::OtherBytes, None),
        Compares::Shape => (Outcome::OtherShapes, None),
        Compares::Values { difference: d, unequal, not_finite } => {
            let difference = Difference {
                values: d.count,
                unequal: *unequal,
                max: real(d.max.into()),
                rmse: real(d.rmse()),
                relative: real(d.relative()),
                cosine: real(d.cosine()),
                finite_in_one_only: *not_finite,
            };
            (Outcome::OtherValues, Some(difference))
        }
    }
}
