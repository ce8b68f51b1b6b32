//! Errors of loading.

use std::fmt;
use std::io;

use checkpoint::Location;
use tensor::{Diagnostic, Diagnostics};

use crate::obstacle::Obstacle;

/// Errors between a checked plan and filled slots.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("could not read {bytes} bytes of `{location}` at offset {offset}: {source}")]
    Io {
        /// The file.
        location: Location,
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
        /// Why.
        source: io::Error,
    },
    /// A file has changed since it was opened, or the system cannot tell.
    #[error(transparent)]
    Changed(#[from] checkpoint::Error),
    /// The plan wants something that the checkpoint does not have: it was not compiled against it.
    #[error("`{param}` comes from entry {entry}, which the checkpoint does not have")]
    NoSource {
        /// The parameter.
        param: String,
        /// The place of the entry among the checkpoint's.
        entry: usize,
    },
    /// Out of memory.
    #[error("could not allocate {bytes} bytes for weights: {source}")]
    Memory {
        /// How much.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// Sources that must agree do not.
    #[error(
        "`{param}` has one `{role}` for all its parts, and those of {} differ (byte {at})",
        sources.join(", ")
    )]
    Disagree {
        /// The parameter.
        param: String,
        /// The plane.
        role: &'static str,
        /// The sources of the plane.
        sources: Vec<String>,
        /// Where in the plane.
        at: u64,
    },
    /// Parameters that hold the same bytes of an entry hold them differently.
    #[error(
        "`{entry}` cannot be rebuilt: `{param}` holds other bytes of it than what was seen before (byte {at})"
    )]
    Conflict {
        /// The entry.
        entry: String,
        /// The last parameter that holds some of it.
        param: String,
        /// Where in a plane of the entry.
        at: u64,
    },
    /// The plans belong to several checkpoints, where one is needed.
    #[error("the plans belong to different checkpoints")]
    SeveralCheckpoints,
    /// The loaded tensors do not hold all of the entries that they came from.
    #[error("the ranks do not hold the whole checkpoint: {} missing", missing.join(", "))]
    NotWhole {
        /// The planes of entries that are not held whole.
        missing: Vec<String>,
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
        /// The scheme that there is.
        from: String,
        /// The scheme wanted.
        to: String,
    },
    /// A scheme's data cannot be meant.
    #[error("`{param}`: {data}")]
    Data {
        /// The parameter.
        param: String,
        /// The problem.
        data: quant::BadData,
    },
    /// A stage from outside cannot change these values.
    #[error("`{param}`: the stage `{stage}` cannot change it: {why}")]
    Stage {
        /// The parameter.
        param: String,
        /// Name of the stage.
        stage: String,
        /// Why not.
        why: String,
    },
    /// A parameter to be encoded in blocks holds infinities or NaN.
    #[error("`{param}`: {count} of its values are not finite, which `{to}` cannot hold")]
    NotFinite {
        /// The parameter.
        param: String,
        /// The scheme.
        to: String,
        /// How many.
        count: u64,
    },
    /// A function that the plan applies has no value for some.
    #[error("`{param}`: {count} of its values have no `{function}`")]
    Undefined {
        /// The parameter.
        param: String,
        /// The function.
        function: String,
        /// How many.
        count: u64,
    },
    /// A cast would make finite values infinite.
    #[error("`{param}`: {count} of its values are too large for `{to}`")]
    Overflow {
        /// The parameter.
        param: String,
        /// The scheme.
        to: String,
        /// How many.
        count: u64,
    },
    /// Buffers for a parameter do not fit.
    #[error("`{param}` needs {wanted} bytes of buffers, but the memory limit is {memory}")]
    LittleMemory {
        /// The parameter that takes the most.
        param: String,
        /// Bytes, cut as fine as can be.
        wanted: u64,
        /// The limit.
        memory: u64,
        /// The least limit that would do.
        least: u64,
    },
    /// The caller's sink has no place for a parameter, or memory that does not fit.
    #[error("no memory for `{param}`: {why}")]
    Sink {
        /// The parameter.
        param: String,
        /// The sink's error, or the fault of the memory that it lent: wanted and found.
        why: String,
    },
    /// The caller's sink could not write a parameter.
    #[error("could not write `{param}`: {why}")]
    Write {
        /// The parameter.
        param: String,
        /// The sink's error.
        why: String,
    },
    /// The caller's sink could not finish: the bytes given to it may not be durable.
    #[error("could not finish what was written: {why}")]
    Unfinished {
        /// The sink's error.
        why: String,
    },
    /// The caller ended it.
    #[error("cancelled: {done} of {total} bytes were loaded")]
    Cancelled {
        /// Bytes of slots that were filled.
        done: u64,
        /// Bytes of slots that were to be filled.
        total: u64,
    },
    /// The weights in memory cannot be updated from this plan. Nothing was written.
    #[error("{}\n{}", NOTHING_UPDATED, obstacles.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Update {
        /// Everything that is in the way.
        obstacles: Vec<Obstacle>,
    },
    /// An update that went straight to its place failed on the way.
    #[error("{source}\nnew: {}\nneither new nor old: {}", names(written), names(broken))]
    Partly {
        /// Parameters that have their new values.
        written: Vec<String>,
        /// Parameters that may be part new and part old.
        broken: Vec<String>,
        /// The cause.
        source: Box<Error>,
    },
}

/// As people read it, hints included: this is what a `main` that ends with one prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostics(), f)
    }
}

impl Error {
    /// Returns each problem with its hints.
    pub fn diagnostics(&self) -> Diagnostics {
        let hint = match self {
            Error::Changed(error) => return error.diagnostics(),
            Error::Update { obstacles } => {
                let said =
                    |obstacle: &Obstacle| Diagnostic { what: obstacle.to_string(), hints: obstacle.hints() };
                return obstacles.iter().map(said).collect::<Diagnostics>().under(NOTHING_UPDATED);
            }
            Error::Partly { source, .. } => {
                let all = "without a limit on memory an update is all or nothing";
                let hints = source.hints().into_iter().chain([all.to_owned()]);
                return Diagnostics::of(self, hints);
            }
            Error::Disagree { .. } => "use a layout that keeps them apart, such as `canonical`".to_owned(),
            Error::SeveralCheckpoints => "open the checkpoint once, and plan all ranks from it".to_owned(),
            Error::NotFinite { .. } => "keep it in f32, bf16 or f16".to_owned(),
            Error::Overflow { .. } => "use bf16 or f32 for it, or allow overflow".to_owned(),
            Error::LittleMemory { least, .. } => {
                format!("this load needs at least {least} bytes")
            }
            _ => return Diagnostics::of(self, None),
        };
        Diagnostics::of(self, Some(hint))
    }

    /// Returns what to do about it.
    pub fn hints(&self) -> Vec<String> {
        self.diagnostics().hints()
    }
}

const NOTHING_UPDATED: &str = "nothing was updated:";

fn names(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
