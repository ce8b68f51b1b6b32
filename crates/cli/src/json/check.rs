//! `check --json`.

use std::path::Path;

use serde::Serialize;
use weighbridge::Checkpoint;
use weighbridge::check::{CheckReport, CheckedFile, Finding as Found, KeyFinding, Wrong, WrongKey};

use super::shared::Ignored;
use crate::style::shown;

/// What `weighbridge check --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check<'a> {
    path: String,
    format: &'a str,
    /// Whether nothing is wrong.
    good: bool,
    /// The number of tensors.
    tensors: usize,
    /// The number of their values.
    parameters: u64,
    /// Bytes of all tensors.
    bytes: u64,
    /// The files that hold tensors.
    files: Vec<File<'a>>,
    /// Objects beside the tensors that mean nothing here.
    ignored: Vec<Ignored<'a>>,
    /// The number of values that were looked at.
    values_read: u64,
    /// Tensors whose values nothing here decodes.
    not_looked_at: Vec<NotLookedAt<'a>>,
    /// The manifest that was written; null if none was.
    manifest_written: Option<String>,
    /// The manifest that the checkpoint was held against; null if there was none.
    manifest_verified: Option<String>,
    bytes_read: u64,
    seconds: f64,
    /// What is wrong with tensors.
    findings: Vec<Finding<'a>>,
    /// Keys beside the tensors that differ from the manifest.
    keys: Vec<DifferingKey<'a>>,
    /// Why keys were not compared with the manifest; null if they were, or there is none.
    keys_not_compared: Option<&'static str>,
}

/// A file, and where its bytes are.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File<'a> {
    path: &'a str,
    /// Its length.
    bytes: u64,
    /// Bytes of tensors; bytes that several share are counted once.
    tensors: u64,
    /// Bytes before the first tensor: the header.
    before: u64,
    /// Bytes between tensors: padding, and the headers of archives.
    between: u64,
    /// Bytes after the last tensor.
    after: u64,
}

/// A tensor of a scheme that nothing here decodes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NotLookedAt<'a> {
    tensor: &'a str,
    scheme: &'a str,
}

/// What is wrong with a tensor.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Finding<'a> {
    tensor: &'a str,
    kind: Kind,
    /// The same for people.
    what: String,
    /// The values that are no numbers; null for other kinds.
    not_finite: Option<NotFinite<'a>>,
}

/// In what way a tensor is wrong.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Its bytes mean no values.
    Data,
    /// Values that are no numbers, or infinite.
    NotFinite,
    /// The manifest has it, the checkpoint does not.
    Missing,
    /// The checkpoint has it, the manifest does not.
    Extra,
    /// Its shape is not the manifest's.
    Shape,
    /// Its encoding is not the manifest's.
    Scheme,
    /// Its digest is not the manifest's.
    Digest,
    /// Something else: see `what`.
    Other,
}

/// Values that are no numbers.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NotFinite<'a> {
    nan: u64,
    infinite: u64,
    /// The number of all values.
    of: u64,
    /// The indices of the first one, an index for each axis.
    first: &'a [u64],
}

/// A key that differs from the manifest.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DifferingKey<'a> {
    file: &'a str,
    key: &'a str,
    kind: KeyKind,
}

/// In what way a key differs from the manifest.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum KeyKind {
    /// The manifest has it, the checkpoint does not.
    Missing,
    /// The checkpoint has it, the manifest does not.
    Extra,
    /// It has another value.
    Other,
}

impl<'a> Check<'a> {
    /// Of a report, with the manifests that were written and that were compared with.
    pub(crate) fn of(
        checkpoint: &'a Checkpoint,
        report: &'a CheckReport,
        (written, verified): (Option<&Path>, Option<&Path>),
    ) -> Check<'a> {
        let shown = |path: &Path| shown(path);
        let not_looked_at = |(tensor, scheme): &'a (String, String)| NotLookedAt { tensor, scheme };
        Check {
            path: checkpoint.location().to_string(),
            format: checkpoint.format().name(),
            good: report.is_good(),
            tensors: report.tensors,
            parameters: report.elements,
            bytes: report.bytes,
            files: report.files.iter().map(File::from).collect(),
            ignored: checkpoint.ignored().iter().map(Ignored::from).collect(),
            values_read: report.values,
            not_looked_at: report.unknown.iter().map(not_looked_at).collect(),
            manifest_written: written.map(shown),
            manifest_verified: verified.map(shown),
            bytes_read: report.bytes_read,
            seconds: report.seconds,
            findings: report.findings.iter().map(Finding::from).collect(),
            keys: report.keys.iter().map(DifferingKey::from).collect(),
            keys_not_compared: report.keys_not_compared,
        }
    }
}

impl<'a> From<&'a CheckedFile> for File<'a> {
    fn from(f: &'a CheckedFile) -> File<'a> {
        let CheckedFile { path, bytes, tensors, before, between, after } = f;
        File { path, bytes: *bytes, tensors: *tensors, before: *before, between: *between, after: *after }
    }
}

impl<'a> From<&'a Found> for Finding<'a> {
    fn from(finding: &'a Found) -> Finding<'a> {
        let kind = match &finding.wrong {
            Wrong::Data(_) => Kind::Data,
            Wrong::NotFinite { .. } => Kind::NotFinite,
            Wrong::Missing => Kind::Missing,
            Wrong::Extra => Kind::Extra,
            Wrong::Shape { .. } => Kind::Shape,
            Wrong::Scheme { .. } => Kind::Scheme,
            Wrong::Digest { .. } => Kind::Digest,
            _ => Kind::Other,
        };
        let not_finite = match &finding.wrong {
            Wrong::NotFinite { nan, infinite, of, first } => {
                Some(NotFinite { nan: *nan, infinite: *infinite, of: *of, first })
            }
            _ => None,
        };
        Finding { tensor: &finding.tensor, kind, what: finding.wrong.to_string(), not_finite }
    }
}

impl<'a> From<&'a KeyFinding> for DifferingKey<'a> {
    fn from(finding: &'a KeyFinding) -> DifferingKey<'a> {
        let kind = match finding.wrong {
            WrongKey::Missing => KeyKind::Missing,
            WrongKey::Extra => KeyKind::Extra,
            WrongKey::Other => KeyKind::Other,
        };
        DifferingKey { file: &finding.file, key: &finding.key, kind }
    }
}
