//! Why a sound was not read.

use std::io;

use crate::Format;

/// Why a sound was not read, or not to its end.
///
/// Times are in seconds from the start of the sound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A format that is recognised but not supported.
    #[error("cannot read {what}")]
    Unsupported {
        /// The format, and the container that it was found in.
        what: String,
    },
    /// The first bytes match no known format.
    #[error("not a sound file: wanted wav, flac, ogg or mp3, found {}", start(first))]
    Unknown {
        /// The first bytes, 16 at most.
        first: Vec<u8>,
    },
    /// The file breaks the rules of its format.
    #[error("malformed {format} after {seconds:.3} s: {what}")]
    Malformed {
        /// The format.
        format: Format,
        /// The length of the sound that was read before.
        seconds: f64,
        /// The fault.
        what: String,
    },
    /// A sample is infinite or not a number.
    #[error("the {format} has a sample at {seconds:.3} s that is infinite or not a number")]
    NotFinite {
        /// The format.
        format: Format,
        /// The time of the sample.
        seconds: f64,
    },
    /// The file ends early. The samples that [`Sound::read`](crate::Sound::read) returned before are good.
    #[error("the {format} is cut off after {seconds:.3} s")]
    Truncated {
        /// The format.
        format: Format,
        /// The length of the sound that was read.
        seconds: f64,
    },
    /// The caller's parameters make no sense.
    #[error("{what}")]
    Misuse {
        /// The fault of the request.
        what: String,
    },
    /// The source cannot be read.
    #[error("cannot read the sound after {seconds:.3} s: {source}")]
    Io {
        /// The length of the sound that was read before.
        seconds: f64,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Unsupported { .. } => Some("convert it first: `ffmpeg -i in.m4a out.wav`"),
            Error::Unknown { .. } => Some("if it has sound, convert it first: `ffmpeg -i in.m4a out.wav`"),
            _ => None,
        }
    }
}

/// Returns the first bytes as text where they are printable, and as hex otherwise.
fn start(first: &[u8]) -> String {
    if first.is_empty() {
        return "an empty file".to_owned();
    }
    format!("`{}`", first.escape_ascii())
}

/// Why a decoder stopped. It knows no times: [`Sound`](crate::Sound) adds them.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A format that is recognised but not supported.
    Unsupported(String),
    /// The file breaks its format.
    Malformed(String),
    /// The sample after those that were appended is infinite or not a number.
    NotFinite,
    /// The file ends early.
    Truncated,
    /// The source cannot be read.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(source: io::Error) -> Fault {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Truncated,
            _ => Fault::Io(source),
        }
    }
}

impl Fault {
    /// Adds the format, and the length of the sound that was read before.
    pub(crate) fn at(self, format: Format, seconds: f64) -> Error {
        match self {
            Fault::Unsupported(what) => Error::Unsupported { what },
            Fault::Malformed(what) => Error::Malformed { format, seconds, what },
            Fault::NotFinite => Error::NotFinite { format, seconds },
            Fault::Truncated => Error::Truncated { format, seconds },
            Fault::Io(source) => Error::Io { seconds, source },
        }
    }
}

/// Returns a fault of a file that breaks its format.
pub(crate) fn malformed<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Malformed(what.into()))
}
