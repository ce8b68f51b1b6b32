//! `tune --json`.

use std::path::Path;

use serde::Serialize;
use weighbridge::engine::backend;
use weighbridge::quant;

/// What `weighbridge tune --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tune {
    processor: String,
    threads: usize,
    seconds: f64,
    /// For matrices whose codes have 8 bits; null where there is nothing to choose.
    bytes: Option<Choice>,
    /// For all others; null where there is nothing to choose.
    others: Option<Choice>,
    /// The file that it was written to; null if it was not.
    written: Option<String>,
}

/// The ways for some matrices.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Choice {
    /// All of them, that of the built-in table first.
    tried: Vec<Tried>,
    /// The way that was chosen.
    best: Way,
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
    pub(crate) fn of(
        found: Option<&backend::Tuned>,
        threads: usize,
        seconds: f64,
        written: Option<&Path>,
    ) -> Tune {
        Tune {
            processor: quant::processor(),
            threads,
            seconds,
            bytes: found.map(|found| Choice::of(&found.bytes)),
            others: found.map(|found| Choice::of(&found.others)),
            written: written.map(|path| path.display().to_string()),
        }
    }
}

impl Choice {
    fn of(choice: &backend::Choice) -> Choice {
        let way = |way: quant::Way| Way { ahead: way.ahead, streams: way.streams };
        let tried = choice.tried.iter().map(|t| Tried {
            way: way(t.way),
            bytes_per_second: t.bytes_per_second,
            ratio: t.ratio,
        });
        Choice { tried: tried.collect(), best: way(choice.best) }
    }
}
