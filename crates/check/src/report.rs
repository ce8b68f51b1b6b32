//! What a check found.

use std::fmt;

use quant::BadData;
use tensor::Shape;

use crate::{KeyFinding, Manifest};

/// Where the bytes of one file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// Its path.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Bytes of tensors; what several share is counted once.
    pub tensors: u64,
    /// Bytes before the first tensor: the header.
    pub before: u64,
    /// Bytes between tensors: padding, and the headers of archives.
    pub between: u64,
    /// Bytes after the last tensor.
    pub after: u64,
}

/// Something that is wrong with a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub tensor: String,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What can be wrong with a tensor in a file that is sound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// What its values are made from cannot be meant: a scale that is no number, a group that is not there.
    Data(BadData),
    /// Values that are not finite.
    NotFinite {
        /// Values that are no number.
        nan: u64,
        /// Values that are infinite.
        infinite: u64,
        /// All its values.
        of: u64,
        /// Where the first of them is: an index for each axis.
        first: Shape,
    },
    /// The manifest has it, the checkpoint has not.
    Missing,
    /// The checkpoint has it, the manifest has not.
    Extra,
    /// It has another shape than the manifest says.
    Shape {
        /// The manifest's.
        wanted: Shape,
        /// The checkpoint's.
        found: Shape,
    },
    /// It is stored in another scheme than the manifest says.
    Scheme {
        /// The manifest's.
        wanted: String,
        /// The checkpoint's.
        found: String,
    },
    /// Its bytes are others than the manifest says.
    Digest {
        /// The manifest's, in hexadecimal digits.
        wanted: String,
        /// The checkpoint's.
        found: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name from a file must not speak to the terminal.
        write!(f, "`{}`: {}", self.tensor.escape_debug(), self.wrong)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Data(data) => data.fmt(f),
            Wrong::NotFinite { nan, infinite, of, first } => {
                let what = match (nan, infinite) {
                    (nan, 0) => format!("{nan} of {of} values are NaN"),
                    (0, infinite) => format!("{infinite} of {of} values are infinite"),
                    (nan, infinite) => format!("{nan} of {of} values are NaN, {infinite} infinite"),
                };
                write!(f, "{what}, the first at {first}")
            }
            Wrong::Missing => f.write_str("missing: the manifest has it, the checkpoint has not"),
            Wrong::Extra => f.write_str("extra: the checkpoint has it, the manifest has not"),
            Wrong::Shape { wanted, found } => write!(f, "shape: wanted {wanted}, found {found}"),
            Wrong::Scheme { wanted, found } => write!(f, "encoding: wanted {wanted}, found {found}"),
            Wrong::Digest { wanted, found } => {
                let short = |digest: &str| digest.get(..16).unwrap_or(digest).to_owned();
                write!(f, "other bytes: wanted blake3 {}…, found {}…", short(wanted), short(found))
            }
        }
    }
}

/// What a check found.
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
    /// What is wrong, by name.
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
