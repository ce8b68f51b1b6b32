//! `tune --json`.

use std::path::Path;

use serde::Serialize;
use weighbridge::engine::backend::Tuned;
use weighbridge::quant::Access;

/// What `weighbridge tune --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tune {
    processor: String,
    threads: usize,
    seconds: f64,
    /// The ways that were tried; empty where there is nothing to choose.
    tried: Vec<Tried>,
    /// The way that was chosen; null where there is nothing to choose.
    best: Option<Way>,
    /// The file that it was written to; null if it was not.
    written: Option<String>,
}

/// A way that was tried.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Tried {
    way: Way,
    /// Bytes of weights.
    bytes_per_second: f64,
    /// Its speed over that of the way in the built-in table.
    ratio: f64,
}

/// A way of reading weights.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Way {
    /// The prefetch distance in bytes; 0 prefetches nothing.
    ahead: usize,
    /// The number of places that a thread reads in turns.
    streams: usize,
}

impl Tune {
    pub(crate) fn of(found: Option<&Tuned>, threads: usize, seconds: f64, written: Option<&Path>) -> Tune {
        let way = |access: Access| Way { ahead: access.ahead, streams: access.streams };
        let tried = found.into_iter().flat_map(|found| &found.tried).map(|t| Tried {
            way: way(t.access),
            bytes_per_second: t.bytes_per_second,
            ratio: t.ratio,
        });
        Tune {
            processor: weighbridge::quant::processor().clone(),
            threads,
            seconds,
            tried: tried.collect(),
            best: found.map(|found| way(found.best)),
            written: written.map(|path| path.display().to_string()),
        }
    }
}
