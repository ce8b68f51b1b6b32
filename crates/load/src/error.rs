//! Errors of loading.

use std::io;
use std::path::PathBuf;

/// What can go wrong between a checked plan and filled slots.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("could not read {bytes} bytes of `{}` at offset {offset}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
        /// Why.
        source: io::Error,
    },
    /// The memory is not to be had.
    #[error("could not allocate {bytes} bytes for weights: {source}")]
    Memory {
        /// How much.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// Sources that must agree do not.
    #[error("`{param}`: the sources of its `{role}` plane must be equal and are not (byte {at})")]
    Disagree {
        /// The parameter.
        param: String,
        /// The plane.
        role: &'static str,
        /// Where in the plane.
        at: u64,
    },
    /// The plan asks for more than this machine can address.
    #[error("`{param}` does not fit this machine's address space")]
    TooLarge {
        /// The parameter.
        param: String,
    },
    /// The plan asks for a change that no codec makes.
    #[error("`{param}`: no codec turns {from} into {to}")]
    Codec {
        /// The parameter.
        param: String,
        /// What there is.
        from: String,
        /// What is wanted.
        to: String,
    },
}
