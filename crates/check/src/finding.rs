//! Problems of a tensor.

use std::fmt;

use quant::BadData;
use tensor::Shape;

/// A problem of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub tensor: String,
    /// The problem.
    pub wrong: Wrong,
}

/// A problem of a tensor in a file that is sound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// Its stored data cannot be valid: a scale that is not a number, a group that does not exist.
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
            Wrong::Missing => f.write_str("missing: in the manifest, not in the checkpoint"),
            Wrong::Extra => f.write_str("extra: in the checkpoint, not in the manifest"),
            Wrong::Shape { wanted, found } => write!(f, "shape: wanted {wanted}, found {found}"),
            Wrong::Scheme { wanted, found } => write!(f, "encoding: wanted {wanted}, found {found}"),
            Wrong::Digest { wanted, found } => {
                let short = |digest: &str| digest.get(..16).unwrap_or(digest).to_owned();
                write!(f, "different bytes: wanted blake3 {}…, found {}…", short(wanted), short(found))
            }
        }
    }
}
