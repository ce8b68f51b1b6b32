//! The results of a check.

use crate::finding::Finding;
use crate::keys::KeyFinding;
use crate::manifest::Manifest;

/// Where the bytes of one file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// Its path.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Bytes of tensors; bytes that several tensors share are counted once.
    pub tensors: u64,
    /// Bytes before the first tensor: the header.
    pub before: u64,
    /// Bytes between tensors: padding, and the headers of archives.
    pub between: u64,
    /// Bytes after the last tensor.
    pub after: u64,
}

/// The results of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The files that hold tensors.
    pub files: Vec<CheckedFile>,
    /// Tensors.
    pub tensors: usize,
    /// Values of all of them.
    pub elements: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Problems, by name of the tensor.
    pub findings: Vec<Finding>,
    /// Keys of the checkpoint that differ from the manifest.
    pub keys: Vec<KeyFinding>,
    /// Why that was not compared, if there is a manifest and it was not.
    pub keys_not_compared: Option<&'static str>,
    /// Values that were looked at.
    pub values: u64,
    /// Tensors whose values could not be looked at, since nothing here decodes them: name, and scheme.
    pub unknown: Vec<(String, String)>,
    /// The tensors with their digests, if these were asked for.
    pub manifest: Option<Manifest>,
    /// Bytes that were read; where values and digests are both asked for, most are read twice.
    pub bytes_read: u64,
    /// Wall time of reading.
    pub seconds: f64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.keys.is_empty()
    }
}
