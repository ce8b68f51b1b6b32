//! `convert --json`.

use std::path::Path;

use serde::Serialize;
use weighbridge::convert::{ConvertReport, Converted, Group as Gathered, Left};
use weighbridge::quant::Difference as Changed;

use super::shared::{Absent, Dropped};
use super::{Real, Resident, real};
use crate::style::shown;

/// What `weighbridge convert --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Convert<'a> {
    source: String,
    /// The path that opens the result; of several files, the first.
    destination: String,
    /// The number of values of all tensors.
    parameters: u64,
    /// Bytes of all tensors in the source.
    bytes_before: u64,
    /// Bytes of all tensors in the result.
    bytes: u64,
    /// Bytes of the files that hold them.
    file_bytes: u64,
    /// With `--zstd`, the number of arrays that are compressed.
    zstd_arrays: usize,
    /// By how many bytes that makes their files smaller.
    zstd_saved: u64,
    /// The number of tensors that an earlier run had written.
    continued: usize,
    bytes_read: u64,
    /// The most bytes that were held for tensors at one time, buffers included.
    peak_memory: u64,
    /// The same as the plan foresaw it: never less.
    foreseen_memory: u64,
    resident: Resident,
    seconds: f64,
    /// How far all changed values are from what they were; null if none changed.
    difference: Option<Difference>,
    /// Tensors alike but for numbers in their names.
    groups: Vec<Group<'a>>,
    tensors: Vec<Tensor<'a>>,
    /// Tensors that are the same as another, and not written again.
    tied: Vec<Tied<'a>>,
    /// Entries of the source that are not needed.
    dropped: Vec<Dropped<'a>>,
    /// Parameters that are not there, and may be absent.
    absent: Vec<Absent<'a>>,
    /// Values that the result cannot express, and whose loss was allowed.
    lost: Vec<Lost<'a>>,
    /// What the source says beside tensors, and the result does not.
    not_carried: Vec<NotCarried<'a>>,
}

/// How far values are from what they were.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Difference {
    /// The root of the mean square of the errors.
    rmse: Real,
    /// The largest error.
    max: Real,
    /// The cosine of the angle between the values before and after.
    cosine: Real,
    /// The number of finite values that became infinite.
    overflowed: u64,
    /// The number of values that became zero.
    underflowed: u64,
}

/// Tensors alike but for numbers in their names.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Group<'a> {
    /// The name, with `{n}` for numbers if they are several.
    name: String,
    count: usize,
    /// The encoding in the source.
    from: &'a str,
    /// The encoding in the result.
    to: &'a str,
    /// Bits for each value in the result.
    bits: Real,
    /// The rule that chose the encoding.
    rule: &'a str,
    /// Why values are rounded though they were only moved; null if they are exact.
    rounded: Option<&'a str>,
    /// Null if nothing was encoded.
    difference: Option<Difference>,
}

/// A tensor.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Tensor<'a> {
    name: &'a str,
    shape: Vec<u64>,
    /// The encoding in the source.
    from: &'a str,
    /// The encoding in the result.
    to: &'a str,
    bytes_before: u64,
    bytes: u64,
    /// The rule that chose the encoding.
    rule: &'a str,
    /// Why values are rounded though they were only moved; null if they are exact.
    rounded: Option<&'a str>,
    /// Null if nothing was encoded.
    difference: Option<Difference>,
}

/// A tensor that is the same as another.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Tied<'a> {
    name: &'a str,
    /// The other.
    to: &'a str,
}

/// A value that the result cannot express.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Lost<'a> {
    key: &'a str,
    what: &'a str,
}

/// A key of the source that the result does not have.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NotCarried<'a> {
    file: &'a str,
    /// Empty for the whole file.
    key: &'a str,
    why: &'a str,
}

impl From<Changed> for Difference {
    fn from(d: Changed) -> Difference {
        Difference {
            rmse: real(d.rmse()),
            max: real(d.max.into()),
            cosine: real(d.cosine()),
            overflowed: d.overflowed,
            underflowed: d.underflowed,
        }
    }
}

impl<'a> Convert<'a> {
    pub(crate) fn of(
        source: &Path,
        report: &'a ConvertReport,
        groups: &'a [Gathered],
        resident: Resident,
    ) -> Convert<'a> {
        let (bytes_before, bytes) = report.bytes();
        Convert {
            source: shown(source),
            destination: report.destination.to_string(),
            parameters: report.elements(),
            bytes_before,
            bytes,
            file_bytes: report.file_bytes,
            zstd_arrays: report.zstd.arrays,
            zstd_saved: report.zstd.saved,
            continued: report.continued,
            bytes_read: report.bytes_read,
            peak_memory: report.peak_memory,
            foreseen_memory: report.foreseen_memory,
            resident,
            seconds: report.seconds,
            difference: report.difference().map(Difference::from),
            groups: groups.iter().map(Group::from).collect(),
            tensors: report.tensors.iter().map(Tensor::from).collect(),
            tied: report.tied.iter().map(|(name, to)| Tied { name, to }).collect(),
            dropped: report.dropped.iter().map(Dropped::from).collect(),
            absent: report.absent.iter().map(Absent::from).collect(),
            lost: report.lost.iter().map(|l| Lost { key: &l.key, what: &l.what }).collect(),
            not_carried: report.left.iter().map(NotCarried::from).collect(),
        }
    }
}

impl<'a> From<&'a Gathered> for Group<'a> {
    fn from(group: &'a Gathered) -> Group<'a> {
        Group {
            name: group.name.clone(),
            count: group.count,
            from: &group.from,
            to: &group.to,
            bits: real(group.bits()),
            rule: &group.rule,
            rounded: group.rounded.as_deref(),
            difference: group.difference.map(Difference::from),
        }
    }
}

impl<'a> From<&'a Converted> for Tensor<'a> {
    fn from(tensor: &'a Converted) -> Tensor<'a> {
        Tensor {
            name: &tensor.name,
            shape: tensor.shape.to_vec(),
            from: &tensor.from,
            to: &tensor.to,
            bytes_before: tensor.bytes_before,
            bytes: tensor.bytes,
            rule: &tensor.rule,
            rounded: tensor.rounded.as_deref(),
            difference: tensor.difference.map(Difference::from),
        }
    }
}

impl<'a> From<&'a Left> for NotCarried<'a> {
    fn from(left: &'a Left) -> NotCarried<'a> {
        NotCarried { file: &left.file, key: &left.key, why: &left.why }
    }
}
