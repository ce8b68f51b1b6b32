//! `cache … --json`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use weighbridge::Checkpoint;
use weighbridge::runtime::CopyStatus;
use weighbridge::store::{self, Listed, Stale};

/// What `weighbridge cache list`, `verify`, `prune` and `clear` print with `--json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cache {
    folder: String,
    /// The bytes that all copies together may have.
    limit_bytes: u64,
    /// The bytes that they have.
    bytes: u64,
    /// The copies, the last used first.
    entries: Vec<Entry>,
    /// The copies that were removed: all that `clear` and `prune` removed, and those that `verify` found to be something else than
    /// what was built.
    removed: Vec<Entry>,
}

/// A copy of loaded weights.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Entry {
    key: String,
    state: State,
    bytes: u64,
    /// Where its model was when it was built; null if it is unfinished.
    source: Option<String>,
    /// The layout of its parameters; null if it is unfinished.
    layout: Option<String>,
    /// When it was built, in seconds since 1970; null if it is unfinished.
    built_seconds: Option<u64>,
    /// When it was last used or worked on, in seconds since 1970.
    used_seconds: u64,
    /// The copies of all ranks of one mesh, if it is such a set; otherwise null.
    ranks: Option<Ranks>,
}

/// The copies of a set.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Ranks {
    /// The copies that are ready. None is used before all are.
    ready: usize,
    /// All of them.
    of: usize,
}

impl From<store::Ranks> for Ranks {
    fn from(store::Ranks { ready, of }: store::Ranks) -> Ranks {
        Ranks { ready, of }
    }
}

/// Where a copy stands.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum State {
    /// There is none.
    Absent,
    /// Another process is building it.
    Building,
    /// A process that was building it has ended; the next one continues.
    Partial,
    Ready,
    /// Its file may be another than the one that was verified: it is verified before it is used.
    Doubtful,
}

impl From<store::State> for State {
    fn from(state: store::State) -> State {
        match state {
            store::State::Building => State::Building,
            store::State::Partial => State::Partial,
            store::State::Ready => State::Ready,
            store::State::Doubtful => State::Doubtful,
            _ => State::Absent,
        }
    }
}

impl Cache {
    pub(crate) fn of(cache: &store::Cache, limit: u64, entries: &[Listed], removed: &[Listed]) -> Cache {
        let all = |list: &[Listed]| list.iter().map(Entry::of).collect();
        Cache {
            folder: cache.folder().display().to_string(),
            limit_bytes: limit,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            entries: all(entries),
            removed: all(removed),
        }
    }
}

impl Entry {
    fn of(entry: &Listed) -> Entry {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Entry {
            key: entry.key.to_string(),
            state: entry.state.into(),
            bytes: entry.bytes,
            source: entry.source.clone(),
            layout: entry.layout.clone(),
            built_seconds: entry.built.map(seconds),
            used_seconds: seconds(entry.used),
            ranks: entry.ranks.map(Ranks::from),
        }
    }
}

/// What `weighbridge cache status --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CacheStatus {
    /// The furthest tier that the model is at.
    tier: Tier,
    source: Source,
    runtime_ready: RuntimeReady,
    next_start: NextStart,
    /// Other copies of this model in the cache, which the next start does not use.
    others: Vec<Other>,
}

/// How far weights are on their way to a runtime.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Tier {
    /// Floats of 16 bits or more.
    Source,
    /// Some weights have fewer than 16 bits.
    Compressed,
    /// This machine has a valid copy.
    RuntimeReady,
}

impl From<store::Tier> for Tier {
    fn from(tier: store::Tier) -> Tier {
        match tier {
            store::Tier::Source => Tier::Source,
            store::Tier::Compressed => Tier::Compressed,
            store::Tier::RuntimeReady => Tier::RuntimeReady,
        }
    }
}

/// The files of the model.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Source {
    /// `source` or `compressed`, as the encodings say.
    tier: Tier,
    path: String,
    format: String,
    files: usize,
    bytes: u64,
    /// Of the weights; null if there are none.
    bits_per_weight: Option<f64>,
    /// The encodings of the weights, the one with the most elements first. Integers are not weights.
    encodings: Vec<Share>,
}

/// The tensors of one encoding.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Share {
    encoding: String,
    tensors: usize,
    elements: u64,
    bytes: u64,
}

/// The copy that a start maps.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RuntimeReady {
    state: State,
    /// Null if there can be none: the model's files cannot be told from what they were before.
    key: Option<String>,
    /// The length that it has or would have.
    bytes: u64,
    /// The bytes that are on the disk.
    bytes_stored: u64,
    layout: String,
    /// Where it is or would be; null if there can be none.
    path: Option<String>,
}

/// The next start with the same options.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum NextStart {
    /// It maps the copy.
    MapsCopy,
    /// It reads the copy whole. It maps the copy if the digest matches, and loads the model's files otherwise.
    VerifiesCopy,
    /// It loads the model's files.
    LoadsFiles,
}

impl From<store::Start> for NextStart {
    fn from(start: store::Start) -> NextStart {
        match start {
            store::Start::Maps => NextStart::MapsCopy,
            store::Start::Verifies => NextStart::VerifiesCopy,
            store::Start::Loads => NextStart::LoadsFiles,
        }
    }
}

/// A copy that the next start does not use.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Other {
    key: String,
    bytes: u64,
    why: Why,
    /// The copies of all ranks of one mesh, if it is such a set; otherwise null.
    ranks: Option<Ranks>,
}

/// Why a copy is not used.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Why {
    /// The model's files have changed since it was built.
    FilesChanged,
    OtherInstructionSet,
    OtherLayout,
    /// Another version built it, or it is for other encodings or another rank.
    OtherPlan,
}

impl From<Stale> for Why {
    fn from(stale: Stale) -> Why {
        match stale {
            Stale::FilesChanged => Why::FilesChanged,
            Stale::OtherIsa => Why::OtherInstructionSet,
            Stale::OtherLayout => Why::OtherLayout,
            _ => Why::OtherPlan,
        }
    }
}

impl CacheStatus {
    pub(crate) fn of(checkpoint: &Checkpoint, bytes: u64, copy: &CopyStatus) -> CacheStatus {
        let share = |share: &store::Share| Share {
            encoding: share.encoding.clone(),
            tensors: share.tensors,
            elements: share.elements,
            bytes: share.bytes,
        };
        let other = |(listed, stale): &(Listed, Stale)| Other {
            key: listed.key.to_string(),
            bytes: listed.bytes,
            why: (*stale).into(),
            ranks: listed.ranks.map(Ranks::from),
        };
        CacheStatus {
            tier: copy.tiers.now().into(),
            source: Source {
                tier: copy.tiers.files().into(),
                path: checkpoint.location().to_string(),
                format: checkpoint.format().to_string(),
                files: checkpoint.files().len(),
                bytes,
                bits_per_weight: copy.weights.bits(),
                encodings: copy.weights.encodings.iter().map(share).collect(),
            },
            runtime_ready: RuntimeReady {
                state: copy.state.into(),
                key: copy.key.map(|key| key.to_string()),
                bytes: copy.bytes,
                bytes_stored: copy.stored,
                layout: copy.layout.name().to_owned(),
                path: copy.path.as_ref().map(|path| path.display().to_string()),
            },
            next_start: copy.start.into(),
            others: copy.others.iter().map(other).collect(),
        }
    }
}
