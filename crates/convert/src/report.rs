//! The results of a conversion.

use checkpoint::{Location, Zstd};
use plan::Fidelity;
use quant::Difference;
use tensor::{Pattern, Shape, Step};

use model::Loss;
use plan::PlannedParam;

use crate::Left;

/// The result for one parameter.
#[derive(Clone, Debug)]
pub struct Converted {
    /// Its name.
    pub name: String,
    /// Its logical shape.
    pub shape: Shape,
    /// The scheme that it had.
    pub from: String,
    /// The scheme that it has now.
    pub to: String,
    /// Values.
    pub elements: u64,
    /// Bytes that it had.
    pub bytes_before: u64,
    /// Bytes that it has now.
    pub bytes: u64,
    /// The rule that decided.
    pub rule: String,
    /// How far its values are from what they were; `None` if nothing was encoded.
    pub difference: Option<Difference>,
    /// Why values that were only added to are rounded; `None` if all are what they were.
    pub rounded: Option<String>,
}

impl Converted {
    pub(crate) fn new(param: &PlannedParam, rule: String) -> Converted {
        Converted {
            name: param.name.clone(),
            shape: param.shape.clone(),
            from: param.moved.name.to_string(),
            to: param.scheme.name.to_string(),
            elements: param.shape.elements().unwrap_or_default(),
            bytes_before: param.moved.byte_len(&param.shape).unwrap_or_default(),
            bytes: param.slot_bytes(),
            rule,
            difference: None,
            rounded: match &param.fidelity {
                Fidelity::Lossy(why)
                    if param.steps.iter().any(|s| matches!(s, Step::Add(_) | Step::Apply(_))) =>
                {
                    Some(why.clone())
                }
                _ => None,
            },
        }
    }
}

/// Parameters converted alike whose names differ only in numbers.
#[derive(Clone, Debug)]
pub struct Group {
    /// Their name, with `{n}` for numbers if they are several.
    pub name: String,
    /// How many.
    pub count: usize,
    /// The scheme that they had.
    pub from: String,
    /// The scheme that they have now.
    pub to: String,
    /// Values of all.
    pub elements: u64,
    /// Bytes of all, now.
    pub bytes: u64,
    /// The rule that decided.
    pub rule: String,
    /// The difference of all of them; `None` if nothing was encoded.
    pub difference: Option<Difference>,
    /// Why values that were only added to are rounded.
    pub rounded: Option<String>,
}

impl Group {
    /// Bits that are stored for each value.
    pub fn bits(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elements.max(1) as f64
    }
}

/// The results of a conversion.
#[derive(Clone, Debug, Default)]
pub struct ConvertReport {
    /// The path or the URL that opens the result; of several files, that of the first.
    pub destination: Location,
    /// Each parameter, in the order of the file.
    pub tensors: Vec<Converted>,
    /// Parameters that are the same as another and not written again: name, and the other's.
    pub tied: Vec<(String, String)>,
    /// Entries of the source that are not needed: name, and why.
    pub dropped: Vec<(String, String)>,
    /// Parameters that are not there, and may be absent.
    pub absent: Vec<plan::Absent>,
    /// Metadata of the source that the result does not have.
    pub left: Vec<Left>,
    /// Values of the source that the result cannot express, and whose loss was allowed.
    pub lost: Vec<Loss>,
    /// The number of first parameters that an earlier, interrupted process had written.
    pub continued: usize,
    /// Bytes of tensors that were read.
    pub bytes_read: u64,
    /// Bytes of the files that hold the tensors.
    pub file_bytes: u64,
    /// The arrays of a directory that are compressed.
    pub zstd: Zstd,
    /// The most bytes that were held for parameters at one time, buffers included.
    pub peak_memory: u64,
    /// The same as the plans foresaw it: never less.
    pub foreseen_memory: u64,
    /// Wall time.
    pub seconds: f64,
}

impl ConvertReport {
    /// Values of all parameters.
    pub fn elements(&self) -> u64 {
        self.tensors.iter().map(|t| t.elements).sum()
    }

    /// Bytes of all parameters, before and now.
    pub fn bytes(&self) -> (u64, u64) {
        (self.tensors.iter().map(|t| t.bytes_before).sum(), self.tensors.iter().map(|t| t.bytes).sum())
    }

    /// The difference of all parameters whose values can have changed.
    pub fn difference(&self) -> Option<Difference> {
        self.tensors.iter().filter_map(|t| t.difference).reduce(Difference::and)
    }

    /// The parameters by pattern of names, schemes and rule, in the order of the file.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<(String, Group)> = vec![];
        for t in &self.tensors {
            let pattern = Pattern::of(&t.name).to_string();
            let alike = |(p, g): &&mut (String, Group)| {
                *p == pattern && g.from == t.from && g.to == t.to && g.rule == t.rule
            };
            if let Some((pattern, group)) = groups.iter_mut().find(alike) {
                group.name.clone_from(pattern);
                group.count += 1;
                group.elements += t.elements;
                group.bytes += t.bytes;
                group.difference = match (group.difference, t.difference) {
                    (Some(a), Some(b)) => Some(a.and(b)),
                    (a, b) => a.or(b),
                };
                continue;
            }
            let group = Group {
                name: t.name.clone(),
                count: 1,
                from: t.from.clone(),
                to: t.to.clone(),
                elements: t.elements,
                bytes: t.bytes,
                rule: t.rule.clone(),
                difference: t.difference,
                rounded: t.rounded.clone(),
            };
            groups.push((pattern, group));
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }
}
